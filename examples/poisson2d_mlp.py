"""A physics-informed network for Poisson's equation on the unit square.

    -lap u = 2 pi^2 sin(pi x) sin(pi y) inside,  u = 0 on the boundary;  exact solution sin(pi x) sin(pi y).

A tanh network 2-32-32-32-1 is trained on the equation's residual. The boundary condition is built in: u = x (1-x) y
(1-y) N(x, y).
Prints the relative L2 error on a 101 x 101 grid, and writes a picture of exact solution, prediction and error where
matplotlib is
installed (poisson2d_mlp.png in the working directory).

    python examples/poisson2d_mlp.py [steps]
"""

import math
import random
import sys
import time

import quabla as qb

WIDTHS = [2, 32, 32, 32, 1]
GRID = 101


def init_params(seed):
    """Glorot-uniform weights and zero biases, a dict of parameters for each layer."""
    generator = random.Random(seed)
    params = {}
    for i, (fan_in, fan_out) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        bound = math.sqrt(6.0 / (fan_in + fan_out))
        weights = [[generator.uniform(-bound, bound) for _ in range(fan_out)] for _ in range(fan_in)]
        params[f"layer{i}"] = {"w": qb.array(weights), "b": qb.zeros(fan_out)}
    return params


def network(params, point):
    h = point
    last = len(WIDTHS) - 2
    for i in range(last):
        layer = params[f"layer{i}"]
        h = qb.tanh(h @ layer["w"] + layer["b"])
    layer = params[f"layer{last}"]
    return (h @ layer["w"] + layer["b"])[0]


def u(params, x, y):
    """The solution at one point, zero on the boundary by construction."""
    return x * (1.0 - x) * y * (1.0 - y) * network(params, qb.stack([x, y]))


u_xx = qb.grad(qb.grad(u, argnums=1), argnums=1)
u_yy = qb.grad(qb.grad(u, argnums=2), argnums=2)


def residual(params, x, y):
    laplacian = u_xx(params, x, y) + u_yy(params, x, y)
    return laplacian + 2.0 * math.pi**2 * qb.sin(math.pi * x) * qb.sin(math.pi * y)


def loss(params, x, y):
    return qb.mean(qb.vmap(residual, in_axes=(None, 0, 0))(params, x, y) ** 2)


def collocation_points(n):
    """An n x n grid of points inside the square, flattened."""
    inside = [(i + 0.5) / n for i in range(n)]
    return qb.array([a for a in inside for _ in inside]), qb.array([b for _ in inside for b in inside])


def progress(step, steps, value, started):
    done = int(30 * step / steps)
    rate = step / max(time.perf_counter() - started, 1e-9)
    line = f"\r[{'#' * done}{'.' * (30 - done)}] {step}/{steps}  loss {value:9.3e}  {rate:6.0f} steps/s"
    print(line, end="\n" if step == steps else "", file=sys.stderr, flush=True)


def train(params, steps):
    x, y = collocation_points(24)
    opt = qb.optim.Adam(learning_rate=lambda step: 3e-3 * 0.5 ** (step.astype(qb.float64) / (0.2 * steps)))
    state = opt.init(params)
    step = qb.jit(qb.value_and_grad(loss))
    started = time.perf_counter()
    for i in range(1, steps + 1):
        value, grads = step(params, x, y)
        params, state = opt.update(params, grads, state)
        if i % 50 == 0 or i == steps:
            progress(i, steps, value.item(), started)
    return params


def evaluate(params):
    """Prediction and exact solution on the grid, and the relative L2 error."""
    axis = [i / (GRID - 1) for i in range(GRID)]
    x, y = qb.array([a for a in axis for _ in axis]), qb.array([b for _ in axis for b in axis])
    predicted = qb.jit(qb.vmap(u, in_axes=(None, 0, 0)))(params, x, y)
    exact = qb.sin(math.pi * x) * qb.sin(math.pi * y)
    error = (qb.norm(predicted - exact) / qb.norm(exact)).item()
    return predicted.reshape(GRID, GRID), exact.reshape(GRID, GRID), error


def draw(predicted, exact, path):
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    panels = [("exact", exact), ("predicted", predicted), ("error", predicted - exact)]
    for axis, (title, values) in zip(axes, panels):
        image = axis.imshow(values.numpy().T, origin="lower", extent=(0, 1, 0, 1), cmap="viridis")
        axis.set(title=title, xlabel="x", ylabel="y")
        figure.colorbar(image, ax=axis, shrink=0.9)
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    started = time.perf_counter()
    params = train(init_params(seed=0), steps)
    predicted, exact, error = evaluate(params)
    print(f"relative L2 error {error:.2e} after {steps} steps, {time.perf_counter() - started:.1f} s")
    draw(predicted, exact, "poisson2d_mlp.png")


if __name__ == "__main__":
    main()
