"""Transposing: elements are moved by squares, in bands, and past the caches where an array is large."""

import numpy as np
import pytest
import quabla as qb


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_transposes_of_any_shape(dtype):
    """Around the squares that are moved at once, and the bands that they are moved in."""
    random = np.random.default_rng(4)
    for rows in (1, 2, 7, 8, 9, 16, 31, 33, 64, 130):
        for columns in (1, 3, 8, 15, 17, 32, 65, 129, 400):
            x = (random.integers(0, 2**62, (3, rows, columns)) % 251 > 125).astype(dtype)
            if dtype != "bool":
                x = random.integers(-(2**62), 2**62, x.shape).astype(dtype)
            turned = qb.jit(lambda x: qb.transpose(x, (0, 2, 1)))(qb.array(x, dtype=dtype))
            np.testing.assert_array_equal(np.asarray(turned), x.transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(2048, 2112), (2113, 2048), (2048, 2113), (5, 1000, 1000), (64, 70001)])
def test_transposes_beyond_the_caches(shape, dtype):
    x = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    order = tuple(reversed(range(len(shape))))
    np.testing.assert_array_equal(np.asarray(qb.jit(lambda x: qb.transpose(x, order))(qb.array(x))), x.transpose(order))
