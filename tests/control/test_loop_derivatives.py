"""Derivatives of every order and mode through control flow, against the plain Python program."""

import numpy as np
import pytest
import quabla as qb
from compare import assert_close
from control.loops import PAIRS, Plain, V, X


def along(f):
    """f on a line through its argument: a scalar function of a scalar."""
    return lambda x: lambda t: f(x + t * qb.array(V))


def forward(g):
    return lambda t: qb.jvp(g, (t,), (qb.ones_like(t),))[1]


def product(f):
    """The derivative of f along V."""
    return lambda x: qb.jvp(f, (x,), (qb.array(V),))[1]


TRANSFORMS = {
    "value": lambda f: f,
    "grad": qb.grad,
    "value_and_grad": qb.value_and_grad,
    "jvp": product,
    "hessian": qb.hessian,
    "grad of grad": lambda f: qb.grad(lambda x: qb.sum(qb.grad(f)(x) * qb.array(V))),
    "jvp of grad": lambda f: product(qb.grad(f)),
    "grad of jvp": lambda f: qb.grad(product(f)),
    "jvp of jvp": lambda f: product(product(f)),
    "jacrev of jacrev": lambda f: qb.jacrev(qb.jacrev(f)),
    "vjp": lambda f: lambda x: qb.vjp(qb.grad(f), x)[1](qb.array(V))[0],
    "linearize": lambda f: lambda x: qb.linearize(qb.grad(f), x)[1](qb.array(V)),
    "third, reverse": lambda f: lambda x: qb.grad(qb.grad(qb.grad(along(f)(x))))(qb.array(0.1)),
    "third, forward": lambda f: lambda x: forward(forward(forward(along(f)(x))))(qb.array(0.1)),
    "third, mixed": lambda f: lambda x: qb.grad(forward(qb.grad(along(f)(x))))(qb.array(0.1)),
    "jvp of hessian": lambda f: product(qb.hessian(f)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PAIRS)
def test_agrees_with_the_plain_program(name, transform):
    controlled, plain = PAIRS[name]
    make = TRANSFORMS[transform]
    x = qb.array(X)
    expected = make(plain)(x)
    assert_close(make(controlled)(x), expected, 1e-12)
    assert_close(qb.jit(make(controlled))(x), expected, 1e-12)


BATCH = np.stack([X, X + 0.01, X[::-1] * 0.8, -X, 0.2 * X])
SAME_STEPS = np.stack([X, X + 0.001, X - 0.002])  # as many steps of a loop that values stop


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PAIRS)
def test_vmap_agrees_with_the_plain_program(name, transform):
    controlled, plain = PAIRS[name]
    make = TRANSFORMS[transform]
    batch = qb.array(SAME_STEPS if name == "while_stopped_by_values" else BATCH)
    assert_close(qb.vmap(make(controlled))(batch), qb.vmap(make(plain))(batch), 1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_derivatives_of_a_vmap_agree_with_the_plain_program(name):
    controlled, plain = PAIRS[name]
    batch = qb.array(SAME_STEPS if name == "while_stopped_by_values" else BATCH)

    def total(f):
        return lambda batch: qb.sum(qb.vmap(f)(batch) ** 2)

    assert_close(qb.grad(total(controlled))(batch), qb.grad(total(plain))(batch), 1e-12)
    assert_close(qb.hessian(total(controlled))(batch), qb.hessian(total(plain))(batch), 1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_float32_stays_float32(name):
    controlled, plain = PAIRS[name]
    x = qb.array(X, dtype=qb.float32)
    if name in ("scan_over_rows",):  # closes over float64
        with pytest.raises(ValueError, match="float32 and float64"):
            controlled(x)
        return
    got = qb.grad(controlled)(x)
    assert got.dtype == qb.float32
    assert_close(got, qb.astype(qb.grad(plain)(qb.array(X)), qb.float32), 2e-4)


def test_forward_mode_through_a_while_without_bound():
    """Of any order; also the derivative by what only the condition reads, which is zero."""

    def f(x, limit):
        return qb.while_loop(lambda c: c < limit, lambda c: c * x + 1.0, x)

    def steps(x):  # 1.5, 3.25, 5.875, 9.8125
        c = x
        for _ in range(3):
            c = c * x + 1.0
        return c

    x, limit = qb.array(1.5), qb.array(9.0)
    assert_close(f(x, limit), steps(x))
    g, h = (lambda x: f(x, limit)), steps
    for _ in range(3):
        g, h = forward(g), forward(h)
        assert_close(g(x), h(x), 1e-13)
    assert forward(lambda limit: f(x, limit))(limit).item() == 0.0
    assert_close(qb.jacfwd(lambda x: f(x, limit))(x), forward(steps)(x), 1e-13)


def test_reverse_mode_through_a_while_without_bound_names_the_way_out():
    def f(x):
        return qb.sum(qb.while_loop(lambda c: c[0] < 9.0, lambda c: c * x + 1.0, x))

    x = qb.array([1.5, 1.0])
    for transform in (qb.grad, lambda f: lambda x: qb.vjp(f, x), qb.jacrev, lambda f: qb.jit(qb.grad(f)), qb.hessian):
        with pytest.raises(ValueError, match="max_steps(.|\n)*fori_loop"):
            transform(f)(x)
        with pytest.raises(ValueError, match="max_steps(.|\n)*fori_loop"):
            transform(
                lambda x: qb.sum(qb.fori_loop(0, x.shape[0] + qb.astype(x[0] * 0, qb.int64), lambda i, c: c * x, x))
            )(x)


def test_reverse_mode_beside_a_while_without_bound():
    """A loop that the result depends on only by a constant, or whose carry is of integers, is no obstacle."""

    def f(x):
        n = qb.while_loop(lambda n: n < 5, lambda n: n + 2, 0)
        frozen = qb.while_loop(lambda c: c < 9.0, lambda c: c * 2.0, qb.stop_gradient(x))
        return qb.sum(x * x) * n + frozen * 0.0 + x * frozen

    x = qb.array(1.25)
    assert qb.grad(f)(x).item() == pytest.approx(2 * 1.25 * 6 + 10.0)


def test_derivatives_by_captures_operands_carry_and_rows_at_once():
    """Each way into a loop, and an argument that enters by all of them."""

    def f(q, a, b, c, xs):
        def step(carry, row, b):
            return qb.sin(carry * a) + row * b, carry * b

        carry, ys = q(step, c, xs=xs, operands=(b,))
        return qb.sum(carry * ys)

    arguments = [qb.array(v) for v in (0.7, [0.3, -0.2], [0.1, 0.9])]
    arguments.append(qb.array(np.random.default_rng(3).normal(size=(4, 2))))
    for transform in (qb.grad, qb.hessian, qb.jacfwd):
        got = transform(lambda *args: f(qb.scan, *args), argnums=(0, 1, 2, 3))(*arguments)
        expected = transform(lambda *args: f(Plain.scan, *args), argnums=(0, 1, 2, 3))(*arguments)
        assert_close(got, expected, 1e-12)
    at_once = lambda q: lambda z: f(q, z[0], z, z * 0.5, qb.outer(z, z))
    z = qb.array([0.4, 0.8])
    assert_close(qb.hessian(at_once(qb.scan))(z), qb.hessian(at_once(Plain.scan))(z), 1e-12)


def test_inner_products_of_forward_and_reverse_mode():
    """<J v, w> = <v, J' w> for a loop with results of several shapes, over many directions."""
    rng = np.random.default_rng(7)

    def f(x, m):
        carry, ys = qb.scan(lambda c, i: (qb.tanh(m @ c) + x * 0.1 * i, {"s": qb.sum(c), "c": c[:2]}), x, length=9)
        return carry, ys

    x, m = qb.array(rng.normal(size=4)), qb.array(rng.normal(size=(4, 4)))
    out, pull = qb.vjp(f, x, m)
    for _ in range(5):
        v = (qb.array(rng.normal(size=4)), qb.array(rng.normal(size=(4, 4))))
        w = qb.tree.map(lambda leaf: qb.array(rng.normal(size=leaf.shape)), out)
        pushed, pulled = qb.jvp(f, (x, m), v)[1], pull(w)
        left = sum(np.vdot(a.numpy(), b.numpy()) for a, b in zip(qb.tree.leaves(pushed), qb.tree.leaves(w)))
        right = sum(np.vdot(a.numpy(), b.numpy()) for a, b in zip(pulled, v))
        assert left == pytest.approx(right, rel=1e-12)


def test_a_long_loop_has_the_right_derivative():
    """c + h sin(c), 10,000 times: the derivative is the product of 1 + h cos(c) on the way."""
    h, n = 1e-4, 10_000
    x = np.linspace(0.1, 2.0, 8)
    c, derivative = x.copy(), np.ones(8)
    for _ in range(n):
        derivative *= 1 + h * np.cos(c)
        c = c + h * np.sin(c)

    def f(x):
        return qb.fori_loop(0, n, lambda i, c: c + h * qb.sin(c), x)

    assert_close(f(qb.array(x)), qb.array(c), 1e-12)
    for checkpoint in (None, True):
        g = qb.grad(lambda x: qb.sum(qb.fori_loop(0, n, lambda i, c: c + h * qb.sin(c), x, checkpoint=checkpoint)))
        assert_close(g(qb.array(x)), qb.array(derivative), 1e-11)
    assert_close(qb.jvp(f, (qb.array(x),), (qb.ones(8),))[1], qb.array(derivative), 1e-11)
