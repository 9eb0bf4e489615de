"""Rows of the case table for qb.linalg. Matrices are made well conditioned by `prepare`, whatever a test does to them."""

import numpy as np
import quabla as qb
from ops.cases import Sample, draw, row

MATRIX_SHAPES = ((1, 1), (2, 2), (3, 3), (2, 3, 3), (2, 1, 2, 2), (4, 4), (0, 0), (0, 2, 2), (2, 0, 0))
EQUATION_SHAPES = (
    ((3, 3), (3,)), ((3, 3), (3, 2)), ((1, 1), (1, 1)), ((2, 3, 3), (3,)), ((2, 3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1)),
    ((3, 3), (4, 3, 2)), ((2, 2), (4, 2, 1)), ((2, 1, 2, 2), (3, 2, 1)), ((2, 1, 2, 2), (1, 3, 2, 2)), ((4, 4), (4, 1)),
    ((0, 0), (0,)), ((2, 2), (2, 0)), ((0, 2, 2), (2,)), ((2, 2), (0, 2, 1)),
)  # fmt: skip


def square(*more):
    """The errors of functions of square matrices, and of further operands."""
    return (
        (lambda f: f(qb.ones(3), *more), ValueError, r"square.*\(3,\)"),
        (lambda f: f(qb.ones((2, 3)), *more), ValueError, r"square.*\(2, 3\)"),
    )


NO_BOOL = ((lambda f: f(qb.ones((2, 2)) > 0.0), ValueError, "bool.*astype"),)
FIT = (
    (lambda f: f(qb.eye(3), qb.ones(2)), ValueError, r"\(3, 3\).*\(2,\).*extent must be 3"),
    (lambda f: f(qb.eye(3), qb.ones((2, 4))), ValueError, r"\(3, 3\).*\(2, 4\).*last extent but one must be 3"),
    (lambda f: f(qb.ones((2, 3, 3)), qb.ones((5, 3, 1))), ValueError, r"\(2, 3, 3\).*\(5, 3, 1\).*broadcast"),
    (lambda f: f(qb.eye(3), 1.0), ValueError, r"\(3, 3\).*\(\)"),
    (lambda f: f(qb.eye(3), qb.ones(3, dtype=qb.float32)), ValueError, "(?s)float64.*float32.*astype"),
)


def dominant(a):
    """With a dominant diagonal: definite, and nothing to be exchanged."""
    n = a.shape[-1]
    library = np if isinstance(a, np.ndarray) else qb
    return a + (4 * n + 4) * library.eye(n, dtype=a.dtype)


def upside_down(a):
    """Rows have to be exchanged."""
    library = np if isinstance(a, np.ndarray) else qb
    return library.flip(dominant(a), -2)


def of_matrices(name, reference, prepare, shapes=MATRIX_SHAPES, errors=(), **options):
    samples = tuple(Sample(draw(name, (shape,), ((-2, 2),))) for shape in shapes)
    row(name, lambda a, **k: reference(prepare(a), **k), samples, prepare=prepare, errors=NO_BOOL + errors,
        **{"ulps": 32, **options})  # fmt: skip


def of_equations(name, reference, prepare, variants=({},), errors=(), **options):
    samples = tuple(
        Sample(draw(name, shapes, ((-2, 2), (-2, 2))), params) for shapes in EQUATION_SHAPES for params in variants
    )
    row(name, lambda a, b, **k: reference(prepare(a), b, **k), samples, prepare=prepare,
        errors=square(qb.ones(2)) + FIT + errors, ulps=32, **options)  # fmt: skip


def np_solve(a, b):
    return np.linalg.solve(a, b) if b.ndim > 1 else np.linalg.solve(a, b[:, None])[..., 0]


def np_solve_triangular(a, b, trans=0, lower=False):
    a = np.tril(a) if lower else np.triu(a)
    return np_solve(np.swapaxes(a, -1, -2) if trans else a, b)


def np_cho_solve(c, b, lower=True):
    c = np.tril(c) if lower else np.swapaxes(np.triu(c), -1, -2)
    return np_solve(c @ np.swapaxes(c, -1, -2), b)


