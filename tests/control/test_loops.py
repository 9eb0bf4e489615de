"""Loops: values, carries of every kind, counts and bounds, batching, size of the graph, errors."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections import namedtuple

import numpy as np
import pytest
import quabla as qb
from compare import assert_close, assert_same_bits
from control.loops import Plain

Point = namedtuple("Point", ["x", "y"])


def integer(n, dtype="int64"):
    return qb.array(n, dtype=dtype)


# --------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_the_loop_that_it_means(count, reverse):
    """With rows and with indices, in every way of unrolling and checkpointing: the same values."""
    xs = {"r": np.random.default_rng(0).normal(size=(count, 3)), "k": np.arange(count, dtype=np.float64)}
    c, ys = np.array([0.1, 0.2, 0.3]), np.zeros((count, 3))
    for i in reversed(range(count)) if reverse else range(count):
        c, ys[i] = np.sin(c) * xs["r"][i] + xs["k"][i], c

    def with_rows(c, x):
        return qb.sin(c) * x["r"] + x["k"], c

    def with_indices(c, i, xs):
        return qb.sin(c) * xs["r"][i] + 1.0 * i, c

    for unroll in (False, True, 1, 2, 3, 7, 10):
        for checkpoint in (None, True, 1, 2, 3, 100):
            if unroll is True and checkpoint:
                continue
            options = {"reverse": reverse, "unroll": unroll, "checkpoint": checkpoint}
            init = qb.array([0.1, 0.2, 0.3])
            arrays = qb.tree.map(qb.array, xs)
            calls = [
                qb.scan(with_rows, init, xs=arrays, **options),
                qb.scan(with_rows, init, xs=arrays, length=count, **options),
            ]
            if count:
                calls.append(qb.scan(with_indices, init, length=count, operands=(arrays,), **options))
            calls.append(qb.jit(lambda init, arrays: qb.scan(with_rows, init, xs=arrays, **options))(init, arrays))
            for carry, rows in calls:
                assert_close(carry, qb.array(c), 1e-13)
                assert_close(rows, qb.array(ys), 1e-13)


@pytest.mark.parametrize("bounds", [(0, 0), (0, 1), (0, 10), (3, 8), (-4, 3), (5, 2), (-3, -8)])
def test_fori_loop_is_the_loop_that_it_means(bounds):
    lower, upper = bounds
    c = 0.3
    for i in range(lower, upper):
        c = np.cos(c) + 0.1 * i

    def body(i, c):
        return qb.cos(c) + 0.1 * i

    for options in (
        {},
        {"unroll": True},
        {"unroll": 3},
        {"checkpoint": True},
        {"checkpoint": 2, "unroll": 2},
        {"max_steps": 50},
    ):
        assert_close(qb.fori_loop(lower, upper, body, 0.3, **options), qb.array(c), 1e-13)
    traced = [{}, {"max_steps": 12}, {"max_steps": 12, "checkpoint": True}, {"max_steps": 12, "checkpoint": 3}]
    for options in traced:
        for dtype in ("int64", "int32"):
            f = qb.jit(lambda lower, upper: qb.fori_loop(lower, upper, body, 0.3, **options))
            assert_close(f(integer(lower, dtype), integer(upper, dtype)), qb.array(c), 1e-13)
            assert_close(f(lower, integer(upper, dtype)), qb.array(c), 1e-13)
            assert_close(f(integer(lower, dtype), upper), qb.array(c), 1e-13)


def test_max_steps_ends_a_loop():
    count = lambda i, c: c + 1
    assert qb.fori_loop(0, 10, count, 0, max_steps=4).item() == 4
    for checkpoint in (None, True, 2):
        f = qb.jit(lambda n: qb.fori_loop(2, n, count, 0, max_steps=4, checkpoint=checkpoint))
        assert [f(integer(n)).item() for n in (-1, 2, 5, 6, 7, 100)] == [0, 0, 3, 4, 4, 4]
    w = lambda limit, most: qb.while_loop(lambda c: c < limit, lambda c: c + 1, 0, max_steps=most).item()
    assert [w(5, 0), w(5, 3), w(5, 5), w(5, 100), w(5, None), w(-1, 3), w(-1, None)] == [0, 3, 5, 5, 5, 0, 0]


def test_bounds_with_a_value_are_python_ints():
    """Tensors and NumPy integers too, also inside a traced function: so reverse mode needs no max_steps."""
    for n in (3, np.int64(3), integer(3), integer(3, "int32")):
        seen = []
        body = lambda i, c: seen.append(i) or c * 2.0
        assert qb.grad(lambda x: qb.fori_loop(0, n, body, x))(1.0).item() == 8.0
        seen.clear()
        assert qb.fori_loop(np.int32(0), n, body, 1.0, unroll=True).item() == 8.0
        assert seen == [0, 1, 2] and all(type(i) is int for i in seen)


def test_options_that_compare_equal_are_not_mixed_up():
    """True == 1 in Python, also as a key: unroll=True and unroll=1 are different programs."""
    seen = []
    body = lambda i, c: seen.append(type(i)) or c + i
    for unroll in (1, True, 1, False, True):
        assert qb.fori_loop(0, 3, body, 0, unroll=unroll).item() == 3
    assert seen.count(int) == 3
    plain = lambda x: Plain.fori_loop(0, 9, lambda i, c: qb.sin(c) * x, x)
    body = lambda i, c, x: qb.sin(c) * x
    for checkpoint in (1, True, 1, False):
        f = lambda x: qb.fori_loop(0, 9, body, x, operands=(x,), checkpoint=checkpoint)
        assert_close(qb.grad(f)(qb.array(0.7)), qb.grad(plain)(qb.array(0.7)), 1e-13)


def test_indices_are_int64_scalars():
    seen = []

    def body(i, c):
        seen.append((i.dtype, i.shape))
        return c + i

    assert qb.fori_loop(0, 5, body, 0).item() == 10
    qb.jit(lambda n: qb.fori_loop(0, n, body, 0))(integer(3, "int32"))
    qb.scan(lambda c, i: (body(i, c), None), 0, length=4)
    assert set(seen) == {(qb.int64, ())}
    x = qb.fori_loop(0, 3, lambda i, c: c * i + 0.5, qb.array(1.0, dtype=qb.float32))
    assert x.dtype == qb.float32


def test_the_body_is_traced_once():
    calls = []

    def step(c, i):
        calls.append(i)
        return qb.sin(c), c

    for _ in range(3):
        qb.scan(step, qb.array(1.0), length=100)
    assert len(calls) == 1, "an eager call finds its program"
    qb.jit(lambda x: qb.scan(step, x, length=7)[0])(qb.array(1.0))
    qb.grad(lambda x: qb.scan(step, x, length=7, checkpoint=True)[0])(qb.array(1.0))
    assert len(calls) == 1, "a body without captures keeps its trace"
    calls.clear()
    qb.scan(step, qb.array([1.0]), length=3, unroll=True)
    assert calls == [0, 1, 2]


def test_eager_calls_are_cached_by_functions_and_signature():
    calls = []
    body = lambda c: calls.append("body") or c * 2.0
    below = lambda c: calls.append("below") or c < 10.0
    above = lambda c: c < 100.0
    for _ in range(3):
        assert qb.while_loop(below, body, 1.0).item() == 16.0
        assert qb.while_loop(below, body, qb.array(3.0)).item() == 12.0
    assert calls.count("below") <= 2 and calls.count("body") <= 2
    assert qb.while_loop(above, body, 1.0).item() == 128.0


def test_while_loop_checks_before_each_iteration():
    assert qb.while_loop(lambda c: False, lambda c: c + 1, 5).item() == 5
    seen = qb.while_loop(lambda s: s["n"] < 3, lambda s: {"n": s["n"] + 1, "trace": s["trace"].at[s["n"]].set(1.0)},
                         {"n": 0, "trace": qb.zeros(5)})  # fmt: skip
    assert seen["trace"].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_while_loop_with_operands_and_captures():
    limit = qb.array(50.0)

    def f(x, w):
        y = qb.exp(x)
        return qb.while_loop(lambda c, w, s: c * y < limit, lambda c, w, s: c + w * x + s, x, operands=(w, 2))

    x, w = 0.5, 0.25
    c = x
    while c * np.exp(x) < 50:
        c = c + w * x + 2
    for g in (f, qb.jit(f)):
        assert_close(g(qb.array(x), qb.array(w)), qb.array(c), 1e-13)


def test_newton_iteration_on_many_starting_points():
    """A batched while: each example stops at its own iteration, and keeps what it has."""

    def newton(a):
        def step(s):
            x = 0.5 * (s["x"] + a / s["x"])
            return {"x": x, "old": s["x"], "steps": s["steps"] + 1}

        init = {"x": a, "old": 2.0 * a, "steps": integer(0)}
        return qb.while_loop(lambda s: qb.abs(s["x"] - s["old"]) > 1e-9 * s["x"], step, init, max_steps=100)

    a = np.geomspace(1e-3, 1e6, 37)
    got = qb.vmap(newton)(qb.array(a))
    np.testing.assert_allclose(got["x"].numpy(), np.sqrt(a), rtol=1e-14)
    one_by_one = [newton(qb.array(value)) for value in a]
    assert got["steps"].tolist() == [r["steps"].item() for r in one_by_one]
    assert len(set(got["steps"].tolist())) > 3
    slopes = qb.vmap(qb.grad(lambda a: newton(a)["x"]))(qb.array(a))
    np.testing.assert_allclose(slopes.numpy(), 0.5 / np.sqrt(a), rtol=1e-7)


def test_kalman_like_scan_of_products():
    rng = np.random.default_rng(1)
    F, Q = np.eye(4) + 0.1 * rng.normal(size=(4, 4)), 0.01 * np.eye(4)
    H, R, zs = rng.normal(size=(2, 4)), 0.1 * np.eye(2), rng.normal(size=(20, 2))
    inverse2 = lambda S, stack: (
        stack([stack([S[1, 1], -S[0, 1]]), stack([-S[1, 0], S[0, 0]])]) / (S[0, 0] * S[1, 1] - S[0, 1] * S[1, 0])
    )

    def step(state, z, F, H, stack):
        x, P = state
        x, P = F @ x, F @ P @ F.T + Q
        K = P @ H.T @ inverse2(H @ P @ H.T + R, stack)
        return (x + K @ (z - H @ x), P - K @ H @ P), x

    state = (np.zeros(4), np.eye(4))
    for z in zs:
        state, _ = step(state, z, F, H, np.stack)

    def filtered(F, zs):
        return qb.scan(lambda s, z: step(s, z, F, qb.array(H), qb.stack), (qb.zeros(4), qb.eye(4)), xs=zs)

    got, _ = filtered(qb.array(F), qb.array(zs))
    assert_close(got, tuple(qb.array(s) for s in state), 1e-12)
    plain = lambda F: qb.sum(
        Plain.scan(lambda s, z: step(s, z, F, qb.array(H), qb.stack), (qb.zeros(4), qb.eye(4)), xs=qb.array(zs))[1] ** 2
    )
    assert_close(
        qb.grad(lambda F: qb.sum(filtered(F, qb.array(zs))[1] ** 2))(qb.array(F)), qb.grad(plain)(qb.array(F)), 1e-12
    )


# -------------------------------------------------------------------------------------------------------------- carries


def test_carries_of_every_dtype_and_structure():
    init = {
        "float64": qb.array([1.0, 2.0]),
        "float32": qb.array(0.5, dtype=qb.float32),
        "bool": qb.array([True, False]),
        "int32": integer(3, "int32"),
        "uint64": integer([1, 2], "uint64"),
        "none": None,
        "point": Point(qb.array(1.0), (integer(0),)),
        "empty": (),
        "nothing": qb.zeros((0, 3)),
        "list": [qb.array(2.0)],
    }

    def body(i, c):
        return {
            "float64": c["float64"] * 1.5,
            "float32": c["float32"] + 0.25,
            "bool": qb.logical_not(c["bool"]),
            "int32": c["int32"] * 2,
            "uint64": c["uint64"] + qb.astype(i, qb.uint64),
            "none": None,
            "point": Point(c["point"].x + qb.astype(c["int32"], qb.float64), (c["point"].y[0] + i,)),
            "empty": (),
            "nothing": qb.sin(c["nothing"]),
            "list": [qb.where(c["bool"][0], c["list"][0], -c["list"][0])],
        }

    expected = init
    for i in range(3):
        expected = body(integer(i), expected)
    for options in ({}, {"unroll": 2}, {"checkpoint": True}, {"max_steps": 5}):
        got = qb.fori_loop(0, 3, body, init, **options)
        assert_same_bits(got, expected)
    assert_same_bits(qb.scan(lambda c, i: (body(i, c), None), init, length=3)[0], expected)
    bounded = qb.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, body(s[0], s[1])), (0, init), max_steps=7)
    assert_same_bits(bounded[1], expected)
    with pytest.raises(
        TypeError, match="structure"
    ):  # an index that is a Python int: uint64 plus a signed tensor is none
        qb.fori_loop(0, 3, lambda i, c: [c], init)


def test_gradients_beside_carries_without_gradient():
    """Integer and bool leaves on the way of a derivative, read by the floating ones."""

    def f(q, x):
        def step(c, i):
            n, flag, y = c["n"] + 1, qb.logical_not(c["flag"]), qb.where(c["flag"], qb.sin(c["y"]), c["y"] * x)
            return {"n": n, "flag": flag, "y": y * n}, (flag, n, y)

        c, (flags, ns, ys) = q(step, {"n": integer(0), "flag": qb.array(True), "y": x}, length=5)
        return c["y"] * c["n"] + qb.sum(qb.where(flags, ys, ys * ns))

    x = qb.array(0.4)
    for transform in (qb.grad, qb.hessian, lambda f: qb.grad(qb.grad(qb.grad(f)))):
        assert_close(transform(lambda x: f(qb.scan, x))(x), transform(lambda x: f(Plain.scan, x))(x), 1e-12)
    grads = qb.grad(lambda c: qb.fori_loop(0, 3, lambda i, c: {"n": c["n"] + i, "x": c["x"] * c["n"]}, c)["x"])(
        {"n": integer(2), "x": qb.array(3.0)}
    )
    assert grads["n"] is None and grads["x"].item() == 2 * 2 * 3


def test_numbers_in_a_carry_take_the_type_of_the_body():
    x32 = qb.array(0.5, dtype=qb.float32)
    double = qb.fori_loop(0, 3, lambda i, c: c * 2, 1)
    assert (double.item(), double.dtype) == (8, qb.int64)
    floating = qb.fori_loop(0, 3, lambda i, c: c + 0.5, 1)
    assert (floating.item(), floating.dtype) == (2.5, qb.float64)
    for carry in (qb.fori_loop(0, 3, lambda i, c: c * x32, 1.0), qb.fori_loop(0, 3, lambda i, c: c * x32, 1)):
        assert (carry.item(), carry.dtype) == (0.125, qb.float32)
    for carry in (
        qb.scan(lambda c, i: (c + x32, i), 0.0, length=2)[0],
        qb.while_loop(lambda c: c < 1, lambda c: c + x32, 0),
    ):
        assert (carry.item(), carry.dtype) == (1.0, qb.float32)
    assert qb.fori_loop(0, 3, lambda i, c: c * x32, 1, unroll=True).dtype == qb.float32
    assert qb.fori_loop(0, 0, lambda i, c: c * x32, 1).dtype == qb.float32, "the trip count does not decide the type"
    mixed = qb.scan(lambda c, i: ({"a": c["a"] + c["b"], "b": c["b"]}, None), {"a": 0, "b": qb.array(1.5)}, length=3)[0]
    assert (mixed["a"].item(), mixed["a"].dtype) == (4.5, qb.float64)
    chain = qb.fori_loop(0, 4, lambda i, c: (c[1], c[2], c[2] + x32), (0, 0, 0))
    assert [leaf.dtype for leaf in chain] == [qb.float32] * 3 and [leaf.item() for leaf in chain] == [1.0, 1.5, 2.0]
    weak = qb.fori_loop(0, 3, lambda i, c: c * 1.5, 1.0)
    assert (weak * x32).dtype == qb.float32, "a result made of numbers only is a number to whatever it meets"
    assert qb.jit(lambda x: qb.fori_loop(0, 3, lambda i, c: c * 1.5, 1.0) * x)(x32).dtype == qb.float32
    assert (qb.fori_loop(0, 3, lambda i, c: c * qb.array(1.0), 1.0)).weak is False
    constant = qb.scan(lambda c, i: (0, 2), x32, length=2)
    assert constant[0].dtype == qb.float32 and constant[1].dtype == qb.int64
    flags = qb.fori_loop(0, 3, lambda i, c: qb.logical_not(c), True)
    assert flags.dtype == qb.bool_ and not flags.item()


def test_size_zero():
    empty = qb.zeros((0,))
    carry, ys = qb.scan(lambda c, x: (qb.sin(c), qb.sum(c) + x), empty, xs=qb.arange(3.0))
    assert carry.shape == (0,) and ys.tolist() == [0.0, 1.0, 2.0]
    carry, ys = qb.scan(lambda c, x: (c + qb.sum(x), x), 0.0, xs=qb.zeros((3, 0, 2)))
    assert carry.item() == 0.0 and ys.shape == (3, 0, 2)
    for length in (0, 1):
        f = lambda x: qb.scan(lambda c, i: (qb.sin(c) * x, {"y": c, "n": i}), x, length=length)
        carry, ys = f(qb.array([0.5, 1.0]))
        assert ys["y"].shape == (length, 2) and ys["n"].shape == (length,) and ys["n"].dtype == qb.int64
        for options in ({}, {"checkpoint": True}, {"unroll": 2}, {"unroll": True}):
            g = lambda x: qb.sum(qb.scan(lambda c, i: (qb.sin(c) * x, c), x, length=length, **options)[0])
            plain = lambda x: qb.sum(qb.sin(x) * x if length else x)
            x = qb.array([0.5, 1.0])
            assert_close(qb.grad(g)(x), qb.grad(plain)(x), 1e-14)
            assert_close(qb.hessian(g)(x), qb.hessian(plain)(x), 1e-14)
    assert qb.scan(lambda c, i: (c, None), (), length=3) == ((), None)
    assert qb.fori_loop(0, 3, lambda i, c: c, {}) == {}
    empty_batch = qb.vmap(lambda x: qb.fori_loop(0, 3, lambda i, c: c * x, x))(qb.zeros((0, 2)))
    assert empty_batch.shape == (0, 2)
    assert qb.vmap(lambda x: qb.while_loop(lambda c: c < 5, lambda c: c + x, x))(qb.zeros((0,))).shape == (0,)


def test_an_unchanged_and_an_unused_carry():
    w = qb.array([1.0, 2.0])
    carry, ys = qb.scan(lambda c, x: (c, c["w"] * x), {"w": w, "unused": qb.ones(3)}, xs=qb.arange(4.0))
    assert_same_bits(carry, {"w": w, "unused": qb.ones(3)})
    assert_close(ys, qb.outer(qb.arange(4.0), w))
    f = lambda w: qb.sum(qb.scan(lambda c, x: (c, c * x), w, xs=qb.arange(4.0))[1])
    assert qb.grad(f)(w).tolist() == [6.0, 6.0]
    swapped = qb.fori_loop(0, 5, lambda i, c: (c[1], c[0]), (qb.array(1.0), qb.array(2.0)))
    assert [leaf.item() for leaf in swapped] == [2.0, 1.0]
    rotated = qb.fori_loop(0, 4, lambda i, c: (c[2], c[0], c[1]), tuple(qb.array(float(k)) for k in range(3)))
    assert [leaf.item() for leaf in rotated] == [2.0, 0.0, 1.0]
    same = qb.scan(lambda c, i: (c[::-1], (c, c, c[0])), qb.array([1.0, 2.0]), length=3)
    assert same[1][0].tolist() == same[1][1].tolist() == [[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]


# ------------------------------------------------------------------------------------------------------- captured tracers


def test_captures_at_any_depth():
    """A tracer of each enclosing transform, met in the innermost body."""

    def f(q):
        def outer(a):
            def middle(b):
                def body(i, c):
                    return qb.sin(c * a) + q(0, 2, lambda j, d: d * b + a * c, b)

                return q(0, 3, body, a * b)

            return qb.grad(middle)(a * 0.5) * a

        return outer

    a = qb.array(0.7)
    for transform in (lambda g: g, qb.grad, lambda g: qb.grad(qb.grad(g)), qb.hessian, qb.jit):
        assert_close(transform(f(qb.fori_loop))(a), transform(f(Plain.fori_loop))(a), 1e-12)
    batch = qb.array([0.1, 0.7, -0.3])
    assert_close(qb.vmap(qb.grad(f(qb.fori_loop)))(batch), qb.vmap(qb.grad(f(Plain.fori_loop)))(batch), 1e-12)


def test_eager_constants_in_bodies():
    w, n = qb.array([1.0, 2.0]), np.array([3.0, 4.0])
    f = lambda x: qb.fori_loop(0, 3, lambda i, c: c * w + n + x, w)
    x = qb.array(0.5)
    assert_close(f(x), Plain.fori_loop(0, 3, lambda i, c: c * w + n + x, w))
    assert_close(qb.jacobian(f)(x), qb.jacobian(lambda x: Plain.fori_loop(0, 3, lambda i, c: c * w + n + x, w))(x))


def test_a_concrete_call_that_captures_an_outer_tracer():
    """All arguments have values, so the call could run at once, but the body closes over a tracer."""

    def f(x):
        total = qb.fori_loop(0, 3, lambda i, c: c + x * i, 0.0)
        carry, ys = qb.scan(lambda c, i: (c * x, c), 1.0, length=4)
        return total + carry + qb.sum(ys) + qb.while_loop(lambda c: c < 10, lambda c: c + x, 0.0, max_steps=20)

    def plain(x):
        carry, ys = Plain.scan(lambda c, i: (c * x, qb.asarray(c)), 1.0, length=4)
        return 3 * x + carry + qb.sum(ys) + 5 * x

    x = qb.array(2.0)
    for transform in (lambda g: g, qb.grad, qb.hessian, qb.jit):
        assert_close(transform(f)(x), transform(plain)(x), 1e-13)


def test_a_tracer_that_escapes_a_body():
    kept = []

    def body(i, c):
        kept.append(c)
        return c * 2.0

    qb.fori_loop(0, 3, body, qb.array(1.0))
    with pytest.raises(qb.TracerError, match="escaped"):
        kept[0] + 1.0
    with pytest.raises(qb.TracerError):
        qb.fori_loop(0, 3, lambda i, c: c * kept[0], 1.0)


def test_a_body_that_fails_leaves_nothing_behind():
    def bad(i, c):
        raise KeyError("mine")

    for call in (lambda: qb.fori_loop(0, 3, bad, 1.0), lambda: qb.grad(lambda x: qb.fori_loop(0, 3, bad, x))(1.0)):
        with pytest.raises(KeyError, match="mine"):
            call()
    assert qb.fori_loop(0, 3, lambda i, c: c + 1, 0).item() == 3


# ----------------------------------------------------------------------------------------------------------------- vmap


def stacked(rows):
    return qb.tree.map(lambda *r: qb.stack(list(r)), *rows)


def test_vmap_over_every_part_of_a_loop():
    """Carry, rows, operands, captures, bounds: every combination, against a Python loop over examples."""
    rng = np.random.default_rng(2)
    values = {
        "init": qb.array(rng.normal(size=(4, 3))),
        "xs": qb.array(rng.normal(size=(4, 5, 3))),
        "operand": qb.array(rng.normal(size=4)),
        "capture": qb.array(rng.normal(size=4)),
        "count": integer([0, 3, 5, 2]),
    }

    def f(init, xs, operand, capture, count):
        def step(c, row, w):
            return {"c": qb.sin(c["c"] * w) + row, "n": c["n"] + 1}, qb.sum(c["c"]) * capture

        carry, ys = qb.scan(step, {"c": init, "n": integer(0)}, xs=xs, operands=(operand,))
        bounded = qb.fori_loop(0, count, lambda i, c: c * capture + xs[i], init, max_steps=5)
        unbounded = qb.fori_loop(0, count, lambda i, c: c * operand + i, init[0])
        return carry, ys, bounded, unbounded

    single = qb.jit(f)
    for bits in range(1, 32):
        axes = tuple(0 if bits >> k & 1 else None for k in range(5))
        args = [value if axis == 0 else value[1] for value, axis in zip(values.values(), axes)]
        rows = [single(*(value[k] if axis == 0 else value for value, axis in zip(args, axes))) for k in range(4)]
        assert_close(qb.vmap(f, in_axes=axes)(*args), stacked(rows), 1e-13, str(axes))


def test_vmap_over_bounds():
    f = lambda lower, upper, x: qb.fori_loop(lower, upper, lambda i, c: c * x + i, 1.0, max_steps=6)
    lower, upper, x = integer([0, 2, 3, 1]), integer([4, 2, 9, 0]), qb.array([0.5, 1.5, 0.9, 2.0])
    for axes in ((0, 0, 0), (0, None, 0), (None, 0, None), (0, 0, None), (None, 0, 0)):
        args = [v if a == 0 else v[2] for v, a in zip((lower, upper, x), axes)]
        rows = [qb.jit(f)(*(v[k] if a == 0 else v for v, a in zip(args, axes))) for k in range(4)]
        assert_close(qb.vmap(f, in_axes=axes)(*args), qb.stack(rows), 1e-14)
        g = qb.grad(f, argnums=2)
        rows = [qb.jit(g)(*(v[k] if a == 0 else v for v, a in zip(args, axes))) for k in range(4)]
        assert_close(qb.vmap(g, in_axes=axes)(*args), qb.stack(rows), 1e-13)
        h = qb.grad(qb.grad(f, argnums=2), argnums=2)
        rows = [qb.jit(h)(*(v[k] if a == 0 else v for v, a in zip(args, axes))) for k in range(4)]
        assert_close(qb.vmap(h, in_axes=axes)(*args), qb.stack(rows), 1e-13)


def test_vmap_of_while_freezes_examples_that_are_done():
    def f(x, limit, step):
        return qb.while_loop(
            lambda s: s[0] < limit,
            lambda s: (s[0] + step, s[1] + 1, qb.log(limit + 5 - s[0])),
            (x, 0, 0.0),
            max_steps=50,
        )

    x, limit, step = qb.array([0.0, 9.0, 2.5, 40.0]), qb.array([10.0, 9.5, 3.0, 1.0]), qb.array([1.0, 0.25, 5.0, 1.0])
    for axes in ((0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0), (0, 0, None)):
        args = [v if a == 0 else v[0] for v, a in zip((x, limit, step), axes)]
        rows = [qb.jit(f)(*(v[k] if a == 0 else v for v, a in zip(args, axes))) for k in range(4)]
        got = qb.vmap(f, in_axes=axes)(*args)
        assert_close(got, stacked(rows), 1e-14)
        total = lambda *args: f(*args)[0] * 2.0 + f(*args)[2]
        for g in (qb.grad(total, argnums=(0, 1, 2)), qb.jacfwd(total, argnums=(0, 1, 2))):
            rows = [qb.jit(g)(*(v[k] if a == 0 else v for v, a in zip(args, axes))) for k in range(4)]
            assert_close(qb.vmap(g, in_axes=axes)(*args), stacked(rows), 1e-13)


def test_a_finished_example_injects_no_nan():
    """Going on would give NaN in value and derivative: log of what has become negative."""

    def f(x):
        return qb.while_loop(lambda c: c > 1.0, lambda c: qb.log(c), x, max_steps=10)

    batch = np.array([1.5, 20.0, 1e6, 0.5])
    assert_close(qb.vmap(f)(qb.array(batch)), qb.stack([f(qb.array(b)) for b in batch]), 1e-14)
    for g in (qb.grad(f), qb.grad(qb.grad(f)), qb.hessian(f)):
        expected = qb.stack([g(qb.array(b)) for b in batch])
        assert np.isfinite(expected.numpy()).all()
        assert_close(qb.vmap(g)(qb.array(batch)), expected, 1e-13)
    assert_close(qb.grad(lambda b: qb.sum(qb.vmap(f)(b)))(qb.array(batch)), qb.vmap(qb.grad(f))(qb.array(batch)), 1e-13)


def test_vmap_of_vmap_and_other_axes():
    f = lambda x, w: qb.scan(lambda c, r: (qb.sin(c * w) + r, c), w, xs=x)
    x, w = qb.array(np.random.default_rng(4).normal(size=(3, 2, 5))), qb.array([0.3, 0.9, -0.4])
    got = qb.vmap(qb.vmap(f, in_axes=(0, None)), in_axes=(0, 0))(x, w)
    rows = [stacked([qb.jit(f)(x[a, b], w[a]) for b in range(2)]) for a in range(3)]
    assert_close(got, stacked(rows), 1e-14)
    moved = qb.vmap(f, in_axes=(1, None), out_axes=(0, 1))(qb.swapaxes(x[0], 0, 1), w[0])
    expected = qb.vmap(f, in_axes=(0, None), out_axes=(0, 1))(x[0], w[0])
    assert_same_bits(moved, expected)


def test_unmapped_loops_stay_unmapped():
    f = lambda x, y: (x, qb.fori_loop(0, 5, lambda i, c: qb.sin(c), y))
    _, shared = qb.vmap(f, in_axes=(0, None), out_axes=(0, None))(qb.arange(3.0), qb.array(0.5))
    assert shared.shape == ()

    def g(x, y):  # one leaf of the carry never meets x
        c = qb.scan(lambda c, i: ({"x": c["x"] * x, "y": qb.sin(c["y"])}, None), {"x": x, "y": y}, length=4)[0]
        return c["x"], c["y"]

    mapped, shared = qb.vmap(g, in_axes=(0, None), out_axes=(0, None))(qb.arange(3.0), qb.array(0.5))
    assert mapped.shape == (3,) and shared.shape == ()


# ------------------------------------------------------------------------------------------------------ size of the graph


def lines(f, *args):
    return len(qb.jit(f).lower(*args).as_text().splitlines())


def test_the_size_of_the_graph_does_not_depend_on_the_trip_count():
    x = qb.array([0.5, 1.0])

    def scan(n, **options):
        return lambda x: qb.sum(qb.scan(lambda c, i: (qb.sin(c) * x, qb.sum(c)), x, length=n, **options)[1])

    def fori(n):
        return lambda x: qb.sum(qb.fori_loop(0, n, lambda i, c: qb.sin(c) * x, x))

    def bounded(n):
        return lambda x: qb.sum(qb.while_loop(lambda c: c[0] < 3, lambda c: qb.sin(c) + c * x, x, max_steps=n))

    twice = lambda f: qb.grad(lambda x: qb.sum(qb.grad(f)(x) ** 2))
    batched = lambda f: lambda x: qb.vmap(qb.grad(f))(qb.stack([x, 2.0 * x]))
    for transform in (lambda f: f, qb.grad, qb.hessian, twice, batched):
        for make in (scan, fori, bounded):
            few, many = lines(transform(make(10)), x), lines(transform(make(1_000_000)), x)
            assert few == many < 400
    for options in ({"checkpoint": True}, {"unroll": 4}):  # no rest: 16 and 1,000,000 are squares and multiples of 4
        assert lines(qb.grad(scan(16, **options)), x) == lines(qb.grad(scan(1_000_000, **options)), x)


def test_nested_derivatives_of_nested_loops_stay_small():
    def f(x):
        inner = lambda c: qb.scan(lambda d, i: (qb.sin(d) * c, None), c, length=100)[0]
        return qb.scan(lambda c, i: (inner(c) + x, None), x, length=100)[0]

    g, sizes = f, []
    for _ in range(3):
        g = qb.grad(g)
        sizes.append(lines(g, qb.array(0.3)))
    assert sizes[2] < 3000, sizes


def test_the_text_names_the_loop():
    text = qb.jit(lambda x: qb.fori_loop(0, 7, lambda i, c: qb.sin(c), x)).lower(qb.array(1.0)).as_text()
    assert re.search(r"\bloop\b", text) and "sin" in text, text


# --------------------------------------------------------------------------------------------------------------- errors


def test_a_body_that_changes_its_carry():
    state = {"a": qb.zeros(3), "b": (qb.array(1.0), integer(0))}
    cases = [
        (lambda c: {"a": c["a"][:2], "b": c["b"]}, r"carry at 'a'.*float64 of shape \(3,\).*float64 of shape \(2,\)"),
        (
            lambda c: {"a": c["a"], "b": (c["b"][0], c["b"][1] + 0.5)},
            r"carry at 'b/1'.*int64 of shape \(\).*float64 of shape \(\)",
        ),
        (lambda c: {"a": c["a"] > 0, "b": c["b"]}, r"carry at 'a'.*float64.*bool"),
        (lambda c: {"a": qb.astype(c["a"], qb.float32), "b": c["b"]}, r"carry at 'a'.*float64.*float32"),
        (lambda c: {"a": c["a"]}, r"structure.*'b/0' is missing"),
        (lambda c: {"a": c["a"], "b": (*c["b"], c["a"])}, r"structure.*'b/2' is new"),
        (lambda c: (c["a"], c["b"]), "structure"),
        (lambda c: None, "structure"),
    ]
    for change, message in cases:
        for call in (
            lambda: qb.fori_loop(0, 3, lambda i, c: change(c), state),
            lambda: qb.scan(lambda c, i: (change(c), None), state, length=3),
            lambda: qb.while_loop(lambda c: c["a"][0] < 1, change, state),
            lambda: qb.fori_loop(0, 3, lambda i, c: change(c), state, unroll=True),
            lambda: qb.jit(lambda s: qb.fori_loop(0, 3, lambda i, c: change(c), s))(state),
        ):
            with pytest.raises(TypeError, match=message):
                call()
    with pytest.raises(TypeError, match="carry: it comes in as float64"):  # a single leaf has no path
        qb.fori_loop(0, 3, lambda i, c: qb.stack([c, c]), qb.array(1.0))
    with pytest.raises(TypeError, match=r"carry.*float64 of shape \(\).*\(2,\)"):
        qb.fori_loop(0, 3, lambda i, c: c * qb.ones(2), 1.0)


def test_bounds_and_counts_that_are_none():
    same = lambda i, c: c
    for bad in (1.0, True, "3", None, qb.array(3.0), np.float64(2)):
        with pytest.raises(TypeError, match="upper must be an integer"):
            qb.fori_loop(0, bad, same, 1.0)
        with pytest.raises(TypeError, match="lower must be an integer"):
            qb.fori_loop(bad, 3, same, 1.0)
    for bad in (qb.array(3.0), integer([3]), qb.array(True)):
        with pytest.raises(TypeError, match="upper must be an integer scalar.*int64"):
            qb.jit(lambda n: qb.fori_loop(0, n, same, 1.0))(bad)
    pair = lambda c, i: (c, None)
    for bad in (1.0, True, "3", (3,)):
        with pytest.raises(TypeError, match="length must be an int"):
            qb.scan(pair, 1.0, length=bad)
    with pytest.raises(ValueError, match="length must be at least 0, got -1"):
        qb.scan(pair, 1.0, length=-1)
    with pytest.raises(TypeError, match="length must be known"):
        qb.jit(lambda n: qb.scan(pair, 1.0, length=n)[0])(integer(3))
    for bad in (1.5, True, "x"):
        with pytest.raises(TypeError, match="max_steps must be an int"):
            qb.while_loop(lambda c: c < 1, lambda c: c, 1.0, max_steps=bad)
        with pytest.raises(TypeError, match="max_steps must be an int"):
            qb.fori_loop(0, 3, same, 1.0, max_steps=bad)
    for call in (
        lambda: qb.scan(pair, 1.0, length=2**63),
        lambda: qb.fori_loop(0, 2**63, same, 1.0),
        lambda: qb.fori_loop(-(2**64), 3, same, 1.0),
        lambda: qb.while_loop(lambda c: c < 1, lambda c: c, 1.0, max_steps=2**63),
    ):
        with pytest.raises(ValueError, match="9223372036854775807"):
            call()
    with pytest.raises(ValueError, match="max_steps must be at least 0"):
        qb.while_loop(lambda c: c < 1, lambda c: c, 1.0, max_steps=-1)


def test_options_of_a_wrong_kind():
    same, pair = (lambda i, c: c), (lambda c, i: (c, None))
    for bad in (0.5, "2", None):
        with pytest.raises(TypeError, match="unroll"):
            qb.fori_loop(0, 3, same, 1.0, unroll=bad)
        with pytest.raises(TypeError, match="unroll"):
            qb.scan(pair, 1.0, length=3, unroll=bad)
    for bad in (0, -1):
        with pytest.raises(ValueError, match="unroll"):
            qb.scan(pair, 1.0, length=3, unroll=bad)
        with pytest.raises(ValueError, match="checkpoint"):
            qb.scan(pair, 1.0, length=3, checkpoint=bad)
    for bad in (0.5, "2"):
        with pytest.raises(TypeError, match="checkpoint"):
            qb.fori_loop(0, 3, same, 1.0, checkpoint=bad)
    with pytest.raises(TypeError, match="reverse must be a bool"):
        qb.scan(pair, 1.0, length=3, reverse=1)
    with pytest.raises(ValueError, match="unroll=True leaves no loop"):
        qb.scan(pair, 1.0, length=3, unroll=True, checkpoint=True)
    for options, message in (
        ({"unroll": 2}, "unroll needs bounds"),
        ({"unroll": True}, "unroll needs bounds"),
        ({"checkpoint": True}, "max_steps"),
    ):
        with pytest.raises(ValueError, match=message):
            qb.jit(lambda n: qb.fori_loop(0, n, same, 1.0, **options))(integer(3))
    for call in (
        lambda: qb.scan(1, 2.0, length=3),
        lambda: qb.fori_loop(0, 3, None, 1.0),
        lambda: qb.while_loop(1, same, 2.0),
        lambda: qb.while_loop(same, 1, 2.0),
    ):
        with pytest.raises(TypeError, match="must be a function"):
            call()
    with pytest.raises(TypeError, match="operands must be a tuple"):
        qb.fori_loop(0, 3, lambda i, c, w: c, 1.0, operands=qb.array(1.0))


def test_rows_that_do_not_fit():
    pair = lambda c, x: (c, None)
    with pytest.raises(ValueError, match="length=, or xs"):
        qb.scan(pair, 1.0)
    with pytest.raises(ValueError, match="xs with at least one array"):
        qb.scan(pair, 1.0, xs=())
    with pytest.raises(ValueError, match=r"leading extent: 3 at 'a', 4 at 'b/0'"):
        qb.scan(pair, 1.0, xs={"a": qb.zeros(3), "b": [qb.zeros((4, 2))]})
    with pytest.raises(ValueError, match="xs at 'a' is a scalar"):
        qb.scan(pair, 1.0, xs={"a": qb.array(1.0)})
    with pytest.raises(ValueError, match="xs at '1' is a scalar"):
        qb.scan(pair, 1.0, xs=[qb.zeros(2), 3.0])
    with pytest.raises(ValueError, match="length is 4, but the leading extent of xs is 3"):
        qb.scan(pair, 1.0, xs=qb.zeros(3), length=4)


def test_results_that_do_not_fit():
    for result, got in ((lambda c: c, "TraceTensor"), (lambda c: (c, c, c), "3 values"), (lambda c: None, "NoneType")):
        with pytest.raises(TypeError, match=f"pair \\(carry, y\\), got {got}"):
            qb.scan(lambda c, i: result(c), qb.array(1.0), length=2)
    body = lambda c: c * 2.0
    for condition, got in (
        (lambda c: c, "float64"),
        (lambda c: qb.stack([c, c]) > 0, r"bool of shape \(2,\)"),
        (lambda c: (c > 0,), "structure"),
        (lambda c: 1, "int64"),
    ):
        with pytest.raises(TypeError, match=f"cond_fun must return a bool scalar.*{got}"):
            qb.while_loop(condition, body, qb.array(1.0))
    with pytest.raises(TypeError, match="returned str"):
        qb.scan(lambda c, i: (c, "text"), 1.0, length=2)
    with pytest.raises(TypeError, match="structure"):
        qb.scan(lambda c, i: (c, (c,) * i), 1.0, length=2, unroll=True)


# ------------------------------------------------------------------------------------------------------------ interrupts


def test_an_interrupt_ends_a_running_loop():
    """Loops without end, eager, compiled, batched and nested: KeyboardInterrupt, and the library works on."""
    code = """
        import os, signal, threading
        import quabla as qb

        endless = lambda x: qb.while_loop(lambda c: c[0] < 2.0, lambda c: qb.sin(c), x)
        nested = lambda x: qb.fori_loop(0, 10**12, lambda i, c: qb.fori_loop(0, 1000, lambda j, d: qb.sin(d) + x, c), x)
        x = qb.ones(3)
        for call in (lambda: endless(x), lambda: qb.jit(nested)(x), lambda: qb.vmap(endless)(qb.ones((2, 3)))):
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                call()
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("the loop ended by itself")
            timer.join()
            assert qb.fori_loop(0, 10, lambda i, c: c + 1, 0).item() == 10
        print("done")
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "done", result.stderr


def test_a_signal_handler_runs_while_a_loop_runs():
    """A handler that returns does not end the loop."""
    seen = []
    previous = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        code = qb.jit(lambda x: qb.fori_loop(0, 200_000, lambda i, c: qb.sin(c) + x, x))
        code(qb.ones(8))
        os.kill(os.getpid(), signal.SIGUSR1)
        code(qb.ones(8))
        assert seen == [1]
    finally:
        signal.signal(signal.SIGUSR1, previous)
