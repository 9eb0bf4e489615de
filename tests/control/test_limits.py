"""Control flow at its limits: deep nests, many loops, what does not fit into memory, threads, functions that are gone."""

import gc
import threading
import weakref

import numpy as np
import pytest
import quabla as qb
from compare import assert_close, assert_same_bits

X = qb.array([0.3, -0.2, 0.5])
DEPTH = 20


def innermost(c, z):
    return c + 0.001 * qb.sin(c * z)


def nest_of_loops(depth, z):
    """The carries of all but the outermost start without a derivative; half of the loops run once, the others twice."""

    def level(d, c):
        if d == 0:
            return innermost(c, z)
        return 0.5 * qb.fori_loop(0, 1 + d % 2, lambda i, a: level(d - 1, a), qb.ones((3,))) + 0.5 * c

    return qb.sum(level(depth, z))


def nest_of_conditioned_loops(depth, z):
    def level(d, c):
        if d == 0:
            return innermost(c, z)
        step = lambda s: (level(d - 1, s[0]), s[1] + 1)
        return qb.while_loop(lambda s: s[1] < 1 + d % 2, step, (c, qb.array(0, dtype="int64")), max_steps=2)[0]

    return qb.sum(level(depth, z))


def nest_of_branches(depth, z):
    def level(d, c):
        if d == 0:
            return innermost(c, z)
        return qb.cond(qb.sum(c) > -10.0 * d, lambda c: level(d - 1, c * 0.9), lambda c: qb.ones((3,)), c)

    return qb.sum(level(depth, z))


@pytest.mark.parametrize("nest", [nest_of_loops, nest_of_conditioned_loops, nest_of_branches])
def test_deep_nests(nest):
    """Each graph is transformed once, however deep it lies: a nest costs what its depth costs, not a power of it (which would not
    end).

    Reverse mode against differences, the other transforms against it.
    """
    f = lambda z: nest(DEPTH, z)
    value, gradient = qb.value_and_grad(f)(X)
    v = qb.array([0.5, 1.0, -1.0])
    step = 1e-5
    difference = (f(X + step * v) - f(X - step * v)) / (2 * step)
    assert_close(qb.sum(gradient * v), difference, 1e-7)
    assert_close(qb.jvp(f, (X,), (v,)), (value, qb.sum(gradient * v)), 1e-12)
    curvature = qb.jvp(qb.grad(f), (X,), (v,))[1]
    assert_close(qb.grad(lambda z: qb.sum(qb.grad(f)(z) * v))(X), curvature, 1e-12)
    batch = qb.stack([X, 0.5 * X])
    assert_close(qb.vmap(qb.grad(f))(batch)[0], gradient, 1e-12)
    assert_close(qb.vmap(f)(batch), qb.stack([f(X), f(0.5 * X)]), 1e-12)


def test_many_loops_in_a_row():
    def f(z):
        c = z
        for k in range(1000):
            c = qb.fori_loop(0, 2, lambda i, c, k=k: qb.sin(c) * z + 0.001 * k, c)
        return qb.sum(c)

    def unrolled(z):
        c = z
        for k in range(1000):
            for _ in range(2):
                c = qb.sin(c) * z + 0.001 * k
        return qb.sum(c)

    assert_close(qb.value_and_grad(f)(X), qb.value_and_grad(unrolled)(X), 1e-12)


def test_what_does_not_fit_into_memory():
    """An error, at once, and the library works on."""
    body = lambda i, c: qb.sin(c) * X
    long = lambda count: lambda z: qb.sum(qb.fori_loop(0, count, body, z))
    nested = lambda z: qb.sum(qb.fori_loop(0, 10**10, lambda i, c: qb.fori_loop(0, 10**10, body, c), z))
    with pytest.raises(MemoryError, match="out of memory"):
        qb.grad(long(10**13))(X)
    with pytest.raises(MemoryError, match="out of memory"):
        qb.scan(lambda c, i: (c, c), X, length=10**14)
    with pytest.raises(ValueError, match="too many elements"):
        qb.grad(long(10**18))(X)
    with pytest.raises(ValueError, match="too many elements"):
        qb.grad(nested)(X)
    assert_close(qb.grad(long(3))(X), qb.grad(lambda z: qb.sum(body(0, body(0, body(0, z)))))(X), 1e-14)


