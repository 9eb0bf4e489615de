"""custom_jvp and custom_vjp: the rule is what is differentiated, under every transform, in loops and branches."""

import functools
from collections import namedtuple

import numpy as np
import pytest
import quabla as qb
from compare import assert_close

Two = namedtuple("Two", ["a", "b"])


def marked_vjp(fun, factor=3.0):
    """fun whose first derivative is `factor` times the right one, so that it shows where the rule is used."""
    f = qb.custom_vjp(fun)

    def fwd(*args):
        return fun(*args), args

    def bwd(args, ct):
        return tuple(factor * g for g in qb.vjp(fun, *args)[1](ct))

    f.defvjp(fwd, bwd)
    return f


def marked_jvp(fun, factor=3.0):
    f = qb.custom_jvp(fun)

    @f.defjvp
    def rule(primals, tangents):
        out, tangent = qb.jvp(fun, primals, tangents)
        return out, qb.tree.map(lambda t: factor * t, tangent)

    return f


def forward(g):
    return lambda t: qb.jvp(g, (t,), (qb.ones_like(t),))[1]


def g(x):
    return qb.sin(x) * x


X = 0.7


def marked_derivatives(x):
    """What a factor of 3 on the first derivative of g makes of the value and the first three derivatives."""
    h, values = g, []
    for _ in range(4):
        values.append(h(qb.array(x)))
        h = qb.grad(h)
    return [values[0], 3 * values[1], 3 * values[2], 3 * values[3]]


# -------------------------------------------------------------------------------------------------------- the rule is used


@pytest.mark.parametrize("make", [marked_vjp, marked_jvp])
def test_reverse_mode_of_any_order(make):
    f = make(g)
    expected = marked_derivatives(X)
    h = f
    for order in range(4):
        assert_close(h(qb.array(X)), expected[order], 1e-13)
        assert_close(qb.jit(h)(qb.array(X)), expected[order], 1e-13)
        batch = qb.vmap(h)(qb.array([X, 0.1, -2.0]))
        assert_close(batch, qb.stack([marked_derivatives(x)[order] for x in (X, 0.1, -2.0)]), 1e-13)
        h = qb.grad(h)
    assert_close(qb.value_and_grad(f)(qb.array(X)), (expected[0], expected[1]), 1e-13)
    assert_close(qb.grad(lambda b: qb.sum(qb.vmap(f)(b)))(qb.array([X, X])), qb.stack([expected[1]] * 2), 1e-13)


def test_forward_mode_of_a_custom_jvp():
    f = marked_jvp(g)
    expected = marked_derivatives(X)
    for modes in ((forward, forward, forward), (qb.grad, forward, qb.grad), (forward, qb.grad, forward)):
        h = f
        for order, mode in enumerate(modes, 1):
            h = mode(h)
            assert_close(h(qb.array(X)), expected[order], 1e-13)
            assert_close(qb.vmap(h)(qb.array([X, X])), qb.stack([expected[order]] * 2), 1e-13)
    v = qb.array([0.3, -0.4])
    total = lambda x: qb.sum(f(x) * f(x[::-1]))
    h = lambda x: qb.sum(marked_vjp(g)(x) * marked_vjp(g)(x[::-1]))
    assert_close(qb.grad(total)(v), qb.grad(h)(v), 1e-13)
    hessian = qb.hessian(total)(v)
    assert hessian.shape == (2, 2) and np.isfinite(hessian.numpy()).all()
    assert_close(hessian, qb.jacfwd(qb.jacfwd(total))(v), 1e-12)
    assert_close(hessian, qb.jacrev(qb.grad(total))(v), 1e-12)


def test_forward_mode_of_a_custom_vjp_is_refused():
    f = marked_vjp(g)
    x = qb.array(X)
    for call in (
        lambda: qb.jvp(f, (x,), (x,)),
        lambda: qb.jacfwd(f)(x),
        lambda: qb.linearize(f, x)[1](x),
        lambda: qb.jit(forward(f))(x),
        lambda: qb.grad(forward(f))(x),
        lambda: qb.jvp(lambda x: qb.fori_loop(0, 3, lambda i, c: f(c), x), (x,), (x,)),
        lambda: qb.jvp(lambda x: qb.cond(x > 0, f, f, x), (x,), (x,)),
    ):
        with pytest.raises(ValueError, match="custom_vjp.*forward|forward.*custom_vjp"):
            call()
    assert_close(forward(qb.grad(f))(x), marked_derivatives(X)[2], 1e-13)  # of the rule, it is not
    assert_close(qb.hessian(f)(x), marked_derivatives(X)[2], 1e-13)


