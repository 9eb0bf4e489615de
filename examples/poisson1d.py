"""A one-parameter physics-informed fit: u'' = -pi^2 sin(pi x) with u = sin(w x), solved for w = pi by Adam."""

import math

import quabla as qb


def u(x, w):  # one collocation point, x a scalar
    return qb.sin(x * w)


u_xx = qb.vmap(qb.grad(qb.grad(u)), in_axes=(0, None))  # exact second derivative at every point


def loss(w, x):
    return qb.mean((u_xx(x, w) + math.pi**2 * qb.sin(math.pi * x)) ** 2)


x, w = qb.linspace(0.05, 0.95, 8), qb.array(2.5)
opt = qb.optim.Adam(learning_rate=0.05)
state = opt.init(w)
step = qb.jit(qb.value_and_grad(loss))  # traced and compiled at the first call

for _ in range(300):
    value, g = step(w, x)
    w, state = opt.update(w, g, state)

print(f"w = {w.item():.6f}, loss = {value.item():.1e}")  # w = 3.141593
