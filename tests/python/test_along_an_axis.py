"""Running sums and products, order, interpolation, padding: what the case table does not show."""

import math

import numpy as np
import pytest
import quabla as qb

FLOATING = ("float64", "float32")

# ------------------------------------------------------------------------------------------- running sums and products


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize(("shape", "axis"), [((200_000,), 0), ((20_000, 5), 0), ((3, 20_000), 1), ((2, 7_000, 3), 1)])
def test_running_sums_do_not_drift(dtype, shape, axis):
    """Equal terms are the worst case of a plain loop: each error has the sign of the one before."""
    x = np.full(shape, 0.1, dtype)
    counts = np.arange(1, shape[axis] + 1, dtype="longdouble").reshape(
        [-1 if i == axis else 1 for i in range(len(shape))]
    )
    exact = x.astype("longdouble") * counts
    got = np.asarray(qb.cumsum(qb.array(x), axis)).astype("longdouble")
    assert np.max(np.abs(got - exact) / exact) <= 1.01 * np.finfo(dtype).eps
    got = np.asarray(qb.cumsum(qb.array(x), axis, reverse=True)).astype("longdouble")
    assert np.max(np.abs(got - np.flip(exact, axis)) / np.flip(exact, axis)) <= 1.01 * np.finfo(dtype).eps


def test_running_sum_with_cancellation():
    x = np.array([1e16, 1.0, -1e16, 1.0] * 50)
    assert qb.cumsum(qb.array(x))[-1].item() == math.fsum(x)


