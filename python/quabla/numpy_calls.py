"""NumPy's functions called on arrays of a traced function, which have no values: an error that says what to write.

Installed on TraceTensor as the two methods that NumPy asks. What NumPy can do by asking the array itself works as
without them: operators between its arrays and traced ones, np.shape(x), np.transpose(x). NumPy is not imported.
"""

import operator
import sys

from . import _core
from .errors import TracerError
from .staging import ARRAY_TYPES

# Binary operators by the name of the ufunc that NumPy calls for them: the method of the left operand, and of the right.
_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "true_divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "divmod": ("__divmod__", "__rdivmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
}

# What has another name here.
_COUNTERPARTS = {
    "absolute": "abs",
    "arctan2": "atan2",
    "add.reduce": "sum",
    "add.accumulate": "cumsum",
    "multiply.reduce": "prod",
    "multiply.accumulate": "cumprod",
    "multiply.outer": "outer",
    "maximum.reduce": "max",
    "minimum.reduce": "min",
    "logical_and.reduce": "all",
    "logical_or.reduce": "any",
}


def _refusal(called):
    """The error for a function of NumPy, such as "sin", "linalg.norm" or "add.reduce"."""
    package, name = sys.modules[__package__], called.split(".")[-1]
    candidates = [_COUNTERPARTS[called]] if called in _COUNTERPARTS else [called, name]
    for candidate in candidates:
        try:
            found = callable(operator.attrgetter(candidate)(package))
        except AttributeError:
            continue
        if found:
            advice = f"write qb.{candidate}"
            break
    else:
        advice = f"quabla has no {name}: write it in functions that quabla has"
    return TracerError(
        f"numpy.{called} of a traced array: NumPy computes with values, and while a function is traced, its arrays "
        f"have none; {advice}, or call the NumPy function on the result, after the call"
    )


def _binary_operator(name, left, right):
    """left and right by the operator of arrays of this package, or NotImplemented."""
    method, reflected = _OPERATORS[name]
    if isinstance(left, ARRAY_TYPES):
        return getattr(type(left), method)(left, right)
    return getattr(type(right), reflected)(right, left)


def _array_ufunc(self, ufunc, method, *inputs, **kwargs):
    name = ufunc.__name__
    if name in ("equal", "not_equal") and method == "__call__" and not kwargs:
        return (inputs[0] is inputs[1]) == (name == "equal")  # for == and !=, which compare identity
    if method == "__call__" and not kwargs and name in _OPERATORS:
        return _binary_operator(name, *inputs)
    if kwargs.get("out"):
        raise TracerError(
            f"numpy.{name} into a NumPy array: a NumPy array cannot hold a traced array, which has no values; write "
            "a = a + x for a += x, and x.at[index].set(values) for an assignment to elements"
        )
    raise _refusal(name if method == "__call__" else f"{name}.{method}")


def _array_function(self, function, types, args, kwargs):
    try:  # as if this method were not there
        return function._implementation(*args, **kwargs)
    except TypeError as error:
        raise _refusal(f"{function.__module__}.{function.__name__}".removeprefix("numpy.")) from error


_core.TraceTensor.__array_ufunc__ = _array_ufunc
_core.TraceTensor.__array_function__ = _array_function