def test_indices_at_the_ends_of_int64():
    most, least = 2**63 - 1, -(2**63)
    integer = lambda n: qb.array(n, dtype="int64")
    count = qb.jit(lambda a, b: qb.fori_loop(a, b, lambda i, c: c + 1, 0))
    assert count(integer(most - 3), integer(most)).item() == 3
    assert count(integer(least), integer(least + 3)).item() == 3
    assert qb.fori_loop(most - 3, most, lambda i, c: i, 0).item() == most - 1
    assert qb.fori_loop(-most, 2 - most, lambda i, c: i, 0).item() == 1 - most
    with pytest.raises(ValueError, match=f"scan: length must be at most {most}"):
        qb.scan(lambda c, i: (c, None), X, length=2**63)
    with pytest.raises(ValueError, match=f"fori_loop: upper must be between -{most} and {most}"):
        qb.fori_loop(0, 10**30, lambda i, c: c, X)


def test_threads_run_and_trace_at_once():
    def f(z, n):
        inner = lambda i, c: qb.scan(lambda d, r: (qb.sin(d * r) + c, d), c, xs=qb.outer(z, c))[0]
        return qb.fori_loop(0, n, inner, z)

    program, n = qb.jit(f), qb.array(20, dtype="int64")
    arrays = [qb.array(np.random.default_rng(k).normal(size=3)) for k in range(6)]
    expected = [np.asarray(program(a, n)) for a in arrays]
    failures = []

    def work(k):
        try:
            for _ in range(50):
                assert_same_bits(program(arrays[k], n), expected[k])
            for j in range(5):
                of = lambda loop: qb.grad(lambda z: qb.sum(loop(z)))(arrays[k])
                body = lambda z: lambda i, c: qb.sin(c) * z + 0.1 * k + j
                looped = of(lambda z: qb.fori_loop(0, 4, body(z), z))
                assert_close(looped, of(lambda z: qb.fori_loop(0, 4, body(z), z, unroll=True)), 1e-12)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_functions_that_are_gone_are_forgotten():
    """With the programs and traces that were made of them."""

    def once(k):
        branch = qb.checkpoint(lambda d: qb.sin(d) * k)
        step = lambda c, r: (qb.cond(qb.sum(c) > 0, branch, lambda d: d * r, c), c)
        test = lambda c: qb.sum(c) < k
        custom = qb.custom_vjp(lambda z: qb.while_loop(test, lambda c: c + 1.0, z, max_steps=3))
        custom.defvjp(lambda z: (custom(z), z), lambda z, ct: (ct * z,))
        f = lambda z: qb.sum(custom(qb.scan(step, z, xs=qb.outer(z, z))[0]))
        qb.jit(qb.grad(f))(X)
        qb.vmap(qb.grad(f))(qb.stack([X, X]))
        qb.scan(step, X, xs=qb.outer(X, X))
        return [weakref.ref(function) for function in (branch, step, test, custom, f)]

    references = [reference for k in range(3) for reference in once(float(k))]
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)


def test_nested_carries_of_numbers_are_traced_once_a_level():
    calls = []

    def nest(depth, x):
        def body(i, c):
            calls.append(depth)
            return c * 0.5 + x if depth == 1 else c + nest(depth - 1, x * 1.1)

        return qb.fori_loop(0, 2, body, 0.0)

    x = qb.array(0.3)
    value = qb.jit(lambda x: nest(12, x))(x)
    assert len(calls) == 12
    assert value.dtype == qb.float64 and not value.weak
    expected = 0.3 * 1.1**11 * 1.5 * 2**11
    assert value.item() == pytest.approx(expected, rel=1e-12)
