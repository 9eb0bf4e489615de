"""Each transform by itself: arguments, results, structures, and what it refuses; then test_transforms_compose.py."""

import functools
import inspect
import math

import numpy as np
import pytest
import quabla as qb
from compare import assert_close, assert_same_bits

X, Y = 0.7, -1.3


def f(x, y):
    """A smooth function of two scalars."""
    return qb.sin(x) * y**2 + x


F_X, F_Y = math.cos(X) * Y**2 + 1, 2 * math.sin(X) * Y


def loss(params, x):
    hidden = qb.tanh(x @ params["w"] + params["b"][0])
    return qb.mean(hidden**2)


@pytest.fixture
def params():
    rng = np.random.default_rng(0)
    return {
        "w": qb.array(rng.normal(size=(3, 2))),
        "b": [qb.array(rng.normal(size=2)), None],
        "n": qb.array([1, 2], dtype=qb.int64),
    }


# ----------------------------------------------------------------------------------------------------------------- grad


@pytest.mark.parametrize("argnums", [0, 1, -1, -2, (0,), (0, 1), (1, 0), (-1, 0)])
def test_argnums(argnums):
    parts = (F_X, F_Y)
    expected = tuple(parts[i] for i in argnums) if isinstance(argnums, tuple) else parts[argnums]
    got = qb.grad(f, argnums=argnums)(qb.array(X), qb.array(Y))
    assert isinstance(got, tuple) == isinstance(argnums, tuple)
    assert_close(got, qb.tree.map(qb.array, expected), 1e-15)
    value, got = qb.value_and_grad(f, argnums=argnums)(qb.array(X), qb.array(Y))
    assert value.item() == f(qb.array(X), qb.array(Y)).item()
    assert_close(got, qb.tree.map(qb.array, expected), 1e-15)


def test_python_numbers_are_differentiated():
    assert qb.grad(lambda x: x**3)(2.0).item() == 12.0
    assert qb.grad(lambda x: x**3)(2).item() == 12.0
    assert qb.grad(lambda x: x**3)(2).dtype == qb.float64
    assert qb.grad(lambda t: t[0] * t[1]["a"])((2.0, {"a": 3.0}))[1]["a"].item() == 2.0
    _, tangent = qb.jvp(f, (X, Y), (1.0, 0.0))
    assert tangent.item() == pytest.approx(F_X, rel=1e-15)


def test_gradients_mirror_their_arguments(params):
    x = qb.ones((4, 3))
    gradient = qb.grad(loss)(params, x)
    assert list(gradient) == ["b", "n", "w"] or set(gradient) == {"b", "n", "w"}
    assert gradient["w"].shape == (3, 2)
    assert gradient["b"][0].shape == (2,)
    assert gradient["b"][1] is None
    assert gradient["n"] is None
    by_both = qb.grad(loss, argnums=(0, 1))(params, x)
    assert by_both[1].shape == (4, 3)
    assert_same_bits(by_both[0]["w"], gradient["w"])


def test_gradients_keep_dtypes():
    mixed = {"a": qb.ones(2, dtype=qb.float32), "b": qb.ones(2)}
    gradient = qb.grad(lambda p: qb.sum(p["a"].astype(qb.float64) * p["b"]))(mixed)
    assert gradient["a"].dtype == qb.float32
    assert gradient["b"].dtype == qb.float64


def test_unused_arguments_have_zero_gradients():
    _, gy = qb.grad(lambda x, y: qb.sum(x), argnums=(0, 1))(qb.ones(2), qb.ones((2, 3)))
    assert_same_bits(gy, qb.zeros((2, 3)))
    assert qb.grad(lambda x: qb.array(3.0))(qb.array(1.0)).item() == 0.0
    assert qb.grad(lambda x: 3.0)(1.0).item() == 0.0


