"""Linear algebra: of the matrices in the last two axes; all other axes are batch axes, which broadcast.

The functions of the library are rows of functions.def; those that give several results give a named tuple, whose type
is here, too. Functions that choose between others by an order, or by shapes alone, are written here.
"""

import functools
import math
import operator

from . import _core
from .control import cond as _choose
from .control import scan
from .staging import as_array
from .transforms import jit

globals().update(_core.linalg_functions)
__all__ = [*_core.linalg_functions, "cond", "expm", "multi_dot", "norm"]
for _function in _core.linalg_functions.values():
    if _function.result_type:
        globals()[_function.result_type.__name__] = _function.result_type
del _function


def _floating(x, name):
    x = as_array(x, what=f"linalg.{name}")
    if x.dtype.kind == "b":
        raise ValueError(f"linalg.{name}: takes numbers, got bool; convert with astype")
    return x if x.dtype.kind == "f" else x.astype(_core.float64)


# ---------------------------------------------------------------------------------------------------------------- norms


def _order_error(what, order, expected):
    return ValueError(f"linalg.norm: {order!r} is no order of the norm of {what}; take {expected}")


def _vector_norm(x, order, axis, keepdims):
    if order is None or order == 2:
        return _core.norm(x, axis, keepdims)
    if isinstance(order, str) or math.isnan(order):
        raise _order_error("a vector", order, "a number, inf or -inf")
    size = _core.abs(x)
    if order == math.inf:
        return _core.max(size, axis, keepdims) if x.shape[axis] else _core.sum(size, axis, keepdims)
    if order == -math.inf:
        return _core.min(size, axis, keepdims)
    if order == 1:
        return _core.sum(size, axis, keepdims)
    if order == 0:
        return _core.sum(_core.not_equal(x, 0).astype(x.dtype), axis, keepdims)
    if not x.shape[axis]:
        return _core.sum(size, axis, keepdims) + (0.0 if order > 0 else math.inf)
    # Scaled, so that no power overflows; through the scale no derivative flows, since its contributions cancel.
    fixed = _core.stop_gradient(size)
    scale = _core.max(fixed, axis, True) if order > 0 else _core.min(fixed, axis, True)
    scale = _core.where(_core.logical_or(_core.equal(scale, 0), _core.isinf(scale)), 1.0, scale)
    root = _core.sum((size / scale) ** float(order), axis, True) ** (1.0 / order)
    return scale * root if keepdims else _core.squeeze(scale * root, axis)


def _sums_then(reduce, x, summed, reduced, keepdims):
    sums = _core.sum(_core.abs(x), summed, True)
    result = reduce(sums, reduced, True)
    return result if keepdims else _core.squeeze(result, (summed, reduced))


def _matrix_norm(x, order, axes, keepdims):
    rows, columns = axes
    if order is None or order == "fro":
        return _core.norm(x, axes, keepdims)
    if order == "nuc" or order in (2, -2):
        values = svd(_core.moveaxis(x, axes, (-2, -1)), compute_uv=False)  # noqa: F821
        result = (_core.sum if order == "nuc" else _core.max if order == 2 else _core.min)(values, -1)
        return _core.expand_dims(result, tuple(sorted(axes))) if keepdims else result
    if order in (1, -1):
        return _sums_then(_core.max if order > 0 else _core.min, x, rows, columns, keepdims)
    if order in (math.inf, -math.inf):
        return _sums_then(_core.max if order > 0 else _core.min, x, columns, rows, keepdims)
    raise _order_error("a matrix", order, "'fro', 'nuc', 1, -1, 2, -2, inf or -inf")


def norm(x, ord=None, axis=None, keepdims=False):
    """A norm of vectors (axis an int) or of matrices (axis a pair), with numpy.linalg.norm's orders.

    ord: of vectors None or 2 (Euclidean), any other number p for sum(|x|^p)^(1/p), inf and -inf for the largest and the
        smallest |x|, 0 for the number of elements that are not 0; of matrices None or 'fro' (Frobenius), 'nuc' (the sum
        of singular values), 2 and -2 (the largest and the smallest), 1 and -1 (of the sums of columns), inf and -inf
        (of rows).
    axis: None is for a vector or a matrix as a whole; without an order, for all elements of any array.
    Returns an array with the axes removed, or of extent 1 where keepdims. Euclidean and Frobenius norms have derivative
    0 at 0. ValueError for another order, and for axes that are not there.
    """
    x = _floating(x, "norm")
    rank = len(x.shape)
    if axis is None:
        if ord is None:
            return _core.norm(x, None, keepdims)
        if rank not in (1, 2):
            raise ValueError(f"linalg.norm: with an order, axis must say which axes of shape {x.shape} are meant")
        axis = tuple(range(rank))
    axes = tuple(map(operator.index, axis)) if isinstance(axis, (tuple, list)) else (operator.index(axis),)
    for place in axes:
        if not -rank <= place < rank:
            raise ValueError(f"linalg.norm: axis {place} is out of range for an array of shape {x.shape}")
    axes = tuple(place % rank for place in axes)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ValueError(f"linalg.norm: axis must be an int or two different ones, got {axis}")
    return _matrix_norm(x, ord, axes, keepdims)


MANY = 1024  # shapes of matrices that functions compiled here are kept for

_inverse = jit(inv, max_traces=MANY)  # noqa: F821  (NaN for a singular matrix)


