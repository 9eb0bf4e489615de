"""What is measured: one function a row.

A row of calls is a function that prepares its data and returns, for each peer, a function that makes everything anew
and returns the call to time. A row of figures returns named numbers. Adding a row is adding a function.
"""

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import quabla as qb
from timing import Call, best_in_turns

jax.config.update("jax_enable_x64", True)


@dataclass(frozen=True)
class Calls:
    """A row that compares calls, with the factors over JAX, and the seconds, that it should reach."""

    name: str
    make: Callable[[], dict[str, Callable[[], Call]]]
    staging_factor: float | None = None
    call_factor: float | None = None
    call_seconds: float | None = None
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Figure:
    """One number, and the bound that it should stay under (None: no bound)."""

    name: str
    value: float
    unit: str
    bound: float | None = None

    @property
    def met(self) -> bool:
        return self.bound is None or self.value < self.bound


@dataclass
class Registry:
    calls: list[Calls] = field(default_factory=list)
    figures: list[Callable[[], list[Figure]]] = field(default_factory=list)


ROWS = Registry()


def calls(name: str, **targets):
    def register(make):
        ROWS.calls.append(Calls(name, make, **targets))
        return make

    return register


def figures(measure):
    ROWS.figures.append(measure)
    return measure


# --- JAX in the role of a user: the same optimizer, the same way of stepping ---


