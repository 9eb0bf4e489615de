"""Training steps: networks, and Adam for each peer."""

import itertools
import math

import numpy as np
from timing import Call


class Adam:
    """Adam with the peer's own means: qb.optim.Adam, or for the others its rule, compiled where the peer compiles."""

    def __init__(self, lib, learning_rate, b1=0.9, b2=0.999, eps=1e-8):
        self.lib = lib
        if lib.name == "quabla":
            opt = lib.optim.Adam(learning_rate=learning_rate)
            self.update, self.init = opt.update, opt.init
            return

        def moved(p, g, m, v, m_scale, v_scale):
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            return p - learning_rate * (m * m_scale) / (lib.sqrt(v * v_scale) + eps), m, v

        def rule(params, grads, state):
            step, m, v = state
            step = step + 1
            m_scale, v_scale = 1 / (1 - b1**step), 1 / (1 - b2**step)
            leaves, rebuild = flatten(params)
            parts = [
                moved(p, g, a, b, m_scale, v_scale)
                for p, g, a, b in zip(leaves, flatten(grads)[0], flatten(m)[0], flatten(v)[0])
            ]
            params, m, v = (rebuild([part[i] for part in parts]) for i in range(3))
            return params, (step, m, v)

        self.update = lib.jit(rule)

    def init(self, params):
        leaves, rebuild = flatten(params)
        zeros = rebuild([self.lib.zeros_like(leaf) for leaf in leaves])
        return self.lib.put(np.array(0.0)), zeros, zeros


def flatten(tree):
    """The leaves of a list of dicts, or of a leaf, and what puts leaves back into that form."""
    if not isinstance(tree, list):
        return [tree], lambda leaves: leaves[0]
    names = [sorted(layer) for layer in tree]

    def rebuild(leaves):
        following = iter(leaves)
        return [{name: next(following) for name in layer} for layer in names]

    return [layer[name] for layer, sorted_names in zip(tree, names) for name in sorted_names], rebuild


def training(lib, step, update, params, state, *data):
    """A call of the training loop: the loss and its gradient, then the optimizer. Parameters go on between calls."""

    def advance():
        nonlocal params, state
        loss, grads = step(params, *data)
        params, state = update(params, grads, state)
        return loss, params

    return lib.call(advance)


def network(widths, dtype=np.float64):
    """Weights and biases of a network, as a list of dicts of NumPy arrays."""
    random = np.random.default_rng(0)
    return [
        {
            "w": (random.standard_normal((m, n)) / math.sqrt(m)).astype(dtype),
            "b": (0.1 * random.standard_normal(n)).astype(dtype),
        }
        for m, n in itertools.pairwise(widths)
    ]


def forward(tanh, params, h):
    """The tanh network on a vector, or on rows of vectors."""
    for layer in params[:-1]:
        h = tanh(h @ layer["w"] + layer["b"])
    return h @ params[-1]["w"] + params[-1]["b"]


def torch_step(make_loss, layers, *data):
    """Loss and gradient by PyTorch's usual way: parameters that require a gradient, and autograd.grad."""
    import torch

    params = [{name: torch.tensor(a, requires_grad=True) for name, a in layer.items()} for layer in layers]
    leaves, rebuild = flatten(params)
    tensors = [torch.tensor(array) for array in data]

    def step():
        value = make_loss(params, *tensors)
        return value.detach(), rebuild(list(torch.autograd.grad(value, leaves)))

    return Call("step()", step=step)