@pytest.mark.parametrize("make", [marked_vjp, marked_jvp])
def test_in_loops_and_branches(make):
    """A rule that is right (factor 1) changes nothing; a marked one is used in every iteration."""
    right, marked = make(g, 1.0), make(g)
    programs = [
        lambda f: lambda x: qb.fori_loop(0, 4, lambda i, c: f(c) * x + 0.1, x),
        lambda f: lambda x: qb.sum(qb.scan(lambda c, r: (f(c + r), f(c) * x), x, xs=qb.arange(3.0))[1]),
        lambda f: lambda x: qb.while_loop(lambda c: c < 40.0, lambda c: c * 2 + f(x), x, max_steps=9),
        lambda f: lambda x: qb.cond(x > 0, lambda x: f(x) * x, lambda x: x, x),
        lambda f: lambda x: qb.scan(lambda c, i: (qb.cond(c > 0.5, f, lambda c: f(c) + x, c), None), x, length=4)[0],
        lambda f: lambda x: qb.checkpoint(lambda x: f(f(x)) * x)(x),
        lambda f: lambda x: qb.fori_loop(0, 5, lambda i, c: f(c) + x, x, checkpoint=True),
    ]
    batch = qb.array([0.7, 0.3, 1.9])
    for program in programs:
        plain = program(g)
        for transform in (lambda h: h, qb.grad, qb.hessian, lambda h: qb.grad(qb.grad(qb.grad(h)))):
            assert_close(transform(program(right))(batch[0]), transform(plain)(batch[0]), 1e-11)
            assert_close(qb.vmap(transform(program(right)))(batch), qb.vmap(transform(plain))(batch), 1e-11)
    three = lambda f: lambda x: qb.fori_loop(0, 3, lambda i, c: f(c), x)
    assert_close(qb.grad(three(marked))(batch[0]), 27.0 * qb.grad(three(g))(batch[0]), 1e-12)
    taken = lambda f: lambda x: qb.cond(x > 0.5, f, lambda x: x * 2.0, x)
    got = qb.vmap(qb.grad(taken(marked)))(batch)
    assert_close(got, qb.stack([3 * qb.grad(g)(batch[0]), qb.array(2.0), 3 * qb.grad(g)(batch[2])]), 1e-12)


def test_loops_and_branches_in_rules():
    """sqrt by Newton's iteration, with the derivative of what it converges to."""

    @qb.custom_vjp
    def root(a):
        return qb.while_loop(lambda x: qb.abs(x * x - a) > 1e-14 * a, lambda x: 0.5 * (x + a / x), a)

    def bwd(x, ct):
        halves = qb.fori_loop(0, 1, lambda i, c: c / 2.0, ct)
        return (qb.cond(x > 0, lambda: halves / root(x * x), lambda: 0.0),)

    root.defvjp(lambda a: (root(a), root(a)), bwd)
    a = qb.array(2.0)
    assert_close(qb.grad(root)(a), 0.5 / qb.sqrt(a), 1e-13)
    assert_close(qb.grad(qb.grad(root))(a), qb.grad(qb.grad(qb.sqrt))(a), 1e-12)
    batch = qb.array([1.0, 4.0, 100.0])
    assert_close(qb.vmap(qb.grad(root))(batch), 0.5 / qb.sqrt(batch), 1e-13)

    @qb.custom_jvp
    def fixed(a):
        return qb.while_loop(lambda x: qb.abs(qb.cos(x) * a - x) > 1e-15, lambda x: qb.cos(x) * a, a)

    @fixed.defjvp
    def rule(primals, tangents):
        (a,), (da,) = primals, tangents
        x = fixed(a)
        return x, da * qb.cos(x) / (1 + a * qb.sin(x))

    a, h = 0.5, 1e-4
    steps = [fixed(qb.array(a + k * h)).item() for k in (-1, 0, 1)]
    assert qb.grad(fixed)(a).item() == pytest.approx((steps[2] - steps[0]) / (2 * h), rel=1e-6)
    assert qb.grad(qb.grad(fixed))(a).item() == pytest.approx((steps[2] - 2 * steps[1] + steps[0]) / h**2, rel=1e-4)
    assert_close(forward(forward(fixed))(qb.array(a)), qb.grad(qb.grad(fixed))(qb.array(a)), 1e-12)


