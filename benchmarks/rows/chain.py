"""A chain of elementwise operations with a sum at its end: sum(where(x > 0, tanh(x w), 0)^2), gradient in both."""

import numpy as np
from registry import row
from timing import Call


def chain(size):
    random = np.random.default_rng(0)
    x0, w0 = random.standard_normal(size), random.standard_normal(size)

    def common(lib):
        x, w = lib.put((x0, w0))

        def fresh():
            def loss(x, w):
                return lib.sum(lib.where(x > 0.0, lib.tanh(x * w), 0.0) ** 2)

            return lib.call(lib.jit(lib.grad(loss, argnums=(0, 1))), x, w)

        return fresh

    def torch(lib):
        import torch

        x, w = (torch.tensor(a, requires_grad=True) for a in (x0, w0))

        def step():
            loss = torch.sum(torch.where(x > 0.0, torch.tanh(x * w), 0.0) ** 2)
            return torch.autograd.grad(loss, (x, w))

        return lambda: Call("step()", step=step)

    return {"quabla": common, "jax": common, "torch": torch, "torch.compile": common}


row("chain", "Chain, 4 elements", chain(4), staging=50, call=5)
row("chain", "Chain, 1e6 elements", chain(1_000_000), staging=50, call=1)
