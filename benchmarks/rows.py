"""What is measured: one function a row.

A row of calls is a function that prepares its data and returns, for each peer, a function that makes everything anew
and returns the call to time. A row of figures returns named numbers. Adding a row is adding a function.
"""

import itertools
import math
import os
import subprocess
import sys
import textwrap
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

    grad, vmap, value_and_grad = staticmethod(jax.grad), staticmethod(jax.vmap), staticmethod(jax.value_and_grad)
    sin, tanh, mean, sum, reshape = jnp.sin, jnp.tanh, jnp.mean, jnp.sum, jnp.reshape
    fori_loop, while_loop = staticmethod(jax.lax.fori_loop), staticmethod(jax.lax.while_loop)

    @staticmethod
    def scan(f, init, xs=None, length=None):
        return jax.lax.scan(f, init, xs, length)


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


# --- Loops ---


def peers(make, *arrays):
    """A call of make(library) on the same arrays for each peer, compiled."""

    def quabla():
        args = [qb.tree.map(qb.array, array) for array in arrays]
        return Call("f(*args)", f=qb.jit(make(qb)), args=args)

    def jax_peer():
        args = [jax.tree.map(jnp.array, array) for array in arrays]
        return Call("wait(f(*args))", f=jax.jit(make(JaxNames)), args=args, wait=jax.block_until_ready)

    return {"quabla": quabla, "jax": jax_peer}


def small_loop(library):
    def f(c):
        return library.fori_loop(0, 10_000, lambda i, c: c + 1e-4 * library.sin(c), c)

    return f


@calls("fori_loop, 10,000 steps of c + 1e-4 sin(c), 8 elements", staging_factor=50, call_factor=1)
def loop_of_a_small_carry():
    return peers(small_loop, np.linspace(0.1, 2.0, 8))


@calls("... its gradient", staging_factor=50, call_factor=1)
def gradient_of_a_loop_of_a_small_carry():
    return peers(lambda library: library.grad(lambda c: library.sum(small_loop(library)(c))), np.linspace(0.1, 2.0, 8))


def lotka_volterra(library, parameters, state, steps, dt):
    """Prey and predator by the classical Runge-Kutta method: the states after each step."""

    def slope(state):
        prey, predator = state
        growth, eaten, death, gain = parameters
        return prey * (growth - eaten * predator), predator * (gain * prey - death)

    def moved(state, slope, by):
        return tuple(s + by * d for s, d in zip(state, slope))

    def step(state, _):
        k1 = slope(state)
        k2 = slope(moved(state, k1, dt / 2))
        k3 = slope(moved(state, k2, dt / 2))
        k4 = slope(moved(state, k3, dt))
        state = tuple(s + dt / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True))
        return state, state

    return library.scan(step, state, length=steps)[1]


@calls("RK4 fit of Lotka-Volterra, 1,000 steps: gradient in 4 parameters", staging_factor=50, call_factor=4)
def runge_kutta_fit():
    true, guess = (1.1, 0.4, 0.4, 0.1), np.array([1.0, 0.35, 0.45, 0.12])
    data = lotka_volterra(qb, [qb.array(p) for p in true], (qb.array(10.0), qb.array(5.0)), 1000, 0.01)
    prey, predator = (np.array(d) for d in data)

    def make(library):
        def loss(parameters, prey, predator):
            start = (prey[0] * 0.0 + 10.0, prey[0] * 0.0 + 5.0)
            x, y = lotka_volterra(library, [parameters[i] for i in range(4)], start, 1000, 0.01)
            return library.mean((x - prey) ** 2) + library.mean((y - predator) ** 2)

        return library.value_and_grad(loss)

    return peers(make, guess, prey, predator)


def logistic_map(library):
    def f(x):
        return library.fori_loop(0, 1_000_000, lambda i, x: 3.2 * x * (1.0 - x), x)

    return f


@calls("Logistic map, 1,000,000 steps of a scalar")
def loop_of_a_scalar():
    return peers(logistic_map, np.array(0.3))


@calls("while_loop by vmap: Newton's method for cube roots, 1,024 starting points", staging_factor=50, call_factor=1)
def batched_newton():
    def make(library):
        def root(a, x):
            def step(state):
                x, _ = state
                new = x - (x * x * x - a) / (3.0 * x * x)
                return new, abs(new - x)

            return library.while_loop(lambda state: state[1] > 1e-12, step, (x, x * 0.0 + 1.0))[0]

        return library.vmap(root)

    return peers(make, np.linspace(1.0, 100.0, 1024), np.linspace(0.5, 20.0, 1024))


@calls("Kalman-like scan, 1,000 steps of 4x4 products", staging_factor=50, call_factor=1)
def filtering_scan():
    random = np.random.default_rng(0)
    model = np.eye(4) + 0.05 * random.standard_normal((4, 4))
    gain, noise = 0.3 * np.eye(4) + 0.02 * random.standard_normal((4, 4)), 0.01 * np.eye(4)

    def make(library):
        def f(model, gain, noise, covariance, measured):
            def step(state, z):
                x, p = state
                x, p = model @ x, model @ p @ model.T + noise
                x, p = x + gain @ (z - x), p - gain @ p
                return (x, 0.5 * (p + p.T)), x

            return library.scan(step, (measured[0], covariance), xs=measured)

        return f

    return peers(make, model * 0.9, gain, noise, np.eye(4), random.standard_normal((1000, 4)))


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
def loop_iterations():
    """What an iteration costs where it has next to nothing to compute."""
    names = {"a scalar (logistic map)": (loop_of_a_scalar, 1_000_000), "8 elements": (loop_of_a_small_carry, 10_000)}
    figures = []
    for name, (row, steps) in names.items():
        waiting = {peer: make() for peer, make in row().items()}
        for call in waiting.values():
            call.seconds(1)
        seconds = best_in_turns({peer: lambda call=call: call.seconds(1) for peer, call in waiting.items()}, 7)
        figures += [
            Figure(f"loop over {name}, an iteration in {peer}", taken / steps * 1e9, "ns")
            for peer, taken in seconds.items()
        ]
    return figures


@figures
def memory_of_the_gradient_of_a_loop():
    """The peak of a process that differentiates 100,000 steps over 1,000 values, above what it has before."""
    measured = """
        import quabla as qb
        def peak():  # of this process alone: getrusage gives a new process the peak of its parent
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
        def loss(x):
            return qb.sum(qb.scan(lambda c, i: (qb.sin(c), None), x, length=100_000, checkpoint={})[0])
        g, x = qb.jit(qb.grad(loss)), qb.ones(1000)
        predicted, before = g.lower(x).cost().peak_bytes, peak()
        g(x)
        print(predicted, peak() - before)
    """
    carries = 100_000 * 1_000 * 8
    figures = []
    for name, checkpoint, bound in (("", None, None), (", checkpoint=True", True, 2.0)):
        predicted, found = map(int, run_python(textwrap.dedent(measured.format(checkpoint))).split())
        for word, taken in (("the process", found), ("cost()", predicted)):
            figures.append(
                Figure(f"gradient of a long scan{name}: {word}", 100 * taken / carries, "% of all carries", bound)
            )
    return figures


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
