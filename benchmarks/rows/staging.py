"""What tracing, differentiating and compiling cost where the program is large."""

import numpy as np
from registry import row

from .training import forward, network

NODES = 10_000


def long_chain(lib):
    x = lib.put(np.linspace(0.1, 1.0, 8))

    def fresh():
        def f(x):
            for _ in range(NODES // 2):
                x = lib.sin(x) * 1.01
            return x

        return lib.call(lib.jit(f), x)

    return fresh


def deep_product(lib):
    """The product of the Hessian of a 30-layer network's loss with a vector, forward over reverse."""
    layers, tangents = network([16] * 31), network([16] * 31)
    params, directions, points = lib.put((layers, tangents, np.random.default_rng(1).standard_normal((32, 16))))

    def fresh():
        def loss(params, points):
            return lib.mean(forward(lib.tanh, params, points) ** 2)

        def product(params, directions, points):
            return lib.jvp(lambda p: lib.grad(loss)(p, points), (params,), (directions,))[1]

        return lib.call(lib.jit(product), params, directions, points)

    return fresh


BOTH = ("quabla", "jax", "torch")
row("staging", "10,000 operations on 8 elements", dict.fromkeys(BOTH, long_chain), staging=50)
row("staging", "30 layers of 16: Hessian-vector product", dict.fromkeys(BOTH, deep_product), staging=50)