# --------------------------------------------------------------------------------------------- arguments, results, residuals


def test_trees_in_and_out():
    def fun(p, x):
        return {"y": p.a * x["u"], "z": (p.b["w"] + x["v"], x["n"] + 1)}

    f = qb.custom_vjp(fun)
    f.defvjp(
        lambda p, x: (fun(p, x), {"keep": (p.a, x["u"]), "n": 7, "none": None}),
        lambda res, ct: (
            Two(ct["y"] * res["keep"][1] * res["n"], {"w": ct["z"][0]}),
            {"u": None, "v": ct["z"][0] * 2.0, "n": None},
        ),
    )
    p = Two(qb.array([1.0, 2.0]), {"w": qb.array(3.0)})
    x = {"u": qb.array([3.0, 4.0]), "v": qb.array(5.0), "n": qb.array(1, dtype=qb.int64)}
    out, pull = qb.vjp(f, p, x)
    assert out["z"][1].item() == 2
    dp, dx = pull({"y": qb.array([1.0, 10.0]), "z": (2.0, None)})
    assert dp.a.tolist() == [21.0, 280.0] and dp.b["w"].item() == 2.0
    assert dx["u"].tolist() == [0.0, 0.0] and dx["v"].item() == 4.0 and dx["n"] is None

    h = qb.custom_jvp(fun)

    @h.defjvp
    def rule(primals, tangents):
        (p, x), (dp, dx) = primals, tangents
        assert dx["n"] is None
        return fun(p, x), {"y": dp.a * x["u"], "z": (dx["v"], None)}

    out, tangent = qb.jvp(h, (p, x), (p, {"u": x["u"], "v": x["v"], "n": None}))
    assert tangent["y"].tolist() == [3.0, 8.0] and tangent["z"][0].item() == 5.0 and tangent["z"][1] is None
    dp, dx = qb.vjp(h, p, x)[1]({"y": qb.array([1.0, 10.0]), "z": (2.0, None)})
    assert dp.a.tolist() == [3.0, 40.0] and dp.b["w"].item() == 0.0 and dx["v"].item() == 2.0


def test_none_is_zero_at_any_level():
    f = qb.custom_vjp(lambda x, y, z: x["a"]["b"] * y + z)
    f.defvjp(lambda x, y, z: (x["a"]["b"] * y + z, None), lambda _, ct: ({"a": None, "c": ct}, None, ct))
    x = {"a": {"b": qb.array(2.0)}, "c": qb.array(1.0)}
    grads = qb.grad(f, argnums=(0, 1, 2))(x, qb.array(3.0), qb.array(4.0))
    assert [leaf.item() for leaf in qb.tree.leaves(grads)] == [0.0, 1.0, 0.0, 1.0]

    h = qb.custom_jvp(lambda x: (x, x * 2.0))
    h.defjvp(lambda p, t: ((p[0], p[0] * 2.0), (None, t[0])))
    assert [leaf.item() for leaf in qb.jvp(h, (3.0,), (5.0,))[1]] == [0.0, 5.0]


def test_arguments_that_are_not_differentiated():
    calls = []

    @qb.custom_vjp(nondiff_argnums=(0, 2))
    def f(fun, x, power, y):
        calls.append((fun, power))
        return fun(x) ** power + y

    f.defvjp(
        lambda fun, x, power, y: (f(fun, x, power, y), (x, y)),
        lambda fun, power, res, ct: (ct * power * fun(res[0]) ** (power - 1), ct),
    )
    x, y = qb.array(0.5), qb.array(2.0)
    for fun in (qb.sin, qb.exp):
        for power in (2, 3):
            got = qb.grad(lambda x, y: f(fun, x, power, y), argnums=(0, 1))(x, y)
            assert_close(got, (power * fun(x) ** (power - 1), qb.array(1.0)), 1e-14)
            assert_close(f(fun, x, power, y), fun(x) ** power + y, 1e-14)
    assert {type(power) for _, power in calls} == {int}

    @functools.partial(qb.custom_jvp, nondiff_argnums=(1,))
    def h(x, fun):
        return fun(x)

    @h.defjvp
    def rule(fun, primals, tangents):
        return fun(*primals), 10.0 * tangents[0]

    assert qb.grad(lambda x: h(x, qb.sin))(x).item() == 10.0
    assert qb.grad(lambda x: qb.fori_loop(0, 3, lambda i, c: h(c, qb.sin), x))(x).item() == 1000.0


