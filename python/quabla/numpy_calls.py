"""NumPy's functions called on our arrays.

Operators between NumPy's arrays and ours are ours: np_array * tensor is a Tensor. Other functions compute with values:
a Tensor is converted, and the result is NumPy's; the arrays of a function that is being traced have none: an error says
what to write. What NumPy can do by asking a traced array itself works as for any object: np.shape(x), np.transpose(x).

Installed as the two methods that NumPy asks. NumPy is not imported.
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


def _operate(ufunc, method, inputs, kwargs):
    """What an operator between NumPy's arrays and ours gives; NotImplemented: it is none."""
    name = ufunc.__name__
    if method != "__call__" or kwargs:
        return NotImplemented
    if name in ("equal", "not_equal"):
        return (inputs[0] is inputs[1]) == (name == "equal")  # for == and !=, which compare identity
    return _binary_operator(name, *inputs) if name in _OPERATORS else NotImplemented


def _traced_ufunc(self, ufunc, method, *inputs, **kwargs):
    name = ufunc.__name__
    result = _operate(ufunc, method, inputs, kwargs)
    if result is not NotImplemented:
        return result
    if kwargs.get("out"):
        raise TracerError(
            f"numpy.{name} into a NumPy array: a NumPy array cannot hold a traced array, which has no values; write "
            "a = a + x for a += x, and x.at[index].set(values) for an assignment to elements"
        )
    raise _refusal(name if method == "__call__" else f"{name}.{method}")


def _traced_function(self, function, types, args, kwargs):
    try:  # as if this method were not there
        return function._implementation(*args, **kwargs)
    except TypeError as error:
        raise _refusal(f"{function.__module__}.{function.__name__}".removeprefix("numpy.")) from error


def _values(tree):
    """Arguments with NumPy arrays in the place of Tensors."""
    if isinstance(tree, _core.Tensor):
        return tree.__array__()
    if type(tree) in (list, tuple):
        return type(tree)(map(_values, tree))
    return {key: _values(value) for key, value in tree.items()} if type(tree) is dict else tree


def _eager_ufunc(self, ufunc, method, *inputs, **kwargs):
    if any(isinstance(x, _core.TraceTensor) for x in inputs):
        return NotImplemented  # the traced array answers
    result = _operate(ufunc, method, inputs, kwargs)
    if result is not NotImplemented:
        return result
    if any(isinstance(x, _core.Tensor) for x in kwargs.get("out") or ()):
        raise TypeError(f"numpy.{ufunc.__name__} into a Tensor: a Tensor never changes; write x = x + y for x += y")
    return getattr(ufunc, method)(*map(_values, inputs), **_values(kwargs))


def _eager_function(self, function, types, args, kwargs):
    if any(issubclass(x, _core.TraceTensor) for x in types):
        return NotImplemented
    return function(*_values(args), **_values(kwargs))


_core.TraceTensor.__array_ufunc__ = _traced_ufunc
_core.TraceTensor.__array_function__ = _traced_function
_core.Tensor.__array_ufunc__ = _eager_ufunc
_core.Tensor.__array_function__ = _eager_function
