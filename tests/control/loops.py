"""Programs with control flow, each beside the plain Python program that it means.

A program is a function of a vector x of three elements that gives a scalar. `plain` has no loop and no branch in its
graph: Python runs the loop while tracing, and takes the branches that the values at x take.
"""

from collections import namedtuple

import numpy as np
import quabla as qb

X = np.array([0.4, -0.7, 0.9])
V = np.array([0.3, 1.2, -0.5])

Pair = namedtuple("Pair", ["controlled", "plain"])
State = namedtuple("State", ["position", "rest"])

PAIRS = {}


def pair(make):
    """make(namespace) is the program, written with the functions of the namespace: real control flow, or none."""
    PAIRS[make.__name__] = Pair(make(Real), make(Plain))
    return make


class Real:
    """The functions of Quabla."""

    cond = staticmethod(qb.cond)
    switch = staticmethod(qb.switch)
    scan = staticmethod(qb.scan)
    fori_loop = staticmethod(qb.fori_loop)

    @staticmethod
    def while_loop(cond_fun, body_fun, init, steps, max_steps):
        return qb.while_loop(cond_fun, body_fun, init, max_steps=max_steps)


class Plain:
    """The same meaning by Python: `steps` and the truth of a predicate are known to whoever wrote the program."""

    @staticmethod
    def cond(pred, true_fun, false_fun, *operands):
        return qb.tree.map(lambda a, b: qb.where(pred, a, b), true_fun(*operands), false_fun(*operands))

    @staticmethod
    def switch(index, branches, *operands):
        result = branches[0](*operands)
        for k, branch in enumerate(branches[1:], 1):
            result = qb.tree.map(lambda a, b: qb.where(qb.equal(index, k), a, b), branch(*operands), result)
        return result

    @staticmethod
    def scan(f, init, *, length=None, xs=None, operands=(), reverse=False, unroll=False, checkpoint=None):
        count = length if xs is None else qb.tree.leaves(xs)[0].shape[0]
        carry, ys = init, [None] * count
        for i in reversed(range(count)) if reverse else range(count):
            carry, ys[i] = f(carry, i if xs is None else qb.tree.map(lambda leaf: leaf[i], xs), *operands)
        return carry, qb.tree.map(lambda *rows: qb.stack(list(rows)), *ys)

    @staticmethod
    def fori_loop(lower, upper, body_fun, init, *, operands=(), unroll=False, checkpoint=None, max_steps=None):
        for i in range(lower, int(upper)):
            init = body_fun(i, init, *operands)
        return init

    @staticmethod
    def while_loop(cond_fun, body_fun, init, steps, max_steps):
        for _ in range(steps):
            init = body_fun(init)
        return init


@pair
def fori(q):
    def f(x):
        return qb.sum(q.fori_loop(0, 5, lambda i, c: qb.sin(c) * x + 0.1 * i * c**2, x + 0.2))

    return f


@pair
def fori_with_operands_unrolled(q):
    def f(x):
        w = qb.cos(x)
        return qb.sum(q.fori_loop(2, 9, lambda i, c, w: qb.tanh(c * w) + x / (1 + i), x, operands=(w,), unroll=3))

    return f


@pair
def fori_checkpointed(q):
    def f(x):
        return qb.sum(q.fori_loop(0, 11, lambda i, c: qb.sin(c) + 0.3 * x * c, x, checkpoint=True))

    return f


@pair
def fori_with_a_bound_found_at_run_time(q):
    def f(x):
        count = 6 if q is Plain else qb.astype(qb.sum(x) * 0, qb.int64) + 6
        return qb.sum(q.fori_loop(1, count, lambda i, c: qb.sin(c) * x + 0.1 * i, x, max_steps=9))

    return f


@pair
def fori_with_a_bound_found_at_run_time_checkpointed(q):
    def f(x):
        count = 8 if q is Plain else qb.astype(qb.sum(x) * 0, qb.int64) + 8
        return qb.sum(q.fori_loop(1, count, lambda i, c: qb.sin(c) * x + 0.1 * i, x, max_steps=12, checkpoint=3))

    return f


@pair
def scan_over_rows(q):
    rows = qb.array(np.random.default_rng(0).normal(size=(6, 3)))

    def f(x):
        carry, ys = q.scan(lambda c, r: (qb.sin(c * r) + x, c * x), x**2, xs=rows)
        return qb.sum(carry) + qb.sum(ys[2:] * ys[:-2])

    return f


