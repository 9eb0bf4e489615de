"""Predator and prey: the equations of Lotka and Volterra fitted to the pelts of the Hudson's Bay Company.

    hare' = hare (growth - predation lynx),   lynx' = lynx (gain hare - death)

Furs of snowshoe hares and lynxes, in thousands, from 1900 to 1920 (Hewitt, The Conservation of the Wild Life of
Canada, 1921; tabulated by Howard, Modeling Basics, 2009). The equations are solved by the classical Runge-Kutta method
in a scan; its gradient with respect to four rates and two starting values, all fitted by their logarithms, is the scan
backwards. Errors are taken to be relative, so logarithms are compared, as in Carpenter, Predator-Prey Population
Dynamics: the Lotka-Volterra model in Stan, 2018. Standard errors come from the exact Hessian through the scan.

Prints the fit, and draws it beside the data where matplotlib is installed (lynx_hare.png in the working directory).

    python examples/lynx_hare.py [steps]
"""

import math
import sys
import time

import quabla as qb

HARES = [30.0, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22.0, 25.4, 27.1, 40.3, 57.0, 76.6, 52.3, 19.5, 11.2, 7.6,
         14.6, 16.2, 24.7]  # fmt: skip
LYNXES = [4.0, 6.1, 9.8, 35.2, 59.4, 41.7, 19.0, 13.0, 8.3, 9.1, 7.4, 8.0, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7,
          10.1, 8.6]  # fmt: skip
FIRST_YEAR, STEPS_A_YEAR = 1900, 20
NAMES = ["growth", "predation", "death", "gain", "hares in 1900", "lynxes in 1900"]
GUESS = [0.5, 0.02, 0.9, 0.02, 30.0, 4.0]


def slope(rates, state):
    hare, lynx = state
    return hare * (rates[0] - rates[1] * lynx), lynx * (rates[3] * hare - rates[2])


def runge_kutta_step(rates, state, dt):
    def moved(slopes, by):
        return tuple(s + by * d for s, d in zip(state, slopes))

    k1 = slope(rates, state)
    k2 = slope(rates, moved(k1, dt / 2))
    k3 = slope(rates, moved(k2, dt / 2))
    k4 = slope(rates, moved(k3, dt))
    return tuple(s + dt / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4))


def solve(parameters, years):
    """Hares and lynxes at every step of the given number of years, the start included."""
    rates = [parameters[i] for i in range(4)]
    start = (parameters[4], parameters[5])

    def step(state, _):
        return runge_kutta_step(rates, state, 1.0 / STEPS_A_YEAR), state

    last, states = qb.scan(step, start, length=years * STEPS_A_YEAR)
    return tuple(qb.concat([s, qb.reshape(e, (1,))]) for s, e in zip(states, last))


def loss(logarithms, data):
    """Half the sum of the squared relative errors."""
    computed = solve(qb.exp(logarithms), len(HARES) - 1)
    errors = [qb.log(c[::STEPS_A_YEAR]) - qb.log(d) for c, d in zip(computed, data)]
    return sum(qb.sum(e**2) for e in errors) / 2.0


def fit(data, steps):
    logarithms = qb.log(qb.array(GUESS))
    opt = qb.optim.Adam(learning_rate=lambda step: 0.03 * 0.5 ** (step.astype(qb.float64) / (0.15 * steps)))
    state = opt.init(logarithms)
    step = qb.jit(qb.value_and_grad(loss))
    for _ in range(steps):
        _, gradient = step(logarithms, data)
        logarithms, state = opt.update(logarithms, gradient, state)
    return logarithms


def inverse(matrix):
    """Of a small matrix, by elimination with pivots."""
    n = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(n))] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for r in range(n):
            if r != i:
                rows[r] = [a - rows[r][i] * b for a, b in zip(rows[r], rows[i])]
    return [row[n:] for row in rows]


def draw(parameters, data, path):
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (over_time, phase) = plt.subplots(
        1, 2, figsize=(12, 4.2), layout="constrained", gridspec_kw={"width_ratios": [1.8, 1]}
    )
    years = [FIRST_YEAR + i for i in range(len(HARES))]
    computed = [c.numpy() for c in solve(parameters, len(HARES) - 1)]
    fine = [FIRST_YEAR + i / STEPS_A_YEAR for i in range(len(computed[0]))]
    for name, curve, points, colour in zip(("hares", "lynxes"), computed, data, ("tab:blue", "tab:orange")):
        over_time.plot(fine, curve, color=colour, label=f"{name}, fitted")
        over_time.plot(years, points.numpy(), "o", color=colour, label=f"{name}, pelts")
    over_time.set(xlabel="year", ylabel="thousands", xticks=years[::4], ylim=(0, 100))
    over_time.legend(ncols=2)
    phase.plot(*computed, color="tab:green")
    phase.plot(*(points.numpy() for points in data), "o", color="gray")
    phase.set(xlabel="hares", ylabel="lynxes")
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    data = (qb.array(HARES), qb.array(LYNXES))
    started = time.perf_counter()
    logarithms = fit(data, steps)
    taken = time.perf_counter() - started
    squares = 2.0 * loss(logarithms, data).item()
    freedom = 2 * len(HARES) - len(NAMES)
    covariance = inverse(qb.hessian(loss)(logarithms, data).tolist())
    parameters = qb.exp(logarithms)
    for i, (name, value) in enumerate(zip(NAMES, parameters.tolist())):
        error = value * math.sqrt(max(covariance[i][i], 0.0) * squares / freedom)
        print(f"{name:15} {value:8.4f} +- {error:.4f}")
    print(f"relative error {math.sqrt(squares / freedom):.3f} after {steps} steps, {taken:.1f} s")
    draw(parameters, data, "lynx_hare.png")


if __name__ == "__main__":
    main()
