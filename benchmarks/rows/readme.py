"""The README's step: loss and gradient with an exact second derivative at 8 points, then Adam."""

import math

import numpy as np
from registry import row
from timing import Call

from .training import Adam, training

POINTS = np.linspace(0.05, 0.95, 8)
START, RATE = 2.5, 0.05


def common(lib):
    def fresh():
        u_xx = lib.vmap(lib.grad(lib.grad(lambda x, w: lib.sin(x * w))), in_axes=(0, None))

        def loss(w, x):
            return lib.mean((u_xx(x, w) + math.pi**2 * lib.sin(math.pi * x)) ** 2)

        w, x = lib.put((np.array(START), POINTS))
        opt = Adam(lib, RATE)
        return training(lib, lib.jit(lib.value_and_grad(loss)), opt.update, w, opt.init(w), x)

    return fresh


def torch(lib):
    """Derivatives of the sum over the points, which are those of each point: PyTorch's usual way, and its fastest."""
    import torch

    def fresh():
        w = torch.tensor(START, dtype=torch.float64, requires_grad=True)
        x = torch.tensor(POINTS, requires_grad=True)
        opt = torch.optim.Adam([w], lr=RATE)

        def step():
            u = torch.sin(x * w)
            (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
            (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
            value = torch.mean((u_xx + math.pi**2 * torch.sin(math.pi * x)) ** 2)
            opt.zero_grad()
            value.backward(inputs=[w])
            opt.step()
            return value, w

        return Call("step()", step=step)

    return fresh


def casadi(lib):
    """One symbolic function of parameter and moments; the step's number comes in as a fourth."""
    ca = lib.modules[0]

    def build():
        w, m, v, t = (ca.SX.sym(name) for name in ("w", "m", "v", "t"))
        x = ca.SX.sym("x")
        u = ca.sin(x * w)
        u_xx = ca.Function("u_xx", [x, w], [ca.gradient(ca.gradient(u, x), x)])
        value = sum((u_xx(p, w) + math.pi**2 * math.sin(math.pi * p)) ** 2 for p in POINTS.tolist()) / len(POINTS)
        g = ca.gradient(value, w)
        t_next = t + 1
        m_next, v_next = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        scaled = (m_next / (1 - 0.9**t_next)) / (ca.sqrt(v_next / (1 - 0.999**t_next)) + 1e-8)
        return ca.Function("step", [w, m, v, t], [value, w - RATE * scaled, m_next, v_next, t_next])

    def fresh():
        state, value = [np.array(START), *(np.array(0.0) for _ in range(3))], np.array(0.0)
        names = {}

        def start():
            function = build()
            buffer, names["evaluate"] = function.buffer()
            for i, array in enumerate(state):
                buffer.set_arg(i, memoryview(array))
                buffer.set_res(i + 1, memoryview(array))  # an output may overwrite its input: it is read first
            buffer.set_res(0, memoryview(value))
            return {"run": names["evaluate"], "kept": (function, buffer)}

        return Call("run()", build=start, result=lambda: (value.copy(), state[0].copy()))

    return fresh


row(
    "readme",
    "README step: value_and_grad and Adam, 8 points",
    {"quabla": common, "jax": common, "torch": torch, "torch.compile": common, "casadi": casadi},
    staging=50,
    call=5,
    over="jax",
)
