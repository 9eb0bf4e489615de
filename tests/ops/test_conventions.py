"""Derivatives where the textbook has none: the documented values hold in every mode, to second order, batched.

`check` takes a function of an array with a scalar result, a point, and the gradient and Hessian that the conventions
say, and compares all ways of computing them.
"""

import importlib.util
import math
import pathlib

import numpy as np
import pytest
import quabla as qb

INF, NAN = math.inf, math.nan


def first_order(f):
    """Name -> gradient function, in every mode."""
    vmapped = qb.vmap(qb.grad(f))
    return {
        "reverse": qb.grad(f),
        "forward": qb.jacfwd(f),
        "jacrev": qb.jacrev(f),
        "jit": qb.jit(qb.grad(f)),
        "grad of jit": qb.grad(qb.jit(f)),
        "vmap": lambda x: vmapped(qb.stack([x, x, x]))[1],
        "vjp": lambda x: qb.vjp(f, x)[1](1.0)[0],
    }


def second_order(f):
    hessian = qb.hessian(f)
    vmapped = qb.vmap(hessian)
    return {
        "forward over reverse": hessian,
        "reverse over reverse": qb.jacrev(qb.jacrev(f)),
        "forward over forward": qb.jacfwd(qb.jacfwd(f)),
        "reverse over forward": qb.jacrev(qb.jacfwd(f)),
        "jit": qb.jit(hessian),
        "vmap": lambda x: vmapped(qb.stack([x, x]))[0],
    }


def check(f, point, gradient, hessian=None, rtol=0.0, dtype=qb.float64):
    x = qb.array(point, dtype=dtype)
    for order, expected, ways in ((1, gradient, first_order), (2, hessian, second_order)):
        if expected is None:
            continue
        for name, way in ways(f).items():
            got = way(x)
            assert got.dtype == dtype
            np.testing.assert_allclose(np.asarray(got), expected, rtol=rtol, atol=0, err_msg=f"order {order}, {name}")


def scalar_rows(table):
    """(name, function, point, first, second[, rtol]) as parameters of a test."""
    return [pytest.param(f, *rest, id=f"{name}-{rest[0]}") for name, f, *rest in table]


# -------------------------------------------------------------------------------- functions of one number, at one point


