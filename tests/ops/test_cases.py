"""Every row of the case table, checked the same way: values, dtypes, derivatives to second order, batching, errors."""

import inspect
import zlib

import mpmath as mp
import numpy as np
import pytest
import quabla as qb
from compare import assert_close, assert_same_bits
from ops.cases import ROWS, SPECIAL

FLOATING = ("float64", "float32")
every_row = pytest.mark.parametrize("row", ROWS, ids=str)
smooth_row = pytest.mark.parametrize("row", [r for r in ROWS if r.derivative == "smooth"], ids=str)
elementwise_row = pytest.mark.parametrize("row", [r for r in ROWS if r.wide and "f" in r.takes], ids=str)


class Bound:
    """A sample at a floating dtype, as a function of its floating operands alone."""

    def __init__(self, row, sample, dtype="float64"):
        self.row, self.params = row, sample.params
        self.arrays = [
            np.asarray(o, dtype) if np.asarray(o).dtype.kind == "f" else np.asarray(o) for o in sample.operands
        ]
        self.operands = [exactly(a) for a in self.arrays]
        self.places = [i for i, a in enumerate(self.arrays) if a.dtype.kind == "f"]
        self.floats = [self.operands[i] for i in self.places]
        self.context = f"{row.name}{sample} {dtype}"
        self.rng = np.random.default_rng(zlib.crc32(self.context.encode()))

    def with_all(self, *operands):
        return self.row.call(operands, self.params)

    def __call__(self, *floats):
        operands = list(self.operands)
        for place, value in zip(self.places, floats):
            operands[place] = value
        return self.row.call(operands, self.params)

    def random_like(self, arrays):
        return tuple(qb.array(self.rng.normal(size=a.shape), dtype=a.dtype) for a in arrays)

    def direction(self):
        return self.random_like(self.floats)


def bound_samples(row, dtype="float64"):
    for sample in row.samples:
        yield Bound(row, sample, dtype)


def smooth_samples(row):
    """Samples with a floating result; their functions, points and directions."""
    for case in bound_samples(row):
        out = case(*case.floats)
        if out.dtype == qb.float64 and np.all(np.isfinite(np.asarray(out))):
            yield case, out


def exactly(array):
    """The tensor of a NumPy array, integers kept."""
    return qb.array(array, dtype=str(array.dtype))


def dot(xs, ys):
    return sum(float(np.vdot(np.asarray(x), np.asarray(y))) for x, y in zip(xs, ys))


def difference(f, point, direction, h=1e-3):
    """The derivative of f at the point along the direction, by the central difference of fourth order."""

    def at(step):
        return np.asarray(f(*(x + step * v for x, v in zip(point, direction))))

    return (at(-2 * h) - 8 * at(-h) + 8 * at(h) - at(2 * h)) / (12 * h)


# ------------------------------------------------------------------------------------------------------------ the table


def test_every_function_has_a_row():
    function_type = type(qb.sin)
    public = {name for name, value in vars(qb._core).items() if type(value) is function_type}
    public |= {"zeros_like", "ones_like", "full_like"}  # constructors, too
    public |= {f"linalg.{name}" for name in qb._core.linalg_functions}
    assert public == {row.name for row in ROWS}
    assert len({(row.name, row.part) for row in ROWS}) == len(ROWS), "two rows of one name"


@every_row
def test_function_describes_itself(row):
    f = row.function
    assert f.__name__ == row.name.split(".")[-1]
    assert f.__doc__
    assert inspect.signature(f).parameters


# --------------------------------------------------------------------------------------------------------------- values


def expected_dtype(case, dtype):
    if case.row.result == "operands":
        return str(np.result_type(*case.arrays))
    if case.row.result == "parameter":
        return str(case.params["dtype"])
    return dtype if case.row.result == "same" else case.row.result


@pytest.mark.parametrize("dtype", FLOATING)
@every_row
def test_value(row, dtype):
    for case in bound_samples(row, dtype):
        got = case.with_all(*case.operands)
        wide = [a.astype("float64") if a.dtype.kind == "f" else a for a in case.arrays]
        expected = np.asarray(row.reference(*wide, **case.params))
        assert got.shape == expected.shape, case.context
        assert str(got.dtype) == expected_dtype(case, dtype), case.context
        if got.dtype.kind != "f":
            np.testing.assert_array_equal(np.asarray(got), expected, err_msg=case.context)
            continue
        eps = np.finfo(str(got.dtype)).eps
        assert_close(
            np.asarray(got).astype("float64"),
            expected,
            max(row.ulps * eps, eps / 2 if dtype == "float32" else 0),
            case.context,
        )


