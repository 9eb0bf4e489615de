"""Batches in chunks: a loop over equal chunks of examples, then the rest; the workspace is that of one chunk."""

import math

from . import _core
from .staging import Example, ShapeDtype

MOST_ELEMENTS = 1 << 20  # of an array over all unit tangents of a Jacobian that is still made at once
FEWEST_EXAMPLES = 16  # of a chunk: fewer would leave products and kernels nothing to do


def _stacked(ys):
    """[chunks, chunk, ...] as [examples, ...]."""
    return [_core.reshape(y, (y.shape[0] * y.shape[1], *y.shape[2:])) for y in ys]


def _joined(first, second):
    """Results of whole chunks, then of the rest; either may be absent (None)."""
    if not first or not second:
        return first or second or []
    return [_core.concat([a, b], axis=0) for a, b in zip(first, second)]


def apply_vmap(graph, inputs, mapped, size, chunk):
    """Graph.apply_vmap, at most `chunk` examples at a time."""
    if chunk is None or size <= chunk:
        return graph.apply_vmap(inputs, mapped, size)
    whole = size // chunk * chunk
    is_mapped = []

    def batch(rows, count):
        row = iter(rows)
        outputs, varies = graph.apply_vmap([next(row) if m else x for m, x in zip(mapped, inputs)], mapped, count)
        is_mapped[:] = varies
        return outputs

    def body(tracers):
        outputs = batch(tracers[1:], chunk)
        return [output for output, varies in zip(outputs, is_mapped) if varies]

    batched = [x for m, x in zip(mapped, inputs) if m]
    types = [Example((chunk, *x.shape[1:]), x.dtype, x.weak) for x in batched]
    chunks = [_core.reshape(x[:whole], (whole // chunk, chunk, *x.shape[1:])) for x in batched]
    loop_body, captures = _core.record(body, [ShapeDtype((), _core.int64), *types])
    _, ys, _ = _core.loop(loop_body, captures, None, [], whole // chunk, False, None, [], chunks)
    first = _stacked(ys)
    rest = batch([x[whole:] for x in batched], size - whole) if whole < size else batch([x[:1] for x in batched], 1)
    second = [output for output, varies in zip(rest, is_mapped) if varies] if whole < size else None
    varying = iter(_joined(first, second))
    return [next(varying) if varies else output for output, varies in zip(rest, is_mapped)], tuple(is_mapped)


def _unit_rows(start, count, size, shape, dtype):
    """Unit arrays of that shape, one along the first axis for each element start .. start+count-1."""
    rows = _core.reshape(start + _core.arange(count), (count, 1))
    units = _core.astype(_core.equal(rows, _core.arange(size)), dtype)
    return _core.reshape(units, (count, *shape))


def along_basis(graph, inputs, place, shape, dtype, widest):
    """Applies the graph with each unit array of that shape for the input at `place`, the other inputs shared.

    Returns the outputs with a leading axis over the units, and whether each has it, as Graph.apply_vmap does. `widest`
    is the number of elements of the largest array per unit that is known: it decides how many are made at once.
    """
    size = math.prod(shape)
    mapped = [i == place for i in range(len(inputs))]

    def batch(start, count):
        units = _unit_rows(start, count, size, shape, dtype)
        return graph.apply_vmap([units if m else x for m, x in zip(mapped, inputs)], mapped, count)

    chunk = max(FEWEST_EXAMPLES, MOST_ELEMENTS // max(size, widest, 1))
    if size <= chunk:
        return batch(0, size)
    is_mapped = []

    def body(tracers):
        outputs, varies = batch(tracers[0] * chunk, chunk)
        is_mapped[:] = varies
        return [output for output, varies in zip(outputs, varies) if varies]

    whole = size // chunk * chunk
    loop_body, captures = _core.record(body, [ShapeDtype((), _core.int64)])
    _, ys, _ = _core.loop(loop_body, captures, None, [], whole // chunk, False, None, [], [])
    rest, _ = batch(whole, size - whole) if whole < size else batch(0, 1)
    second = [output for output, varies in zip(rest, is_mapped) if varies] if whole < size else None
    varying = iter(_joined(_stacked(ys), second))
    return [next(varying) if varies else output for output, varies in zip(rest, is_mapped)], tuple(is_mapped)
