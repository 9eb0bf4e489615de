"""Transforms of transforms: every pair agrees, to any depth, with closures over arrays and over outer tracers."""

import itertools
import math

import numpy as np
import pytest
import quabla as qb
from compare import assert_close, assert_same_bits

POINTS = (-1.1, 0.3, 0.8)


def f(x):
    return qb.exp(qb.sin(x))


def derivatives_of_f(x):
    """The first four derivatives of exp(sin x)."""
    s, c = math.sin(x), math.cos(x)
    e = math.exp(s)
    return [
        c * e,
        (c**2 - s) * e,
        (c**3 - 3 * s * c - c) * e,
        (c**4 - 6 * s * c**2 - 4 * c**2 + 3 * s**2 + s) * e,
    ]


# ---------------------------------------------------------------------------------------------------- nested to depth 4

FORWARD = "forward"
REVERSE = "reverse"


def differentiated(g, mode):
    if mode == REVERSE:
        return qb.grad(g)
    return lambda x: qb.jvp(g, (x,), (qb.ones_like(x),))[1]


@pytest.mark.parametrize(
    "modes", list(itertools.product((FORWARD, REVERSE), repeat=4)), ids=lambda m: "-".join(x[0] for x in m)
)
@pytest.mark.parametrize("x", POINTS)
def test_nested_derivatives(modes, x):
    """All sixteen orders of forward and reverse, against the analytic derivatives."""
    g = f
    for order, mode in enumerate(modes):
        g = differentiated(g, mode)
        assert g(qb.array(x)).item() == pytest.approx(derivatives_of_f(x)[order], rel=1e-12), f"order {order + 1}"


@pytest.mark.parametrize("x", POINTS)
def test_nested_derivatives_compiled_and_batched(x):
    g = f
    for order in range(4):
        g = qb.grad(g)
        expected = derivatives_of_f(x)[order]
        assert qb.jit(g)(x).item() == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(np.asarray(qb.vmap(g)(qb.array([x, x, x]))), expected, rtol=1e-12)
        assert qb.jit(qb.vmap(g))(qb.array([x]))[0].item() == pytest.approx(expected, rel=1e-12)
    g = f
    for order in range(4):
        g = qb.jit(qb.grad(qb.jit(g)))
        assert g(x).item() == pytest.approx(derivatives_of_f(x)[order], rel=1e-12)


def test_second_derivatives_in_every_mode():
    """sin(x) x^2: the analytic second derivative within 1e-14."""

    def g(x):
        return qb.sin(x) * x**2

    x = 0.9
    analytic = 2 * math.sin(x) + 4 * x * math.cos(x) - x**2 * math.sin(x)
    one = qb.array(1.0)
    ways = [
        qb.grad(qb.grad(g))(x),
        qb.jvp(qb.grad(g), (x,), (1.0,))[1],
        qb.grad(lambda t: qb.jvp(g, (t,), (one,))[1])(x),
        qb.jvp(lambda t: qb.jvp(g, (t,), (one,))[1], (x,), (1.0,))[1],
        qb.hessian(g)(x),
        qb.jacfwd(qb.jacrev(g))(x),
        qb.jacrev(qb.jacfwd(g))(x),
        qb.vmap(qb.hessian(g))(qb.array([x]))[0],
        qb.linearize(qb.grad(g), qb.array(x))[1](1.0),
        qb.vjp(qb.grad(g), qb.array(x))[1](1.0)[0],
    ]
    for got in ways:
        assert got.item() == pytest.approx(analytic, rel=1e-14)


# -------------------------------------------------------------------------------------------------- pairs of transforms


def vector(x):
    return qb.stack([qb.sin(x[0] * x[1]), x[1] * qb.exp(x[2]), qb.tanh(x[0]) + x[2] ** 3, qb.sum(x) * x[0]])


def scalar(x):
    return qb.sum(vector(x) ** 2)


X = np.array([0.4, -0.7, 0.9])
V = np.array([0.3, 1.2, -0.5])


