"""Linear algebra, float64: batches of small systems, one large matrix, and a gradient through a solution.

NumPy and PyTorch are called as their users call them; JAX and Quabla are compiled.
"""

import numpy as np
from registry import row


def operation(function, prepare, *, name, own=None, peers=("quabla", "jax", "torch", "numpy"), tolerance=1e-9):
    """A row of function(lib, *arrays) on what prepare(random) makes; `own` replaces it by peer."""

    def maker(function):
        def make(lib):
            arrays = lib.put(prepare(np.random.default_rng(0)))

            def fresh():
                return lib.call(lib.jit(lambda *arrays: function(lib, *arrays)), *arrays)

            return fresh

        return make

    makers = {peer: maker((own or {}).get(peer, function)) for peer in peers}
    row("linalg", name, makers, staging=50, call=1, tolerance=tolerance)


def systems(count, n, columns):
    def prepare(random):
        a = random.standard_normal((count, n, n)) + n * np.eye(n)
        return a, random.standard_normal((count, n, columns))

    return prepare


def definite(n):
    def prepare(random):
        a = random.standard_normal((n, n))
        return (a @ a.T + n * np.eye(n),)

    return prepare


def with_vector(prepare):
    def both(random):
        (a,) = prepare(random)
        return a, random.standard_normal(a.shape[0])

    return both


operation(lambda lib, a, b: lib.linalg.solve(a, b), systems(1000, 4, 1), name="solve, 1000 of 4x4, a vector each")
operation(lambda lib, a, b: lib.linalg.solve(a, b), systems(1000, 4, 4), name="solve, 1000 of 4x4, a matrix each")
operation(lambda lib, a, b: lib.linalg.solve(a, b), with_vector(definite(500)), name="solve, 500x500, a vector")
operation(lambda lib, a: lib.linalg.cholesky(a), definite(500), name="cholesky, 500x500")
operation(lambda lib, a: lib.linalg.slogdet(a)[1], definite(200), name="slogdet, 200x200")


def log_likelihood(lib, a, b):
    """Of a Gaussian with covariance a, up to a constant."""
    return lib.sum(b * lib.linalg.solve(a, b)) + lib.linalg.slogdet(a)[1]


operation(
    lambda lib, a, b: lib.grad(lambda a: log_likelihood(lib, a, b))(a),
    with_vector(definite(100)),
    name="gradient of solve and slogdet, 100x100",
    peers=("quabla", "jax", "torch"),
)
