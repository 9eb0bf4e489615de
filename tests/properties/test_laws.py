"""Laws that hold for every program, over random ones."""

import numpy as np
import quabla as qb
from compare import assert_close
from hypothesis import given
from hypothesis import strategies as st
from properties.programs import NumpyFunctions, as_function, examples, interpret, programs

TOLERANCE = 1e-11


def tensors(arrays):
    return tuple(qb.array(a) for a in arrays)


def directions(arrays, seed):
    rng = np.random.default_rng(seed)
    return tuple(qb.array(rng.normal(size=np.shape(a))) for a in arrays)


def inner(xs, ys):
    return sum(float(np.vdot(np.asarray(x), np.asarray(y))) for x, y in zip(xs, ys))


def magnitude(xs, ys):
    return 1e-3 + sum(float(np.vdot(abs(np.asarray(x)), abs(np.asarray(y)))) for x, y in zip(xs, ys))


seeds = st.integers(0, 1000)


@given(programs(most_instructions=12))
@examples(150)
def test_programs_compute_what_numpy_computes(case):
    """Eagerly, one call after the other; compiled, fused and simplified; and lowered."""
    arrays, program = case
    expected = interpret(program, arrays, NumpyFunctions())[-1]
    f, x = as_function(program), tensors(arrays)
    assert_close(f(*x), qb.array(expected), TOLERANCE)
    assert_close(qb.jit(f)(*x), qb.array(expected), TOLERANCE)
    assert_close(qb.jit(f).lower(*x).compile()(*x), qb.array(expected), TOLERANCE)


@given(programs(), seeds)
@examples(100)
def test_jvp_is_linear(case, seed):
    arrays, program = case
    f, x = as_function(program), tensors(arrays)
    v, w = directions(arrays, seed), directions(arrays, seed + 1)
    a, b = 0.75, -2.0
    mixed = qb.jvp(f, x, tuple(a * p + b * q for p, q in zip(v, w)))[1]
    assert_close(mixed, a * qb.jvp(f, x, v)[1] + b * qb.jvp(f, x, w)[1], 1e-9)


@given(programs(most_instructions=10), seeds)
@examples(150)
def test_reverse_mode_is_the_transpose_of_forward_mode(case, seed):
    """<J v, w> = <v, J' w>; the primal values agree, too."""
    arrays, program = case
    f, x, v = as_function(program), tensors(arrays), directions(arrays, seed)
    out, pullback = qb.vjp(f, *x)
    value, tangent = qb.jvp(f, x, v)
    assert_close(value, out, TOLERANCE)
    (w,) = directions([np.asarray(out)], seed + 2)
    cotangents = pullback(w)
    forward, reverse = inner([tangent], [w]), inner(v, cotangents)
    assert abs(forward - reverse) <= TOLERANCE * (magnitude([tangent], [w]) + magnitude(v, cotangents))
    linear = qb.linearize(f, *x)[1](*v)
    assert_close(linear, tangent, 1e-9)


@given(programs(most_instructions=6), seeds)
@examples(60)
def test_second_derivatives_are_symmetric_and_agree_in_all_modes(case, seed):
    arrays, program = case
    f, x = as_function(program, keep_scalar=True), tensors(arrays)
    nums = tuple(range(len(x)))
    v, w = directions(arrays, seed), directions(arrays, seed + 1)
    gradient = qb.grad(f, argnums=nums)
    along_v, along_w = qb.jvp(gradient, x, v)[1], qb.jvp(gradient, x, w)[1]
    scale = magnitude(along_v, w) + magnitude(along_w, v)
    assert abs(inner(along_v, w) - inner(along_w, v)) <= 1e-9 * scale

    def slope(*xs):
        return qb.jvp(f, xs, v)[1]

    reverse_over_forward = qb.grad(slope, argnums=nums)(*x)
    assert abs(inner(reverse_over_forward, w) - inner(along_v, w)) <= 1e-9 * scale
    reverse_over_reverse = qb.vjp(gradient, *x)[1](v)
    assert abs(inner(reverse_over_reverse, w) - inner(along_v, w)) <= 1e-9 * scale
    forward_over_forward = qb.jvp(slope, x, w)[1]
    assert abs(float(forward_over_forward.item()) - inner(along_v, w)) <= 1e-9 * scale


