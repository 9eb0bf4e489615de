"""Hessians: a chain-structured function, dense and sparse, and a batch of small networks."""

import numpy as np
from registry import row
from timing import Call

from .training import forward, network

N = 100
AT = np.random.default_rng(0).standard_normal(N)


def rosenbrock(x, total):
    return total(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def dense(lib):
    x = lib.put(AT)
    return lambda: lib.call(lib.jit(lib.hessian(lambda x: rosenbrock(x, lib.sum))), x)


def sparse(lib):
    x = lib.put(AT)

    def fresh():
        hessian = lib.sparse_hessian(lambda x: rosenbrock(x, lib.sum))
        return lib.call(lib.jit(lambda x: hessian(x).values), x)

    return fresh


def casadi(densify):
    """The sparse Hessian that CasADi colours; by columns, which for a symmetric matrix is by rows."""

    def make(lib):
        ca = lib.modules[0]

        def build():
            x = ca.SX.sym("x", N)
            hessian = ca.hessian(rosenbrock(x, ca.sum1), x)[0]
            return ca.Function("hessian", [x], [ca.densify(hessian) if densify else hessian])

        return lambda: lib.function_call(build, [AT], [(N, N) if densify else (3 * N - 2,)])

    return make


def batch(lib):
    layers = network([3, 32, 32, 1])
    params, points = lib.put((layers, np.random.default_rng(1).standard_normal((256, 3))))

    def fresh():
        u = lambda params, p: forward(lib.tanh, params, p)[0]
        return lib.call(lib.jit(lib.vmap(lib.hessian(u, argnums=1), in_axes=(None, 0))), params, points)

    return fresh


def batch_torch(lib):
    """Derivatives of sums over the points: a row of every Hessian by each backward pass."""
    import torch

    layers = network([3, 32, 32, 1])
    params = [{name: torch.tensor(a) for name, a in layer.items()} for layer in layers]
    points = torch.tensor(np.random.default_rng(1).standard_normal((256, 3)), requires_grad=True)

    def hessians():
        u = forward(torch.tanh, params, points)
        (gradient,) = torch.autograd.grad(u.sum(), points, create_graph=True)
        rows = [torch.autograd.grad(gradient[:, i].sum(), points, retain_graph=True)[0] for i in range(3)]
        return torch.stack(rows, 1)

    return lambda: Call("f()", f=hessians)


row(
    "hessian",
    "Rosenbrock n = 100, dense Hessian",
    {"quabla": dense, "jax": dense, "torch": dense, "casadi": casadi(True)},
    staging=50,
    call=1,
    over="jax",
)
row(
    "hessian",
    "Rosenbrock n = 100, sparse Hessian",
    {"quabla": sparse, "casadi": casadi(False)},
    call=1 / 3,
    over="casadi",
)
row(
    "hessian",
    "Hessian of 3-32-32-1 at 256 points",
    {"quabla": batch, "jax": batch, "torch": batch_torch, "torch.compile": batch},
    staging=50,
    call=1,
)
