"""Loops: small carries, a Runge-Kutta fit, a scalar map, a batched while loop, a filter.

PyTorch has no loop of its own outside torch.compile, which unrolls: it runs Python's, and the gradient by autograd.
CasADi is fastest with all steps in one scalar expression, two to eight times faster than mapping one over a carry
(mapaccum, fold), and two seconds slower to build; a million steps are a fold of a hundred. What would take seconds a
call is left out: PyTorch's scalar map.
"""

import numpy as np
from registry import row
from timing import Call

STEPS = 10_000
CARRY = np.linspace(0.1, 2.0, 8)


def compiled(function, *arrays):
    """The call of function(lib) on arrays."""

    def make(lib):
        arguments = lib.put(arrays)
        return lambda: lib.call(lib.jit(function(lib)), *arguments)

    return make


def torch_gradient(function, index, *arrays):
    """Value of function(lib) and its gradient in one argument, by autograd."""

    def make(lib):
        import torch

        arguments = [torch.tensor(array) for array in arrays]
        x = arguments[index].requires_grad_()

        def both():
            value = function(lib)(*arguments)
            return value.detach(), torch.autograd.grad(value, x)[0]

        return lambda: Call("f()", f=both)

    return make


# --- 8 elements ---


def small_loop(lib):
    return lambda c: lib.fori_loop(0, STEPS, lambda i, c: c + 1e-4 * lib.sin(c), c)


def small_loop_sum(lib):
    return lambda c: lib.sum(small_loop(lib)(c))


def small_gradient(lib):
    return lib.value_and_grad(small_loop_sum(lib))


def casadi_small(gradient):
    def make(lib):
        ca = lib.modules[0]

        def build():
            start = ca.SX.sym("c", 8)
            c = small_loop_unrolled(start, ca.sin)
            if not gradient:
                return ca.Function("loop", [start], [c])
            value = ca.sum1(c)
            return ca.Function("gradient", [start], [value, ca.gradient(value, start)])

        return lambda: lib.function_call(build, [CARRY], [(), (8,)] if gradient else [(8,)])

    return make


def small_loop_unrolled(c, sin):
    for _ in range(STEPS):
        c = c + 1e-4 * sin(c)
    return c


row(
    "loops",
    "10,000 steps of c + 1e-4 sin c, 8 elements",
    {
        "quabla": compiled(small_loop, CARRY),
        "jax": compiled(small_loop, CARRY),
        "torch": compiled(small_loop, CARRY),
        "casadi": casadi_small(False),
    },
    staging=50,
    call=1,
    over="jax",
)
row(
    "loops",
    "10,000 steps of c + 1e-4 sin c: value and gradient",
    {
        "quabla": compiled(small_gradient, CARRY),
        "jax": compiled(small_gradient, CARRY),
        "torch": torch_gradient(small_loop_sum, 0, CARRY),
        "casadi": casadi_small(True),
    },
    staging=50,
    call=1,
    over="jax",
)


# --- the Lotka-Volterra equations by the classical Runge-Kutta method ---

TIME_STEP, TIMES, BEGIN = 0.01, 1000, (10.0, 5.0)
TRUE, GUESS = np.array([1.1, 0.4, 0.4, 0.1]), np.array([1.0, 0.35, 0.45, 0.12])


def slope(state, parameters):
    prey, predator = state
    growth, eaten, death, gain = parameters
    return prey * (growth - eaten * predator), predator * (gain * prey - death)


def runge_kutta(state, parameters):
    moved = lambda k, by: tuple(s + by * d for s, d in zip(state, k))
    k1 = slope(state, parameters)
    k2 = slope(moved(k1, TIME_STEP / 2), parameters)
    k3 = slope(moved(k2, TIME_STEP / 2), parameters)
    k4 = slope(moved(k3, TIME_STEP), parameters)
    return tuple(s + TIME_STEP / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4))


def observed():
    states = [BEGIN]
    for _ in range(TIMES):
        states.append(runge_kutta(states[-1], TRUE))
    return tuple(np.array(states[1:]).T.copy())


PREY, PREDATOR = observed()


def misfit(lib):
    def loss(parameters, prey, predator):
        p = [parameters[i] for i in range(4)]

        def step(state, _):
            state = runge_kutta(state, p)
            return state, state

        begin = tuple(prey[0] * 0.0 + b for b in BEGIN)
        x, y = lib.scan(step, begin, length=TIMES)[1]
        return lib.mean((x - prey) ** 2) + lib.mean((y - predator) ** 2)

    return loss