def np_lu(a):
    """By partial pivoting, one matrix after the other."""
    m, n = a.shape[-2:]
    k = min(m, n)
    parts = np.zeros((*a.shape[:-2], m, m)), np.zeros((*a.shape[:-2], m, k)), np.zeros((*a.shape[:-2], k, n))
    for at in np.ndindex(a.shape[:-2]):
        rest, order = a[at].copy(), np.arange(m)
        for j in range(k):
            pivot = j + np.argmax(abs(rest[j:, j]))
            rest[[j, pivot]], order[[j, pivot]] = rest[[pivot, j]], order[[pivot, j]]
            rest[j + 1 :, j] /= rest[j, j]
            rest[j + 1 :, j + 1 :] -= np.outer(rest[j + 1 :, j], rest[j, j + 1 :])
        parts[0][at][order, np.arange(m)] = 1
        parts[1][at][:] = np.tril(rest, -1)[:, :k] + np.eye(m, k)
        parts[2][at][:] = np.triu(rest)[:k]
    return parts


def symmetric_cholesky(a):
    return np.linalg.cholesky((a + np.swapaxes(a, -1, -2)) / 2)


of_matrices(
    "linalg.cholesky", symmetric_cholesky, dominant,
    errors=(
        *square(),
        (lambda f: f(qb.ones((2, 3, 2))), ValueError, r"linalg.cholesky: .*\(2, 3, 2\)"),
    ),
)  # fmt: skip
of_equations(
    "linalg.solve_triangular", np_solve_triangular, dominant,
    variants=({}, {"trans": 1}, {"lower": True}, {"trans": 2, "lower": True}),
    errors=((lambda f: f(qb.eye(2), qb.ones(2), trans=3), ValueError, "trans must be 0.*got 3"),),
)  # fmt: skip
of_equations("linalg.cho_solve", np_cho_solve, dominant, variants=({}, {"lower": False}))
of_equations("linalg.solve", np_solve, upside_down)
of_matrices("linalg.inv", np.linalg.inv, upside_down, errors=square())
of_matrices("linalg.det", np.linalg.det, upside_down, errors=square())
of_matrices(
    "linalg.slogdet", lambda a: np.linalg.slogdet(a)[0], upside_down, errors=square(), part=0, derivative="flat"
)
of_matrices("linalg.slogdet", lambda a: np.linalg.slogdet(a)[1], upside_down, errors=square(), part=1)


def tall_dominant(a):
    """With a dominant diagonal, upside down: the matrices may have other numbers of rows than of columns."""
    m, n = a.shape[-2:]
    library = np if isinstance(a, np.ndarray) else qb
    return library.flip(a + (4 * n + 4) * library.eye(m, n, dtype=a.dtype), -2)