class JaxAdam:
    """The rule of qb.optim.Adam, compiled."""

    def __init__(self, learning_rate, b1=0.9, b2=0.999, eps=1e-8):
        def rule(params, grads, state):
            step, m, v = state
            step = step + 1
            m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
            v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, v, grads)
            m_scale, v_scale = 1 / (1 - b1**step), 1 / (1 - b2**step)
            params = jax.tree.map(
                lambda p, m, v: p - learning_rate * (m * m_scale) / (jnp.sqrt(v * v_scale) + eps), params, m, v
            )
            return params, (step, m, v)

        self.update = jax.jit(rule)

    def init(self, params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return jnp.array(0.0), zeros, zeros


def training(step, update, params, state, data, wait=lambda result: result):
    """A call of the training loop: the loss and its gradient, then the optimizer. Parameters go on between calls."""

    def advance():
        nonlocal params, state
        loss, grads = step(params, *data)
        params, state = update(params, grads, state)
        return wait((loss, params))

    return Call("advance()", advance=advance)


# --- The rows ---


@calls("README step: value_and_grad and Adam, 8 points", staging_factor=50, call_factor=3)
def readme_step():
    points = np.linspace(0.05, 0.95, 8)

    def quabla():
        u_xx = qb.vmap(qb.grad(qb.grad(lambda x, w: qb.sin(x * w))), in_axes=(0, None))

        def loss(w, x):
            return qb.mean((u_xx(x, w) + math.pi**2 * qb.sin(math.pi * x)) ** 2)

        w, opt = qb.array(2.5), qb.optim.Adam(learning_rate=0.05)
        return training(qb.jit(qb.value_and_grad(loss)), opt.update, w, opt.init(w), (qb.array(points),))

    def peer():
        u_xx = jax.vmap(jax.grad(jax.grad(lambda x, w: jnp.sin(x * w))), in_axes=(0, None))

        def loss(w, x):
            return jnp.mean((u_xx(x, w) + math.pi**2 * jnp.sin(math.pi * x)) ** 2)

        w, opt = jnp.array(2.5), JaxAdam(0.05)
        step = jax.jit(jax.value_and_grad(loss))
        return training(step, opt.update, w, opt.init(w), (jnp.array(points),), jax.block_until_ready)

    return {"quabla": quabla, "jax": peer}


def network(widths):
    """Weights and biases of a tanh network, as a list of dicts of NumPy arrays."""
    random = np.random.default_rng(0)
    return [
        {"w": random.standard_normal((m, n)) / math.sqrt(m), "b": np.zeros(n)} for m, n in itertools.pairwise(widths)
    ]


def mlp_problem(library, points):
    """The loss of -u'' = pi^2 sin(pi x), u(0) = u(1) = 0, with u a network of one input."""

    def u(params, x):
        h = library.reshape(x, (1,))
        for layer in params[:-1]:
            h = library.tanh(h @ layer["w"] + layer["b"])
        return (h @ params[-1]["w"] + params[-1]["b"])[0] * x * (1 - x)

    u_xx = library.grad(library.grad(u, argnums=1), argnums=1)
    batched = library.vmap(u_xx, in_axes=(None, 0))

    def loss(params, x):
        return library.mean((batched(params, x) + math.pi**2 * library.sin(math.pi * x)) ** 2)

    return loss


class JaxNames:
    """The names that a problem uses, found in JAX where Quabla has them in one module."""

    grad, vmap = staticmethod(jax.grad), staticmethod(jax.vmap)
    sin, tanh, mean, reshape = jnp.sin, jnp.tanh, jnp.mean, jnp.reshape


def mlp_peers(with_optimizer):
    points, layers = np.linspace(0.01, 0.99, 64), network([1, 32, 32, 1])

    def quabla():
        params = [{name: qb.array(array) for name, array in layer.items()} for layer in layers]
        x, opt = qb.array(points), qb.optim.Adam(learning_rate=1e-3)
        step = qb.jit(qb.value_and_grad(mlp_problem(qb, x)))
        if with_optimizer:
            return training(step, opt.update, params, opt.init(params), (x,))
        return Call("step(params, x)", step=step, params=params, x=x)

    def peer():
        params = [{name: jnp.array(array) for name, array in layer.items()} for layer in layers]
        x, opt = jnp.array(points), JaxAdam(1e-3)
        step = jax.jit(jax.value_and_grad(mlp_problem(JaxNames, x)))
        if with_optimizer:
            return training(step, opt.update, params, opt.init(params), (x,), jax.block_until_ready)
        return Call("wait(step(params, x))", step=step, params=params, x=x, wait=jax.block_until_ready)

    return {"quabla": quabla, "jax": peer}


@calls("MLP PINN 1-32-32-1, 64 points: value_and_grad", staging_factor=50, call_factor=1)
def mlp_gradient():
    return mlp_peers(with_optimizer=False)


@calls("MLP PINN 1-32-32-1, 64 points: value_and_grad and Adam", staging_factor=50, call_factor=1)
def mlp_step():
    return mlp_peers(with_optimizer=True)


@calls("Cached call: jit(lambda x: x * 2 + 1), 8 elements", staging_factor=50, call_seconds=0.7e-6)
def cached_call():
    data = np.linspace(0.0, 1.0, 8)
    x, y = qb.array(data), jnp.array(data)
    return {
        "quabla": lambda: Call("f(x)", f=qb.jit(lambda x: x * 2 + 1), x=x),
        "jax": lambda: Call("f(x).block_until_ready()", f=jax.jit(lambda x: x * 2 + 1), x=y),
    }


@calls("Eager x + y, 8 elements", call_seconds=0.3e-6)
def eager_add():
    data = np.linspace(0.0, 1.0, 8)
    x, y = qb.array(data), jnp.array(data)
    return {
        "quabla": lambda: Call("x + y", x=x, y=x),
        "jax": lambda: Call("(x + y).block_until_ready()", x=y, y=y),
    }


# --- Figures ---


def run_python(code: str) -> str:
    """What a new interpreter prints. It may keep compiled modules, as it does of installed packages."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@figures
def importing():
    timed = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    seconds = best_in_turns(
        {name: lambda name=name: float(run_python(timed.format(name))) for name in ("quabla", "numpy", "jax")}, 7
    )
    loaded = run_python("import sys, quabla; print('numpy' in sys.modules)")
    if loaded != "False":
        raise AssertionError("import quabla imports NumPy")
    return [
        Figure("import quabla (without NumPy)", seconds["quabla"] * 1e3, "ms", bound=50),
        Figure("import numpy", seconds["numpy"] * 1e3, "ms"),
        Figure("import jax", seconds["jax"] * 1e3, "ms"),
    ]


@figures
def numpy_round_trip():
    """Into Quabla is a copy, out of it a view."""
    values = np.random.default_rng(0).standard_normal(1_000_000)
    tensor = qb.array(values)
    if not np.array_equal(tensor.numpy(), values) or not np.shares_memory(tensor.numpy(), np.asarray(tensor)):
        raise AssertionError("the round trip through NumPy does not keep the values, or export copies")
    ways = {
        "a plain copy (values.copy())": Call("x.copy()", x=values),
        "in: qb.array(values)": Call("qb.array(x)", qb=qb, x=values),
        "out: tensor.numpy()": Call("t.numpy()", t=tensor),
    }

    def warm(call):
        call.seconds(1)  # its source back into the caches, after the others
        return call.seconds(2)

    seconds = best_in_turns({name: lambda call=call: warm(call) for name, call in ways.items()}, 200)
    plain = next(iter(seconds.values()))
    bound = round(1.3e6 * plain)
    return [
        Figure(f"1e6 float64 values, {name}", taken * 1e6, "us", bound=None if taken == plain else bound)
        for name, taken in seconds.items()
    ]