def test_has_aux(params):
    def with_aux(p, x):
        value = loss(p, x)
        return value, {"twice": 2.0 * value, "count": 3, "shape": [x, None]}

    x = qb.ones((4, 3))
    gradient, aux = qb.grad(with_aux, has_aux=True)(params, x)
    (value, aux2), gradient2 = qb.value_and_grad(with_aux, has_aux=True)(params, x)
    assert_same_bits(gradient, gradient2)
    assert_same_bits(aux, aux2)
    assert aux["twice"].item() == 2.0 * value.item()
    assert isinstance(aux["count"], qb.Tensor)
    assert aux["shape"][1] is None
    assert_same_bits(aux["shape"][0], x)
    assert_same_bits(gradient["w"], qb.grad(loss)(params, x)["w"])


def test_keyword_arguments():
    def scaled(x, *, scale, shift=0.0):
        return qb.sum(x * scale + shift)

    x = qb.array([1.0, 2.0])
    assert qb.grad(scaled)(x, scale=qb.array(3.0)).tolist() == [3.0, 3.0]
    assert qb.grad(scaled)(x, scale=4.0, shift=qb.ones(2)).tolist() == [4.0, 4.0]
    assert qb.jit(scaled)(x, scale=2.0).item() == 6.0


# -------------------------------------------------------------------------------------------------- jvp, vjp, linearize


def test_jvp():
    out, tangent = qb.jvp(f, (qb.array(X), qb.array(Y)), (qb.array(2.0), qb.array(-1.0)))
    assert out.item() == f(qb.array(X), qb.array(Y)).item()
    assert tangent.item() == pytest.approx(2.0 * F_X - F_Y, rel=1e-15)
    assert qb.jvp(f, [X, Y], [0.0, 0.0])[1].item() == 0.0


def test_jvp_of_trees_and_integers():
    def g(p, n):
        return {"out": p["a"] * n, "n": n + 1}

    n = qb.array([2, 3], dtype=qb.int64)
    out, tangent = qb.jvp(g, ({"a": qb.ones(2)}, n), ({"a": qb.array([1.0, 10.0])}, None))
    assert tangent["out"].tolist() == [2.0, 30.0]
    assert tangent["n"] is None
    assert out["n"].tolist() == [3, 4]


def test_vjp():
    _, pullback = qb.vjp(f, qb.array(X), qb.array(Y))
    for ct in (1.0, qb.array(1.0)):
        gx, gy = pullback(ct)
        assert gx.item() == pytest.approx(F_X, rel=1e-15)
        assert gy.item() == pytest.approx(F_Y, rel=1e-15)
    assert pullback(-2.0)[0].item() == pytest.approx(-2.0 * F_X, rel=1e-15)


def test_vjp_of_trees():
    def g(p, n):
        return (p["a"] * n, n + 1, p["b"])

    n = qb.array([2, 3], dtype=qb.int64)
    _, pullback = qb.vjp(g, {"a": qb.ones(2), "b": qb.ones(()), "c": qb.ones(3)}, n)
    gp, gn = pullback((qb.ones(2), None, qb.array(5.0)))
    assert gp["a"].tolist() == [2.0, 3.0]
    assert gp["b"].item() == 5.0
    assert gp["c"].tolist() == [0.0, 0.0, 0.0]
    assert gn is None


def test_has_aux_of_jvp_and_vjp():
    def g(x):
        return x**2, {"cube": x**3}

    x = qb.array(2.0)
    out, tangent, aux = qb.jvp(g, (x,), (qb.array(1.0),), has_aux=True)
    assert (out.item(), tangent.item(), aux["cube"].item()) == (4.0, 4.0, 8.0)
    out, pullback, aux = qb.vjp(g, x, has_aux=True)
    assert (out.item(), pullback(1.0)[0].item(), aux["cube"].item()) == (4.0, 4.0, 8.0)


def test_linearize():
    out, push = qb.linearize(f, qb.array(X), qb.array(Y))
    assert out.item() == f(qb.array(X), qb.array(Y)).item()
    for v, w in ((1.0, 0.0), (0.0, 1.0), (2.0, -3.0)):
        assert push(v, w).item() == pytest.approx(v * F_X + w * F_Y, rel=1e-14)


