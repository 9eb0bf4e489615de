"""Sparse Jacobians and Hessians against dense ones, and against matrices known in advance."""

import numpy as np
import pytest
import quabla as qb

RNG = np.random.default_rng(11)


def rosenbrock(x):
    return qb.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


INDEX = qb.array([5, 0, -2, 3, 3, 1], dtype=qb.int64)
BAND = qb.array(np.eye(6) * 2 - np.eye(6, k=1) - np.eye(6, k=-2))

JACOBIANS = {
    "elementwise": lambda x: qb.sin(x) * x,
    "stencil": lambda x: x[2:] - 2.0 * x[1:-1] + x[:-2],
    "roll": lambda x: qb.roll(x, 2) * x,
    "gather": lambda x: x[INDEX] * x,
    "scatter": lambda x: (x**2).at[INDEX].add(qb.sin(x)),
    "set": lambda x: x.at[1:3].set(x[:2] ** 3),
    "constant matrix": lambda x: BAND @ qb.tanh(x),
    "dense row": lambda x: qb.concat([qb.reshape(qb.sum(x**2), (1,)), x]),
    "dense": lambda x: x * qb.mean(qb.exp(x)),
    "pairs": lambda x: qb.prod(qb.reshape(x, (3, 2)), axis=1),
    "running": lambda x: qb.cumsum(x),
    "masked": lambda x: qb.where(qb.array([True, False] * 3), x**2, 1.0),
    "constant": lambda x: qb.floor(x),
    "sorted": lambda x: qb.sort(x),
    "scalar": lambda x: qb.sum(x[1:4] ** 2),
    "matrix result": lambda x: qb.outer(x[:2], x[3:]),
}


def entries(matrix):
    return matrix.rows.size


@pytest.mark.parametrize("name", JACOBIANS)
def test_jacobian_equals_the_dense_one(name):
    fun, x = JACOBIANS[name], qb.array(RNG.uniform(0.5, 1.5, size=6))
    dense = qb.jacobian(fun)(x).numpy().reshape(-1, 6)
    sparse = qb.sparse_jacobian(fun)(x)
    assert sparse.shape == dense.shape
    np.testing.assert_allclose(sparse.to_dense().numpy(), dense, rtol=1e-14, atol=1e-14)
    np.testing.assert_array_equal(sparse.to_scipy().toarray(), sparse.to_dense().numpy())
    assert entries(sparse) >= np.count_nonzero(dense)


def test_pattern_is_exact_where_the_graph_shows_it():
    x = qb.array(RNG.normal(size=6))
    for name, count in (("elementwise", 6), ("stencil", 12), ("constant matrix", 15), ("dense row", 12), ("masked", 3)):
        assert entries(qb.sparse_jacobian(JACOBIANS[name])(x)) == count


HESSIANS = {
    "rosenbrock": rosenbrock,
    "separable": lambda x: qb.sum(qb.exp(x)),
    "linear": lambda x: 3.0 * qb.sum(x) + 1.0,
    "dense": lambda x: qb.sum(x) ** 3,
    "periodic": lambda x: qb.sum(x**2 * qb.roll(x, 1)),
    "arrow": lambda x: qb.sum(x[1:] ** 2) * x[0],
    "indexed": lambda x: qb.sum(x[INDEX] ** 2 * x[INDEX[::-1]]),
    "matrix": lambda x: qb.sum((BAND @ x) ** 4),
    "softmax": lambda x: qb.logsumexp(x[:3]) + qb.sum(x**3),
}


@pytest.mark.parametrize("name", HESSIANS)
def test_hessian_equals_the_dense_one(name):
    fun, x = HESSIANS[name], qb.array(RNG.uniform(0.5, 1.5, size=6))
    dense = qb.hessian(fun)(x).numpy()
    sparse = qb.sparse_hessian(fun)(x)
    np.testing.assert_allclose(sparse.to_dense().numpy(), dense, rtol=1e-12, atol=1e-12)


def test_hessian_of_a_chained_rosenbrock_function_takes_three_products():
    n = 10_000
    x = RNG.normal(size=n)
    sparse = qb.sparse_hessian(rosenbrock)
    found = sparse(qb.array(x))
    diagonal = np.zeros(n)
    diagonal[:-1] = 1200.0 * x[:-1] ** 2 - 400.0 * x[1:] + 2.0
    diagonal[1:] += 200.0
    known = np.zeros((3, n))
    known[1], known[0, 1:], known[2, :-1] = diagonal, -400.0 * x[:-1], -400.0 * x[:-1]
    rows, cols, values = found.rows.numpy(), found.cols.numpy(), found.values.numpy()
    assert entries(found) == 3 * n - 2
    np.testing.assert_allclose(values, known[1 + rows - cols, cols], rtol=1e-12)
    one = qb.jit(lambda x, v: qb.jvp(qb.grad(rosenbrock), (x,), (v,))[1]).lower(found.values[:n], x).cost()
    assert qb.jit(sparse).lower(x).cost().flops <= 3 * one.flops


