"""lower(...).cost(): hand-counted operations, bytes and buffers; and what the cheaper forms of derivatives save by it."""

import numpy as np
import pytest
import quabla as qb


def cost(fun, *args):
    return qb.jit(fun).lower(*args).cost()


def like(*shape, dtype=None):
    return qb.ShapeDtype(shape, dtype)


A, B = like(64, 128), like(128, 32)

# ------------------------------------------------------------------------------------------------ hand-counted


@pytest.mark.parametrize(
    ("fun", "shapes", "flops"),
    [
        (lambda a, b: a + b, [like(7), like(7)], 7),
        (lambda a, b: a + b, [like(7), like(5, 7)], 35),  # broadcast
        (lambda a: qb.sin(a) * a, [like(10)], 10 * (8 + 1)),
        (lambda a: a / 3.0, [like(10)], 10 * 4),
        (lambda a: qb.where(a > 0.0, a, 1.0), [like(10)], 10 * 2),
        (lambda a, b: a @ b, [A, B], 2 * 64 * 128 * 32),
        (lambda a, b: a.T @ b.T, [like(128, 64), like(32, 128)], 2 * 64 * 128 * 32),
        (lambda a, b: qb.einsum("bij,bjk->bik", a, b), [like(3, 4, 5), like(3, 5, 6)], 2 * 3 * 4 * 5 * 6),
        (lambda a: qb.outer(a, a), [like(9)], 81),  # one term in each sum: no addition
        (lambda a: qb.sum(a), [like(8, 9)], 72),
        (lambda a: qb.max(a, axis=0), [like(8, 9)], 72),
        (lambda a: qb.cumsum(a, axis=1), [like(8, 9)], 72),
        (lambda a: qb.sort(a), [like(4, 16)], 4 * 16 * 4),
        (lambda a: qb.concat([a.T, a.T])[::2], [like(8, 9)], 0),  # only moved
        (lambda i: i * 2 + 1, [like(9, dtype=qb.int64)], 0),  # of integers
    ],
)
def test_flops_as_counted_by_hand(fun, shapes, flops):
    assert cost(fun, *shapes).flops == flops


def test_dead_and_equal_operations_count_once():
    def fun(a):
        qb.exp(a)
        return qb.sin(a) + qb.sin(a)

    assert cost(fun, like(10)).flops == 10 * (8 + 1)


def test_bytes_of_a_fused_chain_are_its_operands_and_result():
    n = 1000
    chain = cost(lambda a, b: qb.exp(qb.sin(a) * b) + 1.0, like(n), like(n))
    assert (chain.bytes, chain.peak_bytes) == (3 * n * 8, n * 8)
    narrow = cost(lambda a: a + a, like(n, dtype=qb.float32))
    assert (narrow.bytes, narrow.peak_bytes) == (2 * n * 4, n * 4)
    row = cost(lambda a, b: a + b, like(50, n), like(n))
    assert row.bytes == (2 * 50 * n + n) * 8  # a repeated row is read once


def test_bytes_of_products_and_buffers_between_steps():
    product = cost(lambda a, b: a @ b, A, B)
    assert product == (2 * 64 * 128 * 32, (64 * 128 + 128 * 32 + 64 * 32) * 8, 64 * 32 * 8)
    chain = cost(lambda a, b: qb.sum(qb.tanh(a @ b)), A, B)
    assert chain.bytes == product.bytes + 64 * 32 * 8 + 8
    assert chain.peak_bytes == 64 * 32 * 8 + 8


def test_memory_that_sorting_works_in_is_counted():
    n = 1000
    row = cost(qb.sort, like(n))
    assert (row.bytes, row.peak_bytes) == (2 * n * 8, 2 * n * 8)  # the result, and a copy
    assert cost(qb.argsort, like(n)).peak_bytes == (1 + 3) * n * 8  # places, two copies of elements, one of places
    columns = cost(lambda a: qb.sort(a, axis=0), like(n, 2))
    assert columns.peak_bytes == (2 + 2 + 1) * n * 8  # the result, the columns as rows, a copy of one
    assert 2 * 8_000_000 < cost(qb.sort, like(1_000_000)).peak_bytes < 4 * 8_000_000
    assert cost(qb.sort, like(n, n)).peak_bytes < 2 * n * n * 8  # a room for each thread, not for each row
    assert cost(qb.sort, like(n, dtype=qb.bool_)).peak_bytes == n


