"""The special cases of the Python array API standard (2023.12), for every function that it and Quabla both have.

A table says what the standard's prose does: a row is a class of values for each operand, and the result, which is a
number (a zero with its sign) or a function of the operands. The classes are multiplied out, and every case is
computed in both formats, eagerly and compiled, as an array (its length leaves a rest to every vector width), and with
each operand of a pair as a Python number, which the compiler sees as a constant.
"""

import itertools
import math

import numpy as np
import pytest
import quabla as qb
from compare import assert_same_bits

INF, NAN, PI = math.inf, math.nan, math.pi

ANY = [NAN, INF, -INF, 0.0, -0.0, 1e-30, 0.5, 1.0, 2.0, 3.0, 2.5, 1e30, -1e-30, -0.5, -1.0, -2.0, -3.0, -2.5, -1e30]


def those(condition, values=None):
    return [x for x in (ANY if values is None else values) if condition(x)]


NOT_NAN = those(lambda x: x == x)
FINITE = those(math.isfinite)
POSITIVE, NEGATIVE = those(lambda x: x > 0, FINITE), those(lambda x: x < 0, FINITE)
NONZERO = POSITIVE + NEGATIVE
ZERO, INFINITE = [0.0, -0.0], [INF, -INF]
WHOLE = those(lambda x: x == math.floor(x), FINITE)
FRACTION = those(lambda x: x != math.floor(x), FINITE)
ODD, NOT_ODD = those(lambda x: x % 2 == 1, FINITE), those(lambda x: x % 2 != 1, FINITE)
ABOVE_1, BELOW_1 = those(lambda x: abs(x) > 1, FINITE), those(lambda x: abs(x) < 1, FINITE)
OUTSIDE_1 = those(lambda x: abs(x) > 1, NOT_NAN)


def same(x, *others):
    return x


def second(x, y):
    return y


UNARY = {
    "abs": [(NAN, NAN), (-0.0, 0.0), (INFINITE, INF), (0.0, 0.0), (NEGATIVE, lambda x: -x), (POSITIVE, same)],
    "arccos": [([NAN, *OUTSIDE_1], NAN), (1.0, 0.0)],
    "arccosh": [(NAN, NAN), (those(lambda x: x < 1), NAN), (1.0, 0.0), (INF, INF)],
    "arcsin": [([NAN, *OUTSIDE_1], NAN), (ZERO, same)],
    "arcsinh": [([NAN, *ZERO, *INFINITE], same)],
    "arctan": [([NAN, *ZERO], same), (INF, PI / 2), (-INF, -PI / 2)],
    "arctanh": [([NAN, *OUTSIDE_1], NAN), (-1.0, -INF), (1.0, INF), (ZERO, same)],
    "ceil": [([*WHOLE, NAN, *INFINITE], same), (-0.5, -0.0), (0.5, 1.0), (-2.5, -2.0), (2.5, 3.0)],
    "cos": [([NAN, *INFINITE], NAN), (ZERO, 1.0)],
    "cosh": [(NAN, NAN), (ZERO, 1.0), (INFINITE, INF)],
    "exp": [(NAN, NAN), (ZERO, 1.0), (INF, INF), (-INF, 0.0)],
    "expm1": [([NAN, *ZERO, INF], same), (-INF, -1.0)],
    "floor": [([*WHOLE, NAN, *INFINITE], same), (-0.5, -1.0), (0.5, 0.0), (-2.5, -3.0), (2.5, 2.0)],
    "isfinite": [([NAN, *INFINITE], False), (FINITE, True)],
    "isinf": [(INFINITE, True), ([NAN, *FINITE], False)],
    "isnan": [(NAN, True), (NOT_NAN, False)],
    "log": [([NAN, -INF, *NEGATIVE], NAN), (ZERO, -INF), (1.0, 0.0), (INF, INF)],
    "log1p": [(NAN, NAN), (those(lambda x: x < -1), NAN), (-1.0, -INF), (ZERO, same), (INF, INF)],
    "log2": [([NAN, -INF, *NEGATIVE], NAN), (ZERO, -INF), (1.0, 0.0), (INF, INF)],
    "log10": [([NAN, -INF, *NEGATIVE], NAN), (ZERO, -INF), (1.0, 0.0), (INF, INF)],
    "logical_not": [(ZERO, True), ([NAN, *INFINITE, *NONZERO], False)],
    "negative": [(NAN, NAN), (NOT_NAN, lambda x: -x)],
    "reciprocal": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0), (NAN, NAN)],
    "round": [([*WHOLE, NAN, *INFINITE], same), (0.5, 0.0), (-0.5, -0.0), (2.5, 2.0), (-2.5, -2.0), (1e-30, 0.0)],
    "sign": [([*NEGATIVE, -INF], -1.0), (ZERO, 0.0), ([*POSITIVE, INF], 1.0), (NAN, NAN)],
    "sin": [([NAN, *INFINITE], NAN), (ZERO, same)],
    "sinh": [([NAN, *ZERO, *INFINITE], same)],
    "sqrt": [([NAN, -INF, *NEGATIVE], NAN), ([*ZERO, INF], same)],
    "square": [(NAN, NAN), (INFINITE, INF), (ZERO, 0.0)],
    "tan": [([NAN, *INFINITE], NAN), (ZERO, same)],
    "tanh": [([NAN, *ZERO], same), (INF, 1.0), (-INF, -1.0)],
    "trunc": [([*WHOLE, NAN, *INFINITE], same), (-0.5, -0.0), (0.5, 0.0), (-2.5, -2.0), (2.5, 2.0)],
}