@pytest.mark.parametrize("dtype", [qb.float64, qb.float32], ids=str)
@pytest.mark.parametrize(("f", "point", "first", "second"), scalar_rows([
    ("sqrt", qb.sqrt, 0.0, 0.0, 0.0),
    ("sqrt", qb.sqrt, -0.0, 0.0, 0.0),
    ("cbrt", qb.cbrt, 0.0, 0.0, 0.0),
    ("abs", qb.abs, 0.0, 0.0, 0.0),
    ("abs", qb.abs, -2.0, -1.0, 0.0),
    ("relu", qb.relu, 0.0, 0.0, 0.0),
    ("relu", qb.relu, 2.0, 1.0, 0.0),
    ("relu", qb.relu, -2.0, 0.0, 0.0),
    ("arcsin", qb.arcsin, 1.0, INF, INF),
    ("arcsin", qb.arcsin, -1.0, INF, -INF),
    ("arccos", qb.arccos, 1.0, -INF, -INF),
    ("arccos", qb.arccos, -1.0, -INF, INF),
    ("arctanh", qb.arctanh, 1.0, INF, INF),
    ("arctanh", qb.arctanh, -1.0, INF, -INF),
    ("arccosh", qb.arccosh, 1.0, INF, -INF),
    ("arccosh", qb.arccosh, INF, 0.0, 0.0),
    ("sign", qb.sign, 0.0, 0.0, 0.0),
    ("sign", qb.sign, 3.0, 0.0, 0.0),
    ("floor", qb.floor, 1.0, 0.0, 0.0),
    ("ceil", qb.ceil, 1.5, 0.0, 0.0),
    ("round", qb.round, 2.5, 0.0, 0.0),
    ("trunc", qb.trunc, -1.5, 0.0, 0.0),
    ("x ** 2", lambda x: x**2, 0.0, 0.0, 2.0),
    ("x ** 3", lambda x: x**3, 0.0, 0.0, 0.0),
    ("x ** 1", lambda x: x**1, 0.0, 1.0, 0.0),
    ("x ** 0", lambda x: x**0 + 0.0 * x, 0.0, 0.0, 0.0),
    ("x ** 2.0", lambda x: x**2.0, 0.0, 0.0, 2.0),
    ("x ** 1.0", lambda x: x**1.0, 0.0, 1.0, 0.0),
    ("x ** 0.5", lambda x: x**0.5, 0.0, 0.0, 0.0),
    ("x ** 1.5", lambda x: x**1.5, 0.0, 0.0, 0.0),
    ("x ** 0.0", lambda x: x**0.0, 0.0, 0.0, 0.0),
    ("x ** -1.0", lambda x: x**-1.0, 0.0, 0.0, 0.0),
    ("x ** 3.0", lambda x: x**3.0, -2.0, 12.0, -12.0),
    ("tanh", qb.tanh, 1000.0, 0.0, 0.0),
    ("tanh", qb.tanh, -1000.0, 0.0, 0.0),
    ("sigmoid", qb.sigmoid, 1000.0, 0.0, 0.0),
    ("sigmoid", qb.sigmoid, -1000.0, 0.0, 0.0),
    ("softplus", qb.softplus, 1000.0, 1.0, 0.0),
    ("softplus", qb.softplus, -1000.0, 0.0, 0.0),
    ("silu", qb.silu, -1000.0, 0.0, 0.0),
    ("gelu", qb.gelu, -1000.0, 0.0, 0.0),
    ("gelu", qb.gelu, 1000.0, 1.0, 0.0),
    ("exact gelu", lambda x: qb.gelu(x, approximate=False), 1000.0, 1.0, 0.0),
    ("silu at -inf", qb.silu, -INF, 0.0, 0.0),
    ("gelu at -inf", qb.gelu, -INF, 0.0, 0.0),
    ("exact gelu at -inf", lambda x: qb.gelu(x, approximate=False), -INF, 0.0, 0.0),
    ("silu", qb.silu, INF, 1.0, 0.0),
    ("gelu", qb.gelu, INF, 1.0, 0.0),
    ("exact gelu", lambda x: qb.gelu(x, approximate=False), INF, 1.0, 0.0),
    ("gelu where the square overflows", qb.gelu, -1e200, 0.0, 0.0),
    ("gelu where the square overflows", qb.gelu, 1e200, 1.0, 0.0),
    ("square of sqrt of square", lambda x: qb.sqrt(x * x) ** 2, 0.0, 0.0, 2.0),
    ("product of sqrt of square", lambda x: qb.sqrt(x * x) * qb.sqrt(x * x), 0.0, 0.0, 2.0),
    ("clip at lo", lambda x: qb.clip(x, 0.0, 1.0), 0.0, 0.0, 0.0),
    ("clip at hi", lambda x: qb.clip(x, 0.0, 1.0), 1.0, 0.0, 0.0),
    ("clip inside", lambda x: qb.clip(x, 0.0, 1.0), 0.5, 1.0, 0.0),
    ("maximum tie", lambda x: qb.maximum(x, 1.0), 1.0, 0.5, 0.0),
    ("minimum tie", lambda x: qb.minimum(x, 1.0), 1.0, 0.5, 0.0),
    ("maximum with itself", lambda x: qb.maximum(x, x), 1.0, 1.0, 0.0),
    ("hypot", lambda x: qb.hypot(x, 0.0), 0.0, 0.0, 0.0),
    ("fmod", lambda x: qb.fmod(x, 2.0), 5.0, 1.0, 0.0),
    ("mod", lambda x: qb.mod(x, 2.0), -5.0, 1.0, 0.0),
    ("mod by x", lambda x: qb.mod(-5.0, x), 2.0, 3.0, 0.0),
    ("fmod by x", lambda x: qb.fmod(-5.0, x), 2.0, 2.0, 0.0),
    ("nan_to_num", lambda x: qb.nan_to_num(x), 3.0, 1.0, 0.0),
    ("nan_to_num of nan", lambda x: qb.nan_to_num(x), NAN, 0.0, 0.0),
    ("stop_gradient", lambda x: qb.stop_gradient(x) * x, 3.0, 3.0, 0.0),
]))  # fmt: skip
def test_at_one_point(f, point, first, second, dtype):
    check(f, point, first, second, dtype=dtype)


