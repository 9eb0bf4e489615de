"""Kernels that run together, a band of rows at a time: the same bits as each row alone."""

import numpy as np
import pytest
import quabla as qb


def layer_norm(x, scale, shift):
    centred = x - qb.mean(x, axis=-1, keepdims=True)
    return centred / qb.sqrt(qb.var(x, axis=-1, keepdims=True) + 1e-5) * scale + shift


def unit_rows(x, scale, shift):
    return x / qb.norm(x, axis=-1, keepdims=True) * scale, qb.sum(x * shift, axis=-1)


def several(x, scale, shift):
    weights = qb.softmax(x * scale, axis=-1)
    return (
        weights,
        qb.logsumexp(x, axis=-1),
        qb.max(weights + shift, axis=-1),
        qb.flip(x, -1) - qb.min(x, -1, keepdims=True),
    )


FUNCTIONS = {
    "softmax": lambda x, scale, shift: qb.softmax(x, axis=-1),
    "log_softmax": lambda x, scale, shift: qb.log_softmax(x + shift, axis=-1),
    "layer norm": layer_norm,
    "unit rows": unit_rows,
    "several": several,
    "gradient": lambda x, scale, shift: qb.grad(lambda x: qb.sum(layer_norm(x, scale, shift) ** 3))(x),
}


def leaves(results):
    return [leaf.numpy() for leaf in qb.tree.leaves(results)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "shape", [(1000, 1000), (40_000, 3), (2001, 50), (900, 257), (130, 3000), (9, 40_000)], ids=str
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_bits_as_each_row_alone(name, shape, dtype):
    random = np.random.default_rng(4)
    dtype = getattr(qb, dtype)
    f = qb.jit(FUNCTIONS[name], max_traces=32)
    x = random.standard_normal(shape)
    scale, shift = (qb.array(random.standard_normal(shape[1]), dtype=dtype) for _ in range(2))
    whole = leaves(f(qb.array(x, dtype=dtype), scale, shift))
    for row in (0, 1, 7, shape[0] // 2, shape[0] - 2, shape[0] - 1):
        alone = leaves(f(qb.array(x[row : row + 1], dtype=dtype), scale, shift))
        for all_rows, one in zip(whole, alone):
            np.testing.assert_array_equal(all_rows[row : row + 1], one)


def text(f, *shapes):
    return qb.jit(f).lower(*(qb.ones(shape) for shape in shapes)).program.compile().text()


def test_which_kernels_run_in_bands():
    row, last = {"axis": 1}, {"axis": -1}
    assert "5 steps in bands" in text(lambda x: qb.softmax(x, **row), (1000, 1000))
    assert "5 steps in bands" in text(lambda x: qb.softmax(x, **last), (20, 100, 1000))
    assert "bands" not in text(lambda x: qb.softmax(x, **row), (100, 100))  # stays in the cache
    assert "bands" not in text(lambda x: qb.softmax(x, **row), (2, 500_000))  # too few rows
    assert "bands" not in text(lambda x: qb.softmax(x, axis=0), (1000, 1000))  # no rows
    mixed = text(lambda x: qb.softmax(x, **row) / qb.sum(x, axis=0), (1000, 1000))
    assert "bands" not in mixed or "6 steps in bands" not in mixed


def test_rows_that_others_read_do_not_run_in_bands():
    """The transposed copy reads all rows of what comes before."""
    x = np.random.default_rng(5).standard_normal((600, 600))
    f = qb.jit(lambda x: qb.softmax(qb.transpose(qb.softmax(x, axis=1)) + x, axis=1))

    def softmax(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    np.testing.assert_allclose(f(qb.array(x)).numpy(), softmax(softmax(x).T + x), rtol=1e-13)


def test_a_result_is_computed_where_it_will_lie():
    cost = qb.jit(lambda x: qb.softmax(x, axis=0)).lower(qb.ones((1000, 1000))).cost()
    assert cost.peak_bytes < 8_100_000
    # the exponentials are read by two values at the end: they keep memory of their own
    f = qb.jit(lambda x: (lambda e: (e / qb.sum(e), qb.sum(e * e / qb.sum(e), axis=0)))(qb.exp(x)))
    x = np.random.default_rng(6).standard_normal((700, 300))
    e = np.exp(x)
    one, two = f(qb.array(x))
    np.testing.assert_allclose(one.numpy(), e / e.sum(), rtol=1e-13)
    np.testing.assert_allclose(two.numpy(), (e * e / e.sum()).sum(axis=0), rtol=1e-13)
