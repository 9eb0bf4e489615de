"""Comparing results: trees of arrays as NumPy arrays, equality of bits, closeness relative to the largest element.

And what several test files expect of an update by index.
"""

import numpy as np
import quabla as qb


def to_numpy(tree):
    """The tree with every array as a NumPy array."""
    return qb.tree.map(lambda leaf: np.asarray(leaf), tree)


def leaves(tree):
    return [np.asarray(leaf) for leaf in qb.tree.leaves(tree)]


def assert_same_bits(got, expected, context=""):
    """Equal structure, shapes, dtypes and bits, except that any NaN equals any other."""
    assert qb.tree.structure(got) == qb.tree.structure(expected), context
    for a, b in zip(leaves(got), leaves(expected)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), context
        if a.dtype.kind == "f":
            a, b = np.where(np.isnan(a), np.nan, a), np.where(np.isnan(b), np.nan, b)
            np.testing.assert_array_equal(np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b), err_msg=context)
        np.testing.assert_array_equal(a, b, err_msg=context)


def assert_close(got, expected, rtol=1e-12, context=""):
    """Equal structure and shapes; elements differ by at most rtol times the largest finite magnitude of their array."""
    assert qb.tree.structure(got) == qb.tree.structure(expected), context
    for a, b in zip(leaves(got), leaves(expected)):
        assert a.shape == b.shape, context
        finite = np.abs(b[np.isfinite(b)])
        scale = finite.max() if finite.size else 0.0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=context)


UPDATES = {
    "set": lambda _, new: new,
    "add": np.add,
    "multiply": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def updated(array, index, how, values):
    """A copy of the array after x[index] = how(x[index], values), one element after the other, so that equal indices
    all count. (The `at` of NumPy's ufuncs does the same, but with broadcast values some versions do not.)"""
    out = np.array(array)
    places = np.arange(out.size).reshape(out.shape)[index]
    flat = out.reshape(-1)
    for place, value in zip(np.ravel(places), np.broadcast_to(values, np.shape(places)).ravel()):
        flat[place] = UPDATES[how](flat[place], value)
    return out
