"""Taylor mode and the forward Laplacian, against nested derivatives."""

import math

import numpy as np
import pytest
import quabla as qb

FUNCTIONS = {
    "exp(sin x)": lambda x: qb.exp(qb.sin(x)),
    "tanh": qb.tanh,
    "log": qb.log,
    "power": lambda x: x**3.5,
    "integer power": lambda x: x**5,
    "exponent": lambda x: 2.5**x,
    "quotient": lambda x: qb.cos(x) / (1.0 + x * x),
    "sqrt": qb.sqrt,
    "cbrt": qb.cbrt,
    "arctan": qb.arctan,
    "arcsin": qb.arcsin,
    "arccosh": lambda x: qb.arccosh(x + 1.0),
    "atan2": lambda x: qb.atan2(x, 2.0 - x),
    "hypot": lambda x: qb.hypot(x, 1.5),
    "logaddexp": lambda x: qb.logaddexp(x, 2.0 * x),
    "sigmoid erf": lambda x: qb.sigmoid(x) * qb.erf(x),
    "softplus": qb.softplus,
    "gelu": qb.gelu,
    "maximum": lambda x: qb.maximum(x * x, x),
    "where": lambda x: qb.where(x > 0.5, qb.sin(x), qb.log(x)),
    "prod": lambda x: qb.prod(qb.stack([x, x * 2.0, qb.sin(x)])),
    "max": lambda x: qb.max(qb.stack([qb.sin(x), qb.cos(x)])),
    "softmax": lambda x: qb.softmax(qb.stack([x, x * x, 1.0 - x]))[1],
    "norm": lambda x: qb.norm(qb.stack([x, x + 1.0])),
    "dot": lambda x: qb.stack([x, x**2]) @ qb.stack([qb.sin(x), qb.exp(x)]),
    "float32": lambda x: qb.sin(x.astype(qb.float32)).astype(qb.float64) + x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_equal_nested_grad(name):
    f, x = FUNCTIONS[name], 0.7
    expected, nested = [float(f(qb.array(x)))], f
    for _ in range(4):
        nested = qb.grad(nested)
        expected.append(float(nested(x)))
    tolerance = 2e-5 if name == "float32" else 1e-11
    np.testing.assert_allclose([float(d) for d in qb.derivatives(f, x, 4)], expected, rtol=tolerance, atol=tolerance)


def test_high_order_of_known_series():
    values = [float(d) for d in qb.derivatives(lambda x: 1.0 / (1.0 - x), 0.0, 12)]
    np.testing.assert_allclose(values, [math.factorial(k) for k in range(13)], rtol=1e-13)
    values = [float(d) for d in qb.derivatives(qb.exp, 1.0, 15)]
    np.testing.assert_allclose(values, math.e, rtol=1e-13)


def test_jet_follows_a_curved_path():
    def f(x, y):
        return {"a": x * qb.sin(y), "b": x @ y}

    x0, x1, x2 = (qb.array(np.random.default_rng(i).normal(size=3)) for i in range(3))
    y0, y1, y2 = (qb.array(np.random.default_rng(3 + i).normal(size=3)) for i in range(3))

    def along(t):
        return f(x0 + t * x1 + t * t * 0.5 * x2, y0 + t * y1 + t * t * 0.5 * y2)

    out, (first, second) = qb.jet(f, (x0, y0), ([x1, x2], [y1, y2]))
    for key in ("a", "b"):
        path = lambda t, key=key: along(t)[key]
        np.testing.assert_allclose(out[key], path(0.0), rtol=1e-14)
        np.testing.assert_allclose(first[key], qb.jacfwd(path)(0.0), rtol=1e-12)
        np.testing.assert_allclose(second[key], qb.jacfwd(qb.jacfwd(path))(0.0), rtol=1e-12)


def mlp(params, x):
    for w, b in params[:-1]:
        x = qb.tanh(x @ w + b)
    w, b = params[-1]
    return (x @ w + b)[0]


def make_params(widths, seed=0):
    generator = np.random.default_rng(seed)
    return [
        (qb.array(generator.normal(size=(a, b)) / math.sqrt(a)), qb.array(generator.normal(size=b)))
        for a, b in zip(widths, widths[1:])
    ]


def test_derivatives_of_a_network_inside_a_loss():
    params, points = make_params([1, 8, 8, 1]), qb.linspace(-1.0, 1.0, 7)

    def by_jet(params):
        u = lambda x: qb.derivatives(lambda x: mlp(params, x.reshape(1)), x, 4)[4]
        return qb.mean(qb.vmap(u)(points) ** 2)

    def by_grad(params):
        u = qb.grad(qb.grad(qb.grad(qb.grad(lambda x: mlp(params, x.reshape(1))))))
        return qb.mean(qb.vmap(u)(points) ** 2)

    value, grads = qb.value_and_grad(by_jet)(params)
    expected, expected_grads = qb.value_and_grad(by_grad)(params)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for g, e in zip(qb.tree.leaves(grads), qb.tree.leaves(expected_grads)):
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-10)


