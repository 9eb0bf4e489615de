"""Reductions have the same bits alone and fused with what they reduce or what else is computed from it."""

import numpy as np
import pytest
import quabla as qb

REDUCTIONS = {"sum": qb.sum, "prod": qb.prod, "max": qb.max, "min": qb.min, "norm": qb.norm}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [33, 255, 256, 257, 511, 513, 3000, 4095, 4096, 4097, 9000, 100_001])
def test_bits_do_not_depend_on_fusion(name, dtype, n):
    reduction, random = REDUCTIONS[name], np.random.default_rng(n)
    x = qb.array(random.standard_normal(n).astype(dtype))
    y = qb.array((1 + 1e-3 * random.standard_normal(n)).astype(dtype))
    alone, fused = reduction(x * y), qb.jit(lambda x, y: reduction(x * y))(x, y)
    beside = qb.jit(lambda z: (reduction(z), qb.sin(z)))(x * y)[0]
    assert alone.numpy().tobytes() == fused.numpy().tobytes() == beside.numpy().tobytes()


@pytest.mark.parametrize("n", [40, 300, 5000, 9000])
@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1.0, 1e200])
def test_norms_with_blocks_of_other_scales(n, scale):
    x = np.random.default_rng(n).standard_normal(n)
    x[n // 2 :] *= scale
    expected = float(np.sqrt(np.sum(x.astype(np.longdouble) ** 2)))
    for norm in (qb.norm, qb.jit(lambda x: qb.norm(x * 1.0))):
        np.testing.assert_allclose(norm(qb.array(x)).item(), expected, rtol=1e-15)


@pytest.mark.parametrize("n", [1, 31, 33, 256, 257, 4096, 4097, 10_000])
def test_extremes_with_nan_anywhere(n):
    x = np.random.default_rng(n).standard_normal(n)
    for place in {0, n // 2, n - 1, n - n % 32 - 1}:
        y = x.copy()
        y[place] = np.nan
        for reduction in (qb.max, qb.min):
            assert np.isnan(reduction(qb.array(y)).item())
            assert np.isnan(qb.jit(lambda y, reduction=reduction: reduction(y + 1))(qb.array(y)).item())