def signed(magnitude):
    """The magnitude with the sign that a product or quotient has."""
    return lambda x, y: math.copysign(magnitude, math.copysign(1, x) * math.copysign(1, y))


def compares(holds):
    """A comparison: false with NaN, else as Python's, for which the two zeros are equal, too."""
    return [(NOT_NAN, NOT_NAN, holds), (NAN, ANY, False), (ANY, NAN, False)]


def combines(holds):
    """A function of truth values: NaN is true."""
    return [(ANY, ANY, lambda x, y: holds(bool(x), bool(y)))]


EXACT_SUM = [(FINITE, ZERO, lambda x, y: x + y), (ZERO, FINITE, lambda x, y: x + y)]
REMAINDER = [
    (NAN, ANY, NAN), (ANY, NAN, NAN), (INFINITE, NOT_NAN, NAN), (NOT_NAN, ZERO, NAN),
    (ZERO, [*POSITIVE, INF], 0.0), (ZERO, [*NEGATIVE, -INF], -0.0),
    (POSITIVE, INF, same), (POSITIVE, -INF, second), (NEGATIVE, INF, second), (NEGATIVE, -INF, same),
    (WHOLE[2:6], [-1.0, -0.5], -0.0), (WHOLE[2:6], [1.0, 0.5], 0.0), (-1.0, 3.0, 2.0), (1.0, -3.0, -2.0),
]  # fmt: skip