def test_linearize_evaluates_once():
    calls = []

    def g(x):
        calls.append(1)
        return qb.exp(qb.sin(x))

    _, push = qb.linearize(g, qb.ones(3))
    for _ in range(3):
        push(qb.ones(3))
    _, pullback = qb.vjp(g, qb.ones(3))
    pullback(qb.ones(3))
    pullback(qb.ones(3))
    assert len(calls) == 1


# ---------------------------------------------------------------------------------------------------- jacobian, hessian


def vector(x):
    return qb.stack([x[0] * x[1], qb.sin(x[1]), x[2] ** 2 * x[0], x[0]])


def vector_jacobian(x):
    return np.array([[x[1], x[0], 0], [0, math.cos(x[1]), 0], [x[2] ** 2, 0, 2 * x[2] * x[0]], [1, 0, 0]])


@pytest.mark.parametrize("jacobian", [qb.jacobian, qb.jacfwd, qb.jacrev])
def test_jacobian(jacobian):
    x = [0.5, 1.5, -2.0]
    np.testing.assert_allclose(np.asarray(jacobian(vector)(qb.array(x))), vector_jacobian(x), rtol=1e-15)


@pytest.mark.parametrize("jacobian", [qb.jacobian, qb.jacfwd, qb.jacrev])
def test_jacobian_blocks(jacobian):
    """Blocks [*out.shape, *in.shape], in the structure of the result with the arguments' structure at each leaf."""

    def g(p, s):
        return {"m": p["a"] * s, "c": qb.sum(p["b"])}

    p = {"a": qb.ones((2, 3)), "b": qb.ones(4)}
    blocks = jacobian(g)(p, qb.array(2.0))
    assert blocks["m"]["a"].shape == (2, 3, 2, 3)
    assert blocks["m"]["b"].shape == (2, 3, 4)
    assert blocks["c"]["a"].shape == (2, 3)
    np.testing.assert_array_equal(np.asarray(blocks["m"]["a"]).reshape(6, 6), 2 * np.eye(6))
    np.testing.assert_array_equal(np.asarray(blocks["c"]["b"]), np.ones(4))
    both = jacobian(g, argnums=(0, 1))(p, qb.array(2.0))
    np.testing.assert_array_equal(np.asarray(both["m"][1]), np.ones((2, 3)))
    assert both["c"][1].item() == 0.0


def test_hessian():
    x = qb.array([0.5, 1.5, -2.0])

    def g(x):
        return x[0] ** 2 * x[1] + qb.exp(x[2]) * x[0]

    expected = [[3.0, 1.0, math.exp(-2)], [1.0, 0, 0], [math.exp(-2), 0, 0.5 * math.exp(-2)]]
    np.testing.assert_allclose(np.asarray(qb.hessian(g)(x)), expected, rtol=1e-15)


def test_hessian_of_trees():
    def g(p):
        return qb.sum(p["a"] ** 2) * p["b"]

    blocks = qb.hessian(g)({"a": qb.array([1.0, 2.0]), "b": qb.array(3.0)})
    np.testing.assert_array_equal(np.asarray(blocks["a"]["a"]), 6 * np.eye(2))
    np.testing.assert_array_equal(np.asarray(blocks["a"]["b"]), [2.0, 4.0])
    np.testing.assert_array_equal(np.asarray(blocks["b"]["a"]), [2.0, 4.0])
    assert blocks["b"]["b"].item() == 0.0


def test_jacobian_of_empty_arrays():
    assert qb.jacobian(lambda x: 2.0 * x)(qb.zeros(0)).shape == (0, 0)
    assert qb.grad(lambda x: qb.sum(x))(qb.zeros((2, 0))).shape == (2, 0)


# ----------------------------------------------------------------------------------------------------------------- vmap


A = np.arange(12.0).reshape(3, 4)