def test_derivatives_of_a_vector_function_agree():
    x, v = qb.array(X), qb.array(V)
    jacobian = np.asarray(qb.jacobian(vector)(x))
    for transform in (qb.jacfwd, qb.jacrev, qb.jit(qb.jacobian(vector)) and (lambda g: qb.jit(qb.jacobian(g)))):
        np.testing.assert_allclose(np.asarray(transform(vector)(x)), jacobian, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(np.asarray(qb.jvp(vector, (x,), (v,))[1]), jacobian @ V, rtol=1e-13)
    np.testing.assert_allclose(np.asarray(qb.linearize(vector, x)[1](v)), jacobian @ V, rtol=1e-13)
    w = np.array([1.0, -2.0, 0.5, 0.1])
    np.testing.assert_allclose(np.asarray(qb.vjp(vector, x)[1](qb.array(w))[0]), w @ jacobian, rtol=1e-13)
    columns = qb.vmap(lambda e: qb.jvp(vector, (x,), (e,))[1], out_axes=1)(qb.eye(3))
    np.testing.assert_allclose(np.asarray(columns), jacobian, rtol=1e-13, atol=1e-15)
    pullback = qb.vjp(vector, x)[1]
    rows = qb.vmap(lambda e: pullback(e)[0])(qb.eye(4))
    np.testing.assert_allclose(np.asarray(rows), jacobian, rtol=1e-13, atol=1e-15)


def test_hessians_of_a_scalar_function_agree():
    x, v = qb.array(X), qb.array(V)
    hessian = np.asarray(qb.hessian(scalar)(x))
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-13)
    for outer, inner in itertools.product((qb.jacfwd, qb.jacrev), repeat=2):
        np.testing.assert_allclose(np.asarray(outer(inner(scalar))(x)), hessian, rtol=1e-12, atol=1e-14)
    products = {
        "jvp of grad": qb.jvp(qb.grad(scalar), (x,), (v,))[1],
        "grad of jvp": qb.grad(lambda x: qb.jvp(scalar, (x,), (v,))[1])(x),
        "grad of product": qb.grad(lambda x: qb.dot(qb.grad(scalar)(x), v))(x),
        "vjp of grad": qb.vjp(qb.grad(scalar), x)[1](v)[0],
        "jvp of vjp": qb.jvp(lambda x: qb.vjp(scalar, x)[1](1.0)[0], (x,), (v,))[1],
        "linearize of grad": qb.linearize(qb.grad(scalar), x)[1](v),
        "jit": qb.jit(lambda x, v: qb.jvp(qb.grad(scalar), (x,), (v,))[1])(x, v),
        "vmap": qb.vmap(lambda x, v: qb.jvp(qb.grad(scalar), (x,), (v,))[1])(qb.stack([x, x]), qb.stack([v, v]))[1],
    }
    for name, got in products.items():
        np.testing.assert_allclose(np.asarray(got), hessian @ V, rtol=1e-12, err_msg=name)


def test_third_order_tensor():
    third = np.asarray(qb.jacobian(qb.hessian(scalar))(qb.array(X)))
    assert third.shape == (3, 3, 3)
    for axes in itertools.permutations(range(3)):
        np.testing.assert_allclose(third.transpose(axes), third, rtol=1e-11, atol=1e-12)


TRANSFORMS = {
    "jit": lambda g: qb.jit(g),
    "jvp": lambda g: lambda x: qb.jvp(g, (x,), (qb.ones_like(x),))[1],
    "grad": lambda g: lambda x: qb.grad(lambda y: qb.sum(g(y)))(x),
    "vmap": lambda g: lambda x: qb.vmap(g)(qb.stack([x, 2.0 * x]))[0],
    "linearize": lambda g: lambda x: qb.linearize(g, x)[1](qb.ones_like(x)),
    "vjp": lambda g: lambda x: (lambda out, pull: pull(qb.ones_like(out))[0])(*qb.vjp(g, x)),
    "jacobian": lambda g: lambda x: qb.sum(qb.jacobian(g)(x), axis=0),
    "value_and_grad": lambda g: lambda x: qb.value_and_grad(lambda y: qb.sum(g(y)))(x)[1],
}
NUMERIC = {"jit": 0, "vmap": 0}


def elementwise(x):
    """Its derivative along all ones, its gradient and the sum of its Jacobian's rows are all the same vector."""
    return qb.sin(x) * qb.exp(0.5 * x)


