"""Random programs with control flow: blocks of instructions over values of one shape, loops and branches within each other.

A program is data (nested tuples). It is interpreted twice: with Quabla's control flow (`Real`), and as the Python program that
it means (`Plain`), unrolled, each branch taken by an `if`. Plain needs numbers to decide by, and has none while it is
traced for a derivative: so it runs once on concrete values, noting each decision, and then follows its notes.
"""

import numpy as np
import quabla as qb
from hypothesis import strategies as st

SHAPES = ((), (1,), (3,), (2, 2), (0,), (2, 0))
UNARY = {
    "sin": qb.sin,
    "tanh": qb.tanh,
    "square": lambda v: qb.tanh(v * v),
    "half": lambda v: 0.5 * v + 0.25,
    "total": lambda v: v - 0.3 * qb.sum(v),
    "root": lambda v: qb.sqrt(1.5 + qb.sin(v)),
    "flip": lambda v: qb.flip(v) if v.shape else -v,
}
BINARY = {
    "add": lambda a, b: 0.5 * (a + b),
    "multiply": lambda a, b: qb.sin(a * b),
    "maximum": qb.maximum,
    "quotient": lambda a, b: qb.tanh(a / (2.0 + qb.sin(b))),
}


def whole(value):
    """An integer from -3 to 7 that a value decides."""
    return qb.astype(qb.floor(5.0 * qb.sin(3.0 * qb.sum(value) + 0.7) + 2.3), qb.int64)


# ---------------------------------------------------------------------------------------------------------- instructions


@st.composite
def instructions(draw, depth, known, options):
    """One instruction on the values 0 .. known - 1 and, inside a loop or branch, further ones."""
    place = st.integers(0, known - 1)

    def block(parameters):
        return draw(blocks(depth - 1, known + parameters, options))

    kinds = ["unary", "binary"]
    if depth > 0:
        kinds += ["fori", "counted", "scan", "while", "cond", "switch", "checkpoint", "custom", "jit", "vmap"]
    kind = draw(st.sampled_from(kinds))
    i, j = draw(place), draw(place)
    if kind == "unary":
        return kind, draw(st.sampled_from(sorted(UNARY))), i
    if kind == "binary":
        return kind, draw(st.sampled_from(sorted(BINARY))), i, j
    unroll = draw(st.sampled_from([False, False, False, 2, True]))
    checkpoint = draw(st.sampled_from([None, None, True, 2])) if unroll is not True else None
    if kind == "fori":
        bounds = draw(st.sampled_from([(0, 0), (0, 1), (1, 4), (-1, 1), (3, 1)]))
        return kind, bounds, i, j, block(3), {"unroll": unroll, "checkpoint": checkpoint}
    if kind == "counted":
        return kind, draw(place), i, j, block(3), {"max_steps": draw(st.integers(0, 5)), "checkpoint": checkpoint}
    if kind == "scan":
        count, reverse = draw(st.integers(0, 4)), draw(st.booleans())
        return kind, count, i, j, block(2), {"reverse": reverse, "unroll": unroll, "checkpoint": checkpoint}
    if kind == "while":
        return kind, draw(place), i, block(2), {"max_steps": draw(st.integers(0, 5))}
    if kind in ("cond", "switch"):
        return kind, draw(place), i, tuple(block(1) for _ in range(2 if kind == "cond" else 3))
    if kind == "custom":
        kind = draw(st.sampled_from(options["custom"]))
        return kind, i, draw(blocks(depth - 1, 1, {"custom": (kind,)}))  # forward mode passes through custom_jvp only
    if kind == "vmap":
        return kind, i, j, draw(blocks(depth - 1, 2, options))
    return kind, i, block(1)


@st.composite
def blocks(draw, depth, known, options):
    """(instructions, the place of the result): each instruction adds a value."""
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        steps.append(draw(instructions(depth, known + len(steps), options)))
    return tuple(steps), known + len(steps) - draw(st.sampled_from([1, 1, 1, 2]))