@pytest.mark.parametrize("dtype", FLOATING)
@every_row
def test_compiled_has_the_bits_of_eager(row, dtype):
    for case in bound_samples(row, dtype):
        assert_same_bits(qb.jit(case)(*case.floats), case(*case.floats), case.context)


@every_row
def test_method(row):
    is_method = hasattr(qb.Tensor, row.name)
    assert hasattr(qb.TraceTensor, row.name) == is_method
    only_functions = {
        "where",
        "concat",
        "concatenate",
        "stack",
        "zeros_like",
        "ones_like",
        "full_like",
        "getitem",
        "einsum",
    }
    only_functions |= {f"linalg.{name}" for name in qb._core.linalg_functions}
    only_functions |= {f"index_{how}" for how in ("set", "add", "multiply", "min", "max")}  # methods of x.at[index]
    assert is_method == (row.name not in only_functions)
    if not is_method:
        return
    case = Bound(row, row.samples[0])
    x, *others = case.operands
    expected = case.with_all(x, *others)
    assert_same_bits(getattr(x, row.name)(*others, **case.params), expected)
    assert_same_bits(qb.jit(lambda x: getattr(x, row.name)(*others, **case.params))(x), expected)


def exact_error_in_ulps(got, exact):
    """How far a floating number is from an exact one, in units of its last place there."""
    dtype = got.dtype.type
    with np.errstate(over="ignore"):
        rounded = dtype(float(exact))
    if not np.isfinite(rounded) or not np.isfinite(got):
        largest = mp.mpf(float(np.finfo(dtype).max))
        overflows = abs(exact) > largest * (1 - mp.mpf(float(np.finfo(dtype).eps)) * 8)
        return 0.0 if overflows and (got == np.copysign(np.inf, float(exact)) or abs(got) > largest * 0.99) else np.inf
    return float(abs(mp.mpf(float(got)) - exact) / mp.mpf(float(np.spacing(np.abs(rounded)))))


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("row", [r for r in ROWS if r.exact], ids=str)
def test_accuracy(row, dtype):
    with np.errstate(over="ignore", under="ignore"):
        points = np.array(row.wide, dtype=dtype)
    vanished = (points == 0) & (np.array(row.wide) != 0)  # numbers below the range of float32
    points = np.unique(points[np.all(np.isfinite(points) & ~vanished, axis=1)], axis=0)
    got = np.asarray(row.function(*(qb.array(column, dtype=dtype) for column in points.T)))
    bound = row.exact_ulps if dtype == "float64" else max(row.exact_ulps, 4)
    bound = 0.5 if row.exact_ulps <= 0.5 else bound
    with mp.workprec(400):
        for point, y in zip(points, got):
            arguments = [mp.mpf(float(p)) for p in point]
            try:
                exact = row.exact(*arguments)
            except (ZeroDivisionError, ValueError):
                continue  # a pole; test_special_values has it
            if not mp.isfinite(exact):
                continue
            error = exact_error_in_ulps(y, exact)
            assert error <= bound + 1e-9, (
                f"{row.name}{tuple(point)} = {y!r} is off by {error:.2f} ulp, expected {mp.nstr(exact, 20)}"
            )