@pytest.mark.parametrize(("f", "point", "first", "second", "rtol"), scalar_rows([
    ("arcsinh", qb.arcsinh, 1e200, 1e-200, -0.0, 1e-15),
    ("arctan", qb.arctan, 1e100, 1e-200, None, 1e-15),
    ("arcsin near 1", qb.arcsin, 1 - 2.0**-40, 1 / math.sqrt(2.0**-40 * (2 - 2.0**-40)), None, 1e-15),
    ("arctanh near -1", qb.arctanh, 2.0**-40 - 1, 1 / (2.0**-40 * (2 - 2.0**-40)), None, 1e-15),
    ("arccosh near 1", qb.arccosh, 1 + 2.0**-40, 1 / math.sqrt(2.0**-40 * (2 + 2.0**-40)), None, 1e-15),
    ("arccosh far out", qb.arccosh, 1e200, 1e-200, -0.0, 1e-15),
    ("arccosh farther than 2^28", qb.arccosh, 3e8, 1 / 3e8, -1 / 9e16, 1e-15),
    ("arccosh", qb.arccosh, 1.25, 4 / 3, -1.25 / 0.75**3, 1e-15),
    ("arcsin", qb.arcsin, 0.6, 1.25, 0.6 / 0.8**3, 1e-15),
    ("arccos", qb.arccos, 0.6, -1.25, -0.6 / 0.8**3, 1e-15),
    ("softplus tail", qb.softplus, -40.0, math.exp(-40.0), math.exp(-40.0), 1e-14),
    ("sigmoid tail", qb.sigmoid, -40.0, math.exp(-40.0), math.exp(-40.0), 1e-14),
    ("erfc tail", qb.erfc, 5.0, -2 / math.sqrt(math.pi) * math.exp(-25.0), 20 / math.sqrt(math.pi) * math.exp(-25.0),
        1e-14),
    ("quotient", lambda x: 1.0 / x, 1e-200, -INF, None, 0.0),
    ("quotient of large numbers", lambda x: x / 1e200, 1e200, 1e-200, 0.0, 1e-15),
    ("quotient by large numbers", lambda x: 1e200 / x, 1e200, -1e-200, None, 1e-15),
    ("logaddexp tie", lambda x: qb.logaddexp(x, 2.0), 2.0, 0.5, 0.25, 1e-15),
    ("log1p at 0", qb.log1p, 0.0, 1.0, -1.0, 0.0),
    ("expm1 at 0", qb.expm1, 0.0, 1.0, 1.0, 0.0),
    ("hypot of large numbers", lambda x: qb.hypot(x, 3e200), 4e200, 0.8, None, 1e-15),
]))  # fmt: skip
def test_in_float64(f, point, first, second, rtol):
    check(f, point, first, second, rtol=rtol)


# ------------------------------------------------------------------------------- the strong zero, and masked cotangents


@pytest.mark.parametrize(("f", "first", "second"), [
    pytest.param(lambda x: qb.where(x > 0.0, qb.log(x), 0.0), 0.0, 0.0, id="log"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.log2(x), 0.0), 0.0, 0.0, id="log2"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.log10(x), 0.0), 0.0, 0.0, id="log10"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.log1p(x - 1.0), 0.0), 0.0, 0.0, id="log1p"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.sqrt(x), 0.0), 0.0, 0.0, id="sqrt"),
    pytest.param(lambda x: qb.where(x > 0.0, 1.0 / x, 0.0), 0.0, 0.0, id="division"),
    pytest.param(lambda x: qb.where(x > 0.0, x / x, 0.0), 0.0, 0.0, id="0/0"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.reciprocal(x), 0.0), 0.0, 0.0, id="reciprocal"),
    pytest.param(lambda x: qb.where(x > 0.0, x * qb.log(x), 0.0), 0.0, 0.0, id="x log x"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.sin(x) / x, 1.0), 0.0, 0.0, id="sinc"),
    pytest.param(lambda x: qb.where(x > 0.0, x**-0.5, 0.0), 0.0, 0.0, id="power"),
    pytest.param(lambda x: qb.where(x > 0.0, 0.5**(-1.0 / x), 0.0), 0.0, 0.0, id="power of quotient"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.exp(1.0 / x), 0.0), 0.0, 0.0, id="exp"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.arcsin(x + 1.0), 0.0), 0.0, 0.0, id="arcsin"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.arccos(x + 1.0), 0.0), 0.0, 0.0, id="arccos"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.arccosh(x + 1.0), 0.0), 0.0, 0.0, id="arccosh"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.arctanh(x + 1.0), 0.0), 0.0, 0.0, id="arctanh"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.log(qb.log(x)), 0.0), 0.0, 0.0, id="log log"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.sqrt(qb.log(x)), 0.0), 0.0, 0.0, id="sqrt log"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.log(x) ** 2, 0.0), 0.0, 0.0, id="square of log"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.exp2(-1.0 / x), 0.0), 0.0, 0.0, id="exp2"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.cosh(1.0 / x), 0.0), 0.0, 0.0, id="cosh"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.sinh(1.0 / x), 0.0), 0.0, 0.0, id="sinh"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.hypot(1.0 / x, x), 0.0), 0.0, 0.0, id="hypot"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.fmod(1.0, x), 0.0), 0.0, 0.0, id="fmod"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.logaddexp(qb.log(x), 0.0), 0.0), 0.0, 0.0, id="logaddexp"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.sum(qb.stack([qb.log(x), 1.0 / x])), 0.0), 0.0, 0.0, id="sum"),
    pytest.param(lambda x: qb.where(x > 0.0, qb.prod(qb.stack([qb.log(x), 1.0 / x])), 0.0), 0.0, 0.0, id="prod"),
])  # fmt: skip
def test_masked_singularity(f, first, second):
    check(f, 0.0, first, second)


