"""Single operations on arrays, float64: what NumPy's users compare with. Compiled where a peer compiles."""

import numpy as np
from registry import row

RANDOM = np.random.default_rng


def operation(function, *shapes, prepare=None, tolerance=1e-9, name, own=None):
    """A row of function(lib, *arrays), on standard normal arrays or what prepare() makes; `own` replaces it by peer."""

    def maker(function):
        def make(lib):
            random = RANDOM(0)
            values = prepare(random) if prepare else tuple(random.standard_normal(shape) for shape in shapes)
            arrays = lib.put(values)

            def fresh():
                return lib.call(lib.jit(lambda *arrays: function(lib, *arrays)), *arrays)

            return fresh

        return make

    peers = {peer: maker((own or {}).get(peer, function)) for peer in ("quabla", "jax", "torch", "numpy")}
    row("arrays", name, peers, staging=50, call=1, tolerance=tolerance)


def numpy_softmax(axis):
    def softmax(lib, x):
        e = lib.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)

    return softmax


def with_indices(random):
    return random.standard_normal(1_000_000), random.integers(0, 1_000_000, 1_000_000)


operation(lambda lib, x, y: x + y, 10**7, 10**7, name="add, 1e7")
operation(lambda lib, x: lib.sum(x), 10**7, name="sum, 1e7", tolerance=1e-7)
for n in (64, 256, 1024):
    operation(lambda lib, x, y: lib.matmul(x, y), (n, n), (n, n), name=f"matmul, {n}x{n}")
for axis in (0, 1):
    operation(
        lambda lib, x, axis=axis: lib.softmax(x, axis=axis),
        (1000, 1000),
        name=f"softmax, 1000x1000, axis {axis}",
        own={"numpy": numpy_softmax(axis), "torch": lambda lib, x, axis=axis: lib.softmax(x, dim=axis)},
    )
operation(
    lambda lib, x: lib.transpose(x),
    (4096, 4096),
    name="transpose, 4096x4096",
    own={  # views where the others copy
        "numpy": lambda lib, x: lib.ascontiguousarray(x.T),
        "torch": lambda lib, x: x.T.contiguous(),
    },
)
operation(lambda lib, x: lib.cumsum(x, 0), 10**6, name="cumsum, 1e6")
operation(lambda lib, x: lib.sort(x), 10**6, name="sort, 1e6", own={"torch": lambda lib, x: lib.sort(x).values})
operation(
    lambda lib, x, i: x[i],
    prepare=with_indices,
    name="gather, 1e6 of 1e6",
    own={"numpy": lambda lib, x, i: lib.take(x, i)},
)
operation(
    lambda lib, x, y: lib.einsum("bij,bjk->bik", x, y),
    (256, 32, 32),
    (256, 32, 32),
    name="einsum bij,bjk->bik, 256x32x32",
    own={"numpy": lambda lib, x, y: lib.matmul(x, y)},  # its einsum does not use BLAS here
)
operation(
    lambda lib, x: lib.norm(x),
    10**6,
    name="norm, 1e6",
    own={peer: lambda lib, x: lib.linalg.norm(x) for peer in ("jax", "numpy", "torch")},
)