def test_rows_are_coloured_where_that_takes_fewer_products():
    def arrow(x):  # two dense rows: forward mode would take a product for each column
        return qb.stack([qb.sum(x**2), qb.sum(x**3)])

    x = qb.array(RNG.normal(size=500))
    assert qb.jit(qb.sparse_jacobian(arrow)).lower(x).cost().peak_bytes < 10 * 500 * 8
    np.testing.assert_allclose(qb.sparse_jacobian(arrow)(x).to_dense().numpy(), qb.jacobian(arrow)(x).numpy())


def test_rows_are_coloured_where_only_reverse_mode_is_there():
    twice = qb.custom_vjp(lambda x: 2.0 * x)
    twice.defvjp(lambda x: (2.0 * x, None), lambda _, ct: (2.0 * ct,))

    def f(x):  # fewer columns than rows, and the first row full
        return twice(qb.concat([qb.sum(x)[None], qb.sin(x), qb.cos(x)]))

    x = qb.array(RNG.normal(size=3))
    np.testing.assert_allclose(qb.sparse_jacobian(f)(x).to_dense().numpy(), qb.jacrev(f)(x).numpy())


def test_composes_with_the_other_transforms():
    x = qb.array(RNG.normal(size=7))
    points = qb.array(RNG.normal(size=(4, 7)))

    def fun(x, scale):
        return qb.sin(x[1:] * x[:-1]) * scale

    inside = qb.jit(lambda x, s: qb.sum(qb.sparse_jacobian(fun)(x, s).values ** 2))
    dense = lambda x, s: qb.sum(qb.jacobian(fun)(x, s) ** 2)
    np.testing.assert_allclose(inside(x, 2.0).numpy(), dense(x, 2.0).numpy(), rtol=1e-13)
    np.testing.assert_allclose(qb.grad(inside)(x, 2.0).numpy(), qb.grad(dense)(x, 2.0).numpy(), rtol=1e-12)
    batched = qb.vmap(lambda x: qb.sparse_hessian(rosenbrock)(x).to_dense())(points)
    np.testing.assert_allclose(batched.numpy(), qb.vmap(qb.hessian(rosenbrock))(points).numpy(), rtol=1e-12)


def test_arguments_and_closures():
    x, y = qb.array(RNG.normal(size=5)), qb.array(RNG.normal(size=5))
    by_second = qb.sparse_jacobian(lambda x, y: x * y**2, argnums=-1)(x, y)
    np.testing.assert_allclose(by_second.to_dense().numpy(), np.diag(2 * x.numpy() * y.numpy()))

    @qb.jit
    def closed_over(y):
        return qb.sparse_jacobian(lambda x: x * y)(y).values

    np.testing.assert_array_equal(closed_over(y).numpy(), y.numpy())
    matrix = qb.sparse_jacobian(lambda x: x.T)(qb.reshape(qb.arange(6.0), (2, 3)))
    assert matrix.shape == (6, 6)
    assert matrix.cols.tolist() == [0, 3, 1, 4, 2, 5]
    single = qb.sparse_jacobian(lambda x: x.astype(qb.float32) * 2.0)(x.astype(qb.float32))
    assert single.values.dtype == qb.float32
    empty = qb.sparse_hessian(lambda x: qb.sum(x))(qb.zeros((0,)))
    assert (empty.shape, entries(empty)) == ((0, 0), 0)


def test_what_is_refused():
    x = qb.ones((3,))
    with pytest.raises(ValueError, match="sparse_jacobian: the argument to differentiate by must be one floating"):
        qb.sparse_jacobian(lambda t: t["a"])({"a": x})
    with pytest.raises(ValueError, match="must be one floating"):
        qb.sparse_jacobian(lambda x, y: x * y, argnums=(0, 1))(x, x)
    with pytest.raises(ValueError, match="must return one floating array"):
        qb.sparse_jacobian(lambda x: (x, x))(x)
    with pytest.raises(ValueError, match="sparse_hessian requires a scalar output"):
        qb.sparse_hessian(lambda x: x)(x)
    with pytest.raises(ValueError, match="too many elements for a sparse derivative: use jacobian or hessian"):
        qb.sparse_jacobian(qb.cumsum)(qb.ones((20_000,)))