def misfit_gradient(lib):
    return lib.value_and_grad(misfit(lib))


def casadi_misfit(lib):
    ca = lib.modules[0]

    def build():
        p = ca.SX.sym("p", 4)
        parameters, states = [p[i] for i in range(4)], [BEGIN]
        for _ in range(TIMES):
            states.append(runge_kutta(states[-1], parameters))
        found = ca.horzcat(*(ca.vertcat(*state) for state in states[1:]))
        value = ca.sumsqr(found - ca.DM(np.stack([PREY, PREDATOR]))) / TIMES
        return ca.Function("misfit", [p], [value, ca.gradient(value, p)])

    return lambda: lib.function_call(build, [GUESS], [(), (4,)])


row(
    "loops",
    "RK4 fit of Lotka-Volterra, 1,000 steps: value and gradient",
    {
        "quabla": compiled(misfit_gradient, GUESS, PREY, PREDATOR),
        "jax": compiled(misfit_gradient, GUESS, PREY, PREDATOR),
        "torch": torch_gradient(misfit, 0, GUESS, PREY, PREDATOR),
        "casadi": casadi_misfit,
    },
    staging=50,
    call=4,
    over="jax",
)


# --- the logistic map ---


def logistic_map(lib):
    return lambda x: lib.fori_loop(0, 1_000_000, lambda i, x: 3.2 * x * (1.0 - x), x)


def casadi_logistic(lib):
    ca = lib.modules[0]

    def build():
        start = x = ca.SX.sym("x")
        for _ in range(100):
            x = 3.2 * x * (1.0 - x)
        return ca.Function("steps", [start], [x]).fold(10_000)

    return lambda: lib.function_call(build, [np.array(0.3)], [()])


row(
    "loops",
    "Logistic map, 1,000,000 steps of a scalar",
    {
        "quabla": compiled(logistic_map, np.array(0.3)),
        "jax": compiled(logistic_map, np.array(0.3)),
        "casadi": casadi_logistic,
    },
    staging=50,
    over="jax",
)


# --- Newton's method, each point until it has converged ---


def newton_step(a, x):
    return x - (x * x * x - a) / (3.0 * x * x)


def newton(lib):
    def root(a, x):
        def step(state):
            x, _ = state
            new = newton_step(a, x)
            return new, abs(new - x)

        return lib.while_loop(lambda state: state[1] > 1e-12, step, (x, x * 0.0 + 1.0))[0]

    return lib.vmap(root)


def newton_masked(lib):
    """The same for all points together: those that have converged stay."""

    def roots(a, x):
        moved = lib.ones_like(x)
        while lib.any(going := moved > 1e-12):
            new = newton_step(a, x)
            x, moved = lib.where(going, new, x), lib.where(going, abs(new - x), moved)
        return x

    return roots


NEWTON = np.linspace(1.0, 100.0, 1024), np.linspace(0.5, 20.0, 1024)
row(
    "loops",
    "Batched while_loop: Newton's method for cube roots, 1,024 points",
    {
        "quabla": compiled(newton, *NEWTON),
        "jax": compiled(newton, *NEWTON),
        "torch": compiled(newton_masked, *NEWTON),
        "numpy": compiled(newton_masked, *NEWTON),
    },
    staging=50,
    call=1,
    over="jax",
)


# --- a filter ---


def kalman(lib):
    def f(model, gain, noise, covariance, measured):
        def step(state, z):
            x, p = state
            x, p = model @ x, model @ p @ model.T + noise
            x, p = x + gain @ (z - x), p - gain @ p
            return (x, 0.5 * (p + p.T)), x

        return lib.scan(step, (measured[0], covariance), xs=measured)

    return f


def filter_data():
    random = np.random.default_rng(0)
    model = 0.9 * (np.eye(4) + 0.05 * random.standard_normal((4, 4)))
    gain = 0.3 * np.eye(4) + 0.02 * random.standard_normal((4, 4))
    return model, gain, 0.01 * np.eye(4), np.eye(4), random.standard_normal((1000, 4))


row(
    "loops",
    "Kalman-like scan, 1,000 steps of 4x4 products",
    {peer: compiled(kalman, *filter_data()) for peer in ("quabla", "jax", "torch")},
    staging=50,
    call=1,
    over="jax",
)