@pytest.mark.parametrize("dtype", FLOATING)
@elementwise_row
def test_special_values(row, dtype):
    special = np.array(SPECIAL, dtype)
    operands = [special] if len(row.wide[0]) == 1 else list(np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        expected = row.reference(*(o.astype("float64") for o in operands))
    got = np.asarray(row.function(*(qb.array(o) for o in operands)))
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(got, expected.astype(got.dtype), rtol=tolerance, atol=0, err_msg=f"{row.name}{operands}")


@pytest.mark.parametrize("name", ["negative", "sign", "floor", "ceil", "round", "trunc", "sqrt", "cbrt", "expm1",
    "log1p", "sin", "tan",
                                  "arcsin", "arctan", "sinh", "tanh", "arcsinh", "arctanh", "erf", "abs"])  # fmt: skip
@pytest.mark.parametrize("dtype", FLOATING)
def test_zero_keeps_its_sign(name, dtype):
    zeros = np.array([0.0, -0.0], dtype)
    with np.errstate(all="ignore"):
        expected = {"erf": zeros}.get(name, getattr(np, name, np.abs)(zeros))
    assert_same_bits(getattr(qb, name)(qb.array(zeros)), qb.array(expected))


# --------------------------------------------------------------------------------------------------------- other dtypes

INTEGERS = ("int32", "int64", "uint32", "uint64")


def integer_operands(case, dtype):
    """The operands as small positive integers, the first one negative where the dtype has such."""
    operands = [np.round(np.abs(np.nan_to_num(a)) * 3 + 1).astype(dtype) for a in case.arrays]
    return operands if dtype.startswith("u") else [-operands[0], *operands[1:]]


@pytest.mark.parametrize("dtype", INTEGERS)
@every_row
def test_integers(row, dtype):
    """Integer operands: in their own dtype, as int64 or uint64 (sums), as float64 (mathematics), or as bool (tests)."""
    if row.result == "operands" or row.name in ("where", "astype", "integer_power", "interp", "searchsorted"):
        return  # have their own tests or integer samples
    wrap = row.name in (
        "matmul",
        "dot",
        "tensordot",
        "outer",
        "multiply",
        "square",
        "sum",
        "prod",
        "trace",
        "cumsum",
        "cumprod",
    )
    for case in bound_samples(row):
        if any(a.dtype.kind != "f" for a in case.arrays):
            continue
        operands = integer_operands(case, dtype)
        got = np.asarray(row.call([qb.array(o, dtype=dtype) for o in operands], case.params))
        if "i" not in row.takes and row.result == "same":
            expected_dtype, operands = "float64", [o.astype("float64") for o in operands]
        elif row.name in ("divide", "mean", "var", "std", "reciprocal", "trapezoid"):
            expected_dtype = "float64"
        elif row.name in ("sum", "prod", "trace", "cumsum", "cumprod"):
            expected_dtype = "uint64" if dtype.startswith("u") else "int64"
        else:
            expected_dtype = row.result if row.result in ("bool", "int64") else dtype
        with np.errstate(all="ignore"):
            expected = np.asarray(row.reference(*operands, **case.params))
        assert str(got.dtype) == expected_dtype, case.context
        if wrap:
            expected = expected.astype(expected_dtype)
        atol = 1e-15 if row.name.startswith("linalg.") else 0  # zeros that cancel
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=atol, err_msg=case.context)


@pytest.mark.parametrize("row", [r for r in ROWS if "b" in r.takes and r.result != "operands"], ids=str)
def test_bool(row):
    for case in bound_samples(row):
        operands = [a > np.median(a) if a.size and a.dtype.kind == "f" else a.astype(bool) for a in case.arrays]
        got = np.asarray(row.call([qb.array(o) for o in operands], case.params))
        expected = np.asarray(row.reference(*operands, **case.params))
        if row.result == "same" and row.name not in (
            "sum",
            "mean",
            "prod",
            "trace",
            "var",
            "std",
            "astype",
            "cumsum",
            "cumprod",
        ):
            assert str(got.dtype) == "bool", case.context
        np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=1e-15, err_msg=case.context)


# ---------------------------------------------------------------------------------------------------------- derivatives


@smooth_row
def test_forward_mode_against_differences(row):
    for case, out in smooth_samples(row):
        v = case.direction()
        value, tangent = qb.jvp(case, tuple(case.floats), v)
        assert_close(value, out, 1e-14, case.context)
        assert tangent.dtype == out.dtype
        assert_close(tangent, difference(case, case.floats, v), 1e-8, case.context)


@pytest.mark.parametrize("dtype", FLOATING)
@smooth_row
def test_reverse_mode_against_forward_mode(row, dtype):
    """<J v, w> = <v, J' w>, and every gradient has the dtype and shape of its operand."""
    for case in bound_samples(row, dtype):
        v = case.direction()
        out, pullback = qb.vjp(case, *case.floats)
        tolerance = 100 * max(np.finfo(dtype).eps, np.finfo(str(out.dtype)).eps)
        (w,) = case.random_like([out])
        cotangents = pullback(w)
        _, tangent = qb.jvp(case, tuple(case.floats), v)
        for x, ct in zip(case.floats, cotangents):
            assert (ct.shape, ct.dtype) == (x.shape, x.dtype), case.context
        forward, reverse = dot([tangent], [w]), dot(v, cotangents)
        scale = dot([abs(tangent)], [abs(w)]) + dot([abs(x) for x in v], [abs(x) for x in cotangents])
        assert abs(forward - reverse) <= tolerance * scale, f"{case.context}: <Jv, w> = {forward}, <v, J'w> = {reverse}"


