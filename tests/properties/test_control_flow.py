"""Random programs of loops, branches, checkpoints and custom rules: every transform gives what it gives for the Python program
that they mean."""

import numpy as np
import quabla as qb
from compare import assert_close
from hypothesis import given
from hypothesis import strategies as st
from properties.control_programs import control_programs, plain, real
from properties.programs import examples

seeds = st.integers(0, 1000)
BOTH = (0, 1)


def direction(arrays, seed):
    rng = np.random.default_rng(seed)
    return tuple(qb.array(rng.normal(size=np.shape(a)), dtype=a.dtype) for a in arrays)


def scalar(f):
    return lambda x, y: qb.sum(qb.sin(f(x, y) + 0.3 * x))


def gradient(f):
    return qb.grad(scalar(f), argnums=BOTH)


def pulled(f, cotangent):
    return lambda *x: qb.vjp(f, *x)[1](cotangent)


def pushed(f, v):
    return lambda *x: qb.jvp(f, x, v)


def linear(f, v):
    def run(*x):
        out, push = qb.linearize(f, *x)
        return out, push(*v)

    return run


def slope(f, v):
    return qb.grad(lambda *x: qb.jvp(scalar(f), x, v)[1], argnums=BOTH)


@given(control_programs(), seeds)
@examples(25)
def test_derivatives_in_every_mode(case, seed):
    arrays, block = case
    x = tuple(qb.array(a) for a in arrays)
    v, (w,) = direction(x, seed), direction(x[:1], seed + 1)
    f, g = real(block), plain(block, *x)
    for transform in (
        lambda h: h,
        qb.jit,
        lambda h: pushed(h, v),
        lambda h: qb.jit(pulled(h, w)),
        lambda h: linear(h, v),
        lambda h: pushed(gradient(h), v),
        lambda h: slope(h, v),
        lambda h: pulled(gradient(h), v),
    ):
        assert_close(transform(f)(*x), transform(g)(*x), 1e-10)


@given(control_programs(custom=("custom_jvp", "custom_vjp")), seeds)
@examples(25)
def test_reverse_mode(case, seed):
    arrays, block = case
    x = tuple(qb.array(a) for a in arrays)
    f, g = real(block), plain(block, *x)
    for transform in (
        gradient,
        lambda h: pulled(gradient(h), direction(x, seed)),
        lambda h: qb.jit(gradient(qb.checkpoint(h))),
    ):
        assert_close(transform(f)(*x), transform(g)(*x), 1e-10)


@given(control_programs(custom=("custom_jvp", "custom_vjp")), seeds, st.integers(1, 3))
@examples(25)
def test_batches(case, seed, size):
    """Each example decides for itself; the second array is mapped or shared."""
    arrays, block = case
    x, y = (qb.array(a) for a in arrays)
    xs = qb.stack([x * (1.0 - 0.9 * k) + 0.2 * k for k in range(size)])
    shared = seed % 2
    ys = y if shared else qb.stack([y - 0.4 * k for k in range(size)])
    f, v = real(block), direction((x, y), seed)
    for transform in (lambda h: h, gradient, lambda h: pulled(gradient(h), v)):
        together = qb.vmap(transform(f), in_axes=(0, None if shared else 0))(xs, ys)
        apart = []
        for k in range(size):
            at = xs[k], y if shared else ys[k]
            apart.append(transform(plain(block, *at))(*at))
        assert_close(together, qb.tree.map(lambda *parts: qb.stack(parts), *apart), 1e-10)


@given(control_programs(), seeds)
@examples(10)
def test_single_precision(case, seed):
    arrays, block = case
    x = tuple(qb.array(a, dtype="float32") for a in arrays)
    f, g = real(block), plain(block, *x)
    for transform in (lambda h: h, gradient):
        found = transform(f)(*x)
        assert all(leaf.dtype == qb.float32 for leaf in qb.tree.leaves(found))
        assert_close(found, transform(g)(*x), 1e-3)