@pytest.mark.parametrize(
    ("fun", "elements"),
    [
        (qb.linalg.eigh, 8 + 2 * 64),  # eigenvectors as rows, and as columns
        (qb.linalg.svd, 8 + 2 * 64),
        (lambda a: qb.linalg.svd(a, compute_uv=False), 8),
        (qb.linalg.qr, 2 * 64),
        (lambda a: qb.linalg.solve(a, a[..., :1]), 64 + 8 + 1 + 8 + 8),  # factors, exchanges, a sign, two sides
    ],
    ids=["eigh", "svd", "singular values", "qr", "solve"],
)
def test_a_batch_of_matrices_is_worked_on_in_a_room_for_each_thread(fun, elements):
    few, many = (cost(fun, like(count, 8, 8)).peak_bytes for count in (5_000, 50_000))
    assert many - few < 1.01 * 45_000 * elements * 8


def test_cost_is_a_named_tuple_and_executes_nothing():
    def fun(a):
        return a @ a

    estimate = cost(fun, like(200_000, 200_000))
    assert estimate._fields == ("flops", "bytes", "peak_bytes")
    assert estimate.flops == 2 * 200_000**3
    assert estimate.peak_bytes == 200_000**2 * 8


# ------------------------------------------------------------------------------------------------ loops, branches


def test_a_loop_costs_its_body_as_often_as_it_runs_and_a_switch_its_costliest_branch():
    def loop(x):
        return qb.fori_loop(0, 10, lambda i, c: qb.sin(c) + 1.0, x)

    once = cost(lambda x: qb.sin(x) + 1.0, like(100))
    repeated = cost(loop, like(100))
    assert repeated.flops == 10 * once.flops
    assert 10 * once.bytes <= repeated.bytes <= 12 * once.bytes + 1000
    chosen = cost(lambda p, x: qb.cond(p, qb.sin, lambda y: y + 1.0, x), like(dtype=qb.bool_), like(100))
    assert chosen.flops == 100 * 8
    assert cost(qb.checkpoint(qb.sin), like(100)).flops == 100 * 8
    assert cost(qb.grad(lambda x: qb.sum(qb.checkpoint(qb.sin)(x))), like(100)).flops <= 100 * 10


# ------------------------------------------------------------------------------------------------ what is shared


def test_unmapped_work_is_done_once():
    def fun(w, x):
        return qb.sum(qb.exp(w) @ x)

    def mapped(w, x):
        return qb.vmap(fun, in_axes=(None, 0))(w, x)

    w, points = like(16, 16), 50
    once = 16 * 16 * 8
    per_point = 2 * 16 * 16 + 16
    assert cost(mapped, w, like(points, 16)).flops == once + points * per_point
    # the text does not depend on the number of points
    few, many = (qb.jit(mapped).lower(w, like(k, 16)).as_text().splitlines() for k in (4, 4000))
    assert len(few) == len(many)


def test_per_example_gradients_share_what_no_example_changes():
    def loss(x, w):
        return qb.sum(qb.exp(w) * x)

    grads = qb.vmap(qb.grad(loss, argnums=1), in_axes=(0, None))
    assert cost(grads, like(50, 16), like(16)).flops == 16 * 8 + 50 * 16


# ------------------------------------------------------------------------------------------------ higher derivatives


def network(sizes):
    rng = np.random.default_rng(3)
    pairs = zip(sizes, sizes[1:])
    return [(qb.array(rng.normal(size=(m, n)) / m**0.5), qb.array(0.1 * rng.normal(size=n))) for m, n in pairs]