@pair
def scan_backwards_over_trees(q):
    def f(x):
        xs = {"a": qb.outer(x, x), "b": (x, None)}

        def step(state, row):
            position = qb.sin(state.position + row["a"]) * row["b"][0]
            rest = {"sum": state.rest["sum"] + qb.sum(position), "count": state.rest["count"] + 1, "odd": True}
            return State(position, rest), (position * state.rest["sum"], {"n": state.rest["count"]})

        init = State(x, {"sum": qb.sum(x), "count": qb.array(0, dtype=qb.int64), "odd": qb.array(False)})
        state, (ys, counts) = q.scan(step, init, xs=xs, reverse=True)
        return qb.sum(ys * qb.expand_dims(1 + counts["n"], 1)) + state.rest["sum"] * state.rest["count"]

    return f


@pair
def scan_checkpointed_and_unrolled(q):
    def f(x):
        rows = qb.sin(qb.outer(qb.arange(10.0, dtype=x.dtype), x))
        carry, ys = q.scan(lambda c, r: (qb.tanh(c + r) * x, qb.sum(c)), x, xs=rows, checkpoint=3, unroll=2)
        return qb.sum(carry) + qb.sum(ys**2)

    return f


@pair
def while_with_a_count(q):
    def f(x):
        def step(c):
            return {"n": c["n"] + 1, "x": qb.sin(c["x"]) * x + c["x"]}

        init = {"n": qb.array(0, dtype=qb.int64), "x": x}
        return qb.sum(q.while_loop(lambda c: c["n"] < 5, step, init, steps=5, max_steps=8)["x"])

    return f


@pair
def while_stopped_by_values(q):
    """The sum grows past the limit after four steps at X."""

    def f(x):
        def step(c):
            return c * 1.5 + 0.1 * qb.sin(x)

        return qb.sum(q.while_loop(lambda c: qb.sum(c**2) < 40.0, step, x + 0.1, steps=4, max_steps=20) ** 2)

    return f


@pair
def while_stopped_by_max_steps(q):
    def f(x):
        return qb.sum(q.while_loop(lambda c: c[0] < 1e9, lambda c: qb.sin(c) * x + c, x, steps=3, max_steps=3))

    return f


@pair
def cond_in_scan(q):
    def f(x):
        def step(c, i):
            c = q.cond(qb.sum(c) > 0.4, lambda c: qb.sin(c) * x - 0.5, lambda c: c * c + x * 0.9, c)
            return c, qb.sum(c * x)

        carry, ys = q.scan(step, x, length=6)
        return qb.sum(carry * x) + qb.sum(ys**2)

    return f


@pair
def switch_in_fori(q):
    def f(x):
        branches = [lambda c: qb.sin(c) + x, lambda c: c * x, lambda c: qb.exp(-c) * 0.5]

        def body(i, c):
            return q.switch(i % 4, branches, c) if q is Real else branches[min(i % 4, 2)](c)

        return qb.sum(q.fori_loop(0, 7, body, x))

    return f


@pair
def scan_in_scan(q):
    def f(x):
        def outer(c, row):
            inner, ys = q.scan(lambda d, r: (qb.sin(d * r) + c, d * c), row, xs=qb.outer(x, c))
            return qb.tanh(inner + qb.sum(ys)), qb.sum(inner)

        carry, ys = q.scan(outer, x, xs=qb.outer(qb.cos(x), x))
        return qb.sum(carry) + qb.sum(ys**3)

    return f


@pair
def scan_in_cond_in_fori(q):
    def f(x):
        def long(c):
            return q.scan(lambda d, i: (qb.sin(d) * x + 0.1, None), c, length=3)[0]

        return qb.sum(q.fori_loop(0, 4, lambda i, c: q.cond(c[0] > 0.3, long, lambda c: c + 0.3 * x**2, c), x))

    return f


@pair
def derivatives_inside_a_body(q):
    def f(x):
        def body(i, c):
            g = qb.grad(lambda z: qb.sum(qb.sin(z * c) * x))(c)
            h = qb.jvp(lambda z: q.fori_loop(0, 3, lambda j, d: qb.sin(d) * z, c), (x,), (c,))[1]
            return 0.5 * g + 0.1 * h

        return qb.sum(q.fori_loop(0, 3, body, x))

    return f


@pair
def vmap_inside_a_body(q):
    def f(x):
        def body(i, c):
            return qb.sum(qb.vmap(lambda a: q.fori_loop(0, 2, lambda j, d: qb.sin(d * a) + x, c))(c), axis=0) / 3.0

        return qb.sum(q.fori_loop(0, 3, body, x))

    return f