@st.composite
def control_programs(draw, custom=("custom_jvp",)):
    """(two arrays, block): the result is a value of their shape."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    shape = draw(st.sampled_from(SHAPES))
    arrays = [rng.uniform(-1.2, 1.2, shape) for _ in range(2)]
    return arrays, draw(blocks(draw(st.sampled_from([1, 2, 2, 3])), 2, {"custom": custom}))


# ---------------------------------------------------------------------------------------------------------- interpreters


def run_block(q, block, values):
    steps, result = block
    values = list(values)
    for step in steps:
        values.append(run_step(q, step, values))
    return values[result]


def filled(number, like):
    return 0.1 * qb.astype(number, like.dtype) + qb.zeros_like(like)


def run_step(q, step, values):
    kind, *parts = step
    if kind == "unary":
        return UNARY[parts[0]](values[parts[1]])
    if kind == "binary":
        return BINARY[parts[0]](values[parts[1]], values[parts[2]])

    def body(block):
        return lambda *more: run_block(q, block, [*values, *more])

    if kind in ("fori", "counted"):
        bounds, i, j, block, options = parts
        run = body(block)

        def step_of(n, carry):
            a, b, k = carry
            return run(a, b, filled(n, a)), a, k + qb.astype(n, k.dtype)

        lower, upper = bounds if kind == "fori" else (0, whole(values[bounds]))
        init = (values[i], values[j], qb.array(1, dtype="int32"))
        a, b, k = q.fori_loop(lower, upper, step_of, init, **options)
        return 0.5 * (a + b) + filled(k, a)
    if kind == "scan":
        count, i, j, block, options = parts
        run = body(block)
        xs = qb.stack([values[j] * (1.0 - 0.3 * n) for n in range(count)]) if count else None
        if xs is None:
            return q.scan(lambda c, n: (run(c, c), n), values[i], length=0, **options)[0]
        carry, ys = q.scan(lambda c, x: (run(c, x), {"y": c * x, "n": 2}), values[i], xs=xs, **options)
        return carry + 0.2 * qb.sum(qb.sin(ys["y"]), axis=0) * qb.astype(qb.sum(ys["n"]), carry.dtype)
    if kind == "while":
        limit, i, block, options = parts
        run, most = body(block), whole(values[limit])

        def test(carry):
            a, n = carry
            return (n < most) & (qb.sum(a) < 50.0)

        return q.while_loop(test, lambda c: (run(c[0], filled(c[1], c[0])), c[1] + 1), (values[i], 0), **options)[0]
    if kind == "cond":
        by, i, branches = parts
        return q.cond(qb.sum(values[by]) > 0.1, *map(body, branches), values[i])
    if kind == "switch":
        by, i, branches = parts
        return q.switch(whole(values[by]), [body(b) for b in branches], values[i])
    if kind == "vmap":
        i, j, block = parts
        factor = qb.cos(qb.sum(values[j]))
        return q.vmap(lambda row: run_block(q, block, [row, row * factor]), values[i])
    i, block = parts
    if kind in ("custom_jvp", "custom_vjp"):
        return getattr(q, kind)(lambda v: run_block(q, block, [v]), values[i])
    return getattr(q, kind)(body(block))(values[i])


class Real:
    """Quabla's own."""

    fori_loop = staticmethod(qb.fori_loop)
    scan = staticmethod(qb.scan)
    while_loop = staticmethod(qb.while_loop)
    cond = staticmethod(qb.cond)
    switch = staticmethod(qb.switch)
    checkpoint = staticmethod(qb.checkpoint)
    jit = staticmethod(qb.jit)

    @staticmethod
    def vmap(fun, x):
        return qb.vmap(fun)(x) if x.shape and x.shape[0] else fun(x)

    @staticmethod
    def custom_jvp(fun, x):
        f = qb.custom_jvp(fun)
        f.defjvp(lambda primals, tangents: qb.jvp(fun, primals, tangents))
        return f(x)

    @staticmethod
    def custom_vjp(fun, x):
        f = qb.custom_vjp(fun)
        f.defvjp(lambda x: (fun(x), x), lambda x, ct: qb.vjp(fun, x)[1](ct))
        return f(x)


class Plain:
    """Python's own, deciding by concrete values, which it notes, or by the notes of such a run."""

    def __init__(self, notes=None):
        self.notes = [] if notes is None else list(notes)
        self.follows = notes is not None

    def decide(self, value):
        if self.follows:
            return self.notes.pop(0)
        self.notes.append(value.item() if isinstance(value, qb.Tensor) else value)
        return self.notes[-1]

    def fori_loop(self, lower, upper, body, init, *, max_steps=None, **options):
        upper = self.decide(upper)
        for i in range(lower, upper if max_steps is None else min(upper, lower + max_steps)):
            init = body(i, init)
        return init

    def scan(self, f, init, *, xs=None, length=None, reverse=False, **options):
        count, ys = length if xs is None else xs.shape[0], {}
        for i in reversed(range(count)) if reverse else range(count):
            init, ys[i] = f(init, i if xs is None else xs[i])
        rows = [ys[i] for i in range(count)]
        return init, qb.tree.map(
            lambda *row: qb.stack([qb.array(r) if isinstance(r, int) else r for r in row]), *rows
        ) if rows else None

    def while_loop(self, test, body, init, *, max_steps):
        for _ in range(max_steps):
            if not self.decide(test(init)):
                break
            init = body(init)
        return init

    def cond(self, pred, true_fun, false_fun, *operands):
        return true_fun(*operands) if self.decide(pred) else false_fun(*operands)

    def switch(self, index, branches, *operands):
        return branches[min(max(self.decide(index), 0), len(branches) - 1)](*operands)

    def checkpoint(self, fun):
        return fun

    jit = checkpoint

    def custom_jvp(self, fun, x):
        return fun(x)

    custom_vjp = custom_jvp

    def vmap(self, fun, x):
        return qb.stack([fun(row) for row in x]) if x.shape and x.shape[0] else fun(x)


def real(block):
    """The program as a function of two arrays."""
    return lambda x, y: run_block(Real, block, [x, y])


def plain(block, x, y):
    """The same, unrolled as it runs at (x, y)."""
    first = Plain()
    run_block(first, block, [x, y])
    return lambda x, y: run_block(Plain(first.notes), block, [x, y])