for part in range(3):
    of_matrices(
        "linalg.lu", lambda a, part=part: np_lu(a)[part], tall_dominant,
        shapes=(*MATRIX_SHAPES[:6], (3, 2), (2, 4), (2, 3, 1), (0, 0), (3, 0), (0, 2), (0, 2, 3)),
        errors=((lambda f: f(qb.ones(3)), ValueError, r"matrices.*\(3,\)"),),
        part=part, derivative="smooth" if part else "flat",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------- orthogonal decompositions


def spread_out(a):
    """Eigenvalues and singular values are apart, vectors have one largest component."""
    m, n = a.shape[-2:]
    library = np if isinstance(a, np.ndarray) else qb
    steps = library.arange(1, m + 1, dtype=a.dtype)
    return a + 16 * steps[:, None] * library.eye(m, n, dtype=a.dtype)


def sign_of_largest(vectors):
    """Of each column, 1 for columns of zero length."""
    if 0 in vectors.shape:
        return np.ones((*vectors.shape[:-2], 1, vectors.shape[-1]))
    place = np.argmax(abs(vectors), axis=-2)[..., None, :]
    return np.sign(np.take_along_axis(vectors, place, -2))


def np_eigh(a):
    w, v = np.linalg.eigh((a + np.swapaxes(a, -1, -2)) / 2)
    return w, v * sign_of_largest(v)


def np_svd(a, full_matrices=False, compute_uv=True):
    if not compute_uv:
        return np.linalg.svd(a, compute_uv=False)
    u, s, vh = np.linalg.svd(a, full_matrices=full_matrices)
    sign, k = sign_of_largest(u), s.shape[-1]
    vh = vh.copy()
    vh[..., :k, :] *= np.swapaxes(sign, -1, -2)[..., :k, :]
    return u * sign, s, vh


def np_qr(a, mode="reduced"):
    q, r = np.linalg.qr(a, mode="complete" if mode == "complete" else "reduced")
    k = min(a.shape[-2:])
    sign = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
    q[..., :k] *= sign[..., None, :]
    r[..., :k, :] *= sign[..., :, None]
    return r if mode == "r" else (q, r)


EIGH_SHAPES = ((1, 1), (2, 2), (3, 3), (2, 3, 3), (4, 4), (0, 0), (0, 2, 2))
for part in range(2):
    of_matrices("linalg.eigh", lambda a, part=part: np_eigh(a)[part], spread_out, shapes=EIGH_SHAPES,
                errors=square(), part=part, ulps=64)  # fmt: skip

ANY_SHAPES = ((1, 1), (2, 2), (3, 3), (3, 2), (2, 4), (2, 3, 2), (2, 2, 3), (0, 0), (3, 0), (0, 2), (0, 2, 3))
NOT_MATRICES = ((lambda f: f(qb.ones(3)), ValueError, r"matrices.*\(3,\)"),)
for part in range(3):
    of_matrices("linalg.svd", lambda a, part=part: np_svd(a)[part], spread_out, shapes=ANY_SHAPES,
                errors=NOT_MATRICES, part=part, ulps=64)  # fmt: skip
row("linalg.svd", lambda a, **params: np_svd(spread_out(a), **params),
    tuple(Sample(draw("svd", (shape,), ((-2, 2),)), {"compute_uv": False}) for shape in ANY_SHAPES),
    prepare=spread_out, errors=NOT_MATRICES, ulps=64)  # fmt: skip
for part in range(2):
    of_matrices("linalg.qr", lambda a, part=part: np_qr(a)[part], spread_out, shapes=ANY_SHAPES,
                errors=(*NOT_MATRICES, (lambda f: f(qb.eye(2), "full"), ValueError, "mode must be 'reduced'")),
                part=part, ulps=64)  # fmt: skip

of_matrices("linalg.pinv", np.linalg.pinv, spread_out, shapes=ANY_SHAPES[:7], errors=NOT_MATRICES, ulps=64)
of_matrices("linalg.matrix_rank", lambda a: np.asarray(np.linalg.matrix_rank(a)), spread_out, shapes=ANY_SHAPES[:7],
            errors=NOT_MATRICES, derivative="flat", result="int64")  # fmt: skip


def np_lstsq(a, b):
    parts = [np.linalg.lstsq(x, b, rcond=None) for x in a.reshape(-1, *a.shape[-2:])]
    x, residuals, rank, s = (np.stack(part) for part in zip(*parts))
    return [part.reshape((*a.shape[:-2], *part.shape[1:])) for part in (x, residuals, rank, s)]


LEAST_SHAPES = (((3, 3), (3,)), ((4, 2), (4,)), ((4, 2), (4, 3)), ((2, 3), (2, 1)), ((2, 3), (2,)), ((1, 1), (1,)))
for part in range(4):
    row(
        "linalg.lstsq", lambda a, b, part=part: np_lstsq(spread_out(a), b)[part],
        tuple(Sample(draw("lstsq", shapes, ((-2, 2), (-2, 2)))) for shapes in LEAST_SHAPES),
        prepare=spread_out, part=part, ulps=64, derivative="flat" if part == 2 else "smooth",
        result="int64" if part == 2 else "same",
        errors=(
            (lambda f: f(qb.ones(3), qb.ones(3)), ValueError, r"matrices.*\(3,\)"),
            (lambda f: f(qb.ones((3, 2)), qb.ones(2)), ValueError, r"\(3, 2\).*\(2,\).*must be 3"),
            (lambda f: f(qb.eye(3), qb.ones(3, dtype=qb.float32)), ValueError, "(?s)float64.*float32.*astype"),
        ),
    )  # fmt: skip
row(
    "linalg.matrix_power", lambda a, n: np.linalg.matrix_power(dominant(a) / (4 * a.shape[-1] + 4), n),
    tuple(Sample(draw("matrix_power", (shape,), ((-2, 2),)), {"n": n})
          for shape in ((1, 1), (3, 3), (2, 2, 2), (0, 0)) for n in (0, 1, 2, 3, 7, -1, -2)),
    prepare=lambda a: dominant(a) / (4 * a.shape[-1] + 4), ulps=64,
    errors=(
        (lambda f: f(qb.ones((2, 3)), 2), ValueError, r"square.*\(2, 3\)"),
        (lambda f: f(qb.eye(2), 1.5), TypeError, "n must be an int"),
    ),
)  # fmt: skip
