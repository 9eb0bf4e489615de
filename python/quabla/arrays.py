"""What arrays have in common (Array), and the functions that give several arrays: split, meshgrid.

Every other function is a row of functions.def, with one result.
"""

import abc
import operator

from . import _core
from .staging import ARRAY_TYPES, as_array

__all__ = ["Array", "meshgrid", "split"]


class Array(abc.ABC):
    """The abstract base class of Tensor and TraceTensor: isinstance(x, Array) holds inside traced functions and
    outside.

    Made by array, asarray and the other functions, never by Array().
    """

    @property
    @abc.abstractmethod
    def shape(self):
        """The extents of the axes, a tuple of ints."""

    @property
    @abc.abstractmethod
    def dtype(self):
        """What the elements are: float64, float32, bool_, int32, int64, uint32 or uint64."""


def split(x, indices_or_sections, axis=0):
    """The parts of an array along an axis, as a list.

    indices_or_sections: an int n for n parts of equal extent, or the ascending places at which the array is cut
        ([2, 5] gives x[:2], x[2:5], x[5:]); as in numpy.split.
    Also a method of arrays. ValueError where the extent is no multiple of n, or there is no such axis.
    """
    x = as_array(x, what="split")
    rank = len(x.shape)
    place = operator.index(axis)
    if not -rank <= place < rank:
        raise ValueError(f"split: axis {place} is out of range for an array of shape {x.shape}")
    place %= rank
    extent = x.shape[place]
    try:
        count = operator.index(indices_or_sections)
    except TypeError:
        cuts = [operator.index(cut) for cut in indices_or_sections]
    else:
        if count < 1 or extent % count:
            raise ValueError(
                f"split: axis {place} of shape {x.shape} has extent {extent}, which is not {count} equal parts"
            )
        cuts = list(range(extent // count, extent, extent // count)) if extent else [0] * (count - 1)
    whole = (slice(None),) * place
    return [x[(*whole, slice(start, stop))] for start, stop in zip([0, *cuts], [*cuts, extent], strict=True)]


def meshgrid(*arrays, indexing="xy"):
    """Coordinates of a grid: for vectors of n, m, ... elements, as many arrays, each repeating one vector, as a tuple.

    indexing: "xy" gives shape (m, n, ...), the first vector along the second axis, as numpy.meshgrid does; "ij" gives
        shape (n, m, ...).
    Also a method of arrays. ValueError for another indexing, and for arrays of two axes or more.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    arrays = [as_array(x, what=f"meshgrid: array {i}") for i, x in enumerate(arrays)]
    for i, x in enumerate(arrays):
        if len(x.shape) > 1:
            raise ValueError(f"meshgrid: array {i} has shape {x.shape}; the coordinates along an axis are a vector")
    axes = list(range(len(arrays)))
    if indexing == "xy":
        axes[:2] = axes[:2][::-1]
    extents = [1 if x.shape == () else x.shape[0] for x in arrays]
    shape = [0] * len(arrays)
    for axis, extent in zip(axes, extents, strict=True):
        shape[axis] = extent
    result = []
    for x, axis, extent in zip(arrays, axes, extents, strict=True):
        own = [1] * len(arrays)
        own[axis] = extent
        result.append(_core.broadcast_to(_core.reshape(x, tuple(own)), tuple(shape)))
    return tuple(result)


for _type in ARRAY_TYPES:
    Array.register(_type)
    _type.split = split
    _type.meshgrid = meshgrid
del _type