def test_vmap_axes():
    x = qb.array(A)
    assert_same_bits(qb.vmap(qb.sum)(x), qb.array(A.sum(1)))
    assert_same_bits(qb.vmap(qb.sum, in_axes=1)(x), qb.array(A.sum(0)))
    assert_same_bits(qb.vmap(qb.sum, in_axes=-1)(x), qb.array(A.sum(0)))
    assert_same_bits(qb.vmap(lambda r: 2.0 * r, out_axes=1)(x), qb.array(2 * A.T))
    assert_same_bits(qb.vmap(lambda r: 2.0 * r, in_axes=1, out_axes=-1)(x), qb.array(2 * A))


def test_vmap_shared_arguments():
    x, w = qb.array(A), qb.array([1.0, 2.0, 3.0, 4.0])
    for in_axes in ((0, None), [0, None]):
        assert_same_bits(qb.vmap(qb.dot, in_axes=in_axes)(x, w), qb.array(A @ [1.0, 2.0, 3.0, 4.0]))
    assert_same_bits(qb.vmap(lambda r, s: r * s, in_axes=(0, None))(x, 2.0), qb.array(2 * A))


def test_vmap_prefix_trees():
    def g(p, pair):
        return {"y": p["w"] * pair[0] + p["b"], "z": pair[1]}

    p = {"w": qb.array([1.0, 2.0]), "b": qb.array(10.0)}
    pair = (qb.ones((3, 2)), qb.array(A))
    out = qb.vmap(g, in_axes=(None, 0))(p, pair)
    assert out["y"].shape == (3, 2)
    out = qb.vmap(g, in_axes=({"w": None, "b": None}, (0, 0)), out_axes={"y": 1, "z": 0})(p, pair)
    assert out["y"].shape == (2, 3)
    assert out["z"].shape == (3, 4)
    out = qb.vmap(g, in_axes=({"w": 0, "b": None}, (None, 1)), out_axes=(0))(p, (qb.array(1.0), qb.ones((3, 2))))
    assert out["y"].tolist() == [11.0, 12.0]
    assert out["z"].shape == (2, 3)


def test_vmap_keyword_arguments_are_mapped_over_axis_0():
    assert qb.vmap(lambda x, *, s: x * s)(qb.array(A), s=qb.array([1.0, 10.0, 100.0])).shape == (3, 4)


def test_vmap_unmapped_results():
    x = qb.array(A)
    shared = qb.array(5.0)
    assert qb.vmap(lambda r: shared)(x).tolist() == [5.0] * 3
    assert qb.vmap(lambda r: shared, out_axes=None)(x).item() == 5.0
    assert qb.vmap(lambda r: (qb.sum(r), 7.0), out_axes=(0, None))(x)[1].item() == 7.0


def test_vmap_of_nothing():
    out = qb.vmap(lambda r: qb.sum(r) * 2.0)(qb.zeros((0, 4)))
    assert out.shape == (0,)


def test_unmapped_computation_is_done_once():
    """Only what depends on a mapped argument has the batch axis."""
    w = qb.ones((50, 50))
    text = qb.jit(qb.vmap(lambda x, w: x * qb.sum(qb.exp(w @ w)), in_axes=(0, None))).lower(qb.ones(9), w).as_text()
    assert "[9,50,50]" not in text
    assert "[9, 50, 50]" not in text
    assert text.count("exp(") == 1


def test_per_example_gradients():
    """vmap(grad) keeps the axis of examples, a vjp of vmap sums over it."""
    x, w = qb.array(A), qb.array([0.1, 0.2, 0.3, 0.4])

    def example_loss(x, w):
        return qb.tanh(qb.dot(x, w))

    each = qb.vmap(qb.grad(example_loss, argnums=1), in_axes=(0, None))(x, w)
    assert each.shape == (3, 4)
    for k in range(3):
        assert_close(each[k], qb.grad(example_loss, argnums=1)(x[k], w), 1e-15)
    _, pullback = qb.vjp(lambda w: qb.vmap(example_loss, in_axes=(0, None))(x, w), w)
    assert_close(pullback(qb.ones(3))[0], np.asarray(each).sum(0), 1e-14)
    summed = qb.grad(lambda w: qb.sum(qb.vmap(example_loss, in_axes=(0, None))(x, w)))(w)
    assert_close(summed, np.asarray(each).sum(0), 1e-14)