def cond(a, p=None):
    """The condition number of matrices: norm(a, p) * norm(inv(a), p).

    p: None or 2 for the ratio of the largest singular value to the smallest, -2 for its reciprocal, or another order of
        `norm`, for square matrices. inf for a singular matrix, NaN for one that has NaN. ValueError for what are no
        matrices.
    """
    a = _floating(a, "cond")
    if len(a.shape) < 2 or 0 in a.shape[-2:]:
        raise ValueError(f"linalg.cond: takes matrices with elements, in the last two axes, got shape {a.shape}")
    if p is None or p in (2, -2):
        values = svd(a, compute_uv=False)  # noqa: F821
        pair = values[..., 0], values[..., -1]
        result = pair[1] / pair[0] if p == -2 else pair[0] / pair[1]
    else:
        result = norm(a, p, (-2, -1)) * norm(_inverse(a), p, (-2, -1))
    has_nan = _core.any(_core.isnan(a), (-2, -1))
    singular = _core.logical_and(_core.isnan(result), _core.logical_not(has_nan))
    return _core.where(singular, math.inf, result)


# ---------------------------------------------------------------------------------------------------------- exponential

# The coefficients of the numerator of the [13/13] Pade approximant of exp, that of the highest power last, and the norm
# up to which it is exact but for rounding (Higham, "The scaling and squaring method for the matrix exponential
# revisited", SIAM J. Matrix Anal. Appl. 26, 2005).
PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
PADE_NORM = 5.371920351148152
MOST_SQUARINGS = 32


def _pade(a, identity):
    a2 = a @ a
    a4, a6 = a2 @ a2, a2 @ a2 @ a2

    def part(first):
        c = PADE[first::2]
        return a6 @ (c[6] * a6 + c[5] * a4 + c[4] * a2) + c[3] * a6 + c[2] * a4 + c[1] * a2 + c[0] * identity

    odd, even = a @ part(1), part(0)
    return solve(even - odd, even + odd)  # noqa: F821


@functools.partial(jit, max_traces=MANY)
def _expm(a):
    size = _core.stop_gradient(norm(a, 1, (-2, -1), True))
    count = _core.clip(_core.ceil(_core.log2(size / PADE_NORM)), 0.0, float(MOST_SQUARINGS))
    most = _core.max(_core.where(_core.isnan(count), 0.0, count))  # of a batch, the other matrices' go on
    result = _pade(a / _core.exp2(count), _core.eye(a.shape[-1], dtype=a.dtype))

    def square(power, step):
        wanted = _core.less(step, count)
        return _choose(_core.less(step, most), lambda x: _core.where(wanted, x @ x, x), lambda x: x, power), None

    result = scan(square, result, xs=_core.arange(MOST_SQUARINGS, dtype=a.dtype))[0]
    return _core.where(size > PADE_NORM * 2.0**MOST_SQUARINGS, math.nan, result)


def expm(a):
    """The exponential of square matrices, by scaling, a Pade approximant, and squaring.

    Derivatives of every order are those of these products. NaN where the 1-norm is beyond 2e10, and for matrices that
    are not finite. ValueError for what are no square matrices. Some ten products of matrices, and one more for each
    doubling of the norm beyond 5 (under vmap, for each of the 32 possible).
    """
    a = _floating(a, "expm")
    if len(a.shape) < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"linalg.expm: takes square matrices, in the last two axes, got shape {a.shape}")
    return a if 0 in a.shape else _expm(a)


# ------------------------------------------------------------------------------------------------------------- products


def _cheapest_splits(extents):
    """Where to cut each product of factors i .. j (extents[i] x extents[i + 1], ...) in two, for the fewest
    multiplications (Cormen, Leiserson, Rivest and Stein, "Introduction to Algorithms", 15.2)."""
    count = len(extents) - 1
    cost, cut = [[0] * count for _ in range(count)], [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i][j], cut[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + extents[i] * extents[k + 1] * extents[j + 1], k) for k in range(i, j)
            )
    return cut


def multi_dot(arrays):
    """The product of two or more matrices, in the order that takes the fewest multiplications.

    arrays: a sequence; the first may be a vector, which is a row, and the last one, which is a column.
    ValueError for fewer than two, for other numbers of axes, and for extents that do not fit.
    """
    arrays = [as_array(x, what=f"linalg.multi_dot: array {i}") for i, x in enumerate(arrays)]
    if len(arrays) < 2:
        raise ValueError(f"linalg.multi_dot: takes two arrays at least, got {len(arrays)}")
    for i, x in enumerate(arrays):
        is_end = i in (0, len(arrays) - 1)
        if len(x.shape) != 2 and not (is_end and len(x.shape) == 1):
            raise ValueError(f"linalg.multi_dot: array {i} has shape {x.shape}; it must be a matrix")
    rows = [x.shape[0] if len(x.shape) == 2 else 1 for x in arrays[:1]]
    columns = [x.shape[-1] for x in arrays[:-1]]
    last = arrays[-1].shape[1] if len(arrays[-1].shape) == 2 else 1
    cut = _cheapest_splits([*rows, *columns, last])

    def product(i, j):
        if i == j:
            return arrays[i]
        return _core.matmul(product(i, cut[i][j]), product(cut[i][j] + 1, j))

    return product(0, len(arrays) - 1)