def test_keywords_and_defaults():
    @qb.custom_vjp
    def f(x, scale=2.0, *, unused=None):
        return x * scale

    f.defvjp(lambda x, s: (x * s, (x, s)), lambda r, ct: (ct * r[1], ct * r[0]))
    with pytest.raises(TypeError, match="keyword only"):
        f(1.0)

    @qb.custom_vjp
    def h(x, scale=2.0):
        return x * scale

    h.defvjp(lambda x, s: (x * s, (x, s)), lambda r, ct: (ct * r[1], ct * r[0]))
    assert h(3.0).item() == 6.0 and h(scale=5.0, x=3.0).item() == 15.0 and h(3.0, scale=1.0).item() == 3.0
    assert qb.grad(lambda x: h(x))(3.0).item() == 2.0
    assert qb.grad(lambda s: h(3.0, scale=s))(4.0).item() == 3.0
    with pytest.raises(TypeError, match="missing a required argument"):
        h()


def test_numbers_as_arguments():
    """Floats take part as weak numbers; ints stay what they are."""
    seen = []

    @qb.custom_vjp
    def f(x, s, n):
        seen.append(type(n))
        return x * s**n

    f.defvjp(lambda x, s, n: (x * s**n, (x, s, n)), lambda r, ct: (ct * r[1] ** r[2], ct, None))
    x = qb.array(2.0, dtype=qb.float32)
    assert f(x, 0.5, 2).dtype == qb.float32
    grad = qb.grad(lambda x: f(x, 0.5, 2))(x)
    assert (grad.item(), grad.dtype) == (0.25, qb.float32)
    assert set(seen) == {int}
    assert qb.grad(f, argnums=1)(x, qb.array(0.5, dtype=qb.float32), 2).item() == 1.0


def test_as_method_and_in_classes():
    class Model:
        def __init__(self, w):
            self.w = w

        @qb.custom_jvp(nondiff_argnums=(0,))
        def apply(self, x):
            return self.w * x

        @apply.defjvp
        def rule(self, primals, tangents):
            return self.w * primals[0], 100.0 * tangents[0]

    m = Model(qb.array(2.0))
    assert m.apply(3.0).item() == 6.0
    assert qb.grad(m.apply)(3.0).item() == 100.0
    assert qb.jit(qb.vmap(m.apply))(qb.arange(2.0)).tolist() == [0.0, 2.0]


def test_names_and_copies():
    import copy

    @qb.custom_vjp
    def named(x):
        """What it does."""
        return x

    assert named.__name__ == "named" and named.__doc__ == "What it does." and named.__wrapped__ is named.fun
    assert copy.deepcopy(named) is named and "named" in repr(named)


def test_eager_calls_are_cached():
    calls = []
    f = qb.custom_vjp(lambda x: calls.append(1) or x * 2.0)
    f.defvjp(lambda x: (x * 2.0, None), lambda _, ct: (ct * 2.0,))
    for value in (1.0, 2.0, 3.0):
        assert f(value).item() == 2 * value
    assert len(calls) == 1
    qb.grad(f)(1.0)
    qb.jit(lambda x: f(x))(qb.array(1.0))
    assert len(calls) <= 2  # a float is weak, an array is not


# ------------------------------------------------------------------------------------------------------------------ captures


def test_rules_close_over_arrays_and_outer_tracers():
    """What is not differentiated may be a tracer of any enclosing transform."""
    w = qb.array([1.0, 2.0])

    def f(scale, x):
        h = qb.custom_vjp(lambda x: qb.sum(w * x) * scale)
        h.defvjp(lambda x: (qb.sum(w * x) * scale, None), lambda _, ct: (ct * w * scale * 10.0,))
        return h(x)

    x = qb.array([0.5, 0.25])
    assert qb.grad(f, argnums=1)(qb.array(3.0), x).tolist() == [30.0, 60.0]
    got = qb.vmap(qb.grad(f, argnums=1), in_axes=(0, None))(qb.array([1.0, 2.0]), x)
    assert got.tolist() == [[10.0, 20.0], [20.0, 40.0]]
    assert qb.jit(qb.grad(f, argnums=1))(qb.array(3.0), x).tolist() == [30.0, 60.0]
    assert qb.vmap(f, in_axes=(0, None))(qb.array([1.0, 2.0]), x).tolist() == [1.0, 2.0]

    def looped(scale, x):
        return qb.fori_loop(0, 2, lambda i, c: c + f(scale + i, x), 1.0)

    assert qb.grad(looped, argnums=1)(qb.array(3.0), x).tolist() == [70.0, 140.0]