BINARY = {
    "add": [
        (NAN, ANY, NAN), (ANY, NAN, NAN), (INF, -INF, NAN), (-INF, INF, NAN), (INF, [*FINITE, INF], INF),
        (-INF, [*FINITE, -INF], -INF), (FINITE, INFINITE, second), *EXACT_SUM, (-0.0, -0.0, -0.0), (0.0, -0.0, 0.0),
        (NONZERO, NONZERO, lambda x, y: 0.0 if x == -y else None),
    ],
    "atan2": [
        (NAN, ANY, NAN), (ANY, NAN, NAN), (POSITIVE, ZERO, PI / 2), (NEGATIVE, ZERO, -PI / 2),
        (0.0, [*POSITIVE, INF, 0.0], 0.0), (0.0, [*NEGATIVE, -INF, -0.0], PI), (-0.0, [*POSITIVE, INF, 0.0], -0.0),
        (-0.0, [*NEGATIVE, -INF, -0.0], -PI), (POSITIVE, INF, 0.0), (POSITIVE, -INF, PI), (NEGATIVE, INF, -0.0),
        (NEGATIVE, -INF, -PI), (INF, FINITE, PI / 2), (-INF, FINITE, -PI / 2), (INF, INF, PI / 4),
        (INF, -INF, 3 * PI / 4), (-INF, INF, -PI / 4), (-INF, -INF, -3 * PI / 4),
    ],
    "divide": [
        (NAN, ANY, NAN), (ANY, NAN, NAN), (INFINITE, INFINITE, NAN), (ZERO, ZERO, NAN),
        (ZERO, [*NONZERO, *INFINITE], signed(0.0)), ([*NONZERO, *INFINITE], ZERO, signed(INF)),
        (INFINITE, FINITE, signed(INF)), (FINITE, INFINITE, signed(0.0)),
    ],
    "equal": compares(lambda x, y: x == y),
    "floor_divide": [
        (NAN, ANY, NAN), (ANY, NAN, NAN), (INFINITE, INFINITE, NAN), (ZERO, ZERO, NAN),
        (ZERO, [*NONZERO, *INFINITE], signed(0.0)), ([*NONZERO, *INFINITE], ZERO, signed(INF)),
        (INFINITE, FINITE, lambda x, y: ("nan or", signed(INF)(x, y))),
        (POSITIVE, INF, 0.0), (POSITIVE, -INF, -1.0), (NEGATIVE, INF, -1.0), (NEGATIVE, -INF, 0.0),
        (0.5, [1.0, 3.0], 0.0), (-0.5, [1.0, 3.0], -1.0), (-0.5, [-1.0, -3.0], 0.0), (2.5, [-2.0], -2.0),
    ],
    "greater": compares(lambda x, y: x > y),
    "greater_equal": compares(lambda x, y: x >= y),
    "hypot": [
        (INFINITE, ANY, INF), (ANY, INFINITE, INF), (NAN, [NAN, *FINITE], NAN), ([NAN, *FINITE], NAN, NAN),
        (ZERO, FINITE, lambda x, y: abs(y)), (FINITE, ZERO, lambda x, y: abs(x)),
    ],
    "less": compares(lambda x, y: x < y),
    "less_equal": compares(lambda x, y: x <= y),
    "logaddexp": [(NAN, ANY, NAN), (ANY, NAN, NAN), (INF, NOT_NAN, INF), (NOT_NAN, INF, INF), (-INF, -INF, -INF),
                  (FINITE, -INF, lambda x, y: x + 0.0), (-INF, FINITE, lambda x, y: y + 0.0)],
    "logical_and": combines(lambda x, y: x and y),
    "logical_or": combines(lambda x, y: x or y),
    "logical_xor": combines(lambda x, y: x != y),
    "maximum": [(NAN, ANY, NAN), (ANY, NAN, NAN), (NONZERO + INFINITE, NONZERO + INFINITE, max)],
    "minimum": [(NAN, ANY, NAN), (ANY, NAN, NAN), (NONZERO + INFINITE, NONZERO + INFINITE, min)],
    "mod": REMAINDER,
    "multiply": [
        (NAN, ANY, NAN), (ANY, NAN, NAN), (INFINITE, ZERO, NAN), (ZERO, INFINITE, NAN),
        (INFINITE, [*NONZERO, *INFINITE], signed(INF)), (NONZERO, INFINITE, signed(INF)), (ZERO, FINITE, signed(0.0)),
        (FINITE, ZERO, signed(0.0)),
    ],
    "not_equal": [(NOT_NAN, NOT_NAN, lambda x, y: x != y), (NAN, ANY, True), (ANY, NAN, True)],
    "power": [
        (those(lambda x: x != 1), NAN, lambda x, y: NAN), (ANY, ZERO, 1.0), (NAN, [*NONZERO, *INFINITE], NAN),
        (ABOVE_1, INF, INF), (ABOVE_1, -INF, 0.0), ([1.0, -1.0], INFINITE, 1.0), (1.0, NOT_NAN, 1.0),
        (BELOW_1, INF, 0.0), (BELOW_1, -INF, INF),
        (INF, [*POSITIVE, INF], INF), (INF, [*NEGATIVE, -INF], 0.0),
        (-INF, those(lambda x: x > 0, ODD), -INF), (-INF, [*those(lambda x: x > 0, NOT_ODD), INF], INF),
        (-INF, those(lambda x: x < 0, ODD), -0.0), (-INF, [*those(lambda x: x < 0, NOT_ODD), -INF], 0.0),
        (0.0, [*POSITIVE, INF], 0.0), (0.0, [*NEGATIVE, -INF], INF),
        (-0.0, those(lambda x: x > 0, ODD), -0.0), (-0.0, [*those(lambda x: x > 0, NOT_ODD), INF], 0.0),
        (-0.0, those(lambda x: x < 0, ODD), -INF), (-0.0, [*those(lambda x: x < 0, NOT_ODD), -INF], INF),
        (NEGATIVE, FRACTION, NAN),
    ],
    "remainder": REMAINDER,
    "subtract": [
        (NAN, ANY, NAN), (ANY, NAN, NAN), (INF, INF, NAN), (-INF, -INF, NAN), (INF, [*FINITE, -INF], INF),
        (-INF, [*FINITE, INF], -INF), (FINITE, INFINITE, lambda x, y: -y), (FINITE, ZERO, lambda x, y: x - y),
        (ZERO, FINITE, lambda x, y: x - y), (NONZERO, NONZERO, lambda x, y: 0.0 if x == y else None),
    ],
}  # fmt: skip