# ------------------------------------------------------------------------------------------------- decorators, metadata


@pytest.mark.parametrize("transform", [qb.jit, qb.grad, qb.value_and_grad, qb.vmap, qb.jacobian, qb.jacfwd, qb.jacrev,
    qb.hessian], ids=lambda t: t.__name__)  # fmt: skip
def test_metadata(transform):
    def named(x):
        """Documented."""
        return x

    wrapped = transform(named)
    assert wrapped.__name__ == "named"
    assert wrapped.__doc__ == "Documented."
    assert inspect.unwrap(wrapped) is named
    assert wrapped.__module__ == __name__


def test_decorators():
    @qb.jit
    def plain(x):
        return 2.0 * x

    @qb.jit(static_argnums=1)
    def power(x, n):
        return x**n if n > 1 else x

    @qb.grad(argnums=1)
    def by_second(x, y):
        return x * y

    @qb.value_and_grad(has_aux=True)
    def with_aux(x):
        return x * x, x

    @qb.vmap(in_axes=1)
    def columns(x):
        return qb.sum(x)

    assert plain(3.0).item() == 6.0
    assert power(qb.array(3.0), 2).item() == 9.0
    assert by_second(5.0, 2.0).item() == 5.0
    assert with_aux(3.0)[1].item() == 6.0
    assert columns(qb.array(A)).shape == (4,)


