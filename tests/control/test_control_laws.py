"""Laws over random bodies and random stacks of transforms: control flow means what the plain Python program means."""

import numpy as np
import quabla as qb
from compare import assert_close
from control.loops import Plain, Real
from hypothesis import assume, given
from hypothesis import strategies as st
from properties.programs import Functions, examples, interpret, programs


def reduced(value, like):
    """Any value as one like the carry: bounded, and dependent on every element."""
    return qb.broadcast_to(qb.tanh(qb.mean(value * qb.cos(value))), like.shape)


def make_step(program, inputs):
    """A step of a loop out of a random program: the carry is its first input, what it captures the others."""

    def step(c, *others):
        values = interpret(program, (c, *others[: inputs - 1]), Functions())
        return 0.7 * c + 0.3 * reduced(values[-1], c), qb.sum(qb.sin(values[-1]))

    return step


KINDS = [
    "scan",
    "scan over rows",
    "scan backwards",
    "checkpointed",
    "unrolled",
    "fori",
    "counted",
    "while",
    "nested",
    "cond",
    "switch",
]


def controlled(q, kind, step, count, x, others):
    """A scalar from a loop of the kind over the step."""
    total = lambda c, ys=0.0: qb.sum(c * qb.sin(c)) + qb.sum(ys)
    carry_only = lambda c: step(c, *others)[0]
    if kind == "scan":
        return total(*q.scan(lambda c, i: step(c, *others), x, length=count))
    if kind == "scan over rows":
        rows = qb.sin(qb.arange(float(count)))
        return total(*q.scan(lambda c, r, *o: (step(c * r, *o)[0], r * step(c, *o)[1]), x, xs=rows, operands=others))
    if kind == "scan backwards":
        return total(*q.scan(lambda c, i: step(c + 0.1 * i, *others), x, length=count, reverse=True))
    if kind == "checkpointed":
        return total(*q.scan(lambda c, i: step(c, *others), x, length=count, checkpoint=True))
    if kind == "unrolled":
        return total(*q.scan(lambda c, i: step(c, *others), x, length=count, unroll=2))
    if kind == "fori":
        return total(q.fori_loop(1, 1 + count, lambda i, c: carry_only(c) / i, x))
    if kind == "counted":
        bound = count if q is Plain else qb.astype(qb.sum(x) * 0.0, qb.int64) + count
        return total(q.fori_loop(0, bound, lambda i, c: carry_only(c), x, max_steps=6))
    if kind == "while":
        init = (qb.array(0, dtype=qb.int64), x)
        return total(q.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, carry_only(s[1])), init, count, 6)[1])
    if kind == "nested":
        inner = lambda c: q.scan(lambda d, i: step(d * qb.cos(c), *others), c, length=2)
        return total(*q.scan(lambda c, i: (inner(c)[0], qb.sum(inner(c)[1])), x, length=count))
    if kind == "cond":
        return total(
            *q.scan(
                lambda c, i: q.cond(qb.mean(c) > 0.1, lambda c: step(c, *others), lambda c: (c * 0.9 + 0.05, 0.0), c),
                x,
                length=count,
            )
        )
    branches = [lambda c: step(c, *others)[0], qb.sin, lambda c: c * c]
    if q is Plain:
        return total(q.fori_loop(0, count, lambda i, c: branches[min(i, 2)](c), x))
    return total(q.fori_loop(0, count, lambda i, c: q.switch(i, branches, c), x))


@st.composite
def loops(draw):
    """(the function of x with control flow, the plain one, x, a direction)"""
    arrays, program = draw(programs(most_instructions=5))
    kind, count = draw(st.sampled_from(KINDS)), draw(st.integers(0, 4))
    if kind == "unrolled":
        count = draw(st.sampled_from([1, 2, 3, 5]))
    assume(count > 0 or kind not in ("scan", "scan over rows", "scan backwards", "checkpointed", "nested", "cond"))
    step, x = make_step(program, len(arrays)), qb.array(arrays[0])
    others = [qb.array(a) for a in arrays[1:]]
    uses_x = draw(st.booleans())  # whether what is captured depends on x, too

    def function(q):
        def f(x):
            captured = [o * qb.cos(qb.mean(x)) for o in others] if uses_x else others
            return controlled(q, kind, step, count, x, captured)

        return f

    v = np.random.default_rng(draw(st.integers(0, 1000))).normal(size=x.shape)
    return function(Real), function(Plain), x, qb.array(v)


def forward(g):
    return lambda t: qb.jvp(g, (t,), (qb.ones_like(t),))[1]


def through_a_scan(g):
    """Twice g, summed by a loop."""
    return lambda t: qb.scan(lambda c, i: (c + g(t), None), 0.0 * t, length=2)[0]


STACK = {
    "grad": qb.grad,
    "forward": forward,
    "jit": qb.jit,
    "vmap": lambda g: lambda t: qb.sum(qb.vmap(g)(t + qb.array([0.0, 0.05]))),
    "vmap over half": lambda g: (
        lambda t: qb.sum(qb.vmap(lambda s, t: g(s * t), in_axes=(0, None))(qb.array([1.0, 0.9]), t))
    ),
    "checkpoint": qb.checkpoint,
    "cond": lambda g: lambda t: qb.cond(t > -5.0, g, lambda t: qb.log(t - 7.0), t),
    "scan": through_a_scan,
    "vjp": lambda g: lambda t: qb.vjp(g, t)[1](qb.ones(()))[0],
    "linearize": lambda g: lambda t: qb.linearize(g, t)[1](qb.ones(())),
}


@given(loops(), st.lists(st.sampled_from(sorted(STACK)), min_size=0, max_size=4))
@examples(150)
def test_stacks_of_transforms_of_loops_over_random_programs(case, names):
    assume(sum(name in ("grad", "forward", "vjp", "linearize") for name in names) <= 3)
    real, plain, x, v = case
    g, h = (lambda t: real(x + t * v)), (lambda t: plain(x + t * v))
    for name in names:
        g, h = STACK[name](g), STACK[name](h)
    t = qb.array(0.05)
    expected = h(t)
    assume(np.isfinite(expected.numpy()).all() and abs(expected.item()) < 1e8)
    assert_close(g(t), expected, 1e-9, str(names))
    assert_close(qb.jit(g)(t), expected, 1e-9, str(names))


@given(loops())
@examples(60)
def test_gradients_by_all_elements_and_inner_products(case):
    real, plain, x, v = case
    expected = qb.grad(plain)(x)
    assume(np.isfinite(expected.numpy()).all())
    gradient = qb.grad(real)(x)
    assert_close(gradient, expected, 1e-9)
    along = qb.jvp(real, (x,), (v,))[1].item()
    dot, scale = float(np.vdot(gradient.numpy(), v.numpy())), float(np.vdot(abs(gradient.numpy()), abs(v.numpy())))
    assert abs(along - dot) <= 1e-9 * (scale + 1e-3)
    product = qb.jvp(qb.grad(plain), (x,), (v,))[1]
    assert_close(qb.jvp(qb.grad(real), (x,), (v,))[1], product, 1e-8)
    assert_close(qb.grad(lambda x: qb.jvp(real, (x,), (v,))[1])(x), product, 1e-8)
    batch = qb.stack([x, x * 0.9])
    assert_close(qb.vmap(qb.grad(real))(batch), qb.vmap(qb.grad(plain))(batch), 1e-9)