def test_masked_singularity_beside_regular_points():
    """The masked points get zero, the others their own derivative."""

    def f(x):
        return qb.sum(qb.where(x > 0.0, x * qb.log(x), 0.0))

    check(f, [-1.0, 0.0, 1.0, math.e], [0.0, 0.0, 1.0, 2.0], np.diag([0.0, 0.0, 1.0, 1 / math.e]), rtol=1e-15)


@pytest.mark.parametrize("masked", [
    pytest.param(lambda c, x: qb.where(c, x, 0.0), id="where"),
    pytest.param(lambda c, x: qb.clip(qb.where(c, x, 2.0), -1.0, 1.0), id="clip"),
    pytest.param(lambda c, x: qb.relu(qb.where(c, x, -2.0)), id="relu"),
])  # fmt: skip
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_bad_cotangent_stays_on_its_side(masked, bad):
    """A cotangent that is infinite or NaN does not reach what was not selected."""
    c = qb.array([True, False])
    _, pullback = qb.vjp(lambda x: masked(c, x), qb.array([0.5, 0.5]))
    (ct,) = pullback(qb.array([1.0, bad]))
    np.testing.assert_array_equal(np.asarray(ct), [1.0, 0.0])


@pytest.mark.parametrize("bad", [INF, NAN])
def test_bad_cotangent_of_max_stays_with_the_maximum(bad):
    _, pullback = qb.vjp(lambda x: qb.max(x, axis=1), qb.array([[1.0, 2.0], [4.0, 3.0]]))
    (ct,) = pullback(qb.array([bad, 1.0]))
    np.testing.assert_array_equal(np.asarray(ct), [[0.0, bad], [1.0, 0.0]])
    _, pullback = qb.vjp(qb.maximum, qb.array([1.0, 5.0]), qb.array([2.0, 3.0]))
    a, b = pullback(qb.array([bad, 1.0]))
    np.testing.assert_array_equal(np.asarray(a), [0.0, 1.0])
    np.testing.assert_array_equal(np.asarray(b), [bad, 0.0])


def test_infinite_branch_value():
    """The value not selected may be infinite or NaN, too."""
    check(lambda x: qb.where(x < 1.0, x, qb.array(INF) * x), 0.5, 1.0, 0.0)
    check(lambda x: qb.where(x < 1.0, x, qb.array(NAN) * x), 0.5, 1.0, 0.0)


def test_saturated_times_large_cotangent():
    for f in (qb.tanh, qb.sigmoid):
        _, pullback = qb.vjp(f, qb.array(1000.0))
        assert pullback(1e308)[0].item() == 0.0
        check(lambda x, f=f: 1e300 * f(1e5 * x), 1.0, 0.0, 0.0)


# ------------------------------------------------------------------------------------------------- functions of vectors