@smooth_row
def test_second_order(row):
    """The derivative of the gradient along v: forward over reverse against differences and reverse over reverse."""
    for case, out in smooth_samples(row):
        (w,) = case.random_like([out])
        u, v = case.direction(), case.direction()

        def gradient(*floats, case=case, w=w):
            return qb.grad(lambda *xs: qb.sum(w * case(*xs)), argnums=tuple(range(len(floats))))(*floats)

        def along(*floats, case=case, v=v, gradient=gradient):
            return sum(qb.sum(g * t) for g, t in zip(gradient(*floats), v))

        if not case.floats:
            continue
        point = tuple(case.floats)
        _, forward = qb.jvp(gradient, point, v)
        reverse = qb.grad(along, argnums=tuple(range(len(point))))(*point)
        for place, (a, b) in enumerate(zip(forward, reverse)):
            context, a = f"{case.context}, operand {place}", np.asarray(a)
            size = 1 + np.abs(a).max(initial=0)
            np.testing.assert_allclose(np.asarray(b), a, rtol=1e-11, atol=1e-11 * size, err_msg=context)
            numeric = difference(lambda *xs, k=place: gradient(*xs)[k], point, v)
            np.testing.assert_allclose(a, numeric, rtol=1e-7, atol=1e-7 * size, err_msg=context)
        _, along_u = qb.jvp(gradient, point, u)
        symmetric = dot(along_u, v), dot(forward, u)
        assert np.isclose(*symmetric, rtol=1e-10, atol=1e-12), (
            f"{case.context}: the Hessian is not symmetric: {symmetric}"
        )


@smooth_row
def test_jacobians_of_both_modes_agree(row):
    for case, out in list(smooth_samples(row))[:4]:
        if not case.floats:
            continue
        nums = tuple(range(len(case.floats)))
        forward = qb.jacfwd(case, argnums=nums)(*case.floats)
        reverse = qb.jacrev(case, argnums=nums)(*case.floats)
        for x, a, b in zip(case.floats, forward, reverse):
            assert a.shape == b.shape == out.shape + x.shape, case.context
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-13, err_msg=case.context)


@pytest.mark.parametrize("row", [r for r in ROWS if r.derivative != "smooth"], ids=str)
def test_flat_functions_have_derivative_zero(row):
    for case in bound_samples(row):
        if not case.floats:
            continue
        out, tangent = qb.jvp(case, tuple(case.floats), case.direction())
        if out.dtype.kind != "f":
            assert tangent is None, case.context
            continue
        assert_same_bits(abs(tangent), qb.zeros(out.shape), case.context)
        _, pullback = qb.vjp(case, *case.floats)
        for x, ct in zip(case.floats, pullback(qb.ones(out.shape))):
            assert_same_bits(abs(ct), qb.zeros(x.shape), case.context)


# ------------------------------------------------------------------------------------------------------------- batching


def variant(array, k):
    """Another operand of the same shape and domain."""
    rolled = np.roll(array, k)
    return rolled * (1 - 0.07 * k) if array.dtype.kind == "f" else rolled


def mapped_axes(ranks):
    """in_axes to try: each operand alone along every axis, then all of them together."""
    for place, rank in enumerate(ranks):
        for axis in range(rank + 1):
            yield tuple(axis if i == place else None for i in range(len(ranks)))
    if len(ranks) > 1:
        for axis in range(max(ranks) + 1):
            yield tuple(min(axis, rank) for rank in ranks)
        yield tuple(rank if i % 2 else 0 for i, rank in enumerate(ranks))


def batched(arrays, in_axes, size):
    """(operands with the mapped axis, the operands of each example)"""
    examples = [[a if axis is None else variant(a, k) for a, axis in zip(arrays, in_axes)] for k in range(size)]
    together = []
    for i, (a, axis) in enumerate(zip(arrays, in_axes)):
        if axis is None:
            together.append(a)
        elif size:
            together.append(np.stack([example[i] for example in examples], axis))
        else:
            together.append(np.zeros((*a.shape[:axis], 0, *a.shape[axis:]), a.dtype))
    return together, examples


@every_row
def test_vmap_against_a_loop(row):
    tolerance = max(row.ulps, 4) * np.finfo(float).eps
    for case in bound_samples(row):
        out = case.with_all(*case.operands)
        for in_axes in mapped_axes([a.ndim for a in case.arrays]):
            for size in (3, 1, 0):
                together, examples = batched(case.arrays, in_axes, size)
                context = f"{case.context}, in_axes={in_axes}, size {size}"
                got = qb.vmap(case.with_all, in_axes=in_axes)(*map(exactly, together))
                assert got.shape == (size, *out.shape), context
                assert got.dtype == out.dtype, context
                if size:
                    loop = [np.asarray(case.with_all(*map(exactly, example))) for example in examples]
                    assert_close(got, np.stack(loop), tolerance, context)