@pytest.mark.parametrize("n", [32_767, 32_768, 40_001, 1_200_000])
@pytest.mark.parametrize("reverse", [False, True])
def test_long_running_sums_are_exact_but_for_the_last_rounding(n, reverse):
    """Rows so long that they are cut into pieces; the terms cancel."""
    x = np.random.default_rng(8).standard_normal(n) * 10.0 ** np.random.default_rng(9).integers(-8, 8, n)
    x[n // 2 :] = -x[: n - n // 2]
    sums = np.asarray(qb.cumsum(qb.array(x), reverse=reverse))
    sums, terms = (sums[::-1], x[::-1].tolist()) if reverse else (sums, x.tolist())
    twice = np.finfo("float64").eps ** 2 * np.abs(x).sum()
    for k in (1, 500, 8192, 8193, 16_384, 20_000, n // 2 + 7, n - 1, n):
        exact = math.fsum(terms[:k])
        assert abs(sums[k - 1] - exact) <= np.spacing(abs(exact)) + twice


@pytest.mark.parametrize("at", [0, 8191, 8192, 30_000, 49_999])
def test_a_long_running_sum_is_bad_from_the_bad_term_on(at):
    x = np.ones(50_000)
    for bad in (np.inf, np.nan):
        x[at] = bad
        expected = np.cumsum(x)
        np.testing.assert_array_equal(np.asarray(qb.cumsum(qb.array(x))), expected)
        np.testing.assert_array_equal(np.asarray(qb.cumsum(qb.array(x, dtype="float32"))), expected)
        np.testing.assert_array_equal(np.asarray(qb.cumsum(qb.array(x[::-1].copy()), reverse=True))[::-1], expected)
    x = np.zeros(50_000)
    x[[9000, 20_000, 20_001]] = [-1.5e308, 1e308, 1e308]  # the last two alone would overflow
    np.testing.assert_array_equal(np.asarray(qb.cumsum(qb.array(x))), np.cumsum(x))
    assert math.copysign(1, qb.cumsum(qb.array(-0.0 * np.ones(50_000)))[-1].item()) == -1


@pytest.mark.parametrize("dtype", FLOATING)
def test_running_sums_of_infinities(dtype):
    x = np.array([1.0, np.inf, 2.0, 3.0, -np.inf, 1.0], dtype)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.asarray(qb.cumsum(qb.array(x))), np.cumsum(x))
        np.testing.assert_array_equal(
            np.asarray(qb.cumsum(qb.array(np.stack([x, -x], 1)), 0)), np.cumsum(np.stack([x, -x], 1), 0)
        )
    np.testing.assert_array_equal(np.asarray(qb.cumsum(qb.array([1.0, np.nan, 1.0]))), [1.0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("dtype", "result"),
    [("int32", "int64"), ("int64", "int64"), ("uint32", "uint64"), ("uint64", "uint64"), ("bool", "int64")],
)
def test_dtypes_of_running_sums(dtype, result):
    x = np.array([[1, 0, 1], [1, 1, 0]]).astype(dtype)
    for name in ("cumsum", "cumprod"):
        for axis in (None, 0, 1):
            got = getattr(qb, name)(qb.array(x, dtype=dtype), axis)
            assert str(got.dtype) == result
            np.testing.assert_array_equal(np.asarray(got), getattr(np, name)(x, axis))
    big = np.array([2**62, 2**62, 2**62])
    np.testing.assert_array_equal(np.asarray(qb.cumsum(qb.array(big, dtype="int64"))), np.cumsum(big))


def products_without(x, skipped):
    """Products of x[:k+1] without the elements in `skipped`, 0 where one of those is not among them."""
    return [
        np.prod([v for i, v in enumerate(x[: k + 1]) if i not in skipped]) if max(skipped) <= k else 0.0
        for k in range(len(x))
    ]


@pytest.mark.parametrize(
    "x", [[2.0, 3.0, 5.0], [2.0, 0.0, 5.0, 7.0], [0.0, 3.0, 0.0, 7.0], [0.0, 0.0, 0.0, 2.0], [2.0, -3.0, 0.0]]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_of_running_products_with_zeros(x, reverse):
    """Exact: products of the other elements, never quotients."""
    n = len(x)
    ordered = x[::-1] if reverse else x
    expected = np.zeros((n, n))
    second = np.zeros((n, n, n))
    for i in range(n):
        expected[:, i] = products_without(ordered, {i})
        for k in range(n):
            if i != k:
                second[:, i, k] = products_without(ordered, {i, k})
    if reverse:
        expected, second = expected[::-1, ::-1], second[::-1, ::-1, ::-1]
    function = lambda v: qb.cumprod(v, reverse=reverse)
    for jacobian in (qb.jacfwd, qb.jacrev):
        np.testing.assert_array_equal(np.asarray(jacobian(function)(qb.array(x))), expected)
    np.testing.assert_array_equal(np.asarray(qb.jacfwd(qb.jacrev(function))(qb.array(x))), second)
    np.testing.assert_array_equal(np.asarray(qb.jacrev(qb.jacrev(function))(qb.array(x))), second)


def test_running_products_keep_signed_zeros_and_strong_zeros():
    assert math.copysign(1, qb.cumprod(qb.array([-1.0, 0.0]))[1].item()) == -1
    _, tangent = qb.jvp(qb.cumprod, (qb.array([2.0, np.inf, 3.0]),), (qb.array([0.0, 0.0, 1.0]),))
    np.testing.assert_array_equal(np.asarray(tangent), [0.0, 0.0, np.inf])


# --------------------------------------------------------------------------------------------------------------- order


ALL_DTYPES = [*FLOATING, "int32", "int64", "uint32", "uint64", "bool"]


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 300, 5000, 20_000])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_sorting(n, dtype):
    rng = np.random.default_rng(n)
    x = rng.integers(-40, 40, n).astype(dtype) if dtype[0] != "f" else np.round(rng.normal(size=n), 1).astype(dtype)
    if dtype[0] == "f":
        x[rng.random(n) < 0.1] = np.nan
        x[rng.random(n) < 0.1] = -np.inf
        x[rng.random(n) < 0.1] = np.inf
        x[rng.random(n) < 0.1] = -0.0
    t = qb.array(x, dtype=dtype)
    np.testing.assert_array_equal(np.asarray(qb.argsort(t)), np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(np.asarray(qb.sort(t)), np.sort(x))
    descending = np.asarray(qb.argsort(t, descending=True))
    np.testing.assert_array_equal(x[descending], np.sort(x)[::-1])
    np.testing.assert_array_equal(descending, n - 1 - np.argsort(x[::-1], kind="stable")[::-1])
    np.testing.assert_array_equal(np.asarray(qb.sort(t, descending=True)), np.sort(x)[::-1])


SPREADS = {
    "normal": lambda rng, n: rng.standard_normal(n) * 1e6,
    "ascending": lambda rng, n: np.arange(n) // 3,
    "descending": lambda rng, n: n - np.arange(n) // 2,
    "equal": lambda rng, n: np.full(n, 3),
    "ten values": lambda rng, n: rng.integers(0, 10, n),
    "mostly one value": lambda rng, n: np.where(rng.random(n) < 0.7, 5, rng.integers(0, 100, n)),
    "nearly ascending": lambda rng, n: np.arange(n) + rng.integers(-3, 3, n),
    "powers": lambda rng, n: 2.0 ** rng.integers(0, 30, n),
    "one far out": lambda rng, n: np.where(np.arange(n) == n // 2, 2.0**30, rng.random(n) * 100),
    "parts of parts": lambda rng, n: (
        rng.integers(1, 1 << 10, n) * 2.0 ** (20 - 7 * np.minimum(rng.geometric(0.5, n), 4))
    ),
}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize(("shape", "axis"), [((150_000,), 0), ((40, 1000), 1), ((700, 50), 0), ((2, 20_001, 2), 1)])
def test_sorting_of_any_distribution(shape, axis, dtype, spread):
    """As NumPy's stable sort, whose result is unique."""
    values = SPREADS[spread](np.random.default_rng(5), math.prod(shape)).reshape(shape)
    x = (values > 5 if dtype == "bool" else values).astype(dtype)
    order = np.argsort(x, axis, kind="stable")
    np.testing.assert_array_equal(np.asarray(qb.argsort(qb.array(x, dtype=dtype), axis=axis)), order)
    np.testing.assert_array_equal(
        np.asarray(qb.sort(qb.array(x, dtype=dtype), axis=axis)), np.take_along_axis(x, order, axis)
    )


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("n", [30, 1000, 200_000])
def test_sorting_of_any_bits(n, dtype):
    """Subnormal numbers, infinities, zeros of both signs in their order; NaN last, all of one kind."""
    rng, bits = np.random.default_rng(6), {"float64": "uint64", "float32": "uint32"}[dtype]
    x = rng.integers(0, np.iinfo(bits).max, n, dtype=bits, endpoint=True)
    x[rng.random(n) < 0.2] >>= np.dtype(bits).type(x.itemsize * 6)
    x = x.view(dtype)
    x[rng.random(n) < 0.1] = np.nan
    x[rng.random(n) < 0.1] = 0.0
    x[rng.random(n) < 0.1] = -0.0
    order = np.argsort(x, kind="stable")
    assert qb.argsort(qb.array(x)).tolist() == order.tolist()
    got, expected = np.asarray(qb.sort(qb.array(x))), x[order]
    numbers = n - np.isnan(x).sum()
    assert got[:numbers].tobytes() == expected[:numbers].tobytes()
    assert np.isnan(got[numbers:]).all() and len(set(got[numbers:].view(bits).tolist())) <= 1


def test_large_numbers_are_told_apart():
    x = np.array([2**63 - 1, 2**63 - 2, -(2**63), 2**62, -1])
    np.testing.assert_array_equal(np.asarray(qb.sort(qb.array(x, dtype="int64"))), np.sort(x))
    u = np.array([2**64 - 1, 2**64 - 2, 2**63, 0], np.uint64)
    np.testing.assert_array_equal(np.asarray(qb.sort(qb.array(u, dtype="uint64"))), np.sort(u))
    a = np.array([2**62, 2**62 + 1, 2**62 + 2])
    np.testing.assert_array_equal(
        np.asarray(qb.searchsorted(qb.array(a, dtype="int64"), qb.array(a, dtype="int64"))), [0, 1, 2]
    )


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [*FLOATING, "int32", "uint64", "bool"])
def test_places_of_extremes(name, dtype):
    rng = np.random.default_rng(0)
    for shape in ((1,), (7,), (511,), (513,), (2000,), (3, 70), (70, 3), (5, 9, 70)):
        x = rng.integers(0, 5, shape).astype(dtype)
        if dtype[0] == "f" and x.size > 100:
            x.flat[rng.integers(0, x.size, 2)] = np.nan
        for axis in (None, *range(len(shape))):
            for keepdims in (False, True):
                got = getattr(qb, name)(qb.array(x, dtype=dtype), axis, keepdims)
                expected = getattr(np, name)(x, axis, keepdims=keepdims)
                np.testing.assert_array_equal(np.asarray(got), expected)
                assert got.shape == np.shape(expected)


def test_sort_moves_derivatives_with_the_elements():
    x, weights = qb.array([[3.0, 1.0, 2.0], [0.5, 0.5, 0.1]]), qb.array([1.0, 10.0, 100.0])
    gradient = qb.grad(lambda x: qb.sum(qb.sort(x) * weights))(x)
    np.testing.assert_array_equal(np.asarray(gradient), [[100.0, 1.0, 10.0], [10.0, 100.0, 1.0]])
    gradient = qb.grad(lambda x: qb.sum(qb.sort(x, descending=True) * weights))(x)
    np.testing.assert_array_equal(np.asarray(gradient), [[1.0, 100.0, 10.0], [1.0, 10.0, 100.0]])


# ------------------------------------------------------------------------------------------------------- interpolation

KNOTS, HEIGHTS = [0.0, 1.0, 3.0], [1.0, 5.0, 3.0]


@pytest.mark.parametrize(
    ("x", "value", "slope"),
    [(-1.0, 1.0, 0.0), (0.0, 1.0, 4.0), (0.5, 3.0, 4.0), (1.0, 5.0, -1.0), (2.0, 4.0, -1.0), (3.0, 3.0, -1.0), (3.5, 3.0, 0.0),
     (math.inf, 3.0, 0.0), (-math.inf, 1.0, 0.0)],
)  # fmt: skip
def test_interpolation_at_knots_and_beyond(x, value, slope):
    function = lambda x: qb.interp(x, KNOTS, HEIGHTS)
    for derivative in (
        qb.grad(function),
        lambda x: qb.jvp(function, (x,), (qb.array(1.0),))[1],
        qb.jit(qb.grad(function)),
    ):
        assert function(qb.array(x)).item() == value
        assert derivative(qb.array(x)).item() == slope
    assert qb.grad(qb.grad(function))(qb.array(x)).item() == 0.0


def test_interpolation_differentiates_in_knots_and_heights():
    by_knots = qb.grad(lambda xp: qb.interp(0.5, xp, HEIGHTS))(qb.array(KNOTS))
    np.testing.assert_allclose(np.asarray(by_knots), [-2.0, -2.0, 0.0])
    by_heights = qb.grad(lambda fp: qb.interp(1.5, KNOTS, fp))(qb.array(HEIGHTS))
    np.testing.assert_allclose(np.asarray(by_heights), [0.0, 0.75, 0.25])
    at_last = qb.grad(lambda fp: qb.interp(3.0, KNOTS, fp))(qb.array(HEIGHTS))
    np.testing.assert_allclose(np.asarray(at_last), [0.0, 0.0, 1.0])


# ------------------------------------------------------------------------------------------- functions of several results


@pytest.mark.parametrize(
    ("arguments", "axis"),
    [((2,), 0), ((3,), 1), (([1, 3],), 0), (([1, 5, 9],), -1), (([-1],), 0), (([3, 1],), 0), (([],), 0)],
)
def test_split(arguments, axis):
    x = np.arange(24.0).reshape(4, 6)
    expected = np.split(x, *arguments, axis=axis)
    for parts in (
        qb.split(qb.array(x), *arguments, axis=axis),
        qb.array(x).split(*arguments, axis=axis),
        qb.split(x, *arguments, axis),
    ):
        assert isinstance(parts, list)
        assert [p.shape for p in parts] == [e.shape for e in expected]
        for part, e in zip(parts, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(part), e)
    weights = [float(i + 1) for i in range(len(expected))]
    total = lambda x: sum(w * qb.sum(p**2) for w, p in zip(weights, x.split(*arguments, axis=axis), strict=True))
    gradient = qb.jit(qb.grad(total))(qb.array(x))
    if arguments not in (([-1],), ([3, 1],)):
        joined = np.concatenate([np.full(e.shape, 2 * w) for w, e in zip(weights, expected, strict=True)], axis)
        np.testing.assert_allclose(np.asarray(gradient), joined * x)


def test_split_refuses():
    for call, message in (
        (lambda: qb.split(qb.ones(5), 2), "extent 5, which is not 2 equal parts"), (lambda: qb.split(qb.ones(4), 0), "not 0 equal parts"),
        (lambda: qb.split(qb.ones(4), 2, axis=1), "axis 1 is out of range"), (lambda: qb.split(qb.array(1.0), 1), "axis 0 is out of range"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize(
    "arrays",
    [([1.0, 2.0], [3.0, 4.0, 5.0]), ([1.0, 2.0],), ([1.0, 2.0], [3.0], [1.0, 2.0, 3.0]), (2.0, [1.0, 2.0]), ()],
)
def test_meshgrid(indexing, arrays):
    expected = np.meshgrid(*arrays, indexing=indexing)
    got = qb.meshgrid(*arrays, indexing=indexing)
    assert isinstance(got, tuple)
    for a, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(a), e)
        assert a.shape == e.shape
    if len(arrays) == 2 and not isinstance(arrays[0], float):
        traced = qb.jit(lambda x, y: qb.meshgrid(x, y, indexing=indexing))(*map(qb.array, arrays))
        for a, e in zip(traced, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(a), e)


def test_meshgrid_refuses():
    with pytest.raises(ValueError, match="'xy' or 'ij', got 'yx'"):
        qb.meshgrid(qb.ones(2), indexing="yx")
    with pytest.raises(ValueError, match=r"array 1 has shape \(2, 2\)"):
        qb.meshgrid(qb.ones(2), qb.ones((2, 2)))


# ------------------------------------------------------------------------------------------------------------- integers


def integers(values, dtype="int64"):
    return qb.array(np.array(values), dtype=dtype)


def test_powers_of_integers_are_integers():
    for dtype in ("int32", "int64", "uint32", "uint64"):
        base, exponent = np.array([2, 3, 1, 0, 7], dtype), np.array([10, 4, 30, 0, 1], dtype)
        got = qb.array(base, dtype=dtype) ** qb.array(exponent, dtype=dtype)
        assert str(got.dtype) == dtype
        np.testing.assert_array_equal(np.asarray(got), base**exponent)
    assert (integers([3]) ** integers([40])).item() == 3**40 % 2**64 - (2**64 if 3**40 % 2**64 >= 2**63 else 0)
    assert (2 ** integers([3, 4])).tolist() == [8, 16]
    assert (integers([2, 3], "int32") ** integers([2, 2])).dtype == qb.int64
    assert (integers([4]) ** 0.5).dtype == qb.float64
    assert (qb.array([2.0]) ** integers([-1])).tolist() == [0.5]


def test_integers_have_no_negative_powers():
    for call in (
        lambda: integers([2]) ** -1, lambda: integers([2]) ** integers([-1]), lambda: 2 ** integers([3, -1]), lambda: qb.power(integers([2]), -2),
        lambda: qb.jit(lambda x: x**-1)(integers([2])), lambda: integers([2], "uint32") ** integers([-1], "int32"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="negative integer power.*astype"):
            call()


def test_maximum_of_truth_values():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    for name in ("maximum", "minimum"):
        got = getattr(qb, name)(qb.array(a), qb.array(b))
        assert got.dtype == qb.bool_
        np.testing.assert_array_equal(np.asarray(got), getattr(np, name)(a, b))


@pytest.mark.parametrize("dtype", FLOATING)
def test_mod_has_the_sign_of_the_divisor(dtype):
    a, b = (
        m.ravel()
        for m in np.meshgrid(
            np.array([-4.0, 4.0, 0.0, -0.0, 3.5, -3.5, 6.0], dtype), np.array([2.0, -2.0, np.inf, -np.inf], dtype)
        )
    )
    got, expected = np.asarray(qb.mod(qb.array(a), qb.array(b))), np.mod(a, b)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    assert qb.grad(lambda x: qb.mod(x, 2.0))(qb.array(-4.0)).item() == 1.0
    assert qb.grad(lambda y: qb.mod(qb.array(-4.0), y))(qb.array(2.0)).item() == 2.0


def test_a_float32_graph_holds_no_float64():
    programs = (
        lambda x: x * qb.where(x > 0, math.inf, math.nan), lambda x: x + (x > 0) * 2.0, lambda x: qb.clip(x, -math.inf, 1e300), lambda x: x * math.nan,
        lambda x: qb.where(x > 0, 1.0, 0.0) * x, lambda x: qb.nan_to_num(x) + 1e300, lambda x: qb.gelu(x) + qb.silu(x) + qb.lgamma(x) + qb.digamma(x),
        lambda x: qb.cumprod(x) + qb.cumsum(x) + qb.sort(x) + qb.interp(x, x[::-1], x),
    )  # fmt: skip
    x = qb.array([1.0, -2.0], dtype=qb.float32)
    for program in programs:
        assert "float64" not in qb.jit(program).lower(x).as_text()
        assert "float64" not in qb.jit(qb.grad(lambda x, program=program: qb.sum(program(x)))).lower(x).as_text()


@pytest.mark.parametrize("wrap", [lambda f: f, qb.jit])
def test_differences_with_an_end_appended(wrap):
    x = np.array([[1.0, 4.0, 9.0], [2.0, 3.0, 5.0]])
    for end in (7.0, np.array([[1.0, 2.0]] * 2)):
        got = wrap(lambda x, end=end: qb.diff(x, append=end))(qb.array(x))
        np.testing.assert_array_equal(np.asarray(got), np.diff(x, append=end))
    got = wrap(lambda x: x.diff(2, 0, append=7))(qb.array(x, dtype="float32"))
    assert str(got.dtype) == "float32"
    np.testing.assert_array_equal(np.asarray(got), np.diff(x, 2, 0, append=7))
    assert wrap(lambda x: qb.diff(x, prepend=2.5))(qb.array([1], dtype="int64")).tolist() == [-1.5]