@pytest.mark.parametrize(
    ("f", "point", "gradient", "hessian"),
    [
        pytest.param(qb.norm, [0.0, 0.0], [0.0, 0.0], np.zeros((2, 2)), id="norm at 0"),
        pytest.param(lambda x: qb.norm(x) ** 2, [0.0, 0.0], [0.0, 0.0], 2 * np.eye(2), id="square of norm at 0"),
        pytest.param(
            lambda x: qb.norm(x) * qb.norm(x), [0.0, 0.0], [0.0, 0.0], 2 * np.eye(2), id="norm times norm at 0"
        ),
        pytest.param(
            lambda x: qb.sqrt(qb.sum(x**2)) ** 2,
            [0.0, 0.0],
            [0.0, 0.0],
            2 * np.eye(2),
            id="square of root of sum of squares",
        ),
        pytest.param(
            lambda x: qb.sqrt(qb.sum(x * x)) ** 2, [0.0, 0.0], [0.0, 0.0], 2 * np.eye(2), id="the same with a product"
        ),
        pytest.param(
            lambda x: qb.sqrt(x[0] ** 2 + x[1] ** 2) ** 2,
            [0.0, 0.0],
            [0.0, 0.0],
            2 * np.eye(2),
            id="the same by elements",
        ),
        pytest.param(
            lambda x: qb.exp(-(qb.sqrt(qb.sum(x**2)) ** 2)),
            [0.0, 0.0],
            [0.0, 0.0],
            -2 * np.eye(2),
            id="radial function at its centre",
        ),
        pytest.param(
            lambda x: qb.sqrt(qb.sum(x**2)), [0.0, 0.0], [0.0, 0.0], np.zeros((2, 2)), id="root of sum of squares at 0"
        ),
        pytest.param(qb.std, [3.0, 3.0, 3.0], [0.0] * 3, np.zeros((3, 3)), id="std of constants"),
        pytest.param(qb.var, [3.0, 3.0], [0.0] * 2, [[0.5, -0.5], [-0.5, 0.5]], id="var of constants"),
        pytest.param(lambda x: qb.hypot(x[0], x[1]), [0.0, 0.0], [0.0, 0.0], np.zeros((2, 2)), id="hypot at 0"),
        pytest.param(qb.logsumexp, [-INF, -INF], [0.0, 0.0], np.zeros((2, 2)), id="logsumexp of -inf"),
        pytest.param(qb.logsumexp, [-INF, 1.0], [0.0, 1.0], np.zeros((2, 2)), id="logsumexp with one -inf"),
        pytest.param(lambda x: qb.softmax(x)[0], [-INF, -INF], [0.0, 0.0], np.zeros((2, 2)), id="softmax of -inf"),
        pytest.param(lambda x: qb.softmax(x)[1], [-INF, 1.0], [0.0, 0.0], np.zeros((2, 2)), id="softmax with one -inf"),
        pytest.param(qb.max, [2.0, 2.0, 1.0], [0.5, 0.5, 0.0], np.zeros((3, 3)), id="max tie"),
        pytest.param(qb.min, [2.0, 1.0, 1.0, 1.0], [0.0, 1 / 3, 1 / 3, 1 / 3], np.zeros((4, 4)), id="min tie"),
        pytest.param(qb.max, [3.0, 3.0, 3.0, 3.0], [0.25] * 4, np.zeros((4, 4)), id="max of equals"),
        pytest.param(lambda x: qb.maximum(x[0], x[1]), [2.0, 2.0], [0.5, 0.5], np.zeros((2, 2)), id="maximum tie"),
        pytest.param(lambda x: qb.minimum(x[0], x[1]), [2.0, 2.0], [0.5, 0.5], np.zeros((2, 2)), id="minimum tie"),
        pytest.param(
            lambda x: qb.atan2(x[0], x[1]), [0.0, 0.0], [0.0, 0.0], np.zeros((2, 2)), id="atan2 at the origin"
        ),
        pytest.param(
            lambda x: qb.atan2(x[0], x[1]),
            [0.0, -2.0],
            [-0.5, 0.0],
            [[0.0, -0.25], [-0.25, 0.0]],
            id="atan2 on the left axis",
        ),
        pytest.param(
            lambda x: qb.atan2(x[0], x[1]),
            [2.0, 0.0],
            [0.0, -0.5],
            [[0.0, 0.25], [0.25, 0.0]],
            id="atan2 on the upper axis",
        ),
        pytest.param(lambda x: qb.atan2(x[0], x[1]), [INF, 1.0], [0.0, 0.0], np.zeros((2, 2)), id="atan2 at infinity"),
        pytest.param(
            lambda x: qb.atan2(x[0], x[1]), [-INF, INF], [0.0, 0.0], np.zeros((2, 2)), id="atan2 at both infinities"
        ),
        pytest.param(lambda x: qb.power(x[0], x[1]), [0.0, 2.0], [0.0, 0.0], [[2.0, 0.0], [0.0, 0.0]], id="0 ** 2"),
        pytest.param(lambda x: qb.power(x[0], x[1]), [0.0, 1.0], [1.0, 0.0], np.zeros((2, 2)), id="0 ** 1"),
        pytest.param(lambda x: qb.power(x[0], x[1]), [0.0, 0.5], [0.0, 0.0], np.zeros((2, 2)), id="0 ** 0.5"),
        pytest.param(lambda x: qb.power(x[0], x[1]), [0.0, 0.0], [0.0, 0.0], np.zeros((2, 2)), id="0 ** 0"),
        pytest.param(
            lambda x: qb.power(x[0], x[1]), [-2.0, 3.0], [12.0, 0.0], [[-12.0, 0.0], [0.0, 0.0]], id="(-2) ** 3"
        ),
        pytest.param(
            lambda x: qb.clip(x[0], x[1], x[2]), [0.0, 0.0, 1.0], [0.0, 1.0, 0.0], np.zeros((3, 3)), id="clip at lo"
        ),
        pytest.param(
            lambda x: qb.clip(x[0], x[1], x[2]), [1.0, 0.0, 1.0], [0.0, 0.0, 1.0], np.zeros((3, 3)), id="clip at hi"
        ),
        pytest.param(
            lambda x: qb.clip(x[0], x[1], x[2]),
            [5.0, 3.0, 2.0],
            [0.0, 0.0, 1.0],
            np.zeros((3, 3)),
            id="clip with lo above hi",
        ),
        pytest.param(
            qb.prod, [0.0, 2.0, 3.0], [6.0, 0.0, 0.0], [[0, 3, 2], [3, 0, 0], [2, 0, 0]], id="prod with one zero"
        ),
        pytest.param(
            qb.prod, [0.0, 0.0, 3.0], [0.0, 0.0, 0.0], [[0, 3, 0], [3, 0, 0], [0, 0, 0]], id="prod with two zeros"
        ),
        pytest.param(
            lambda x: qb.logaddexp(x[0], x[1]), [-INF, -INF], [0.0, 0.0], np.zeros((2, 2)), id="logaddexp of -inf"
        ),
        pytest.param(
            lambda x: qb.logaddexp(x[0], x[1]), [-INF, 1.0], [0.0, 1.0], np.zeros((2, 2)), id="logaddexp with one -inf"
        ),
        pytest.param(lambda x: x[0] / x[1], [0.0, 1e-200], [1e200, -0.0], None, id="0 / tiny"),
    ],
)
def test_of_vectors(f, point, gradient, hessian):
    check(f, point, gradient, hessian, rtol=1e-15)