@every_row
def test_nested_vmap(row):
    """Two batch axes, at the front and at the back, against one call on each pair."""
    for case in list(bound_samples(row))[:5]:
        arrays = case.arrays
        outer = tuple(a.ndim + 1 for a in arrays)
        together = [
            np.stack([np.stack([variant(a, i + 2 * k) for i in range(2)]) for k in range(3)], -1) for a in arrays
        ]
        got = qb.vmap(qb.vmap(case.with_all), in_axes=outer)(*map(exactly, together))
        loop = [
            [np.asarray(case.with_all(*(exactly(variant(a, i + 2 * k)) for a in arrays))) for i in range(2)]
            for k in range(3)
        ]
        assert_close(got, np.array(loop), max(row.ulps, 4) * np.finfo(float).eps, case.context)


@smooth_row
def test_vmap_of_gradients(row):
    """Gradients of each example, against a loop: of mapped and of shared operands."""
    for case, out in list(smooth_samples(row))[:6]:
        (w,) = case.random_like([out])
        nums = tuple(range(len(case.floats)))
        if not nums:
            continue
        gradient = qb.grad(lambda *xs, case=case, w=w: qb.sum(w * case(*xs)), argnums=nums)
        arrays = [np.asarray(x) for x in case.floats]
        for in_axes in {(0,) * len(nums), (0, *(None,) * (len(nums) - 1))}:
            together, examples = batched(arrays, in_axes, 3)
            got = qb.vmap(gradient, in_axes=in_axes)(*map(exactly, together))
            loop = [gradient(*map(exactly, example)) for example in examples]
            for place, part in enumerate(got):
                expected = np.stack([np.asarray(each[place]) for each in loop])
                assert_close(part, expected, 1e-13, f"{case.context}, in_axes={in_axes}, operand {place}")


# ------------------------------------------------------------------------------------------------ operands with strides


@every_row
def test_operands_that_are_views(row):
    """Inside a program operands may be read transposed, reversed, repeated or cut out of larger arrays."""
    tolerance = max(row.ulps, 4) * np.finfo(float).eps
    views = {
        "transposed": (lambda x: x.T, lambda a: a.T.copy()),
        "reversed": (lambda x: qb.flip(x), lambda a: np.flip(a).copy()),
        "sliced": (lambda x: x[tuple(slice(1, None, 2) for _ in x.shape)], lambda a: interleaved(a)),
    }
    for case in bound_samples(row):
        expected = case.with_all(*case.operands)
        for name, (view, source) in views.items():
            sources = [exactly(source(a)) for a in case.arrays]
            got = qb.jit(lambda *xs, case=case, view=view: case.with_all(*map(view, xs)))(*sources)
            assert_close(got, expected, tolerance, f"{case.context}, {name}")


def interleaved(array):
    """An array whose elements 1, 3, 5, ... along every axis are the given ones."""
    out = np.zeros([2 * n for n in array.shape], array.dtype)
    out[tuple(slice(1, None, 2) for _ in array.shape)] = array
    return out


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("row", [r for r in ROWS if r.errors], ids=str)
def test_errors(row):
    """The same error eagerly and under a trace; afterwards the function works."""
    for call, exception, message in row.errors:
        with pytest.raises(exception, match=message):
            call(row.function)
        with pytest.raises(exception, match=message):
            qb.jit(lambda call=call: call(traced_function(row)))()
    case = Bound(row, row.samples[0])
    assert case.with_all(*case.operands).shape == np.asarray(row.reference(*case.arrays, **case.params)).shape


def traced_function(row):
    """The function, with its arrays made tracers by a transform that they pass through."""

    def call(*args, **kwargs):
        leaves, structure = qb.tree.flatten((args, kwargs))
        arrays = [x for x in leaves if isinstance(x, qb.Tensor)]

        def run(*tracers):
            tracer = iter(tracers)
            traced_args, traced_kwargs = qb.tree.unflatten(
                structure, [next(tracer) if isinstance(x, qb.Tensor) else x for x in leaves]
            )
            return row.function(*traced_args, **traced_kwargs)

        return qb.jit(run)(*arrays)

    return call
