"""What test_dlpack.py runs, by a Python that has JAX or PyTorch: arrays through DLPack in both directions.

python tests/python/dlpack_peers.py jax|torch
"""

import importlib
import sys

import numpy as np
import quabla as qb

DTYPES = ("float64", "float32", "int64", "int32", "uint32", "uint64", "bool")


def peer(name):
    """(array from NumPy, import by DLPack, export to NumPy) of the library."""
    module = importlib.import_module(name)
    if name == "jax":
        module.config.update("jax_enable_x64", True)
        return module.numpy.asarray, module.numpy.from_dlpack, np.asarray
    return module.from_numpy, module.from_dlpack, lambda tensor: tensor.numpy()


def check(name):
    make, from_dlpack, to_numpy = peer(name)
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        for shape in ((), (3,), (2, 3), (2, 0), (4, 3, 2)):
            values = np.asarray(rng.uniform(0, 100, shape)).astype(dtype)
            ours = qb.from_dlpack(make(values))
            assert (str(ours.dtype), ours.shape) == (dtype, shape), (dtype, shape, ours)
            np.testing.assert_array_equal(np.asarray(ours), values)
            theirs = from_dlpack(qb.array(values, dtype=dtype))
            np.testing.assert_array_equal(to_numpy(theirs), values)
            assert to_numpy(theirs).dtype == values.dtype
    transposed = make(np.arange(6.0).reshape(2, 3)).T
    np.testing.assert_array_equal(np.asarray(qb.from_dlpack(transposed)), np.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(np.asarray(qb.asarray(transposed)), np.arange(6.0).reshape(2, 3).T)
    theirs = from_dlpack(qb.arange(5))  # the Tensor is gone, its memory stays
    np.testing.assert_array_equal(to_numpy(theirs), np.arange(5.0))
    small = make(np.arange(4, dtype="int8"))
    assert str(qb.from_dlpack(small).dtype) == "int32"
    message = ""
    try:
        qb.from_dlpack(make(np.ones(2, "float16")))
    except TypeError as error:
        message = str(error)
    assert "float16 data are not supported" in message


if __name__ == "__main__":
    check(sys.argv[1])
