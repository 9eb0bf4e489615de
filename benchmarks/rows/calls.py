"""What a call costs that computes next to nothing."""

import numpy as np
from registry import row
from timing import Call

DATA = np.linspace(0.0, 1.0, 8)


def one_leaf(lib):
    x = lib.put(DATA)
    return lambda: lib.call(lib.jit(lambda x: x * 2 + 1), x)


def eight_leaves(lib):
    tree = lib.put([{"w": DATA + i, "b": DATA - i} for i in range(4)])

    def fresh():
        double = lambda tree: [{"w": layer["w"] * 2, "b": layer["b"] * 2} for layer in tree]
        return lib.call(lib.jit(double), tree)

    return fresh


def eager_add(lib):
    x, y = lib.put((DATA, DATA + 1))

    def fresh():
        call = lib.call(None, x, y)
        call.statement = lib.statement.format("a0 + a1")
        return call

    return fresh


def grad_again(lib):
    """grad of one function, made again in a loop, as a user's script does."""
    x = lib.put(DATA)

    def fresh():
        f = lambda x: lib.sum(lib.sin(x) * x)
        call = lib.call(lib.grad, x)
        call.names["g"] = f
        call.statement = lib.statement.format("f(g)(a0)")
        return call

    return fresh


def numpy_in(lib):
    take = np.copy if lib.name == "numpy" else lib.array if lib.name == "torch" else lib.modules[0].array
    return lambda: lib.call(take, np.random.default_rng(0).standard_normal(1_000_000))


def numpy_out(lib):
    x = lib.put(np.random.default_rng(0).standard_normal(1_000_000))
    return lambda: Call("out(x)", out=np.asarray, x=x) if lib.name == "jax" else Call("x.numpy()", x=x)


ALL = ("quabla", "jax", "torch", "numpy")
COMPILED = (*ALL[:3], "torch.compile", "numpy")


def same(make, peers):
    return dict.fromkeys(peers, make)


row("calls", "Cached call, 1 leaf of 8 elements", same(one_leaf, COMPILED), staging=50, seconds=0.5e-6)
row("calls", "Cached call, 8 leaves of 8 elements", same(eight_leaves, COMPILED), staging=50, seconds=1e-6)
row("calls", "Eager x + y, 8 elements", same(eager_add, ALL), seconds=0.2e-6)
row("calls", "grad made again in a loop, 8 elements", same(grad_again, ALL[:3]))
row("calls", "NumPy in, 1e6", same(numpy_in, ALL))
row("calls", "NumPy out, 1e6", same(numpy_out, ALL[:3]))
