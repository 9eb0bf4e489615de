"""vmap in chunks, and Jacobians whose workspace is bounded: the values of the plain forms, in less memory."""

import numpy as np
import pytest
import quabla as qb

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 19, 20, 21, 1000])
@pytest.mark.parametrize("size", [0, 1, 20])
def test_chunks_change_nothing(size, chunk_size):
    x, w = qb.array(RNG.normal(size=(size, 3))), qb.array(RNG.normal(size=3))

    def f(x, w):
        return {"sum": qb.sum(qb.sin(x) * w), "row": x * w, "shared": qb.exp(w), "count": qb.sum(x > 0)}

    for transform in (
        lambda h: h,
        lambda h: qb.grad(lambda *a: h(*a)["sum"]),
        lambda h: qb.jacobian(lambda *a: h(*a)["row"]),
    ):
        expected = qb.vmap(transform(f), in_axes=(0, None))(x, w)
        got = qb.vmap(transform(f), in_axes=(0, None), chunk_size=chunk_size)(x, w)
        for a, b in zip(qb.tree.leaves(expected), qb.tree.leaves(got)):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_other_axes_transforms_outside_and_captures():
    x = qb.array(RNG.normal(size=(4, 10)))

    def loss(w, chunk_size):
        rows = qb.vmap(lambda column: qb.tanh(column * w), in_axes=1, out_axes=-1, chunk_size=chunk_size)(x)
        return qb.sum(rows**2)

    w = qb.array(RNG.normal(size=4))
    for transform in (qb.grad, qb.hessian):
        np.testing.assert_allclose(
            transform(lambda w: loss(w, 3))(w).numpy(), transform(lambda w: loss(w, None))(w).numpy(), rtol=1e-13
        )
    twice = qb.vmap(lambda w: loss(w, 4))(qb.stack([w, 2 * w]))
    np.testing.assert_allclose(twice.numpy(), [loss(w, None).item(), loss(2 * w, None).item()], rtol=1e-13)


def test_workspace_is_that_of_a_chunk():
    x = qb.ShapeDtype((100_000, 8))
    f = lambda x: qb.sum(qb.sort(qb.sort(x)[::-1]) ** 2)
    peak = lambda **options: qb.jit(qb.vmap(f, **options)).lower(x).cost().peak_bytes
    assert peak(chunk_size=1000) < peak() / 4


@pytest.mark.parametrize("chunk_size", [0, -1, 1.5, "3", True])
def test_a_chunk_size_that_is_none(chunk_size):
    with pytest.raises(ValueError, match="chunk_size must be a positive int"):
        qb.vmap(qb.sin, chunk_size=chunk_size)


def test_a_tall_jacobian_needs_no_square_basis():
    f = lambda x: qb.sin(qb.sum(x) * qb.arange(10_000.0))
    x = qb.array([0.1, 0.2, 0.3])
    lowered = qb.jit(qb.jacrev(f)).lower(x)
    assert lowered.cost().peak_bytes < 10_000 * 3 * 8 * 16  # the basis would have 10,000 * 10,000 * 8
    np.testing.assert_allclose(qb.jacrev(f)(x).numpy(), qb.jacfwd(f)(x).numpy(), rtol=1e-12, atol=1e-12)


def test_large_jacobians_in_both_modes():
    """More units than are made at once, a rest included."""
    n = 2_111
    a = RNG.normal(size=(n, 3))
    f = lambda x: qb.tanh(qb.array(a) @ x[:3]) * x
    x = qb.array(RNG.normal(size=n))
    t = np.tanh(a @ x.numpy()[:3])
    expected = np.diag(t)
    expected[:, :3] += (x.numpy() * (1 - t * t))[:, None] * a
    for jacobian in (qb.jacfwd, qb.jacrev):
        np.testing.assert_allclose(jacobian(f)(x).numpy(), expected, rtol=1e-12, atol=1e-13)
    hessian = qb.hessian(lambda x: qb.sum(x**4))(x).numpy()
    np.testing.assert_allclose(hessian, np.diag(12 * x.numpy() ** 2), rtol=1e-12, atol=1e-13)
