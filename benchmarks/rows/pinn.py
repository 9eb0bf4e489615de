"""Physics-informed networks: the gradient of a mean squared residual with exact derivatives inside.

The common form writes the network for one point and maps it, which torch.compile takes, too; eager PyTorch does ten
times better with its usual batched form, where derivatives of a sum over the points are those of each point. Past the
small networks torch.compile needs ten seconds and more, or fails (trace of a Hessian).
"""

import math

import numpy as np
from registry import row

from .training import Adam, forward, network, torch_step, training


def torch_derivative(u, x):
    import torch

    return torch.autograd.grad(u.sum(), x, create_graph=True)[0]


# --- one dimension: -u'' = pi^2 sin(pi x), u(0) = u(1) = 0 ---


def pinn1d(widths, points, dtype=np.float64, with_optimizer=False, activation="tanh"):
    layers, x0 = network(widths, dtype), np.linspace(0.01, 0.99, points).astype(dtype)

    def common(lib):
        params, x = lib.put((layers, x0))

        def fresh():
            def u(params, x):
                return forward(getattr(lib, activation), params, lib.reshape(x, (1,)))[0] * x * (1 - x)

            u_xx = lib.vmap(lib.grad(lib.grad(u, argnums=1), argnums=1), in_axes=(None, 0))

            def loss(params, x):
                return lib.mean((u_xx(params, x) + math.pi**2 * lib.sin(math.pi * x)) ** 2)

            step = lib.jit(lib.value_and_grad(loss))
            if with_optimizer:
                opt = Adam(lib, 1e-3)
                return training(lib, step, opt.update, params, opt.init(params), x)
            return lib.call(step, params, x)

        return fresh

    def torch_loss(params, x):
        import torch

        x = x.detach().requires_grad_()
        u = forward(torch.tanh, params, x[:, None])[:, 0] * x * (1 - x)
        u_xx = torch_derivative(torch_derivative(u, x), x)
        return torch.mean((u_xx + math.pi**2 * torch.sin(math.pi * x)) ** 2)

    def torch(lib):
        return lambda: torch_step(torch_loss, layers, x0)

    peers = {"quabla": common, "jax": common, "torch.compile": common}
    return peers if with_optimizer else {**peers, "torch": torch}


# --- two dimensions: -lap u = 2 pi^2 sin(pi x) sin(pi y) on the unit square ---


def pinn2d(widths, points, dtype, by_laplacian):
    layers = network(widths, dtype)
    at = np.random.default_rng(1).uniform(0.01, 0.99, (points, 2)).astype(dtype)

    def loss_of(lib, params, at, laplacian):
        source = 2 * math.pi**2 * lib.sin(math.pi * at[:, 0]) * lib.sin(math.pi * at[:, 1])
        return lib.mean((laplacian + source) ** 2)

    def common(lib):
        params, points = lib.put((layers, at))

        def fresh():
            def u(params, p):
                inside = p[0] * (1 - p[0]) * p[1] * (1 - p[1])
                return forward(lib.tanh, params, p)[0] * inside

            if not by_laplacian:
                point = lambda params, p: lib.trace(lib.hessian(u, argnums=1)(params, p))
            elif lib.name == "quabla":
                point = lambda params, p: lib.laplacian(lambda q: u(params, q))(p)
            else:
                point = lambda params, p: second_derivatives(lib, lambda q: u(params, q), p)
            batched = lib.vmap(point, in_axes=(None, 0))

            def loss(params, points):
                return loss_of(lib, params, points, batched(params, points))

            return lib.call(lib.jit(lib.value_and_grad(loss)), params, points)

        return fresh

    def torch_loss(params, points):
        import torch

        x, y = (points[:, i].detach().requires_grad_() for i in (0, 1))
        u = forward(torch.tanh, params, torch.stack([x, y], 1))[:, 0] * x * (1 - x) * y * (1 - y)
        u_x, u_y = torch.autograd.grad(u.sum(), (x, y), create_graph=True)
        laplacian = torch_derivative(u_x, x) + torch_derivative(u_y, y)
        return loss_of(torch, params, torch.stack([x, y], 1).detach(), laplacian)

    def torch(lib):
        return lambda: torch_step(torch_loss, layers, at)

    return {"quabla": common, "jax": common, "torch": torch}