def test_methods_and_partial():
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @qb.jit
        def call(self, x):
            return self.scale * x

        def loss(self, x):
            return qb.sum(self.scale * x**2)

    qb.tree.register(Model, lambda m: ((m.scale,), None), lambda _, children: Model(*children))
    model = Model(qb.array(3.0))
    assert model.call(qb.array(2.0)).item() == 6.0
    assert qb.grad(model.loss)(qb.array([1.0, 2.0])).tolist() == [6.0, 12.0]
    assert qb.jit(model.loss)(qb.array([1.0, 2.0])).item() == 15.0
    bound = functools.partial(f, y=qb.array(Y))
    assert qb.grad(bound)(qb.array(X)).item() == pytest.approx(F_X, rel=1e-15)
    assert qb.jit(functools.partial(f, qb.array(X)))(qb.array(Y)).item() == f(qb.array(X), qb.array(Y)).item()
    assert qb.vmap(functools.partial(f, qb.array(X)))(qb.ones(3)).shape == (3,)


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "exception", "message"),
    [
        (
            lambda: qb.grad(lambda x: x)(qb.ones(3)),
            ValueError,
            r"grad requires a scalar output.*\(3,\).*(sum|mean).*jacobian.*vjp",
        ),
        (lambda: qb.value_and_grad(lambda x: x)(qb.ones((2, 1))), ValueError, r"requires a scalar output.*\(2, 1\)"),
        (lambda: qb.grad(lambda x: (x, x))(1.0), ValueError, r"requires a scalar output"),
        (lambda: qb.grad(lambda x: x > 0.0)(1.0), ValueError, r"bool"),
        (lambda: qb.grad(lambda x: x.astype(qb.int64))(1.0), ValueError, r"int64"),
        (lambda: qb.grad(f, argnums=2)(X, Y), ValueError, r"argnums contains 2.*2 positional arguments"),
        (lambda: qb.grad(f, argnums=-3)(X, Y), ValueError, r"argnums contains -3"),
        (lambda: qb.grad(f, argnums=(0, -2))(X, Y), ValueError, r"twice"),
        (lambda: qb.grad(f, argnums=()), ValueError, r"argnums is empty"),
        (lambda: qb.grad(f, argnums=0.0), TypeError, r"argnums must be an int or a tuple of ints, got 0\.0"),
        (lambda: qb.grad(3.0), TypeError, r"grad: expected a function, got float"),
        (lambda: qb.grad(lambda x: x, has_aux=True)(1.0), TypeError, r"has_aux.*pair"),
        (lambda: qb.jvp(f, (X,), (1.0, 1.0)), TypeError, r"1 primals, but 2 tangents"),
        (lambda: qb.jvp(f, X, 1.0), TypeError, r"tuples"),
        (
            lambda: qb.jvp(lambda p: p["a"], ({"a": qb.ones(2)},), ({"a": qb.ones(3)},)),
            ValueError,
            r"tangent at '0/a'.*\(3,\).*\(2,\)",
        ),
        (
            lambda: qb.jvp(lambda p: p["a"], ({"a": qb.ones(2)},), ({"a": qb.ones(2, dtype=qb.float32)},)),
            ValueError,
            r"tangent at '0/a'.*float32.*float64",
        ),
        (lambda: qb.jvp(lambda p: p["a"], ({"a": qb.ones(2)},), ({"b": qb.ones(2)},)), TypeError, r"jvp"),
        (
            lambda: qb.jvp(lambda n: n * 1.0, (qb.array([1], dtype=qb.int64),), (qb.ones(1),)),
            TypeError,
            r"must be None",
        ),
        (lambda: qb.jvp(lambda x: x, (qb.ones(1),), (None,)), TypeError, r"tangent at '0' is None"),
        (lambda: qb.vjp(f, X, Y)[1](qb.ones(2)), ValueError, r"cotangent.*\(2,\).*\(\)"),
        (lambda: qb.vjp(lambda x: (x, x), X)[1](1.0), TypeError, r"vjp"),
        (lambda: qb.vmap(lambda x: x)(1.0), ValueError, r"Python number"),
        (lambda: qb.vmap(lambda x: x)(qb.array(1.0)), ValueError, r"scalar"),
        (
            lambda: qb.vmap(lambda x: x, in_axes=1)(qb.ones(3)),
            ValueError,
            r"axis 1 is out of range for an array of shape \(3,\)",
        ),
        (
            lambda: qb.vmap(lambda x, y: x, in_axes=(1, 0))(qb.ones((2, 3)), qb.ones((4, 5))),
            ValueError,
            r"differ in size: argument 0 has 3 \(axis 1 of shape \(2, 3\)\), argument 1 has 4 \(axis 0 of shape \(4, 5\)\)",
        ),
        (
            lambda: qb.vmap(lambda x: x, out_axes=2)(qb.ones((5, 3))),
            ValueError,
            r"out_axes: axis 2 is out of range: with the axis of examples, a result of shape \(3,\) has 2 axes",
        ),
        (lambda: qb.vmap(lambda x: x, in_axes=None)(qb.ones(3)), ValueError, r"nothing is mapped"),
        (
            lambda: qb.vmap(lambda x, y: x, in_axes=(0,))(qb.ones(3), qb.ones(3)),
            ValueError,
            r"in_axes has 1 entries.*2 positional",
        ),
        (lambda: qb.vmap(lambda x: x, out_axes=None)(qb.ones(3)), ValueError, r"out_axes.*differs between examples"),
        (lambda: qb.vmap(lambda x: x, out_axes=1)(qb.ones(3)), ValueError, r"out_axes.*axis 1 is out of range"),
        (lambda: qb.vmap(lambda x: x, in_axes="0")(qb.ones(3)), TypeError, r"axis must be an int"),
        (lambda: qb.jacobian(lambda x: x > 0.0)(qb.ones(2)), ValueError, r"jacobian.*no floating result"),
        (lambda: qb.jit(lambda x: x, max_traces=0), ValueError, r"max_traces must be at least 1"),
        (lambda: qb.jit(lambda x: "text")(1.0), TypeError, r"returned str"),
        (lambda: qb.jit(lambda x: {"a": [object()]})(1.0), TypeError, r"returned object at 'a/0'"),
        (lambda: qb.jit(lambda x: x)(object()), TypeError, r"object.*neither an array"),
        (lambda: qb.jit(lambda x: x)("text"), TypeError, r"str"),
    ],
)
def test_refusals(call, exception, message):
    with pytest.raises(exception, match=f"(?s){message}"):
        call()
    assert qb.grad(f)(X, Y).item() == pytest.approx(F_X, rel=1e-15)
