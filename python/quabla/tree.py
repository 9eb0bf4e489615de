"""Pytrees: nested containers of arrays, taken apart and put together again.

Containers are dict (keys visited sorted), list, tuple, None (empty), NamedTuple classes, and the classes registered
here; exactly those, not their subclasses. Everything else is a leaf.
"""

from functools import partial

from ._core import TreeDef
from ._core import tree_flatten as flatten
from ._core import tree_flatten_with_path as flatten_with_path
from ._core import tree_leaves as leaves
from ._core import tree_map as map
from ._core import tree_register as register
from ._core import tree_register_dataclass as _register_dataclass
from ._core import tree_structure as structure
from ._core import tree_unflatten as unflatten

__all__ = [
    "TreeDef",
    "flatten",
    "flatten_with_path",
    "leaves",
    "map",
    "register",
    "register_dataclass",
    "structure",
    "unflatten",
]


def register_dataclass(cls=None, data_fields=None, meta_fields=()):
    """Makes instances of exactly `cls` containers with named children. A decorator, too, with or without arguments.

    Args:
        cls: a dataclass, or any class whose instances are made of the named attributes alone.
        data_fields: names of the children; by default all fields of the dataclass that are not in `meta_fields`.
        meta_fields: names of static fields: hashable values that are part of every cache key.

    Unflattening makes an instance without calling `__init__`, and sets these fields.

    Returns: the class. ValueError for unknown or forgotten fields of a dataclass, and for a class registered before.
    """
    if cls is None:
        return partial(register_dataclass, data_fields=data_fields, meta_fields=meta_fields)
    fields = _dataclass_fields(cls)
    meta_fields = tuple(meta_fields)
    if data_fields is None:
        if fields is None:
            raise TypeError(f"register_dataclass: {cls!r} is not a dataclass, so data_fields must name its children")
        data_fields = tuple(name for name in fields if name not in meta_fields)
    else:
        data_fields = tuple(data_fields)
    named = data_fields + meta_fields
    if len(set(named)) < len(named):
        raise ValueError(f"register_dataclass: {cls.__qualname__}: a field is named twice in {named}")
    if fields is not None and set(fields) != set(named):
        unknown, forgotten = sorted(set(named) - set(fields)), sorted(set(fields) - set(named))
        problem = f"has no fields {unknown}" if unknown else f"has fields that are neither data nor meta: {forgotten}"
        raise ValueError(f"register_dataclass: {cls.__qualname__} {problem}")
    return _register_dataclass(cls, data_fields, meta_fields)


def _dataclass_fields(cls):
    """Names of the fields of a dataclass, or None for another class."""
    if not hasattr(cls, "__dataclass_fields__"):
        return None
    import dataclasses

    return tuple(field.name for field in dataclasses.fields(cls))