def test_laplacian_equals_the_trace_of_the_hessian():
    params, points = make_params([3, 16, 16, 1]), qb.array(np.random.default_rng(1).normal(size=(5, 3)))

    def forward(params):
        return qb.vmap(qb.laplacian(lambda x: mlp(params, x)))(points)

    def by_hessian(params):
        return qb.vmap(lambda x: qb.trace(qb.hessian(lambda x: mlp(params, x))(x)))(points)

    np.testing.assert_allclose(forward(params), by_hessian(params), rtol=1e-10, atol=1e-12)
    grads = qb.grad(lambda p: qb.mean(forward(p) ** 2))(params)
    expected = qb.grad(lambda p: qb.mean(by_hessian(p) ** 2))(params)
    for g, e in zip(qb.tree.leaves(grads), qb.tree.leaves(expected)):
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: qb.sum(x**3) * qb.exp(x[0] * x[1]),
        lambda x: qb.norm(x),
        lambda x: qb.logsumexp(x * x),
        lambda x: qb.prod(x),
        lambda x: qb.max(x) * qb.min(x) ** 2,
        lambda x: qb.where(x[0] > 0.0, x[1] ** 2, x[2]) / x[0],
        lambda x: (x.reshape(2, 2) @ qb.sin(x).reshape(2, 2)).sum(),
        lambda x: qb.concat([x, x[::-1] ** 2])[1:6].sum() ** 2,
    ],
)
def test_laplacian_of_other_structures(f):
    x = qb.array([0.7, -0.4, 1.3, 0.9])
    np.testing.assert_allclose(qb.laplacian(f)(x), qb.trace(qb.hessian(f)(x)), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(
        qb.grad(lambda x: qb.laplacian(f)(x))(x),
        qb.grad(lambda x: qb.trace(qb.hessian(f)(x)))(x),
        rtol=1e-9,
        atol=1e-10,
    )


def test_laplacian_in_several_arguments_and_captures():
    x, y = qb.array([0.3, 0.8]), qb.array(0.5)

    def outer(w):
        f = lambda x, y: qb.sum(qb.sin(x * w)) * y**3
        return qb.laplacian(f, argnums=(0, 1))(x, y)

    def by_hand(w):
        return qb.sum(qb.sin(x * w)) * (6.0 * y - w * w * y**3)

    np.testing.assert_allclose(outer(qb.array(1.2)), by_hand(qb.array(1.2)), rtol=1e-13)
    np.testing.assert_allclose(qb.grad(outer)(qb.array(1.2)), qb.grad(by_hand)(qb.array(1.2)), rtol=1e-12)


def test_constant_and_linear_functions_have_zero_laplacian():
    assert qb.laplacian(lambda x: qb.sum(x))(qb.ones(3)).item() == 0.0
    assert qb.laplacian(lambda x: qb.array(2.0))(qb.ones(3)).item() == 0.0


def test_errors():
    with pytest.raises(ValueError, match="scalar.*vmap"):
        qb.derivatives(qb.sin, qb.ones(3), 2)
    with pytest.raises(ValueError, match="order"):
        qb.derivatives(qb.sin, 0.0, -1)
    with pytest.raises(ValueError, match="derivatives: orders go up to 170.*got 171"):
        qb.derivatives(qb.exp, 0.5, 171)
    with pytest.raises(ValueError, match="jet: orders go up to 170.*got 171"):
        qb.jet(qb.exp, (0.5,), ([1.0] + [0.0] * 170,))
    with pytest.raises(ValueError, match="one length"):
        qb.jet(lambda x, y: x * y, (1.0, 2.0), ([1.0], [1.0, 0.0]))
    with pytest.raises(ValueError, match="shape"):
        qb.jet(qb.sin, (qb.ones(2),), ([qb.ones(3)],))
