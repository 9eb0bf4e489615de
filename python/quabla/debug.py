"""Looking into compiled programs: results that are not finite."""

import contextlib

from . import _core

__all__ = ["debug_nans"]


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