WEIGHTS = qb.array([1.0, 4.0])


@pytest.mark.parametrize(
    ("radial", "curvature"),
    [
        pytest.param(lambda x: qb.sqrt(x @ x) ** 2, 2.0, id="matmul"),
        pytest.param(lambda x: qb.sqrt(qb.einsum("i,i", x, x)) ** 2, 2.0, id="einsum"),
        pytest.param(lambda x: qb.sqrt(qb.dot(WEIGHTS * x, x)) ** 2, [2.0, 8.0], id="weighted product"),
        pytest.param(lambda x: qb.sqrt(qb.sum(WEIGHTS * x**2)) ** 2, [2.0, 8.0], id="weighted sum"),
        pytest.param(lambda x: qb.sqrt(x[0] ** 2 + 4 * x[1] * x[1]) ** 2, [2.0, 8.0], id="weighted elements"),
        pytest.param(lambda x: qb.sqrt(qb.sum(x**2.0)) ** 2, 2.0, id="floating exponent below"),
        pytest.param(lambda x: qb.norm(x) ** 2.0, 2.0, id="floating exponent above"),
        pytest.param(lambda x: qb.square(qb.sqrt(qb.mean(qb.square(x)))), 1.0, id="mean of squares"),
        pytest.param(lambda x: qb.sqrt(sum(x[i % 2] ** 2 for i in range(20))) ** 2, 20.0, id="many terms"),
        pytest.param(lambda x: qb.hypot(x[0], x[1]) ** 2, 2.0, id="hypot"),
        pytest.param(lambda x: qb.hypot(qb.hypot(x[0], x[1]), x[1]) ** 2, [2.0, 4.0], id="hypot of hypot"),
        pytest.param(lambda x: (-3 * qb.norm(x) / 2) ** 2, 4.5, id="scaled"),
        pytest.param(lambda x: qb.sum(qb.abs(x) ** 2), 2.0, id="abs"),
        pytest.param(lambda x: qb.sum((qb.norm(x, keepdims=True) * qb.ones((3, 2))) ** 2), 12.0, id="spread"),
        pytest.param(lambda x: (qb.norm(x) * qb.ones(3))[1] ** 2, 2.0, id="element"),
        pytest.param(lambda x: qb.sum(qb.vmap(lambda v: qb.norm(v) ** 2)(qb.stack([x, x]))), 4.0, id="batched"),
        pytest.param(lambda x: qb.sqrt(qb.where(x[0] > 0, x @ x, qb.sum(x**4) + x @ x)) ** 2, 2.0, id="selected"),
    ],
)
def test_square_of_a_root_at_its_zero(radial, curvature):
    """A radial function has its curvature at the centre, where the root alone has derivative 0 by convention."""
    check(radial, [0.0, 0.0], [0.0, 0.0], np.diag(np.broadcast_to(curvature, 2)), rtol=1e-15)


def test_square_of_a_root_of_what_may_be_negative():
    """There the value is NaN, as the root's is, and at 0 the convention of the root decides."""
    f = qb.jit(lambda x: qb.sqrt(x) ** 2)
    assert math.isnan(f(qb.array(-1.0)).item())
    assert math.isnan(qb.jit(lambda x: qb.sqrt(x - 2 * qb.abs(x)) ** 2)(qb.array(1.0)).item())
    check(lambda x: qb.sqrt(x) ** 2, 0.0, 0.0, 0.0)


def test_std_squared_is_a_variance():
    hessian = qb.hessian(lambda x: qb.std(x) ** 2)(qb.array([3.0, 3.0]))
    np.testing.assert_allclose(np.asarray(hessian), [[0.5, -0.5], [-0.5, 0.5]], rtol=1e-15)