def test_differentiating_by_what_only_the_rule_holds_is_refused():
    def f(make, define, w):
        h = make(lambda x: x * w)
        define(h, w)
        return h(qb.array(2.0))

    def vjp(h, w):
        h.defvjp(lambda x: (x * w, None), lambda _, ct: (ct * w,))

    def jvp(h, w):
        h.defjvp(lambda p, t: (p[0] * w, t[0] * w))

    for make, define in ((qb.custom_vjp, vjp), (qb.custom_jvp, jvp)):
        assert f(make, define, qb.array(3.0)).item() == 6.0
        with pytest.raises(ValueError, match="argument"):
            qb.grad(lambda w: f(make, define, w))(qb.array(3.0))


# -------------------------------------------------------------------------------------------------------------- errors


def test_a_function_without_a_rule():
    for make, method in ((qb.custom_vjp, "defvjp"), (qb.custom_jvp, "defjvp")):
        f = make(lambda x: x)
        for call in (lambda: f(1.0), lambda: qb.grad(f)(1.0), lambda: qb.jit(lambda x: f(x))(1.0)):
            with pytest.raises(ValueError, match=method):
                call()
        with pytest.raises(TypeError, match="expected a function"):
            make(1)
        for bad in (-1, 1.0, "0", (True,), None):
            with pytest.raises(TypeError, match="nondiff_argnums"):
                make(lambda x: x, nondiff_argnums=bad)
        h = make(lambda x: x, nondiff_argnums=(3,))
        h.defvjp(abs, abs) if method == "defvjp" else h.defjvp(abs)
        with pytest.raises(ValueError, match="nondiff_argnums contains 3"):
            h(1.0)
    f = marked_vjp(g)
    with pytest.raises(ValueError, match="has its rule already"):
        f.defvjp(abs, abs)
    with pytest.raises(TypeError, match="takes functions"):
        qb.custom_vjp(g).defvjp(1, 2)
    with pytest.raises(TypeError, match="takes functions"):
        qb.custom_jvp(g).defjvp(None)


def vjp_error(error, message, fwd=None, bwd=None, args=(1.0, 2.0)):
    f = qb.custom_vjp(lambda x, y: qb.tree.leaves(x)[0] * y)
    f.defvjp(
        fwd or (lambda x, y: (qb.tree.leaves(x)[0] * y, (x, y))), bwd or (lambda res, ct: (ct * res[1], ct * res[0]))
    )
    args = qb.tree.map(qb.array, args)
    with pytest.raises(error, match=message):
        qb.grad(f)(*args)


def test_rules_of_a_wrong_shape():
    vjp_error(TypeError, r"pair \(out, residuals\), got TraceTensor", fwd=lambda x, y: x * y)
    vjp_error(TypeError, r"pair \(out, residuals\), got 3 values", fwd=lambda x, y: (x * y, x, y))
    vjp_error(TypeError, "result of fwd must have the structure", fwd=lambda x, y: ((x * y,), None))
    vjp_error(ValueError, r"result of fwd is float64 of shape \(1,\)", fwd=lambda x, y: (qb.stack([x * y]), None))
    vjp_error(ValueError, "result of fwd is float32", fwd=lambda x, y: (qb.astype(x * y, qb.float32), (x, y)))
    vjp_error(TypeError, "2 differentiable arguments, got TraceTensor", bwd=lambda res, ct: ct)
    vjp_error(TypeError, "2 differentiable arguments, got 1 values", bwd=lambda res, ct: (ct,))
    vjp_error(TypeError, "2 differentiable arguments, got NoneType", bwd=lambda res, ct: None)
    vjp_error(
        ValueError,
        r"cotangent of argument 1 is float64 of shape \(2,\).*float64 of shape \(\)",
        bwd=lambda res, ct: (ct, qb.stack([ct, ct])),
    )
    vjp_error(ValueError, "cotangent of argument 0 is float32", bwd=lambda res, ct: (qb.astype(ct, qb.float32), ct))
    vjp_error(TypeError, "cotangent of argument 0.*structure", bwd=lambda res, ct: ((ct, ct), ct))
    tree = ({"a": 1.0, "b": (2.0,)}, 3.0)
    vjp_error(TypeError, "cotangent of argument 0.*structure", bwd=lambda res, ct: (ct, ct), args=tree)
    vjp_error(TypeError, "cotangent of argument 0.*structure", bwd=lambda res, ct: ({"a": ct}, ct), args=tree)
    vjp_error(
        ValueError,
        "cotangent of argument 0 at 'b/0' is",
        args=tree,
        bwd=lambda res, ct: ({"a": ct, "b": (qb.ones(3),)}, ct),
    )


