"""The exceptions and warnings of Quabla.

The extension module imports this file when it is loaded, so nothing here may import the extension module.
"""


class QuablaError(Exception):
    """Base class of the errors that are Quabla's own."""


class UnsupportedOperationError(QuablaError, ValueError, NotImplementedError):
    """An operation that a device lacks, or a device that is not there.

    Attributes:
        op: name of the operation ("" when it is the device that is missing).
        device: name of the device.
    """

    def __init__(self, message: str = "", op: str = "", device: str = "") -> None:
        super().__init__(message)
        self.op = op
        self.device = device

    def __reduce__(self):
        return type(self), (*self.args, self.op, self.device)


class TracerError(QuablaError, TypeError):
    """A traced array was used where a value is needed, or outside the trace it belongs to."""


class RetraceLimitError(QuablaError, ValueError):
    """Not raised any more (more traces than `max_traces` evict the oldest); kept for handlers that name it."""


class RetraceWarning(UserWarning):
    """A function was traced for more signatures than `max_traces`; the least recently used trace was dropped."""
