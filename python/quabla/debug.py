"""Looking into compiled programs: values printed while they run, and results that are not finite."""

import contextlib
import sys

from . import _core
from .staging import as_array

__all__ = ["debug_nans", "debug_print"]


class debug_nans(contextlib.ContextDecorator):
    """Within it, on this thread, a NaN or an infinity among the results of a compiled program is a FloatingPointError.

    with qb.debug_nans():
        step(params)

    The error names the operation that made the first such number, the line of your file that wrote it (for a
    derivative, the line of the operation that it is the derivative of), and the range of its operands. An operation
    called on arrays directly is an error where it makes such a number of finite operands. A program costs as much as
    otherwise until it fails, but for a look at its results. jit(fun, debug_nans=True) does the same for one function.
    """

    def __init__(self, enabled=True):
        self._enabled = bool(enabled)
        self._before = []

    def __enter__(self):
        self._before.append(_core.set_debug_nans(self._enabled))
        return self

    def __exit__(self, *error):
        _core.set_debug_nans(self._before.pop())
        return False


@_core.public
def debug_print(fmt, /, *arrays):
    """Prints arrays, by Python's format syntax, whenever the function that is being traced runs.

    Args:
        fmt: a format string with a place for each array: "loss {:.3e} at {}". A format specification, as in {:.3e},
            applies to scalars only.
        arrays: arrays or numbers of any dtype.

    Raises:
        TypeError: fmt is not a string. What the string's format method raises for arrays of these shapes: at once,
        when the call is traced.

    Called on arrays outside of any transform it prints at once. In a compiled program it prints to standard output
    when its values are there, in the order of the program, also if nothing else needs them; under vmap once for each
    example, under grad the value, once.
    """
    if not isinstance(fmt, str):
        raise TypeError(f"debug_print: the first argument must be a format string, got {type(fmt).__name__}")
    arrays = tuple(as_array(array) for array in arrays)
    if not _core.is_tracing():
        show(fmt, arrays)
        return
    shapes = [_core.zeros(array.shape, array.dtype) for array in arrays]
    fmt.format(*(array if array.shape else array.item() for array in shapes))  # its errors, where the user made them
    _core.record_print(fmt, arrays)


def show(fmt, arrays):
    """What a running program calls. Scalars are shown as Python numbers."""
    text = fmt.format(*(array if array.shape else array.item() for array in arrays))
    sys.stdout.write(text + "\n")  # in one piece: lines of several threads stay whole