def test_norm_along_axes():
    """Zero rows and others do not meet."""
    gradient = qb.grad(lambda x: qb.sum(qb.norm(x, axis=1)))(qb.array([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(np.asarray(gradient), [[0.0, 0.0], [0.6, 0.8]], rtol=1e-15)


NORM_SHAPES = [(0,), (1,), (3,), (257,), (5000,), (1, 4), (4, 1), (9, 3), (3, 300), (300, 3), (90, 130), (5, 300, 4)]


@pytest.mark.parametrize("shape", NORM_SHAPES, ids=str)
def test_norms_of_any_size_and_scale(shape):
    """Neither overflow nor underflow, over any axis; mixed with rows of zeros."""
    values = np.random.default_rng(5).standard_normal(shape)
    values[: shape[0] // 3] = 0
    cases = [("float64", scale, 1e-15) for scale in (1, 1e-200, 3e-162, 1e155, 1e300)]
    cases += [("float32", scale, 4e-7) for scale in (1, 1e-25, 1e30)]
    for dtype, scale, tolerance in cases:
        x = (values * scale).astype(dtype)
        exact = x.astype(np.longdouble)
        for axis in (None, *range(len(shape))):
            norm = qb.norm(qb.array(x, dtype=getattr(qb, dtype)), axis=axis).numpy()
            expected = np.sqrt((exact * exact).sum(axis=axis))
            np.testing.assert_allclose(norm.astype(np.longdouble), expected, rtol=tolerance, err_msg=f"{dtype} {scale}")


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_derivatives_of_norms_of_any_scale(scale):
    x = np.array([2.0, -3.0, 6.0])
    unit = x / 7
    gradient = qb.grad(qb.norm)(qb.array(x * scale))
    np.testing.assert_allclose(np.asarray(gradient), unit, rtol=1e-15)
    hessian = qb.hessian(qb.norm)(qb.array(x * scale))
    np.testing.assert_allclose(np.asarray(hessian), (np.eye(3) - np.outer(unit, unit)) / 7 / scale, rtol=1e-14)
    batched = qb.vmap(qb.hessian(qb.norm))(qb.array([x * scale, 0 * x]))
    np.testing.assert_allclose(np.asarray(batched[0]), np.asarray(hessian), rtol=1e-15)
    np.testing.assert_array_equal(np.asarray(batched[1]), np.zeros((3, 3)))


def test_norms_with_special_values():
    for fill in (2, 300):
        for v, expected in (([INF, -INF], INF), ([INF, NAN], NAN), ([NAN, 1.0], NAN), ([-0.0, 0.0], 0.0)):
            norm = qb.norm(qb.array(v * fill)).item()
            assert norm == expected or (norm != norm and expected != expected)
    assert qb.norm(qb.array([-3.0])).item() == 3.0
    assert qb.norm(qb.array([[-3.0], [0.0]]), axis=1).tolist() == [3.0, 0.0]


def test_bool_and_integer_inputs_have_no_gradient():
    gradients = qb.grad(lambda x, n, flags: qb.sum(qb.where(flags, x * n, 0.0)), argnums=(0, 1, 2))(
        qb.array([1.0, 2.0]), qb.array([3, 4], dtype=qb.int64), qb.array([True, False])
    )
    assert gradients[0].tolist() == [3.0, 0.0]
    assert gradients[1] is None
    assert gradients[2] is None


@pytest.mark.parametrize("f", [qb.max, qb.min, lambda x: qb.maximum(x[0], x[1]), lambda x: qb.minimum(x[0], x[1]),
    qb.norm, qb.std,
                               lambda x: qb.sum(qb.relu(x)), lambda x: qb.sum(qb.clip(x, 0.0, 1.0))])  # fmt: skip
def test_nan_propagates(f):
    assert math.isnan(f(qb.array([NAN, 1.0])).item())
    assert math.isnan(f(qb.array([1.0, NAN])).item())


def documented_points():
    """The rows of the table in docs/operations.md, each function of a row on its own."""
    root = pathlib.Path(__file__).resolve().parents[2]
    spec = importlib.util.spec_from_file_location("operations", root / "tools" / "operations.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for functions, text, point in tool.SPECIAL_POINTS:
        functions = functions if isinstance(functions, tuple) else (functions,)
        _, gradient, hessian = tool.derivatives_at(functions[0], point)
        for i, function in enumerate(functions):
            yield pytest.param(function, point, gradient, hessian, id=f"{text}-{point}-{i}")


@pytest.mark.parametrize("dtype", [qb.float64, qb.float32], ids=str)
@pytest.mark.parametrize(("f", "point", "gradient", "hessian"), list(documented_points()))
def test_the_documented_table_holds_in_every_mode(f, point, gradient, hessian, dtype):
    check(f, point, gradient, hessian, rtol=1e-6, dtype=dtype)


# --------------------------------------------------------------------------------------------------- numerical contract


def test_stable_compositions():
    assert qb.softplus(qb.array(-20.0, dtype=qb.float32)).item() == pytest.approx(2.0611537e-9, rel=1e-6)
    assert qb.softplus(qb.array(-745.0)).item() == pytest.approx(5e-324, rel=0.5)
    assert qb.softplus(1e300).item() == 1e300
    assert qb.sigmoid(-700.0).item() == pytest.approx(math.exp(-700.0), rel=1e-14)
    assert qb.log_softmax(qb.array([1e4, 0.0])).tolist() == [0.0, -1e4]
    assert qb.logsumexp(qb.array([1e4, 1e4])).item() == pytest.approx(1e4 + math.log(2), rel=1e-15)
    assert qb.logsumexp(qb.array([-INF, -INF])).item() == -INF
    assert qb.logsumexp(qb.array([INF, 0.0])).item() == INF
    assert qb.logsumexp(qb.array([INF, INF])).item() == INF
    assert qb.softmax(qb.array([-INF, -INF])).tolist() == [0.0, 0.0]
    assert qb.var(1e8 + qb.array([1.0, 2.0, 3.0])).item() == 2 / 3
    assert qb.norm(qb.array([1e20, 1e20], dtype=qb.float32)).item() == pytest.approx(math.sqrt(2) * 1e20, rel=1e-6)
    assert qb.norm(qb.array([1e-300, 1e-300])).item() == pytest.approx(math.sqrt(2) * 1e-300, rel=1e-15)
    assert qb.norm(qb.array([3e200, 4e200])).item() == pytest.approx(5e200, rel=1e-15)
    assert qb.hypot(3e300, 4e300).item() == pytest.approx(5e300, rel=1e-15)
    assert qb.hypot(3e-320, 4e-320).item() == pytest.approx(5e-320, rel=1e-3)
    assert qb.logaddexp(1000.0, 1000.0).item() == pytest.approx(1000 + math.log(2), rel=1e-15)
    assert qb.logaddexp(-1000.0, -1000.0).item() == pytest.approx(-1000 + math.log(2), rel=1e-15)
    assert qb.gelu(-10.0, approximate=False).item() == pytest.approx(-7.619853024160525e-23, rel=1e-12)
    assert qb.round(qb.array([0.5, 1.5, 2.5, -0.5])).tolist() == [0.0, 2.0, 2.0, -0.0]
    assert qb.fmod(qb.array(5.3), qb.array(-2.0)).item() == math.fmod(5.3, -2.0)
    assert qb.mod(qb.array(5.3), qb.array(-2.0)).item() == 5.3 % -2.0


@pytest.mark.parametrize("size", [1, 7, 1000, 100_003])
def test_float32_sums_are_compensated(size):
    """The error of a float32 sum stays a few eps of the sum of magnitudes, whatever the length."""
    values = np.random.default_rng(size).uniform(0, 1, size).astype("float32")
    exact = math.fsum(values.tolist())
    got = qb.sum(qb.array(values)).item()
    assert abs(got - exact) <= 2 * np.finfo("float32").eps * math.log2(size + 2) * exact
    columns = np.broadcast_to(values, (3, size)).copy()
    np.testing.assert_allclose(np.asarray(qb.sum(qb.array(columns), axis=1)), exact, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(qb.sum(qb.array(columns.T.copy()), axis=0)), exact, rtol=2e-6)


def test_float64_sums_are_pairwise():
    values = np.full(1_000_000, 0.1)
    assert qb.sum(qb.array(values)).item() == pytest.approx(math.fsum(values), rel=1e-15)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_prod_with_zeros_has_exact_derivatives(dtype):
    x = qb.array([2.0, 0.0, 3.0, 0.5], dtype=dtype)
    assert qb.grad(qb.prod)(x).tolist() == [0.0, 3.0, 0.0, 0.0]


def test_integer_power_is_repeated_multiplication():
    x = 1.1
    assert (qb.array(x) ** 3).item() == x * x * x
    assert (qb.array(x) ** 2).item() == x * x
    assert (qb.array(-2.0) ** 5).item() == -32.0
    assert (qb.array(0.0) ** 0).item() == 1.0
    assert qb.power(0.0, 0.0).item() == 1.0
    assert math.isnan(qb.power(qb.array(-2.0), 0.5).item())


def test_runs_repeat_their_bits():
    x = qb.array(np.random.default_rng(0).normal(size=(64, 100)))
    f = qb.jit(qb.grad(lambda x: qb.sum(qb.tanh(x @ x.T)) + qb.logsumexp(x)))
    first = f(x).numpy()
    for _ in range(5):
        np.testing.assert_array_equal(f(x).numpy(), first)