OPERATORS = {
    "add": lambda x, y: x + y,
    "divide": lambda x, y: x / y,
    "floor_divide": lambda x, y: x // y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "mod": lambda x, y: x % y,
    "multiply": lambda x, y: x * y,
    "power": lambda x, y: x**y,
    "subtract": lambda x, y: x - y,
}


def cases_of(rows):
    """[(operands..., result)] of the rows, multiplied out; an operand is a number or a list of them."""
    found = []
    for *operands, result in rows:
        for point in itertools.product(*(o if isinstance(o, list) else [o] for o in operands)):
            value = result(*point) if callable(result) else result
            if value is not None:
                found.append((*point, value))
    return found


def check(got, cases, dtype, context):
    """Every result has the value, and a zero the sign, that its case says."""
    expected_dtype = "bool" if isinstance(cases[0][-1], bool) else dtype
    assert str(got.dtype) == expected_dtype, context
    for value, (*point, expected) in zip(np.asarray(got).ravel(), cases, strict=True):
        message = f"{context}: {point} gave {value}, expected {expected}"
        if isinstance(expected, tuple):  # the standard allows NaN, too
            if math.isnan(value):
                continue
            expected = expected[1]
        if isinstance(expected, bool):
            assert bool(value) == expected, message
        elif math.isnan(expected):
            assert math.isnan(value), message
        elif expected == 0 or math.isinf(expected):
            assert value == expected and math.copysign(1, value) == math.copysign(1, expected), message
        else:
            assert abs(value - np.dtype(dtype).type(expected)) <= 2 * np.spacing(abs(np.dtype(dtype).type(expected))), (
                message
            )


both_formats = pytest.mark.parametrize("dtype", ["float64", "float32"])