@given(programs(), seeds, st.integers(1, 4))
@examples(80)
def test_vmap_is_a_loop(case, seed, size):
    """Of the function and of its gradient; some inputs shared."""
    arrays, program = case
    rng = np.random.default_rng(seed)
    shared = [bool(rng.integers(2)) for _ in arrays]
    shared[rng.integers(len(arrays))] = False
    in_axes = tuple(None if s else int(rng.integers(a.ndim + 1)) for s, a in zip(shared, arrays))
    examples = [[a if s else a * (1 - 0.1 * k) + 0.01 * k for a, s in zip(arrays, shared)] for k in range(size)]
    stacked = [
        a if axis is None else np.stack([e[i] for e in examples], axis)
        for i, (a, axis) in enumerate(zip(arrays, in_axes))
    ]
    nums = tuple(range(len(arrays)))
    scalar = as_function(program, keep_scalar=True)
    for f in (as_function(program), qb.grad(scalar, argnums=nums)):
        together = qb.vmap(f, in_axes=in_axes)(*tensors(stacked))
        loop = [f(*tensors(example)) for example in examples]
        assert_close(together, qb.tree.map(lambda *parts: qb.stack(parts), *loop), 1e-10)


@given(programs(most_instructions=6), seeds)
@examples(50)
def test_transforms_commute(case, seed):
    """jit anywhere changes nothing; grad of a sum over vmap is vmap of grad; vmap passes through jvp."""
    arrays, program = case
    f, x = as_function(program, keep_scalar=True), tensors(arrays)
    nums = tuple(range(len(x)))
    gradient = qb.grad(f, argnums=nums)(*x)
    for g in (
        qb.jit(qb.grad(f, argnums=nums)),
        qb.grad(qb.jit(f), argnums=nums),
        qb.jit(qb.grad(qb.jit(f), argnums=nums)),
    ):
        assert_close(g(*x), gradient, TOLERANCE)
    batch = tuple(qb.stack([a, 0.5 * a, -a]) for a in x)
    each = qb.vmap(qb.grad(f, argnums=nums))(*batch)
    of_sum = qb.grad(lambda *b: qb.sum(qb.vmap(f)(*b)), argnums=nums)(*batch)
    assert_close(of_sum, each, 1e-10)
    assert_close(qb.jit(qb.vmap(qb.jit(qb.grad(f, argnums=nums))))(*batch), each, 1e-10)
    v = directions([np.asarray(b) for b in batch], seed)
    outside = qb.jvp(qb.vmap(f), batch, v)[1]
    inside = qb.vmap(lambda xs, vs: qb.jvp(f, xs, vs)[1])(batch, v)
    assert_close(inside, outside, 1e-9)


@given(programs(most_instructions=6), seeds)
@examples(40)
def test_the_jacobian_has_the_products(case, seed):
    arrays, program = case
    f, x, v = as_function(program), tensors(arrays), directions(arrays, seed)
    nums = tuple(range(len(x)))
    forward, reverse = qb.jacfwd(f, argnums=nums)(*x), qb.jacrev(f, argnums=nums)(*x)
    assert_close(reverse, forward, 1e-9)
    _, tangent = qb.jvp(f, x, v)
    product = sum(np.tensordot(np.asarray(block), np.asarray(t), axes=np.ndim(t)) for block, t in zip(forward, v))
    assert_close(tangent, qb.array(product), 1e-9)


@given(programs(most_instructions=5, inputs=(1, 2)), seeds)
@examples(40)
def test_a_closure_is_an_argument(case, seed):
    """Differentiating through values closed over is differentiating by arguments."""
    arrays, program = case
    f, x = as_function(program, keep_scalar=True), tensors(arrays)

    def closed(a):
        return qb.grad(lambda scale: f(*(scale * a, *x[1:])))(1.0)

    def passed(a):
        return qb.grad(lambda scale, a: f(*(scale * a, *x[1:])), argnums=0)(1.0, a)

    assert_close(qb.grad(closed)(x[0]), qb.grad(passed)(x[0]), 1e-10)
    assert_close(qb.jit(qb.grad(closed))(x[0]), qb.grad(passed)(x[0]), 1e-10)