def apply(params, x):
    for w, b in params[:-1]:
        x = qb.tanh(x @ w + b)
    w, b = params[-1]
    return (x @ w + b)[0]


def close(a, b, tolerance):
    a, b = a.numpy(), b.numpy()
    return np.abs(a - b).max() <= tolerance * max(np.abs(a).max(), 1.0)


def test_fourth_derivative_costs_five_evaluations_by_taylor_mode_and_by_nested_grad():
    """Nested grad costs what Taylor mode does: its duplicate streams are one node each, so nothing grows exponentially.

    Five coefficients through every product is the least that any method needs.
    """
    params, x = network([1, 64, 64, 1]), qb.array(np.random.default_rng(0).uniform(-1, 1, size=1000))

    def u(p, x):
        return apply(p, qb.reshape(x, (1,)))

    def taylor(p, x):
        return qb.derivatives(lambda x: u(p, x), x, order=4)[4]

    def jet(p, x):
        zero = qb.zeros_like(x)
        return qb.jet(lambda x: u(p, x), (x,), ([qb.ones_like(x), zero, zero, zero],))[1][3]

    def nested(p, x):
        fun = u
        for _ in range(4):
            fun = qb.grad(fun, argnums=1)
        return fun(p, x)

    def reverse(p, x):  # an array of one element is differentiated in reverse mode
        def fun(x):
            return apply(p, x)

        for _ in range(4):
            fun = (lambda inner: lambda x: qb.grad(inner)(x)[0])(fun)
        return fun(qb.reshape(x, (1,)))

    forms = {f: qb.vmap(f, in_axes=(None, 0)) for f in (u, taylor, jet, nested, reverse)}
    flops = {f: cost(forms[f], params, x).flops for f in forms}
    assert flops[taylor] <= 5.1 * flops[u]
    assert flops[jet] <= 5.1 * flops[u]
    assert flops[nested] <= 1.05 * flops[taylor]
    assert flops[reverse] >= 1.9 * flops[taylor]
    expected = forms[nested](params, x)
    for f in (taylor, jet, reverse):
        assert close(expected, forms[f](params, x), 1e-10)


MATRIX, VECTOR = qb.array(np.random.default_rng(4).normal(size=(40, 40))), qb.ones((40,))


def along_separate_directions(fun, order):
    """Nested jvp whose tangents are inputs, so that no two streams are equal."""

    def derivative(x, *tangents):
        nested = fun
        for tangent in tangents[:order]:
            nested = (lambda inner, t: lambda x: qb.jvp(inner, (x,), (t,))[1])(nested, tangent)
        return nested(x)

    return derivative


def in_reverse(fun, order):
    for _ in range(order):
        fun = (lambda inner: lambda x: qb.vjp(inner, x)[1](1.0)[0])(fun)
    return fun


def test_what_derivatives_of_order_one_to_eight_cost():
    """The table in docs/transforms.md: nested grad stays close to Taylor mode, where streams that differ double."""
    params, points = network([1, 64, 64, 1]), 1000

    def u(x):
        return apply(params, qb.reshape(x, (1,)))

    def million(fun, count=1):
        return cost(qb.vmap(fun), *(like(points),) * count).flops / 1e6

    once, nested = million(u), u
    for order in range(1, 9):
        nested = qb.grad(nested)
        taylor = million(lambda x, order=order: qb.derivatives(u, x, order)[order])
        assert order * once < taylor < 1.08 * (order + 1) * once
        assert million(nested) < 1.1 * taylor
        assert million(in_reverse(u, order)) > 0.99 * million(nested)
        if order in (4, 7):
            separate = million(along_separate_directions(u, order), order + 1)
            assert separate > {4: 3.0, 7: 16.0}[order] * taylor