@both_formats
@pytest.mark.parametrize("name", UNARY)
def test_of_one(name, dtype):
    cases, f = cases_of(UNARY[name]), getattr(qb, name)
    x = qb.array([case[0] for case in cases], dtype=dtype)
    check(f(x), cases, dtype, name)
    check(qb.jit(f)(x), cases, dtype, f"jit({name})")
    check(qb.stack([f(element) for element in x]), cases, dtype, f"{name} of scalars")


@both_formats
@pytest.mark.parametrize("name", BINARY)
def test_of_two(name, dtype):
    cases, f = cases_of(BINARY[name]), getattr(qb, name)
    x, y = (qb.array([case[i] for case in cases], dtype=dtype) for i in (0, 1))
    ways = {name: f, f"jit({name})": qb.jit(f)}
    if name in OPERATORS:
        ways |= {f"operator of {name}": OPERATORS[name], f"jit(operator of {name})": qb.jit(OPERATORS[name])}
    for context, way in ways.items():
        check(way(x, y), cases, dtype, context)


@both_formats
@pytest.mark.parametrize("name", BINARY)
def test_of_an_array_and_a_number(name, dtype):
    """The number is a constant of the compiled function: whatever is simplified keeps the special cases."""
    cases = cases_of(BINARY[name])
    for f in [getattr(qb, name), *([OPERATORS[name]] if name in OPERATORS else [])]:
        for number in ANY:
            for place in (0, 1):
                some = [case for case in cases if repr(case[place]) == repr(number)]
                if not some:
                    continue
                x = qb.array([case[1 - place] for case in some], dtype=dtype)

                def call(x, f=f, place=place, number=number):
                    return f(x, number) if place else f(number, x)

                context = f"{name} with operand {place} the number {number}"
                check(call(x), some, dtype, context)
                check(qb.jit(call)(x), some, dtype, f"jit, {context}")


@both_formats
def test_power_by_whole_numbers(dtype):
    """x ** n with a Python int has the cases of x ** float(n)."""
    cases = cases_of(BINARY["power"])
    for n in (-3, -2, -1, 0, 1, 2, 3):
        some = [case for case in cases if case[1] == n and case[0] == case[0] and math.copysign(1, case[1]) * n >= 0]
        x = qb.array([case[0] for case in some], dtype=dtype)
        check(x**n, some, dtype, f"x ** {n}")
        check(qb.jit(lambda x, n=n: x**n)(x), some, dtype, f"jit, x ** {n}")


# ------------------------------------------------------------------------------------------- functions of whole arrays


@both_formats
@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("sum", [], 0.0),
        ("sum", [1.0, NAN], NAN),
        ("sum", [INF, -INF], NAN),
        ("sum", [INF, 1.0], INF),
        ("sum", [-INF, 1e30], -INF),
        ("sum", [-0.0], -0.0),  # as IEEE 754 adds them; the standard leaves it open, and NumPy's sums start from 0
        ("sum", [-0.0, -0.0, -0.0], -0.0),
        ("sum", [-0.0, 0.0], 0.0),
        ("sum", [-0.0] * 100, -0.0),
        ("sum", [-0.0] * 3000, -0.0),
        ("mean", [-0.0, -0.0], -0.0),
        ("prod", [], 1.0),
        ("prod", [2.0, NAN], NAN),
        ("prod", [0.0, INF], NAN),
        ("prod", [-0.0, 2.0], -0.0),
        ("mean", [], NAN),
        ("mean", [NAN, 1.0], NAN),
        ("mean", [INF, 1.0], INF),
        ("mean", [INF, -INF], NAN),
        ("var", [], NAN),
        ("var", [NAN, 1.0], NAN),
        ("var", [INF, 1.0], NAN),
        ("var", [3.0], 0.0),
        ("std", [], NAN),
        ("std", [NAN, 1.0], NAN),
        ("std", [3.0], 0.0),
        ("max", [1.0, NAN, 2.0], NAN),
        ("max", [-INF, -1.0], -1.0),
        ("min", [1.0, NAN, 2.0], NAN),
        ("min", [INF, 1.0], 1.0),
        ("any", [NAN], True),
        ("any", [], False),
        ("any", [0.0, -0.0], False),
        ("any", [0.0, -INF], True),
        ("all", [NAN, INF], True),
        ("all", [], True),
        ("all", [1.0, -0.0], False),
        ("cumsum", [-0.0], [-0.0]),
        ("cumsum", [-0.0, -0.0, 1.0], [-0.0, -0.0, 1.0]),
        ("cumsum", [1.0, NAN, 2.0], [1.0, NAN, NAN]),
        ("cumsum", [INF, 1.0, -INF, 1.0], [INF, INF, NAN, NAN]),
        ("cumprod", [2.0, -0.0, 3.0], [2.0, -0.0, -0.0]),
        ("cumprod", [0.0, INF], [0.0, NAN]),
    ],
)
def test_of_arrays(name, values, expected, dtype):
    f, x = getattr(qb, name), qb.array(np.array(values, dtype=dtype))
    expected = np.array(expected, dtype="bool" if isinstance(expected, bool) else dtype)
    assert_same_bits(f(x), qb.array(expected), name)
    assert_same_bits(qb.jit(lambda x: f(x))(x), qb.array(expected), f"jit({name})")
    columns = qb.stack([x, x, x], axis=1)
    assert_same_bits(f(columns, axis=0), qb.stack([qb.array(expected)] * 3, axis=-1), f"{name} of columns")