def second_derivatives(lib, u, p):
    """The Laplacian of a peer that has no operation for it: forward over forward along each axis.

    In JAX 2.6 times faster than the trace of a Hessian, or than the same mapped over the axes, and as fast as its jet.
    """

    def along(direction):
        first = lambda q: lib.jvp(u, (q,), (direction,))[1]
        return lib.jvp(first, (p,), (direction,))[1]

    basis = lib.eye(p.shape[0], dtype=p.dtype)
    return sum(along(basis[i]) for i in range(p.shape[0]))


# --- Burgers: u_t + u u_x - nu u_xx ---


def burgers(dtype, points=10_000, viscosity=0.01 / math.pi):
    layers = network([2] + [20] * 8 + [1], dtype)
    at = np.random.default_rng(1).uniform(-1, 1, (2, points)).astype(dtype)

    def common(lib):
        params, t, x = lib.put((layers, at[0], at[1]))

        def fresh():
            def u(params, t, x):
                return forward(lib.tanh, params, lib.stack([t, x]))[0]

            u_t, u_x = lib.grad(u, argnums=1), lib.grad(u, argnums=2)
            u_xx = lib.grad(u_x, argnums=2)

            def residual(params, t, x):
                return u_t(params, t, x) + u(params, t, x) * u_x(params, t, x) - viscosity * u_xx(params, t, x)

            batched = lib.vmap(residual, in_axes=(None, 0, 0))

            def loss(params, t, x):
                return lib.mean(batched(params, t, x) ** 2)

            return lib.call(lib.jit(lib.value_and_grad(loss)), params, t, x)

        return fresh

    def torch_loss(params, t, x):
        import torch

        t, x = t.detach().requires_grad_(), x.detach().requires_grad_()
        u = forward(torch.tanh, params, torch.stack([t, x], 1))[:, 0]
        u_t, u_x = torch.autograd.grad(u.sum(), (t, x), create_graph=True)
        return torch.mean((u_t + u * u_x - viscosity * torch_derivative(u_x, x)) ** 2)

    def torch(lib):
        return lambda: torch_step(torch_loss, layers, at[0], at[1])

    return {"quabla": common, "jax": common, "torch": torch}


SMALL, LARGE = [1, 32, 32, 1], [1, 64, 64, 64, 1]
SINGLE = {"tolerance": 2e-3}  # second derivatives in float32

row("pinn1d", "PINN 1-32-32-1, 64 points", pinn1d(SMALL, 64, np.float64), staging=50, call=1.5)
row("pinn1d", "PINN 1-32-32-1, 64 points, and Adam", pinn1d(SMALL, 64, np.float64, True), staging=50, call=1.5)
row("pinn1d", "PINN 1-64x3-1, 1,024 points", pinn1d(LARGE, 1024, np.float64), staging=50, call=1.3)
row("pinn1d", "PINN 1-64x3-1, 1,024 points, float32", pinn1d(LARGE, 1024, np.float32), staging=50, call=1.3, **SINGLE)

for way, by_laplacian in (("trace of hessian", False), ("laplacian", True)):
    row(
        "pinn2d",
        f"PINN 2-64x4-1, 1,024 points, {way}",
        pinn2d([2, 64, 64, 64, 64, 1], 1024, np.float64, by_laplacian),
        staging=50,
        call=2.5,
    )
    row(
        "pinn2d",
        f"PINN 2-128x4-1, 4,096 points, {way}, float32",
        pinn2d([2, 128, 128, 128, 128, 1], 4096, np.float32, by_laplacian),
        staging=50,
        call=2.5,
        **SINGLE,
    )

row("burgers", "Burgers 2-20x8-1, 10,000 points", burgers(np.float64), staging=50, call=2.5)
row("burgers", "Burgers 2-20x8-1, 10,000 points, float32", burgers(np.float32), staging=50, call=2.5, **SINGLE)