@pytest.mark.parametrize("inner", TRANSFORMS)
@pytest.mark.parametrize("outer", TRANSFORMS)
def test_every_pair(outer, inner):
    """Every transform of every transform: derivatives of order 0, 1 or 2 of an elementwise function."""
    order = (outer not in NUMERIC) + (inner not in NUMERIC)
    x = np.array([0.2, -1.0, 0.7])
    growth, amplitude = 0.5 + 1j, 1.0  # sin(x) e^(x/2) = Im e^((1/2 + i) x)
    expected = (amplitude * growth**order * np.exp(growth * x)).imag
    got = TRANSFORMS[outer](TRANSFORMS[inner](elementwise))(qb.array(x))
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-13)
    compiled = qb.jit(TRANSFORMS[outer](TRANSFORMS[inner](elementwise)))(qb.array(x))
    np.testing.assert_allclose(np.asarray(compiled), expected, rtol=1e-13)


# ------------------------------------------------------------------------------------------------------------- closures


def test_closure_over_an_eager_array():
    w = qb.array([1.0, 2.0, 3.0])
    gradient = qb.grad(lambda x: qb.sum(w * x**2))
    assert gradient(qb.ones(3)).tolist() == [2.0, 4.0, 6.0]
    assert qb.vmap(lambda x: w * x)(qb.array([1.0, 10.0])).tolist() == [[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]


def test_closure_over_an_outer_tracer():
    """d/dw (d/dx sin(x w))^2 at x = 0.3, w = 1.2: the inner derivative is a closure over w."""

    def squared_slope(w):
        return qb.grad(lambda x: qb.sin(x * w))(0.3) ** 2

    expected = 1.8173126966773971
    assert qb.grad(squared_slope)(1.2).item() == pytest.approx(expected, rel=1e-14)
    assert qb.jit(qb.grad(squared_slope))(1.2).item() == pytest.approx(expected, rel=1e-14)
    assert qb.jvp(squared_slope, (1.2,), (1.0,))[1].item() == pytest.approx(expected, rel=1e-14)
    assert qb.vmap(qb.grad(squared_slope))(qb.array([1.2, 0.1]))[0].item() == pytest.approx(expected, rel=1e-14)
    assert qb.grad(lambda w: qb.jvp(lambda x: qb.sin(x * w), (0.3,), (1.0,))[1] ** 2)(1.2).item() == pytest.approx(
        expected, rel=1e-14
    )
    assert qb.grad(lambda w: qb.linearize(lambda x: qb.sin(x * w), qb.array(0.3))[1](1.0) ** 2)(
        1.2
    ).item() == pytest.approx(expected, rel=1e-14)
    assert qb.grad(lambda w: qb.vjp(lambda x: qb.sin(x * w), qb.array(0.3))[1](1.0)[0] ** 2)(
        1.2
    ).item() == pytest.approx(expected, rel=1e-14)
    assert qb.grad(lambda w: qb.vmap(qb.grad(lambda x: qb.sin(x * w)))(qb.array([0.3]))[0] ** 2)(
        1.2
    ).item() == pytest.approx(expected, rel=1e-14)


def test_closures_over_several_levels():
    """d/da d/db d/dc of a b^2 c^3 e^(abc), each inner function closing over all outer variables and an array."""
    k = qb.array(1.0)

    def by_a(a):
        def by_b(b):
            def by_c(c):
                return k * a * b**2 * c**3 * qb.exp(a * b * c)

            return qb.grad(by_c)(0.7)

        return qb.grad(by_b)(0.4)

    def flat(a, b, c):
        return a * b**2 * c**3 * qb.exp(a * b * c)

    expected = qb.grad(qb.grad(qb.grad(flat, argnums=2), argnums=1), argnums=0)(1.1, 0.4, 0.7).item()
    for way in (qb.grad(by_a), qb.jit(qb.grad(by_a)), qb.jacfwd(by_a)):
        assert way(1.1).item() == pytest.approx(expected, rel=1e-13)
    assert qb.vmap(qb.grad(by_a))(qb.array([1.1, 2.0]))[0].item() == pytest.approx(expected, rel=1e-13)


def test_a_closure_over_a_tracer_through_jit():
    def outer(w):
        inner = qb.jit(lambda x: x * w)
        return inner(2.0) + inner(qb.array(3.0)) + qb.jit(lambda: w)()

    assert qb.grad(outer)(4.0).item() == 6.0
    assert qb.jit(outer)(4.0).item() == 24.0


def test_a_closure_by_vmap_over_a_tracer():
    def outer(w):
        return qb.sum(qb.vmap(lambda x: x * w)(qb.array([1.0, 2.0, 3.0])))

    assert qb.grad(outer)(5.0).item() == 6.0
    assert qb.vmap(outer)(qb.array([1.0, 2.0])).tolist() == [6.0, 12.0]


def test_traced_results_of_inner_linear_maps():
    """A pullback made inside a trace may be used there any number of times."""

    def outer(x):
        _, pullback = qb.vjp(qb.sin, x)
        return pullback(1.0)[0] + pullback(2.0)[0]

    x = 0.6
    assert outer(qb.array(x)).item() == pytest.approx(3 * math.cos(x), rel=1e-15)
    assert qb.jit(outer)(x).item() == pytest.approx(3 * math.cos(x), rel=1e-15)
    assert qb.grad(outer)(x).item() == pytest.approx(-3 * math.sin(x), rel=1e-15)
    _, pullback = qb.vjp(qb.sin, qb.array(x))
    assert qb.grad(lambda ct: pullback(ct)[0])(1.0).item() == pytest.approx(math.cos(x), rel=1e-15)
    assert qb.vmap(lambda ct: pullback(ct)[0])(qb.ones(3)).shape == (3,)


def test_concrete_calls_inside_a_trace_run_at_once():
    seen = []

    def g(x):
        table = qb.jit(lambda t: qb.exp(t))(qb.array([0.0, 1.0]))
        seen.append(table.tolist())
        return x * table[1]

    assert qb.grad(g)(1.0).item() == pytest.approx(math.e)
    assert seen[0] == [1.0, pytest.approx(math.e)]


def test_numpy_arrays_meet_tracers():
    a = np.array([1.0, 2.0])
    assert qb.grad(lambda x: qb.sum(a * x))(qb.ones(2)).tolist() == [1.0, 2.0]
    assert qb.grad(lambda x: qb.sum(x * a))(qb.ones(2)).tolist() == [1.0, 2.0]
    assert qb.jit(lambda x: a @ x)(qb.ones(2)).item() == 3.0
    assert qb.jit(lambda x: np.arange(2) * x)(qb.ones(2, dtype=qb.float32)).dtype == qb.float32


# ---------------------------------------------------------------------------------------------------- sizes of programs


def lines(fun, *args):
    return len(qb.jit(fun).lower(*args).as_text().splitlines())


@pytest.mark.parametrize(
    "g", [lambda x: qb.sin(x) ** 2, f, lambda x: qb.tanh(x) * x**3], ids=["sin^2", "exp sin", "tanh x^3"]
)
def test_vmap_does_not_grow_with_the_number_of_points(g):
    second = qb.grad(qb.grad(g))
    batched = {n: lines(qb.vmap(second), qb.linspace(0.0, 1.0, n)) for n in (4, 16, 1000)}
    assert len(set(batched.values())) == 1, batched

    def loop(x):
        return qb.stack([second(x[i]) for i in range(x.shape[0])])

    looped = {n: lines(loop, qb.linspace(0.0, 1.0, n)) for n in (4, 8, 16)}
    assert looped[16] - looped[8] == 2 * (looped[8] - looped[4]), "a loop over points grows linearly"
    assert looped[8] > looped[4]


def test_float32_programs_stay_float32():
    """No node of another floating dtype anywhere, whatever the transforms; Python numbers are weak."""

    def network(p, x):
        h = qb.tanh(x @ p["w"] + p["b"]) * 0.5
        return qb.mean(qb.where(h > 0.0, h, 0.1 * h) ** 2 + qb.softplus(h) / 3 + qb.sqrt(qb.var(h) + 1e-3)) * math.pi

    p = {"w": qb.ones((3, 4), dtype=qb.float32), "b": qb.zeros(4, dtype=qb.float32)}
    x = qb.ones((5, 3), dtype=qb.float32)
    for g in (
        network,
        qb.value_and_grad(network),
        qb.hessian(network),
        qb.jacfwd(network, argnums=1),
        qb.vmap(network, in_axes=(None, 0)),
    ):
        lowered = qb.jit(g).lower(p, x)
        assert "float64" not in lowered.as_text()
        assert "float64" not in lowered.program.text(False)
        assert {str(leaf.dtype) for leaf in qb.tree.leaves(g(p, x))} == {"float32"}


# ------------------------------------------------------------------------------------------------- the figures of PINNs


def u(x, w):
    return qb.sin(x * w)


def train(residual_loss):
    x, w = qb.linspace(0.05, 0.95, 8), qb.array(2.5)
    optimizer = qb.optim.Adam(learning_rate=0.05)
    state = optimizer.init(w)
    step = qb.jit(qb.value_and_grad(residual_loss))
    for _ in range(300):
        value, gradient = step(w, x)
        w, state = optimizer.update(w, gradient, state)
    return f"{w.item():.6f}", value.item()


def test_the_first_example_by_vmap():
    u_xx = qb.vmap(qb.grad(qb.grad(u)), in_axes=(0, None))

    def loss(w, x):
        return qb.mean((u_xx(x, w) + math.pi**2 * qb.sin(math.pi * x)) ** 2)

    w, value = train(loss)
    assert w == "3.141593"
    assert value <= 1e-12


def test_the_first_example_by_a_loop_over_points():
    u_xx = qb.grad(qb.grad(u))

    def loss(w, x):
        residuals = [u_xx(x[i], w) + math.pi**2 * qb.sin(math.pi * x[i]) for i in range(x.shape[0])]
        return qb.mean(qb.stack(residuals) ** 2)

    w, value = train(loss)
    assert w == "3.141593"
    assert value <= 1e-12


def test_parameters_closed_over_or_passed():
    """An MLP PINN with its parameters closed over: bitwise the losses and gradients of one that they are passed to."""
    rng = np.random.default_rng(3)
    widths = [1, 16, 16, 1]
    params = [
        {"w": qb.array(rng.normal(size=(a, b)) / math.sqrt(a)), "b": qb.zeros(b)} for a, b in itertools.pairwise(widths)
    ]
    x = qb.linspace(0.0, 1.0, 20)

    def network(params, t):
        h = t.reshape(1)
        for layer in params[:-1]:
            h = qb.tanh(h @ layer["w"] + layer["b"])
        return (h @ params[-1]["w"] + params[-1]["b"])[0]

    def passed(params, x):
        u_xx = qb.vmap(qb.grad(qb.grad(network, argnums=1), argnums=1), in_axes=(None, 0))
        return qb.mean((u_xx(params, x) + qb.sin(x)) ** 2)

    def closed_over(params, x):
        u_xx = qb.vmap(qb.grad(qb.grad(lambda t: network(params, t))))
        return qb.mean((u_xx(x) + qb.sin(x)) ** 2)

    histories = []
    for loss in (passed, closed_over):
        p, optimizer, history = params, qb.optim.Adam(learning_rate=1e-2), []
        state = optimizer.init(p)
        step = qb.jit(qb.value_and_grad(loss))
        for _ in range(5):
            value, gradient = step(p, x)
            p, state = optimizer.update(p, gradient, state)
            history.append((value, gradient))
        histories.append(history)
    assert_same_bits(histories[0], histories[1])
    assert histories[0][4][0].item() < histories[0][0][0].item()


def test_vjp_of_vmap_sums_and_vmap_of_grad_keeps():
    x, w = qb.array([1.0, 2.0, 3.0]), qb.array(0.5)
    _, pullback = qb.vjp(lambda w: qb.vmap(u, in_axes=(0, None))(x, w), w)
    each = qb.vmap(qb.grad(u, argnums=1), in_axes=(0, None))(x, w)
    assert each.shape == (3,)
    assert_close(pullback(qb.ones(3))[0], np.asarray(each).sum(), 1e-15)