@both_formats
def test_variance_of_fewer_elements_than_ddof(dtype):
    for f in (qb.var, qb.std):
        assert math.isnan(f(qb.array([1.0, 2.0], dtype=dtype), ddof=2).item())
        assert math.isnan(f(qb.array([1.0, 2.0], dtype=dtype), ddof=3).item())


@both_formats
def test_clip(dtype):
    x = qb.array([NAN, INF, -INF, 0.5, -0.0], dtype=dtype)
    assert_same_bits(qb.clip(x, -1.0, 1.0), qb.array([NAN, 1.0, -1.0, 0.5, -0.0], dtype=dtype))
    assert_same_bits(qb.clip(x, None, None), x)
    for bounds in ((NAN, 1.0), (-1.0, NAN), (NAN, NAN), (NAN, None), (None, NAN)):
        assert np.isnan(np.asarray(qb.clip(x, *bounds))).all(), bounds
        assert np.isnan(np.asarray(qb.jit(lambda x, b=bounds: qb.clip(x, *b))(x))).all(), bounds


@both_formats
def test_extreme_of_nothing(dtype):
    """The standard leaves this to the library: NumPy's error, which names the shape."""
    for f in (qb.max, qb.min, qb.argmax, qb.argmin):
        with pytest.raises(ValueError, match=r"\(0,\)"):
            f(qb.zeros((0,), dtype=dtype))


@both_formats
def test_orders(dtype):
    """NaN is the largest; equal elements, the zeros among them, keep their order."""
    x = qb.array([NAN, 1.0, -0.0, INF, 0.0, -INF, NAN, -0.0], dtype=dtype)
    assert_same_bits(qb.sort(x), qb.array([-INF, -0.0, 0.0, -0.0, 1.0, INF, NAN, NAN], dtype=dtype))
    assert qb.argsort(x).tolist() == [5, 2, 4, 7, 1, 3, 0, 6]
    assert qb.argsort(x, descending=True).tolist() == [0, 6, 3, 1, 2, 4, 7, 5]
    assert (qb.argmax(x).item(), qb.argmin(x).item()) == (0, 0)
    a = qb.array([-INF, 0.0, 1.0, INF], dtype=dtype)
    v = qb.array([-INF, -0.0, NAN, INF], dtype=dtype)
    assert qb.searchsorted(a, v).tolist() == [0, 1, 4, 3]
    assert qb.searchsorted(a, v, side="right").tolist() == [1, 2, 4, 4]
