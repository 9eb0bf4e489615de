"""Products of matrices against NumPy: shapes around the sizes of tiles and blocks, layouts, batches, sums of products."""

import os
import subprocess
import sys

import numpy as np
import pytest
import quabla as qb

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 31, 33, 48, 63, 64, 65, 97, 128, 130, 257]


def close(found, expected, terms):
    bound = 16 * np.finfo(found.numpy().dtype).eps * np.sqrt(terms)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=bound * max(1.0, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(12))
def test_shapes_layouts_and_batches(seed, dtype):
    random = np.random.default_rng(seed)
    for _ in range(12):
        m, n, k = (int(size) for size in random.choice(SIZES, 3))
        batch = [(), (3,), (2, 1)][random.integers(3)]
        flip_a, flip_b = random.integers(2, size=2)
        a = random.normal(size=(*batch, k, m) if flip_a else (*batch, m, k)).astype(dtype)
        b = random.normal(size=(*batch, n, k) if flip_b else (*batch, k, n)).astype(dtype)

        def product(lib, a, b):
            return lib.matmul(
                lib.swapaxes(a, -1, -2) if flip_a else a,
                lib.swapaxes(b, -1, -2) if flip_b else b,
            )

        expected = product(np, a.astype("float64"), b.astype("float64"))
        close(qb.jit(lambda a, b: product(qb, a, b))(qb.array(a), qb.array(b)), expected, k)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_factors_without_a_unit_stride(dtype):
    random = np.random.default_rng(0)
    a, b = random.normal(size=(60, 90)).astype(dtype), random.normal(size=(100, 80)).astype(dtype)
    found = qb.jit(lambda a, b: a[::2, 5::3] @ b[10:95:3, ::-2])(qb.array(a), qb.array(b))
    close(found, a[::2, 5::3].astype("float64") @ b[10:95:3, ::-2].astype("float64"), 29)


def test_nan_and_infinity_reach_their_row_and_column_only():
    a, b = np.ones((70, 40)), np.ones((40, 50))
    a[13, 7], b[3, 21] = np.nan, np.inf
    found = (qb.array(a) @ qb.array(b)).numpy()
    expected = np.full((70, 50), 40.0)
    expected[:, 21], expected[13] = np.inf, np.nan
    np.testing.assert_array_equal(found, expected)


def sums(a, b, c):
    """Ways to write sums of products, some of whose terms are read elsewhere, too."""
    x, y, z = a[0] @ b[0], a[1] @ b[1], a[2] @ b[2]
    flat = x.reshape(-1)
    return (
        c + a[1] @ b[2],
        a[2] @ b[0] + a[0] @ b[1] + c + a[1] @ b[0],
        x + y,
        x + x,
        (x + z).T + c.T + (a[0] @ b[2]).T,
        y * 2 + c,
        flat + c.reshape(-1),
        x,
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "shape", [(4, 3, 5), (12, 17, 20), (30, 64, 50), (65, 300, 33), (300, 300, 300), (520, 270, 540)]
)
def test_sums_of_products(shape, dtype):
    random = np.random.default_rng(1)
    m, k, n = shape
    a, b = random.normal(size=(3, m, k)).astype(dtype), random.normal(size=(3, k, n)).astype(dtype)
    c = random.normal(size=(m, n)).astype(dtype)
    found = qb.jit(lambda *arrays: sums(*arrays))(qb.array(a), qb.array(b), qb.array(c))
    for mine, theirs in zip(found, sums(*(x.astype("float64") for x in (a, b, c))), strict=True):
        close(mine, theirs, 4 * k)


def test_a_sum_may_take_over_the_memory_of_a_term_but_not_of_a_factor():
    random = np.random.default_rng(2)
    a, b = random.normal(size=(48, 48)) / 7, random.normal(size=(48, 48)) / 7

    def chain(a, b):
        x = a @ b
        x = x + x @ b
        x = x + b @ x
        return x + x @ x

    close(qb.jit(chain)(qb.array(a), qb.array(b)), chain(a, b), 48 * 4)


def test_a_sum_over_iterations():
    random = np.random.default_rng(3)
    a, b = random.normal(size=(6, 30, 20)), random.normal(size=(6, 20, 40))
    total = qb.jit(lambda a, b: qb.scan(lambda c, ab: (c + ab[0] @ ab[1], None), qb.zeros((30, 40)), xs=(a, b))[0])
    close(total(qb.array(a), qb.array(b)), (a @ b).sum(0), 120)


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_other_instruction_sets(isa):
    """Those this machine lacks fall back on what it has."""
    here = os.path.abspath(__file__)
    command = [sys.executable, "-m", "pytest", "-q", "-k", "sums or unit_stride or infinity", here]
    done = subprocess.run(command, env={**os.environ, "QUABLA_ISA": isa}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