@pytest.mark.parametrize(
    ("fun", "most"),
    [
        (lambda x: qb.gelu(qb.gelu(x * VECTOR) @ MATRIX).sum(), 1.3),
        (lambda x: qb.sin(x * VECTOR).sum() * qb.exp(-x * VECTOR).sum(), 1.3),
        (lambda x: qb.norm(qb.sin(x * VECTOR)), 1.0),
        (lambda x: qb.logsumexp(x * VECTOR), 1.0),
        (lambda x: qb.sin(x) / (1.0 + x * x), 1.0),
        (lambda x: (1.0 + x * x) ** -0.5, 1.1),
    ],
    ids=["gelu", "product", "norm", "logsumexp", "quotient", "power"],
)
def test_nested_grad_of_other_functions_costs_about_what_taylor_mode_does(fun, most):
    nested = fun
    for order in range(1, 7):
        nested = qb.grad(nested)
        taylor = cost(lambda x, order=order: qb.derivatives(fun, x, order)[order], like()).flops
        assert cost(nested, like()).flops <= most * taylor


BY_SCALAR = {
    "matrices to a vector": lambda x: qb.sum(VECTOR @ (MATRIX @ (MATRIX @ qb.sin(x * MATRIX)))),
    "a vector to matrices": lambda x: qb.sum(qb.outer(MATRIX @ qb.sin(x * VECTOR), VECTOR) @ MATRIX),
    "both factors": lambda x: qb.sum((x * MATRIX) @ qb.sin(x * MATRIX)),
    "layers": lambda x: qb.norm(MATRIX @ qb.tanh(MATRIX @ qb.tanh(x * VECTOR))),
    "softmax": lambda x: qb.sum(qb.softmax(x * MATRIX, axis=1) @ MATRIX[0]),
    "running sum": lambda x: qb.sum(qb.cumsum(qb.exp(x * VECTOR)) ** 2),
    "product": lambda x: qb.prod(1.0 + x * VECTOR),
    "scalars": lambda x: qb.sin(x) * qb.exp(x) / (1.0 + x * x),
}


@pytest.mark.parametrize("name", BY_SCALAR)
def test_grad_by_a_scalar_costs_no_more_than_reverse_mode(name):
    """It is staged in forward mode: transposing keeps the operations of a linear map, and this keeps the streams of nested
    derivatives in common."""
    fun, x = BY_SCALAR[name], qb.array(0.3)

    def reverse(x):  # an array of one element is differentiated in reverse mode
        return qb.grad(lambda v: fun(v[0]))(qb.reshape(x, (1,)))[0]

    assert cost(qb.grad(fun), x).flops <= 1.01 * cost(reverse, x).flops
    np.testing.assert_allclose(qb.grad(fun)(x).numpy(), reverse(x).numpy(), rtol=1e-12)


def test_cost_of_nested_grad_grows_polynomially():
    def power(order):
        def fun(x):
            return qb.tanh(qb.sin(x) * x)

        for _ in range(order):
            fun = qb.grad(fun)
        return cost(fun, like()).flops

    assert power(12) < 2.0 * power(10)  # a doubling at every order would be 4


def test_laplacian_costs_at_most_70_percent_of_the_trace_of_the_hessian():
    params, x = network([3, 64, 64, 1]), qb.array(np.random.default_rng(1).uniform(-1, 1, size=(1024, 3)))

    def laplacian(p, x):
        return qb.laplacian(lambda x: apply(p, x))(x)

    def trace(p, x):
        return qb.sum(qb.hessian(lambda x: apply(p, x))(x) * qb.eye(3))

    def over_points(f):
        return qb.vmap(f, in_axes=(None, 0))

    def training(f):
        return qb.grad(lambda p, x: qb.mean(over_points(f)(p, x) ** 2))

    for form in (over_points, training):
        assert cost(form(laplacian), params, x).flops <= 0.70 * cost(form(trace), params, x).flops
        ours, theirs = (qb.tree.leaves(form(f)(params, x)) for f in (laplacian, trace))
        assert len(ours) == len(theirs) > 0
        assert all(close(a, b, 1e-10) for a, b in zip(ours, theirs))