def test_derivative_rules_of_a_wrong_shape():
    def jvp_error(error, message, rule):
        f = qb.custom_jvp(lambda x: {"y": x * 2.0})
        f.defjvp(rule)
        with pytest.raises(error, match=message):
            qb.jvp(f, (qb.array(1.0),), (qb.array(1.0),))

    jvp_error(TypeError, r"pair \(out, tangent_out\)", lambda p, t: {"y": p[0]})
    jvp_error(TypeError, "rule's result must have the structure", lambda p, t: (p[0], {"y": t[0]}))
    jvp_error(TypeError, "rule's tangent must have the structure", lambda p, t: ({"y": p[0]}, t[0]))
    jvp_error(
        ValueError, "rule's tangent at 'y' is float64 of shape", lambda p, t: ({"y": p[0]}, {"y": qb.ones(3) * t[0]})
    )
    jvp_error(ValueError, "rule's result at 'y' is float64 of shape", lambda p, t: ({"y": qb.ones(3)}, {"y": t[0]}))


def test_a_rule_that_is_not_linear_cannot_be_transposed():
    f = qb.custom_jvp(lambda x: x * 2.0)
    f.defjvp(lambda p, t: (p[0] * 2.0, t[0] ** 2))
    assert qb.jvp(f, (3.0,), (4.0,))[1].item() == 16.0
    for h in (qb.grad(lambda x: qb.sum(f(x))), qb.jacrev(f), lambda x: qb.vjp(f, x)[1](x)):
        with pytest.raises(ValueError, match="linear"):
            h(qb.array([3.0, 1.0]))


# ----------------------------------------------------------------------------------------------- what the rules are good for


def test_a_stable_derivative():
    """log(1 + exp(x)) overflows; with a rule its derivatives do not."""

    @qb.custom_jvp
    def softplus(x):
        return qb.log(1.0 + qb.exp(x))

    @softplus.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return softplus(x), t / (1.0 + qb.exp(-x))

    x = qb.array([-50.0, 0.0, 100.0])
    np.testing.assert_allclose(qb.vmap(qb.grad(softplus))(x).numpy(), 1 / (1 + np.exp(-x.numpy())), rtol=1e-15)
    assert qb.vmap(qb.grad(qb.grad(softplus)))(x).numpy()[1] == pytest.approx(0.25)


def test_rules_that_call_their_own_function():
    """Derivatives of several orders, each by the rule; then an error, not another rule."""
    f = qb.custom_jvp(qb.sin)
    g = qb.custom_jvp(qb.cos)
    f.defjvp(lambda p, t: (f(*p), 2.0 * t[0] * g(*p)))  # each order brings a factor
    g.defjvp(lambda p, t: (g(*p), -3.0 * t[0] * f(*p)))
    x = qb.array(0.7)
    h, factor = f, 1.0
    for order, value in enumerate([qb.cos(x), -qb.sin(x), -qb.cos(x), qb.sin(x)]):
        h, factor = (qb.grad(h) if order % 2 else forward(h)), factor * (3.0 if order % 2 else 2.0)
        assert_close(h(x), factor * value, 1e-14)
        assert_close(qb.vmap(h)(qb.stack([x, x])), qb.stack([factor * value] * 2), 1e-14)

    e = qb.custom_vjp(qb.exp)
    e.defvjp(lambda x: (e(x), x), lambda x, ct: (ct * e(x) * 2.0,))
    h = e
    for order in range(1, 6):
        h = qb.grad(h)
        assert_close(h(x), 2.0**order * qb.exp(x), 1e-14)
        looped = qb.grad(lambda x: qb.fori_loop(0, 2, lambda i, c: c + h(x), 0.0)) if order < 5 else None
        assert looped is None or looped(x).item() == pytest.approx(2 * 2.0 ** (order + 1) * np.exp(0.7))
    with pytest.raises(ValueError, match="up to order 5"):
        qb.grad(h)(x)


