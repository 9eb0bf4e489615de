"""qb.linalg beyond the case table: what has no result, sharing of factorizations, large matrices, named tuples."""

import pickle

import numpy as np
import pytest
import quabla as qb
import scipy.linalg
from quabla import linalg


def matrices(*shape, seed=0, dtype="float64"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def definite(*shape, seed=0, dtype="float64"):
    a = matrices(*shape, seed=seed).astype("float64")
    return (a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def lines(function, *arrays, operation):
    """How often the compiled function has the operation."""
    text = qb.jit(function).lower(*arrays).as_text()
    return sum(f"= {operation}(" in line for line in text.splitlines())


# ------------------------------------------------------------------------------------------- values, at sizes of blocks

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 63, 64, 65, 127, 128, 129, 200, 321)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", SIZES)
def test_factorizations_multiply_to_the_matrix(n, dtype):
    a, s = matrices(n, n, seed=n, dtype=dtype), definite(n, n, seed=n, dtype=dtype)
    eps = np.finfo(dtype).eps
    lower = np.asarray(linalg.cholesky(qb.array(s))).astype("float64")
    assert np.all(np.triu(lower, 1) == 0)
    assert abs(lower @ lower.T - s).max() <= 4 * eps * abs(s).max()
    p, lower, upper = (np.asarray(x).astype("float64") for x in linalg.lu(qb.array(a)))
    assert abs(p @ lower @ upper - a).max() <= 8 * n**0.5 * eps * abs(a).max()
    assert abs(lower).max() == 1
    assert np.all(np.sort(p, axis=0)[-1] == 1)
    assert p.sum() == n


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("columns", [None, 1, 3, 200])
@pytest.mark.parametrize("n", SIZES)
def test_solutions_solve(n, columns, dtype):
    a = matrices(n, n, seed=n, dtype=dtype) + n**0.5 * np.eye(n, dtype=dtype)
    b = matrices(*((n,) if columns is None else (n, columns)), seed=1, dtype=dtype)
    lower = np.tril(a) / n**0.5 + np.eye(n, dtype=dtype)
    s = definite(n, n, dtype=dtype)
    for matrix, x in (
        (a, linalg.solve(qb.array(a), qb.array(b))),
        (lower, linalg.solve_triangular(qb.array(lower), qb.array(b), lower=True)),
        (lower.T, linalg.solve_triangular(qb.array(lower), qb.array(b), lower=True, trans=1)),
        (s, linalg.cho_solve(linalg.cholesky(qb.array(s)), qb.array(b))),
    ):
        wide, x = matrix.astype("float64"), np.asarray(x).astype("float64")
        assert x.shape == b.shape
        residual = abs(wide @ x - b).max()
        assert residual <= 10 * np.finfo(dtype).eps * n * (abs(wide).max() * abs(x).max() + abs(b).max())


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 16, 1000])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 9])
def test_a_batch_is_its_matrices_one_by_one(count, n):
    """To the bit, whatever their number is."""
    a, s, b = matrices(count, n, n), definite(count, n, n), matrices(count, n, 2, seed=2)
    calls = (
        (linalg.solve, a, b),
        (linalg.cholesky, s),
        (lambda a, b: linalg.solve_triangular(a, b, lower=True), s, b),
        (lambda a: linalg.slogdet(a).logabsdet, a),
        (linalg.inv, a),
    )
    for function, *arrays in calls:
        together = np.asarray(function(*map(qb.array, arrays)))
        for k in {0, count // 2, count - 1}:
            alone = np.asarray(function(*(qb.array(x[k]) for x in arrays)))
            np.testing.assert_array_equal(together[k], alone)


@pytest.mark.parametrize("n", [20, 150, 200])
def test_rows_as_right_hand_sides_of_large_matrices(n):
    """Mapped vectors, of which BLAS gets the rows: forwards, backwards, and of triangles."""
    a, rows = matrices(n, n) + n**0.5 * np.eye(n), matrices(70, n, seed=1)
    together = qb.vmap(linalg.solve, in_axes=(None, 0))
    np.testing.assert_allclose(
        np.asarray(together(qb.array(a), qb.array(rows))), np.linalg.solve(a, rows.T).T, rtol=1e-8
    )
    pulled = qb.vjp(lambda b: together(qb.array(a), b), qb.array(rows))[1](qb.array(rows))[0]
    np.testing.assert_allclose(np.asarray(pulled), np.linalg.solve(a.T, rows.T).T, rtol=1e-8)
    for lower in (False, True):
        triangle = (np.tril if lower else np.triu)(a) / n**0.5 + np.eye(n)
        for trans in (0, 1):
            solve = lambda b, t=triangle, k=trans, w=lower: linalg.solve_triangular(qb.array(t), b, k, w)
            got = np.asarray(qb.vmap(solve)(qb.array(rows)))
            np.testing.assert_allclose(got @ (triangle if trans else triangle.T), rows, atol=1e-9 * abs(got).max())


def test_pivots_are_the_largest_of_their_column():
    a = matrices(6, 5, 5, seed=3)
    _, lower, _ = linalg.lu(qb.array(a))
    assert abs(np.asarray(lower)).max() <= 1
    small = qb.array([[1e-20, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(np.asarray(linalg.solve(small, qb.array([1.0, 2.0]))), [1, 1], rtol=1e-15)


def test_determinants_do_not_overflow_on_the_way():
    a = np.diag([1e300, 1e300, 1e-300, 1e-300, 7.0])
    np.testing.assert_allclose(linalg.det(qb.array(a)).item(), 7.0, rtol=1e-14)
    large = linalg.slogdet(qb.array(1e200 * np.eye(50)))
    np.testing.assert_allclose(large.logabsdet.item(), 50 * np.log(1e200), rtol=1e-14)


# ------------------------------------------------------------------------------------------------------ without a result


def test_a_singular_matrix_is_an_error_where_it_is_met_eagerly():
    a = np.stack([np.eye(3), np.ones((3, 3)), np.zeros((3, 3))])
    with pytest.raises(ValueError, match=r"linalg.solve: the matrix at batch index \(1,\) is singular"):
        linalg.solve(qb.array(a), qb.ones(3))
    with pytest.raises(ValueError, match=r"linalg.inv: the matrix at batch index \(0, 1\) is singular"):
        linalg.inv(qb.array(a[None]))
    with pytest.raises(ValueError, match=r"linalg.inv: the matrix is singular"):
        linalg.inv(qb.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"linalg.solve: the matrix at batch index \(1, 0\) is singular"):
        linalg.solve(qb.array(a[:2, None]), qb.ones((4, 3, 1)))


@pytest.mark.parametrize("n", [1, 2, 5, 9, 150])
def test_a_singular_matrix_gives_nan_in_a_program(n):
    a = np.stack([np.eye(n), np.zeros((n, n)), 2 * np.eye(n)])
    for result in (
        qb.jit(linalg.solve)(qb.array(a), qb.zeros((n, 2))),
        qb.jit(linalg.inv)(qb.array(a)),
        qb.vmap(linalg.solve, in_axes=(0, None))(qb.array(a), qb.zeros(n)),
        linalg.solve_triangular(qb.array(a), qb.zeros((n, 2))),
    ):
        nan = np.isnan(np.asarray(result)).reshape(3, -1)
        assert nan[1].all()
        assert not nan[[0, 2]].any()


@pytest.mark.parametrize("n", [1, 2, 5, 9, 150])
def test_a_matrix_that_is_not_definite(n):
    a = np.stack([np.eye(n), np.eye(n)])
    a[1, n - 1, n - 1] = -1
    with pytest.raises(ValueError, match=r"linalg.cholesky: the matrix at batch index \(1,\) is not positive definite"):
        linalg.cholesky(qb.array(a))
    with pytest.raises(ValueError, match="the matrix is not positive definite"):
        linalg.cholesky(qb.zeros((n, n)))
    result = np.asarray(qb.jit(linalg.cholesky)(qb.array(a)))
    assert np.isnan(result[1]).all()
    np.testing.assert_array_equal(result[0], np.eye(n))
    for row in {0, n // 2, n - 1}:
        a[1] = np.eye(n)
        a[1, row, row] = np.nan
        with pytest.raises(ValueError, match=r"batch index \(1,\) is not positive definite"):
            linalg.cholesky(qb.array(a))


@pytest.mark.parametrize("n", [2, 9, 150])
def test_determinants_of_singular_and_of_nonfinite_matrices(n):
    zeros, infinite = np.zeros((n, n)), np.eye(n)
    infinite[0, 1] = np.inf
    sign, logabsdet = linalg.slogdet(qb.array(np.stack([zeros, infinite, -np.eye(n)])))
    np.testing.assert_array_equal(np.asarray(sign), [0, np.nan, (-1) ** n])
    np.testing.assert_array_equal(np.asarray(logabsdet), [-np.inf, np.nan, 0])
    assert linalg.det(qb.array(zeros)).item() == 0


def test_nan_and_infinity_do_not_vanish():
    a = np.eye(3)
    a[0, 1] = np.nan
    assert np.isnan(np.asarray(linalg.solve(qb.array(a), qb.ones(3)))).any()
    assert np.isnan(np.asarray(linalg.solve(qb.eye(3), qb.array([1.0, np.nan, 0.0]))))[1]
    assert not np.isfinite(np.asarray(linalg.solve(qb.eye(3), qb.array([1.0, np.inf, 0.0]))))[1]


def test_cholesky_takes_the_symmetric_part():
    s, skew = definite(5, 5), matrices(5, 5)
    got = linalg.cholesky(qb.array(s + skew - skew.T))
    np.testing.assert_allclose(np.asarray(got), np.linalg.cholesky(s), rtol=1e-12, atol=1e-13)


# ------------------------------------------------------------------------------------------------- derivatives, sharing


def test_one_factorization_for_value_and_derivatives():
    a, b = qb.array(definite(4, 4)), qb.ones(4)

    def loss(a, b):
        return qb.sum(linalg.solve(a, b) ** 2) + linalg.slogdet(a).logabsdet

    assert lines(qb.value_and_grad(loss, argnums=(0, 1)), a, b, operation="lu") == 1
    assert lines(qb.hessian(loss), a, b, operation="lu") == 1
    assert lines(qb.grad(loss), a, b, operation="cholesky") == 0


def test_an_unmapped_matrix_is_factored_once():
    a, b, batch = definite(3, 3), matrices(3, seed=1), matrices(5, 3, seed=2)
    program = qb.jit(qb.vmap(linalg.solve, in_axes=(None, 0))).lower(qb.array(a), qb.array(batch))
    assert "lu(%0) : float64[3,3]" in program.as_text()
    gradient = qb.vmap(qb.grad(lambda a, b: qb.sum(linalg.solve(a, b) ** 2)), in_axes=(None, 0))
    text = qb.jit(gradient).lower(qb.array(a), qb.array(batch)).as_text()
    assert sum("= lu(" in line for line in text.splitlines()) == 1
    assert "float64[5,3,3], int64[5,3]" not in text
    jacobian = qb.jacobian(linalg.solve, argnums=1)(qb.array(a), qb.array(b))
    np.testing.assert_allclose(np.asarray(jacobian), np.linalg.inv(a), rtol=1e-12)


def test_third_derivative():
    """d^3/dt^3 of b^T (A + t B)^-1 b at 0 is -6 b^T (A^-1 B)^3 A^-1 b, in every mixture of modes."""
    a, d, b = definite(3, 3), matrices(3, 3, seed=4), matrices(3, seed=5)

    def f(t):
        return qb.sum(qb.array(b) * linalg.solve(qb.array(a) + t * qb.array(d), qb.array(b)))

    inverse = np.linalg.inv(a)
    expected = -6 * b @ np.linalg.matrix_power(inverse @ d, 3) @ inverse @ b

    def forward(g):
        return lambda t: qb.jvp(g, (t,), (qb.array(1.0),))[1]

    def reverse(g):
        return lambda t: qb.vjp(g, t)[1](qb.array(1.0))[0]

    for modes in ((forward,) * 3, (reverse,) * 3, (forward, reverse, forward), (reverse, forward, reverse)):
        g = f
        for mode in modes:
            g = mode(g)
        np.testing.assert_allclose(g(qb.array(0.0)).item(), expected, rtol=1e-12)


def test_gradient_of_the_log_determinant_of_a_covariance():
    a = qb.array(definite(4, 4))

    def by_cholesky(a):
        return 2 * qb.sum(qb.log(qb.diagonal(linalg.cholesky(a))))

    expected = np.linalg.inv(np.asarray(a))
    for function in (by_cholesky, lambda a: linalg.slogdet(a).logabsdet, lambda a: qb.log(linalg.det(a))):
        np.testing.assert_allclose(np.asarray(qb.grad(function)(a)), expected, rtol=1e-12, atol=1e-14)


def test_flops_are_counted():
    a, b = qb.ones((2, 30, 30)), qb.ones((2, 30, 4))
    cost = qb.jit(linalg.cholesky).lower(a).cost()
    assert cost.flops == 2 * 30**3 // 3
    solve = qb.jit(linalg.solve).lower(a, b).cost().flops
    assert solve == 2 * (2 * 30**3 // 3 + 2 * 30 * 30 * 4)


# -------------------------------------------------------------------------------------------------------- named results


def test_named_results():
    result = linalg.slogdet(qb.array(definite(2, 2)))
    assert result._fields == ("sign", "logabsdet")
    assert isinstance(result, linalg.SlogdetResult)
    assert linalg.lu(qb.eye(2))._fields == ("P", "L", "U")
    doubled = qb.tree.map(lambda x: 2 * x, result)
    assert isinstance(doubled, linalg.SlogdetResult)
    traced = qb.jit(linalg.slogdet)(qb.eye(2))
    assert isinstance(traced, linalg.SlogdetResult)
    assert pickle.loads(pickle.dumps(linalg.SlogdetResult)) is linalg.SlogdetResult


def test_functions_are_functions_of_their_module():
    assert linalg.solve.__module__ == "quabla.linalg"
    assert linalg.solve.__name__ == "solve"
    assert pickle.loads(pickle.dumps(linalg.solve)) is linalg.solve
    assert repr(linalg.solve) == "<function quabla.linalg.solve>"
    assert not hasattr(qb, "solve")


def test_debug_nans_names_the_function():
    with qb.debug_nans(), pytest.raises(FloatingPointError, match="linalg.slogdet"):
        linalg.slogdet(qb.zeros((2, 2)))


# ------------------------------------------------------------------------------------------- orthogonal decompositions


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (40, 40), (70, 20), (20, 70), (200, 200), (3, 10, 4)])
def test_decompositions_multiply_to_the_matrix(shape, dtype):
    a = matrices(*shape, dtype=dtype)
    wide = a.astype("float64")
    tolerance = 40 * np.finfo(dtype).eps * max(shape) ** 0.5 * abs(a).max()

    def orthonormal(x):
        x = np.asarray(x).astype("float64")
        assert abs(np.swapaxes(x, -1, -2) @ x - np.eye(x.shape[-1])).max() < tolerance
        return x

    for full in (False, True):
        u, s, vh = linalg.svd(qb.array(a), full_matrices=full)
        assert (u.shape, vh.shape) == tuple(x.shape for x in np.linalg.svd(a, full_matrices=full)[::2])
        k = s.shape[-1]
        u, s, vh = orthonormal(u), np.asarray(s), np.swapaxes(orthonormal(vh.swapaxes(-1, -2)), -1, -2)
        assert abs(u[..., :k] * s[..., None, :] @ vh[..., :k, :] - wide).max() < tolerance
        assert np.all(np.diff(s) <= 0)
        largest = np.take_along_axis(u, np.argmax(abs(u), -2)[..., None, :], -2)
        assert np.all(largest > 0)
    np.testing.assert_allclose(linalg.svd(qb.array(a), compute_uv=False).numpy(), s, rtol=0, atol=tolerance)
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(qb.array(a), mode)
        assert (q.shape, r.shape) == tuple(x.shape for x in np.linalg.qr(a, mode=mode))
        r = np.asarray(r).astype("float64")
        assert abs(orthonormal(q) @ r - wide).max() < tolerance
        assert np.all(np.diagonal(r, axis1=-2, axis2=-1) >= 0)
        assert np.all(np.tril(r, -1) == 0)
    np.testing.assert_array_equal(np.asarray(linalg.qr(qb.array(a), mode="r")), np.asarray(linalg.qr(qb.array(a)).R))


@pytest.mark.parametrize("n", [1, 2, 5, 30, 120])
def test_eigenvectors(n):
    a = matrices(2, n, n)
    s = (a + np.swapaxes(a, -1, -2)) / 2
    w, v = (np.asarray(x) for x in linalg.eigh(qb.array(a)))
    np.testing.assert_allclose(w, np.linalg.eigvalsh(s), rtol=1e-12, atol=1e-12 * n**0.5)
    assert abs(s @ v - v * w[:, None, :]).max() < 1e-12 * n
    assert np.all(np.take_along_axis(v, np.argmax(abs(v), -2)[:, None, :], -2) > 0)


def test_vectors_of_matrices_that_are_not_finite_are_nan():
    a = np.stack([np.eye(3), np.eye(3)])
    a[1, 0, 0] = np.nan
    for result in (*linalg.eigh(qb.array(a)), *linalg.svd(qb.array(a))):
        nan = np.isnan(np.asarray(result))
        assert nan[1].all()
        assert not nan[0].any()


def test_what_has_no_size_in_32_bits_is_too_large():
    def values(a):
        return linalg.svd(a, compute_uv=False)

    for function, shape, count in (
        (linalg.eigh, (40_000, 40_000), 3_200_240_001),
        (linalg.svd, (30_000, 30_000), 3_604_080_001),
        (values, (20_000_000, 20_000_000), 2_780_000_000),
        (linalg.qr, (2**26, 2**26), 2**32),
        (linalg.lu, (2**31, 1), 2**31),
    ):
        expected = rf"shape \({shape[0]}, {shape[1]}\) are too large: LAPACK .* at least {count}; use smaller matrices"
        with pytest.raises(ValueError, match=expected):
            qb.jit(function).lower(qb.ShapeDtype(shape))
    for function in (linalg.svd, values, linalg.qr):
        qb.jit(function).lower(qb.ShapeDtype((2**26, 1)))


def tangents(function, a, da):
    out, tangent = qb.jvp(function, (qb.array(a),), (qb.array(da),))
    return [np.asarray(x) for x in out], [np.asarray(x) for x in tangent]


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_derivatives_of_square_factors(shape):
    """Those vectors that the matrix does not determine turn so that all stay orthonormal, and the product is right."""
    a, da = matrices(*shape), matrices(*shape, seed=1)
    (q, r), (dq, dr) = tangents(lambda a: linalg.qr(a, "complete"), a, da)
    np.testing.assert_allclose(dq @ r + q @ dr, da, atol=1e-12)
    np.testing.assert_allclose(dq.T @ q + q.T @ dq, 0 * (q.T @ q), atol=1e-12)
    np.testing.assert_allclose(np.tril(dr, -1), 0 * dr, atol=1e-12)
    (u, s, vh), (du, ds, dvh) = tangents(lambda a: linalg.svd(a, full_matrices=True), a, da)
    middle, dmiddle = np.zeros(shape), np.zeros(shape)
    np.fill_diagonal(middle, s)
    np.fill_diagonal(dmiddle, ds)
    np.testing.assert_allclose(du @ middle @ vh + u @ dmiddle @ vh + u @ middle @ dvh, da, atol=1e-12)
    np.testing.assert_allclose(du.T @ u + u.T @ du, 0 * (u.T @ u), atol=1e-12)
    np.testing.assert_allclose(dvh @ vh.T + vh @ dvh.T, 0 * (vh @ vh.T), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_derivatives_of_singular_vectors_do_not_overflow_on_the_way(scale):
    a, da = matrices(4, 3), matrices(4, 3, seed=1)
    (u, s, vh), (du, ds, dvh) = tangents(linalg.svd, a, da)
    found, derivative = tangents(linalg.svd, a * scale, da * scale)
    for got, expected in zip((*found, *derivative), (u, s * scale, vh, du, ds * scale, dvh), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12 * abs(expected).max())


def test_the_gradient_of_a_tall_least_squares_solution_is_of_its_size():
    """No product of it is as large as the number of rows squared."""
    a, b = qb.array(matrices(5000, 3)), qb.array(matrices(5000, 1))
    gradient = qb.jit(qb.grad(lambda a: qb.sum(linalg.lstsq(a, b)[0] ** 2)))
    assert gradient.lower(a).cost().peak_bytes < 5000 * 3 * 8 * 40


def test_derivatives_beside_repeated_eigenvalues():
    """The simple eigenvector's derivative is exact; nothing is NaN, nor large, at any order."""
    turn, _ = np.linalg.qr(matrices(4, 4))
    a = turn @ np.diag([1.0, 1.0, 1.0, 3.0]) @ turn.T
    da = definite(4, 4, seed=3)
    (_, v), (dw, dv) = tangents(linalg.eigh, a, da)
    simple = v[:, 3]
    expected = (da @ simple - simple * (simple @ da @ simple)) / 2  # (3 - A)^+ dA v, 1 / (3 - 1) there
    np.testing.assert_allclose(dv[:, 3], expected, atol=1e-13)
    np.testing.assert_allclose(dw[3], simple @ da @ simple, rtol=1e-13)
    assert abs(dv).max() < 10
    hessian = qb.hessian(lambda a: qb.sum(linalg.eigh(a).eigenvectors[:, 3] ** 3))(qb.array(a))
    assert np.isfinite(np.asarray(hessian)).all()
    for function in (lambda a: qb.sum(linalg.eigh(a)[1] ** 3), lambda a: qb.sum(linalg.svd(a)[0] ** 3)):
        for at in (np.eye(3), np.zeros((3, 3))):
            assert np.isfinite(np.asarray(qb.hessian(function)(qb.array(at)))).all()


def test_singular_values_alone():
    a = qb.array(matrices(2, 5, 3))
    assert np.isnan(linalg.svd(a * np.nan, compute_uv=False).numpy()).all()
    value, _ = qb.value_and_grad(lambda a: qb.sum(linalg.svd(a, compute_uv=False)))(a)
    np.testing.assert_allclose(value.numpy(), linalg.svd(a, compute_uv=False).numpy().sum(), rtol=1e-12)


def test_gradient_of_the_nuclear_norm():
    a = matrices(4, 3)
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    gradient = qb.grad(lambda a: qb.sum(linalg.svd(a, compute_uv=False)))(qb.array(a))
    np.testing.assert_allclose(np.asarray(gradient), u @ vh, rtol=1e-12, atol=1e-13)


# ------------------------------------------------------------------------------------------- norms, products, solutions


@pytest.mark.parametrize("order", [None, 1, 2, 3, 0.5, 0, -1, -2.5, np.inf, -np.inf])
def test_norms_of_vectors(order):
    for shape, axis in (((5,), None), ((3, 4), 0), ((3, 4), -1), ((2, 3, 4), 1), ((1,), 0)):
        x = matrices(*shape)
        for keepdims in (False, True):
            expected = np.linalg.norm(x, order, axis, keepdims)
            compiled = qb.jit(lambda x, axis=axis, keepdims=keepdims: linalg.norm(x, order, axis, keepdims))
            for got in (linalg.norm(qb.array(x), order, axis, keepdims), compiled(qb.array(x))):
                assert got.shape == np.shape(expected)
                np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-14)
        if order != 0:
            f = lambda x, axis=axis: qb.sum(linalg.norm(x, order, axis))
            v, h = matrices(*shape, seed=1), 1e-6
            numeric = (f(qb.array(x + h * v)).item() - f(qb.array(x - h * v)).item()) / (2 * h)
            np.testing.assert_allclose(np.sum(np.asarray(qb.grad(f)(qb.array(x))) * v), numeric, rtol=1e-6)


@pytest.mark.parametrize("order", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms_of_matrices(order):
    for shape, axis in (
        ((3, 4), None),
        ((4, 3), (0, 1)),
        ((2, 3, 4), (1, 2)),
        ((2, 3, 4), (2, 0)),
        ((4, 2, 3), (-1, 0)),
    ):
        x = matrices(*shape)
        for keepdims in (False, True):
            expected = np.linalg.norm(x, order, axis, keepdims)
            got = linalg.norm(qb.array(x), order, axis, keepdims)
            assert got.shape == np.shape(expected)
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-13)
        f = lambda x, axis=axis: qb.sum(linalg.norm(x, order, axis))
        v, h = matrices(*shape, seed=1), 1e-6
        numeric = (f(qb.array(x + h * v)).item() - f(qb.array(x - h * v)).item()) / (2 * h)
        np.testing.assert_allclose(np.sum(np.asarray(qb.grad(f)(qb.array(x))) * v), numeric, rtol=1e-6)


def test_norms_at_the_ends():
    large = qb.array([1e200, 1e200])
    np.testing.assert_allclose(linalg.norm(large, 3).item(), 2 ** (1 / 3) * 1e200, rtol=1e-14)
    np.testing.assert_allclose(linalg.norm(qb.array([1e-200, 1e-200]), -3).item(), 2 ** (-1 / 3) * 1e-200, rtol=1e-14)
    assert linalg.norm(qb.zeros(3), 3).item() == 0
    assert qb.grad(lambda x: linalg.norm(x, 3))(qb.zeros(3)).tolist() == [0, 0, 0]
    assert np.isnan(linalg.norm(qb.array([1.0, np.nan]), 3).item())
    assert linalg.norm(qb.array([1.0, np.inf]), 3).item() == np.inf
    assert linalg.norm(qb.zeros(0)).item() == 0
    assert linalg.norm(qb.zeros(0), -3).item() == np.inf
    assert linalg.norm(qb.ones(2, dtype=qb.float32), 3).dtype == qb.float32
    for call, message in (
        (lambda: linalg.norm(qb.ones((2, 2)), 3), "3 is no order of the norm of a matrix"),
        (lambda: linalg.norm(qb.ones(2), "fro"), "'fro' is no order of the norm of a vector"),
        (lambda: linalg.norm(qb.ones((2, 2, 2)), 1), r"axis must say .* \(2, 2, 2\)"),
        (lambda: linalg.norm(qb.ones(2), 1, 1), r"axis 1 is out of range for an array of shape \(2,\)"),
        (lambda: linalg.norm(qb.ones((2, 2)), 1, (0, 0)), "two different ones"),
        (lambda: linalg.norm(qb.ones(2) > 0), "bool.*astype"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("p", [None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"])
def test_condition_numbers(p):
    a = matrices(2, 4, 4)
    np.testing.assert_allclose(np.asarray(linalg.cond(qb.array(a), p)), np.linalg.cond(a, p), rtol=1e-11)
    if p not in (-1, -2, -np.inf):
        assert linalg.cond(qb.zeros((3, 3)), p).item() == np.inf
    assert np.isnan(linalg.cond(qb.array([[1.0, np.nan], [0.0, 1.0]]), p).item())


def test_condition_numbers_of_other_matrices():
    a = matrices(5, 3)
    np.testing.assert_allclose(linalg.cond(qb.array(a)).item(), np.linalg.cond(a), rtol=1e-12)
    with pytest.raises(ValueError, match=r"linalg.cond: .*\(3,\)"):
        linalg.cond(qb.ones(3))


def test_multi_dot():
    shapes = (10, 100), (100, 5), (5, 50), (50, 1), (1, 7)
    arrays = [matrices(*shape, seed=i) for i, shape in enumerate(shapes)]
    tensors = [qb.array(x) for x in arrays]
    np.testing.assert_allclose(np.asarray(linalg.multi_dot(tensors)), np.linalg.multi_dot(arrays), rtol=1e-12)
    row, column = matrices(10), matrices(7)
    for given in ([row, *arrays], [*arrays, column], [row, *arrays, column], arrays[:2]):
        got = linalg.multi_dot([qb.array(x) for x in given])
        np.testing.assert_allclose(np.asarray(got), np.linalg.multi_dot(given), rtol=1e-11)
    flops = qb.jit(linalg.multi_dot).lower(tensors[:3]).cost().flops
    assert flops == 2 * (10 * 100 * 5 + 10 * 5 * 50)
    for bad, message in (([row], "two arrays at least"), ([arrays[0], row, arrays[1]], r"array 1 has shape \(10,\)")):
        with pytest.raises(ValueError, match=message):
            linalg.multi_dot([qb.array(x) for x in bad])


def test_pseudo_inverse_of_matrices_without_full_rank():
    a = matrices(5, 2) @ matrices(2, 4, seed=1)
    x = np.asarray(linalg.pinv(qb.array(a)))
    np.testing.assert_allclose(x, np.linalg.pinv(a), atol=1e-12)
    assert linalg.matrix_rank(qb.array(a)).item() == 2
    assert linalg.matrix_rank(qb.zeros((3, 4))).item() == 0
    assert linalg.matrix_rank(qb.array(np.diag([1.0, 1e-3])), rtol=1e-2).item() == 1
    b = matrices(5, 3, seed=2)
    got, expected = linalg.lstsq(qb.array(a), qb.array(b)), np.linalg.lstsq(a, b)
    np.testing.assert_allclose(np.asarray(got.x), expected[0], atol=1e-12)
    assert got.rank.item() == expected[2] == 2
    np.testing.assert_allclose(np.asarray(got.s), expected[3], atol=1e-12)
    np.testing.assert_allclose(np.asarray(got.residuals), np.sum((a @ expected[0] - b) ** 2, 0), rtol=1e-11)


def test_derivative_of_the_pseudo_inverse_where_singular_values_are_equal():
    """That of the inverse, at the unit matrix and to second order, which vectors that do not turn would miss."""
    da = matrices(3, 3)

    def pinv_along(a):
        return qb.jvp(linalg.pinv, (a,), (qb.array(da),))[1]

    np.testing.assert_allclose(np.asarray(pinv_along(qb.eye(3))), -da, atol=1e-14)
    second = qb.jvp(pinv_along, (qb.eye(3),), (qb.array(da),))[1]
    np.testing.assert_allclose(np.asarray(second), 2 * da @ da, atol=1e-13)


def test_gradient_of_a_least_squares_solution():
    a, b, v = matrices(6, 3), matrices(6, seed=1), matrices(6, 3, seed=2)
    f = lambda a: qb.sum(linalg.lstsq(a, qb.array(b)).x ** 2)
    h = 1e-6
    numeric = (f(qb.array(a + h * v)).item() - f(qb.array(a - h * v)).item()) / (2 * h)
    np.testing.assert_allclose(np.sum(np.asarray(qb.grad(f)(qb.array(a))) * v), numeric, rtol=1e-7)


# ---------------------------------------------------------------------------------------------------------- exponential


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 10.0, 50.0])
@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_exponential_with_its_derivative(n, scale):
    a, da, w = (matrices(n, n, seed=k) for k in range(3))
    a = a * scale / n
    expected, derivative = scipy.linalg.expm_frechet(a, da)
    value, tangent = qb.jvp(linalg.expm, (qb.array(a),), (qb.array(da),))
    np.testing.assert_allclose(np.asarray(value), expected, rtol=0, atol=1e-11 * abs(expected).max())
    np.testing.assert_allclose(np.asarray(tangent), derivative, rtol=0, atol=1e-11 * abs(derivative).max())
    gradient = qb.vjp(linalg.expm, qb.array(a))[1](qb.array(w))[0]
    size = np.sum(abs(w * derivative))
    np.testing.assert_allclose(np.sum(np.asarray(gradient) * da), np.sum(w * derivative), rtol=0, atol=1e-11 * size)


def test_exponential_of_batches():
    a = matrices(3, 4, 4) * np.array([0.1, 5.0, 40.0])[:, None, None]
    expected = np.stack([scipy.linalg.expm(x) for x in a])
    for got in (linalg.expm(qb.array(a)), qb.vmap(linalg.expm)(qb.array(a)), qb.jit(linalg.expm)(qb.array(a))):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-11, atol=1e-11 * abs(expected).max())
    single = linalg.expm(qb.array(a[0], dtype=qb.float32))
    assert single.dtype == qb.float32
    np.testing.assert_allclose(np.asarray(single), expected[0], rtol=1e-5)


def test_exponential_at_the_ends():
    assert linalg.expm(qb.array([[0.0, 1.0], [0.0, 0.0]])).tolist() == [[1, 1], [0, 1]]
    assert linalg.expm(qb.zeros((2, 0, 0))).shape == (2, 0, 0)
    assert np.isnan(np.asarray(linalg.expm(qb.array([[np.nan, 1.0], [0.0, 0.0]])))).all()
    np.testing.assert_allclose(
        np.asarray(linalg.expm(qb.array([[-1e4, 0.0], [0.0, -1.0]]))), np.diag([0, np.exp(-1)]), rtol=1e-11
    )
    mixed = linalg.expm(qb.array([[[np.nan, 0.0], [0.0, 0.0]], [[-40.0, 0.0], [0.0, -1.0]]]))
    np.testing.assert_allclose(np.asarray(mixed)[1], np.diag(np.exp([-40.0, -1.0])), rtol=1e-11)
    assert np.isnan(np.asarray(linalg.expm(qb.array([[0.0, 1e11], [-1e11, 0.0]])))).all()
    hessian = qb.hessian(lambda a: linalg.expm(a)[0, 0])(qb.zeros((2, 2)))  # of 1 + a + a a / 2
    np.testing.assert_allclose(np.asarray(hessian).reshape(4, 4)[0], [1, 0, 0, 0], atol=1e-15)
    np.testing.assert_allclose(np.asarray(hessian).reshape(4, 4)[1], [0, 0, 0.5, 0], atol=1e-15)
    with pytest.raises(ValueError, match=r"linalg.expm: .*\(2, 3\)"):
        linalg.expm(qb.ones((2, 3)))