def test_clipping_a_cotangent():
    clip = qb.custom_vjp(lambda x: x)
    clip.defvjp(lambda x: (x, None), lambda _, ct: (qb.clip(ct, -1.0, 1.0),))
    assert qb.grad(lambda x: 100.0 * clip(x))(2.0).item() == 1.0
    f = lambda x: qb.scan(lambda c, i: (clip(c) * 10.0, None), x, length=5)[0]
    assert qb.grad(f)(2.0).item() == 1.0
    assert qb.vmap(qb.grad(lambda x, s: s * clip(x)), in_axes=(None, 0))(
        qb.array(2.0), qb.array([0.5, -7.0])
    ).tolist() == [0.5, -1.0]


def test_stop_gradient_in_control_flow():
    def f(x):
        return qb.fori_loop(0, 3, lambda i, c: c * qb.stop_gradient(x) + x, x)

    x = 0.5
    assert qb.grad(f)(x).item() == pytest.approx(x**3 + x**2 + x + 1)
    assert qb.jvp(f, (x,), (1.0,))[1].item() == pytest.approx(x**3 + x**2 + x + 1)
    assert qb.grad(lambda x: qb.cond(x > 0, qb.stop_gradient, qb.sin, x))(x).item() == 0.0
    assert qb.grad(lambda x: qb.stop_gradient(qb.while_loop(lambda c: c < 9, lambda c: c + x, x)) * x)(x).item() == 9.0


def test_rules_made_by_jvp_of_a_loop():
    """Such a rule computes result and tangent in one loop: linear all the same."""

    def plain(x):
        return qb.fori_loop(0, 4, lambda i, c: qb.sin(c) * x, x)

    f = qb.custom_jvp(plain)
    f.defjvp(lambda primals, tangents: qb.jvp(plain, primals, tangents))
    x = qb.array([0.3, -0.7])
    for transform in (
        lambda g: g,
        lambda g: qb.grad(lambda x: qb.sum(g(x) ** 2)),
        qb.jacrev,
        lambda g: qb.jacrev(qb.jacrev(g)),
    ):
        assert_close(transform(f)(x), transform(plain)(x), 1e-12)


def test_custom_functions_in_each_other():
    """And in a branch that turns out to be known: nothing of them is left when a program is made."""

    def doubled(inner):
        twice = lambda x: inner(x) * 2.0
        f = qb.custom_jvp(twice)
        f.defjvp(lambda primals, tangents: qb.jvp(twice, primals, tangents))
        return f

    functions = [qb.sin]
    for _ in range(5):
        functions.append(doubled(functions[-1]))
    f, half = functions[-1], functions[-2]
    assert_close(f(0.5), 32.0 * qb.sin(0.5), 1e-15)
    assert_close(qb.grad(f)(0.5), 32.0 * qb.cos(0.5), 1e-15)
    known = lambda x: qb.fori_loop(0, 1, lambda i, c: qb.switch(i, [f, half], c), x)  # i is 0
    for g in (known, qb.jit(known)):
        assert_close(g(0.5), f(0.5), 1e-15)


def test_a_rule_by_jvp_of_branches_that_hold_what_they_do_not_need():
    """One branch recomputes a region that closes over a value that it does not read, the other one needs residuals."""

    def plain(x):
        def first(c):
            unused = -x
            body = lambda i, c: (c[0] * unused, (-x, c[0]))[1]
            a, b = qb.fori_loop(0, 2, body, (c, x), checkpoint=2)
            return a + b

        return qb.cond(x > 0, first, lambda c: c / (2.0 + qb.sin(c)), x)

    f = qb.custom_jvp(plain)
    f.defjvp(lambda primals, tangents: qb.jvp(plain, primals, tangents))
    for x in (0.5, -0.5):
        assert_close(qb.vjp(f, x)[1](1.0), qb.vjp(plain, x)[1](1.0), 1e-15)
