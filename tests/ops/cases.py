"""The case table: one row for each public function, with what test_cases.py needs to check it completely.

A row says how to call the function (operands and parameters of its samples), what it should return (a reference in
NumPy, SciPy or mpmath), how closely, where its derivative is, and what it refuses. Adding a function means adding a
row here.

Operands of samples are float64 arrays, cast to the dtype under test; bool and integer operands stay as they are.
Sample points keep away from kinks, so that finite differences are valid at all of them.
"""

import itertools
import operator
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mpmath as mp
import numpy as np
import quabla as qb
import scipy.special
from compare import updated

INF = np.inf


@dataclass(frozen=True)
class Sample:
    operands: tuple
    params: dict = field(default_factory=dict)

    def __str__(self):
        shapes = ", ".join(f"{np.asarray(o).dtype}{list(np.shape(o))}" for o in self.operands)
        return f"({shapes}; {self.params})" if self.params else f"({shapes})"


@dataclass(frozen=True, repr=False)
class Row:
    """name: of the function. reference(*operands, **params): the same result by NumPy, in float64.

    samples     operands and parameters of the calls
    result      dtype of the result: "same" as the floating operands, or a name
    ulps        tolerance of values, in units of eps of the dtype relative to the largest result
    derivative  "smooth": checked against finite differences; "flat": zero; None: the result has no derivative
    takes       kinds of dtypes it computes with: f floating, i integers, b bool
    operands    "each": as arguments; "list": as one list; "spread": as arguments, after the parameters; a tuple: by
                these names, but for the first
    exact       mpmath's function, for the accuracy of single elements; with `wide`, the points to try
    errors      (call, exception, regular expression of the message)
    part        which result, of a function that gives several
    prepare     what becomes of the first operand before the call, in `reference`, too
    """

    name: str
    reference: Callable
    samples: tuple
    result: str = "same"
    ulps: float = 8
    derivative: Any = "smooth"
    takes: str = "f"
    operands: Any = "each"
    exact: Any = None
    exact_ulps: float = 2
    wide: tuple = ()
    errors: tuple = ()
    part: Any = None
    prepare: Any = None

    def __repr__(self):
        return self.name if self.part is None else f"{self.name}[{self.part}]"

    @property
    def function(self):
        return operator.attrgetter(self.name)(qb)

    def call(self, operands, params):
        if self.prepare:
            operands = (self.prepare(operands[0]), *operands[1:])
        result = self.call_function(operands, params)
        return result if self.part is None else result[self.part]

    def call_function(self, operands, params):
        if self.operands == "spread":
            return self.function(*params.values(), *operands)
        if isinstance(self.operands, tuple):
            return self.function(operands[0], **dict(zip(self.operands[1:], operands[1:])), **params)
        return (
            self.function(list(operands), **params) if self.operands == "list" else self.function(*operands, **params)
        )


ROWS = []


def row(*args, **kwargs):
    ROWS.append(Row(*args, **kwargs))


# ------------------------------------------------------------------------------------------------------ sample operands


def draw(name, shapes, domains, clear_of_kinks=None):
    """Arrays of the shapes with elements in their domains (lo, hi), at a distance from kinks; the same in every run."""
    rng = np.random.default_rng(zlib.crc32(repr((name, shapes)).encode()))
    for _ in range(1000):
        arrays = tuple(rng.uniform(lo, hi, shape) for shape, (lo, hi) in zip(shapes, domains))
        if clear_of_kinks is None or np.all(clear_of_kinks(*arrays) > 0.03):
            return arrays
    raise AssertionError(f"no sample of {name} is clear of kinks")


def distinct(name, shape):
    """Distinct elements, no two closer than 0.1 (no ties, and none after a small step)."""
    rng = np.random.default_rng(zlib.crc32(repr((name, shape)).encode()))
    size = int(np.prod(shape))
    return rng.permutation(np.linspace(-1.73, -1.73 + 0.13 * max(size - 1, 0), size)).reshape(shape)


def distance_to_integer(x):
    return np.abs(x - np.round(x))


# ------------------------------------------------------------------------------------------------ families of functions

MAGNITUDES = (
    5e-324, 3e-310, 1e-300, 1e-100, 1e-20, 1e-9, 1e-4, 0.013, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1.0, 1.001, 1.3, 1.6, 2.2,
    3.0, 3.2, 4.7, 5.5, 8.1, 11.0, 19.0, 26.0, 37.0, 88.0, 130.0, 700.0, 1e3, 1e4, 1e6, 1e10, 1e22, 1e50, 1e200,
    1.7e308,
)  # fmt: skip
POINTS = (*(sign * m for m in MAGNITUDES for sign in (1, -1)), 0.0, -0.0)
SPECIAL = (0.0, -0.0, INF, -INF, np.nan, 1.0, -1.0, 2.5, -2.5, 0.5, 1.5)

UNARY_SHAPES = ((), (5,), (2, 3), (1,), (0,), (2, 0, 3))
BINARY_SHAPES = (
    ((), ()), ((3,), (3,)), ((2, 1), (3,)), ((), (2, 3)), ((4, 1, 2), (3, 1)), ((1,), (1,)), ((0,), (1,)),
    ((2, 0), (1, 1)),
)  # fmt: skip
BOOL = np.array([True, False])
BOTH_SHAPES = r"\(2,\) and \(3,\)"


def unary(name, reference, domain=(-2, 2), exact=None, kinks=None, takes="f", valid=(-INF, INF), **options):
    samples = tuple(Sample(draw(name, (shape,), (domain,), kinks)) for shape in UNARY_SHAPES)
    wide = tuple((x,) for x in POINTS if valid[0] <= x <= valid[1])
    errors = [
        (lambda f: f(), TypeError, r"misses the argument 'x'"),
        (lambda f: f(1.0, 2.0, 3.0), TypeError, r"at most"),
    ]
    if "b" not in takes:
        errors.append((lambda f: f(qb.array(BOOL)), ValueError, r"bool.*astype"))
    if "f" not in takes:
        errors.append((lambda f: f(qb.ones(2)), ValueError, r"float64.*astype"))
    row(name, reference, samples, exact=exact, takes=takes, wide=wide, errors=tuple(errors), **options)


def binary(
    name, reference, domains=((-2, 2), (-2, 2)), exact=None, kinks=None, takes="fi", valid=lambda a, b: True, **options
):
    samples = tuple(Sample(draw(name, shapes, domains, kinks)) for shapes in BINARY_SHAPES)
    some = (*POINTS[::5], 0.0, -0.0, 1.0, -1.0, 0.5, 3.0)
    wide = tuple(pair for pair in itertools.product(some, some) if valid(*pair))
    errors = [
        (lambda f: f(qb.ones(2)), TypeError, r"misses the argument"),
        (lambda f: f(qb.ones(2, dtype=qb.float32), qb.ones(2)), ValueError, r"(?s)float32.*float64.*astype"),
    ]
    if "f" in takes:
        errors.append((lambda f: f(qb.ones(2), qb.ones(3)), ValueError, BOTH_SHAPES))
    else:
        errors.append((lambda f: f(qb.ones(2), qb.ones(2)), ValueError, r"float64.*astype"))
        errors[1] = (lambda f: f(qb.ones(2, dtype=qb.int32), qb.ones(3, dtype=qb.int32)), ValueError, BOTH_SHAPES)
    if "b" not in takes:
        errors.append((lambda f: f(qb.array(BOOL), qb.array(BOOL)), ValueError, r"bool.*astype"))
    row(name, reference, samples, exact=exact, takes=takes, wide=wide, errors=tuple(errors), **options)


AXES = (
    ((), None), ((4,), None), ((4,), 0), ((1,), -1), ((2, 3), None), ((2, 3), 0), ((2, 3), -1), ((2, 3, 4), 1),
    ((2, 3, 4), (0, 2)), ((2, 3, 4), (-1, 0)), ((2, 3), ()), ((3, 1, 2), (1,)),
)  # fmt: skip
EMPTY_AXES = (((0,), None), ((2, 0), 1), ((0, 2), 0), ((2, 0, 3), (0, 2)))

AXIS_ERRORS = (
    (lambda f: f(qb.ones((2, 3)), axis=2), ValueError, r"axis 2 is out of range for an array of shape \(2, 3\)"),
    (lambda f: f(qb.ones((2, 3)), axis=-3), ValueError, r"axis -3 is out of range"),
    (lambda f: f(qb.ones((2, 3)), axis=(0, -2)), ValueError, r"axis -2 is given twice"),
    (lambda f: f(qb.ones((2, 3)), axis=1.5), TypeError, r"axis must be an int.*1\.5"),
    (lambda f: f(qb.ones((2, 3)), axes=1), TypeError, r"unexpected keyword argument 'axes'"),
)


def reduction(
    name, reference, empty=True, values=distinct, variants=({},), keepdims=True, axes=AXES, errors=(), **options
):
    samples = []
    for shape, axis in axes + (EMPTY_AXES if empty else ()):
        for extra in variants:
            params = dict(extra) if axis is None else {"axis": axis, **extra}
            samples.append(Sample((values(name, shape),), params))
            if keepdims:
                samples.append(Sample((values(name, shape),), {**params, "keepdims": True}))
    row(name, reference, tuple(samples), errors=AXIS_ERRORS + tuple(errors), **options)


def general(name, reference, calls, **options):
    """calls: (operand or tuple of operands, params); an operand is a shape (to be filled) or an array."""
    samples = []
    for operands, params in calls:
        operands = operands if isinstance(operands, list) else [operands]
        filled = [distinct(f"{name}{i}", o) if isinstance(o, tuple) else o for i, o in enumerate(operands)]
        samples.append(Sample(tuple(filled), params))
    row(name, reference, tuple(samples), **options)


# ----------------------------------------------------------------------------------------------------------- arithmetic


def split_at(*points):
    return lambda x: np.min([np.abs(x - p) for p in points], axis=0)


def c_floor_divide(a, b):
    return np.floor_divide(a, b)


unary("negative", np.negative, takes="fi", exact=lambda x: -x, exact_ulps=0)
binary("add", np.add, exact=lambda a, b: a + b, exact_ulps=0.5)
binary("subtract", np.subtract, exact=lambda a, b: a - b, exact_ulps=0.5)
binary("multiply", np.multiply, exact=lambda a, b: a * b, exact_ulps=0.5)
binary("divide", np.divide, ((-2, 2), (0.5, 2)), exact=lambda a, b: a / b, exact_ulps=0.5, valid=lambda a, b: b != 0)
binary("fmod", np.fmod, ((-3, 3), (0.7, 2)), kinks=lambda a, b: distance_to_integer(a / b))
binary("mod", np.mod, ((-3, 3), (0.7, 2)), kinks=lambda a, b: distance_to_integer(a / b))
binary("remainder", np.remainder, ((-3, 3), (-2, -0.7)), kinks=lambda a, b: distance_to_integer(a / b))
binary(
    "floor_divide",
    c_floor_divide,
    ((-3, 3), (0.7, 2)),
    kinks=lambda a, b: distance_to_integer(a / b),
    derivative="flat",
)
binary("maximum", np.maximum, kinks=lambda a, b: np.abs(a - b), ulps=0, takes="fib")
binary("minimum", np.minimum, kinks=lambda a, b: np.abs(a - b), ulps=0, takes="fib")
unary("abs", np.abs, kinks=split_at(0), takes="fi", ulps=0)
unary("sign", np.sign, kinks=split_at(0), takes="fi", derivative="flat", ulps=0)
unary("floor", np.floor, kinks=distance_to_integer, derivative="flat", ulps=0)
unary("ceil", np.ceil, kinks=distance_to_integer, derivative="flat", ulps=0)
unary("round", np.round, kinks=lambda x: distance_to_integer(x - 0.5), derivative="flat", ulps=0)
unary("trunc", np.trunc, kinks=distance_to_integer, derivative="flat", ulps=0)
unary("square", np.square, takes="fi", exact=lambda x: x * x, exact_ulps=0.5)
unary("reciprocal", np.reciprocal, (0.5, 2), exact=lambda x: 1 / x, exact_ulps=0.5, valid=(5e-324, INF))
binary("hypot", np.hypot, ((0.5, 2), (-2, -0.5)), exact=mp.hypot, takes="f")
general(
    "integer_power", lambda x, n: x**n,
    [((2, 3), {"n": n}) for n in (0, 1, 2, 3, 7, 12)] + [((0,), {"n": 2}), ((), {"n": 5})], takes="fi", ulps=20,
    errors=(
        (lambda f: f(qb.ones(2), -1), ValueError, r"n must be 0 or more, got -1"),
        (lambda f: f(qb.ones(2), 0.5), TypeError, r"n must be an int, got 0\.5"),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------------------------- powers, exponentials

unary("sqrt", np.sqrt, (0.2, 3), mp.sqrt, valid=(0, INF), exact_ulps=0.5)
unary("cbrt", np.cbrt, (0.2, 3), lambda x: mp.sign(x) * mp.cbrt(abs(x)))
unary("exp", np.exp, exact=mp.exp)
unary("exp2", np.exp2, exact=lambda x: mp.mpf(2) ** x)
unary("expm1", np.expm1, exact=mp.expm1)
unary("log", np.log, (0.3, 3), mp.log, valid=(5e-324, INF))
unary("log2", np.log2, (0.3, 3), lambda x: mp.log(x) / mp.log(2), valid=(5e-324, INF))
unary("log10", np.log10, (0.3, 3), mp.log10, valid=(5e-324, INF))
unary("log1p", np.log1p, (-0.6, 3), mp.log1p, valid=(-0.9999, INF))
binary(
    "power",
    np.power,
    ((0.4, 2), (-2, 3)),
    lambda a, b: a**b,
    takes="fi",
    exact_ulps=4,
    valid=lambda a, b: a > 0,
    ulps=16,
)
binary("logaddexp", np.logaddexp, exact=lambda a, b: max(a, b) + mp.log1p(mp.exp(-abs(a - b))), takes="f")

# -------------------------------------------------------------------------------------------- trigonometric, hyperbolic

unary("sin", np.sin, exact=mp.sin)
unary("cos", np.cos, exact=mp.cos)
unary("tan", np.tan, (-1.2, 1.2), mp.tan)
unary("arcsin", np.arcsin, (-0.8, 0.8), mp.asin, valid=(-1, 1))
unary("arccos", np.arccos, (-0.8, 0.8), mp.acos, valid=(-1, 1))
unary("arctan", np.arctan, exact=mp.atan)
binary(
    "atan2",
    np.arctan2,
    ((0.5, 2), (-2, 2)),
    lambda a, b: mp.atan2(a, b),
    takes="f",
    valid=lambda a, b: a != 0 and b != 0,
)
unary("sinh", np.sinh, exact=mp.sinh)
unary("cosh", np.cosh, exact=mp.cosh)
unary("tanh", np.tanh, exact=mp.tanh)
unary("arcsinh", np.arcsinh, exact=mp.asinh)
unary("arccosh", np.arccosh, (1.3, 3), mp.acosh, valid=(1, INF))
unary("arctanh", np.arctanh, (-0.7, 0.7), mp.atanh, valid=(-0.9999, 0.9999))

# ------------------------------------------------------------------------------------------ error function, activations


def exact_softplus(x):
    return mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x))


def np_sigmoid(x):
    return scipy.special.expit(x)


def np_gelu(x, approximate=True):
    if approximate:
        return x * scipy.special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return x * scipy.special.ndtr(x)


def np_softmax(x, axis=-1):
    if x.ndim == 0:
        return np.ones_like(x)
    return scipy.special.softmax(x, axis=axis) if x.size else x


def np_log_softmax(x, axis=-1):
    if x.ndim == 0:
        return np.zeros_like(x)
    return scipy.special.log_softmax(x, axis=axis) if x.size else x


def np_logsumexp(x, axis=None, keepdims=False):
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


unary("erf", scipy.special.erf, exact=mp.erf)
unary("erfc", scipy.special.erfc, exact=mp.erfc, exact_ulps=4, valid=(-INF, 1e6))
unary("sigmoid", np_sigmoid, exact=lambda x: 1 / (1 + mp.exp(-x)) if x > 0 else mp.exp(x) / (1 + mp.exp(x)))
unary("softplus", lambda x: np.logaddexp(0, x), exact=exact_softplus)
unary("relu", lambda x: np.maximum(x, 0), kinks=split_at(0), takes="fi", ulps=0)
unary("silu", lambda x: np.where(np.isneginf(x), 0, x) * np_sigmoid(x))
general(
    "gelu", np_gelu, [(s, {"approximate": a}) for s in ((), (5,), (2, 3), (0,)) for a in (True, False)],
    errors=((lambda f: f(qb.array(BOOL)), ValueError, "bool.*astype"),),
)  # fmt: skip
SOFTMAX_AXES = (
    ((4,), None), ((2, 3), 0), ((2, 3), -1), ((2, 3, 4), (0, 2)), ((1,), 0), ((2, 1), 1), ((0,), 0), ((2, 0), 1),
    ((0, 3), 1), ((2, 3), None),
)  # fmt: skip
reduction("softmax", np_softmax, empty=False, keepdims=False, axes=SOFTMAX_AXES, ulps=16)
reduction("log_softmax", np_log_softmax, empty=False, keepdims=False, axes=SOFTMAX_AXES, ulps=16)
reduction("logsumexp", np_logsumexp, ulps=16)

# -------------------------------------------------------------------------------------------------------- gamma function


@np.vectorize(otypes=[float])
def np_lgamma(x):
    if np.isfinite(x) and (x > 0 or x != np.floor(x)):
        return float(mp.log(abs(mp.gamma(x))))
    return np.nan if np.isnan(x) else np.inf  # at -inf, too: C99


unary("lgamma", np_lgamma, (0.3, 4), mp.loggamma, valid=(5e-324, INF), exact_ulps=4)
unary("digamma", scipy.special.psi, (0.3, 4), lambda x: mp.psi(0, x), valid=(1e-307, INF), exact_ulps=4, ulps=16)

# ------------------------------------------------------------------------------------------------------ tests and logic

TEST = {"result": "bool", "derivative": None, "ulps": 0}
unary("isnan", np.isnan, takes="fib", **TEST)
unary("isinf", np.isinf, takes="fib", **TEST)
unary("isfinite", np.isfinite, takes="fib", **TEST)
for comparison in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    binary(comparison, getattr(np, comparison), takes="fib", **TEST)

INTEGER_CALLS = [
    [np.array([5, -3, 0, 7]), np.array([3, 6, -1, 7])],
    [np.array([[True], [False]]), np.array([True, False, True])],
    [np.zeros((0, 2), np.int32), np.array([1, 2], np.int32)],
    [np.array([5, 6], np.uint64), np.array([3], np.uint64)],
    [np.array(6, np.uint32), np.array([3, 5], np.uint32)],
]
BITS = {"result": "operands", "derivative": None, "ulps": 0, "takes": "ib"}
FLOATING_REFUSED = ((lambda f: f(qb.ones(2), qb.ones(2)), ValueError, "float64.*astype"),)
general("bitwise_and", np.bitwise_and, [(c, {}) for c in INTEGER_CALLS], errors=FLOATING_REFUSED, **BITS)
general("bitwise_or", np.bitwise_or, [(c, {}) for c in INTEGER_CALLS], errors=FLOATING_REFUSED, **BITS)
general("bitwise_xor", np.bitwise_xor, [(c, {}) for c in INTEGER_CALLS], errors=FLOATING_REFUSED, **BITS)
general(
    "bitwise_not", np.bitwise_not, [([c[0]], {}) for c in INTEGER_CALLS],
    errors=((lambda f: f(qb.ones(2)), ValueError, "float64.*astype"),), **BITS,
)  # fmt: skip

TRUTH = [np.array([0.0, 1.0, -2.0, 0.0]), np.array([0.0, 0.0, 3.0, np.nan])]
TRUTH_CALLS = [
    TRUTH,
    [np.array([[True], [False]]), np.array([0.0, 2.0, 0.0])],
    [np.zeros((0,)), np.array([1.0])],
    [np.array(2.0), np.array(0.0)],
]
TRUTH_ROW = {"result": "bool", "derivative": None, "ulps": 0, "takes": "fib"}
SHAPES_REFUSED = ((lambda f: f(qb.ones(2), qb.ones(3)), ValueError, BOTH_SHAPES),)
general("logical_and", np.logical_and, [(c, {}) for c in TRUTH_CALLS], errors=SHAPES_REFUSED, **TRUTH_ROW)
general("logical_or", np.logical_or, [(c, {}) for c in TRUTH_CALLS], errors=SHAPES_REFUSED, **TRUTH_ROW)
general("logical_xor", np.logical_xor, [(c, {}) for c in TRUTH_CALLS], errors=SHAPES_REFUSED, **TRUTH_ROW)
general("logical_not", np.logical_not, [([c[0]], {}) for c in TRUTH_CALLS], **TRUTH_ROW)


def zeros_and_ones(name, shape):
    return (distinct(name, shape) > -1.2).astype(float)


reduction("any", np.any, values=zeros_and_ones, **TRUTH_ROW)
reduction("all", np.all, values=zeros_and_ones, **TRUTH_ROW)

# ----------------------------------------------------------------------------------------------------------- selections


def np_clip(x, lo=None, hi=None):
    x = x if lo is None else np.maximum(x, lo)
    return x if hi is None else np.minimum(x, hi)


CONDITION = np.array([[True, False, True], [False, False, True]])
general(
    "where", np.where,
    [
        ([CONDITION, (2, 3), (2, 3)], {}), ([CONDITION[0], (2, 1), ()], {}), ([np.array(True), (3,), (3,)], {}),
        ([np.zeros((0,), bool), (1,), ()], {}), ([np.array([0, 2, 0]), (3,), (2, 3)], {}),
    ],
    takes="fib", ulps=0,
    errors=(
        (lambda f: f(qb.array(BOOL), qb.ones(2), qb.ones(3)), ValueError, r"\(2,\), \(2,\) and \(3,\)"),
        (
            lambda f: f(qb.array(BOOL), qb.ones(2), qb.ones(2, dtype=qb.float32)), ValueError,
            "(?s)float64.*float32.*astype",
        ),
    ),
)  # fmt: skip
general(
    "clip", np_clip,
    [
        ([(2, 3), np.array(-1.55), np.array(-1.29)], {}), ([(4,), np.array([-1.66, -1.55, -1.4, -1.29])], {}),
        ([(0,), np.array(0.0), np.array(1.0)], {}), ([(3, 1), np.array([-1.66, -1.55]), np.array([[-1.4]])], {}),
        ([(), np.array(-2.0), np.array(-1.9)], {}),
    ],
    takes="fi", ulps=0,
    errors=(
        (lambda f: f(qb.ones(2), qb.ones(3)), ValueError, r"\(2,\) and \(3,\)"),
        (lambda f: f(qb.array(BOOL), qb.array(BOOL)), ValueError, "bool"),
    ),
)  # fmt: skip
general(
    "nan_to_num",
    lambda x, nan=0.0, posinf=None, neginf=None: np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf),
    [((2, 3), {}), ((4,), {"nan": 2.0, "posinf": 1.0, "neginf": -1.0}), ((0,), {}), ((), {})], takes="fib", ulps=0,
)  # fmt: skip
unary("stop_gradient", lambda x: x, derivative="flat", takes="fib", ulps=0)

# ----------------------------------------------------------------------------------------------------------- reductions


def np_prod_values(name, shape):
    return 0.6 + 0.4 * np.abs(distinct(name, shape))


def np_norm(x, axis=None, keepdims=False):
    return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


EMPTY_REFUSED = (
    (lambda f: f(qb.zeros((2, 0)), axis=1), ValueError, r"\(2, 0\)"),
    (lambda f: f(qb.zeros(0)), ValueError, r"\(0,\)"),
)
reduction("sum", np.sum, takes="fib")
reduction("mean", np.mean, empty=False, takes="fib")
reduction("prod", np.prod, values=np_prod_values, takes="fib", ulps=16)
reduction("max", np.max, empty=False, errors=EMPTY_REFUSED, takes="fib", ulps=0)
reduction("min", np.min, empty=False, errors=EMPTY_REFUSED, takes="fib", ulps=0)
SEVERAL = tuple((shape, axis) for shape, axis in AXES if shape not in ((), (1,)) and axis not in ((), (1,)))
reduction("var", np.var, empty=False, variants=({}, {"ddof": 1}), axes=SEVERAL, ulps=16, takes="fib")
reduction("std", np.std, empty=False, variants=({}, {"ddof": 0.5}), axes=SEVERAL, ulps=16, takes="fib")
reduction("norm", np_norm, axes=tuple(a for a in AXES if a[1] != ()), ulps=16)

# ------------------------------------------------------------------------------------------------------------- products


def np_dot(a, b):
    return np.dot(a, b)


def call_shapes(*pairs):
    return [([a, b], {}) for a, b in pairs]


general(
    "matmul", np.matmul,
    call_shapes(
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (1, 3, 4)), ((4, 1, 2, 3), (5, 3, 2)),
        ((3,), (5, 3, 2)), ((5, 2, 3), (3,)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0)),
        ((0, 2, 3), (3, 2)), ((0,), (0,)),
    ),
    takes="fi", ulps=16,
    errors=(
        (lambda f: f(qb.ones((2, 3)), qb.ones((2, 3))), ValueError, r"\(2, 3\) and \(2, 3\).*3.*2"),
        (lambda f: f(qb.ones((2, 2, 3)), qb.ones((3, 3, 4))), ValueError, r"\(2, 2, 3\) and \(3, 3, 4\)"),
        (lambda f: f(qb.array(1.0), qb.ones(2)), ValueError, r"shapes \(\) and \(2,\)"),
        (lambda f: f(qb.ones((2, 3)), qb.ones(3, dtype=qb.float32)), ValueError, "(?s)float64.*float32.*astype"),
        (lambda f: f(qb.array(BOOL), qb.array(BOOL)), ValueError, "bool.*astype"),
    ),
)  # fmt: skip
general(
    "dot", np_dot,
    call_shapes(
        ((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((), (3,)), ((2, 3), ()), ((), ()),
        ((0,), (0,)), ((2, 0), (0, 3)),
    ),
    takes="fi", ulps=16,
    errors=((lambda f: f(qb.ones((2, 3)), qb.ones((4, 3))), ValueError, r"\(2, 3\) and \(4, 3\)"),),
)  # fmt: skip
general(
    "tensordot", lambda a, b, axes=2: np.tensordot(a, b, axes),
    [
        ([(2, 3, 4), (3, 4, 5)], {}), ([(2, 3), (3, 4)], {"axes": 1}), ([(2,), (3,)], {"axes": 0}),
        ([(2, 3, 4), (4, 5, 2)], {"axes": ((0, 2), (2, 0))}), ([(2, 3), (4, 3)], {"axes": (1, -1)}),
        ([(2, 0), (0, 3)], {"axes": 1}),
    ],
    takes="fi", ulps=16,
    errors=(
        (lambda f: f(qb.ones((2, 3)), qb.ones((3, 2))), ValueError, r"\(2, 3\) and \(3, 2\)"),
        (lambda f: f(qb.ones(2), qb.ones(2), axes=2), ValueError, "cannot sum over 2 axes"),
        (
            lambda f: f(qb.ones((2, 3)), qb.ones((3, 2)), axes=((0, 1), (0,))), ValueError,
            "2 axes of the first operand are paired with 1",
        ),
        (lambda f: f(qb.ones((2, 3)), qb.ones((3, 2)), axes=(2, 0)), ValueError, "axis 2 is out of range"),
    ),
)  # fmt: skip
general(
    "outer", np.outer, call_shapes(((3,), (2,)), ((), (3,)), ((2, 2), (3,)), ((0,), (3,)), ((1,), (1,))),
    takes="fi",
)  # fmt: skip

general(
    "kron",
    np.kron,
    call_shapes(
        ((2, 3), (3, 2)), ((3,), (2,)), ((3,), (2, 2)), ((2, 1, 2), (2,)), ((), (3,)), ((), ()), ((0, 2), (2,))
    ),
    takes="fi",
)
general("cross", np.cross, [([(3,), (3,)], {}), ([(4, 3), (3,)], {}), ([(2, 1, 3), (4, 3)], {}), ([(3, 2), (3, 2)], {"axis": 0}), ([(0, 3), (3,)], {})],
        takes="fi",
        errors=((lambda f: f(qb.ones((2, 3)), qb.ones((2, 2))), ValueError, r"operand 1 has shape \(2, 2\), and extent 2 along axis 1"),
                (lambda f: f(qb.ones((2, 3)), qb.ones((4, 3))), ValueError, r"\(2, 3\) and \(4, 3\)"),
                (lambda f: f(qb.ones(3), qb.ones(3), axis=1), ValueError, "axis 1 is out of range"),
                (lambda f: f(qb.ones(3), qb.ones(3), axis=None), TypeError, "axis must be an int")))  # fmt: skip
general("polyval", np.polyval, call_shapes(((4,), (3,)), ((1,), (2, 3)), ((3,), ()), ((0,), (2,)), ((3,), (0,))), takes="fi", ulps=16,
        errors=((lambda f: f(qb.ones((2, 2)), qb.ones(2)), ValueError, r"one axis, got shape \(2, 2\)"),))  # fmt: skip

EINSUMS = (
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("i,i", (3,), (3,)), ("i,j->ij", (2,), (3,)), ("ij->ji", (2, 3)), ("ii", (3, 3)),
    ("ii->i", (3, 3)), ("ij->", (2, 3)), ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)), ("...ij,...jk", (2, 2, 3), (3, 2)), ("i...->...", (2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)), ("i,i,i->i", (3,), (3,), (3,)), ("ij,kj,j->ik", (2, 3), (2, 3), (3,)), ("iji->j", (2, 3, 2)),
    ("ij,j->ij", (2, 3), (3,)), (",i->i", (), (3,)), ("i,i->", (1,), (3,)), ("ij,kl->", (2, 2), (2, 3)), ("ij->j", (0, 2)), ("...->...", ()),
)  # fmt: skip
general("einsum", lambda *operands, equation: np.einsum(equation, *operands),
        [(list(shapes), {"equation": equation}) for equation, *shapes in EINSUMS],
        operands="spread", takes="fi", ulps=16,
        errors=((lambda f: f("ij,jk", qb.ones((2, 3)), qb.ones((4, 2))), ValueError, r"'ij,jk': index j has extent 4 in operand 1 of shape \(4, 2\), and 3"),
                (lambda f: f("ij,jk", qb.ones((2, 3))), ValueError, "'ij,jk' has 2 terms for 1 operand"),
                (lambda f: f("ij", qb.ones(3)), ValueError, r"operand 0 has shape \(3,\), and its term 2 indices"),
                (lambda f: f("i", qb.ones((2, 3))), ValueError, r"its term 1 index; '\.\.\.' stands for further axes"),
                (lambda f: f("ii->ii", qb.ones((2, 2))), ValueError, "index i occurs twice in the output"),
                (lambda f: f("i->j", qb.ones(2)), ValueError, "index j of the output is in no operand"),
                (lambda f: f("i1", qb.ones(2)), ValueError, "'1' is not an index"),
                (lambda f: f("i..", qb.ones(2)), ValueError, "one ellipsis"),
                (lambda f: f("i-j", qb.ones(2)), ValueError, "'-' must be part of '->'"),
                (lambda f: f("i->i->i", qb.ones(2)), ValueError, "cannot follow the output"),
                (lambda f: f("...i->i", qb.ones((2, 2))), ValueError, r"the output lacks '\.\.\.'"),
                (lambda f: f("i,i", qb.ones(2), qb.ones(2, dtype=qb.float32)), ValueError, "(?s)float64.*float32.*astype"),
                (lambda f: f("i", qb.array(BOOL)), ValueError, "bool.*astype"),
                (lambda f: f(3, qb.ones(2)), TypeError, "without an equation each operand is followed by a list of its indices")))  # fmt: skip

# -------------------------------------------------------------------------------------------------------- along an axis

RUNNING = [((4,), {}), ((4,), {"reverse": True}), ((2, 3), {}), ((2, 3), {"axis": 0}), ((2, 3), {"axis": -1, "reverse": True}), ((2, 3, 2), {"axis": 1}), ((), {}),
           ((1,), {"axis": 0}), ((0,), {}), ((2, 0), {"axis": 0}), ((2, 0), {"axis": 1, "reverse": True})]  # fmt: skip


def running(function):
    def reference(x, axis=None, reverse=False):
        if axis is None:
            x, axis = np.ravel(x), 0
        return np.flip(function(np.flip(x, axis), axis), axis) if reverse else function(x, axis)

    return reference


ONE_AXIS_ERRORS = ((lambda f: f(qb.ones((2, 3)), axis=2), ValueError, "axis 2 is out of range"),
                   (lambda f: f(qb.ones((2, 3)), axis=(0, 1)), TypeError, "axis must be an int or None"))  # fmt: skip
general("cumsum", running(np.cumsum), RUNNING, takes="fib", errors=ONE_AXIS_ERRORS)
general("cumprod", running(np.cumprod), RUNNING, takes="fib", errors=ONE_AXIS_ERRORS)


def np_diff(x, *ends, n=1, axis=-1):
    return np.diff(x, n, axis, **dict(zip(("prepend", "append"), ends)))


general("diff", np_diff,
        [((4,), {}), ((2, 3), {}), ((2, 3), {"axis": 0}), ((5, 2), {"n": 3, "axis": 0}), ((3,), {"n": 0}), ((2,), {"n": 3}), ((0,), {}), ((1, 2), {"axis": -2}),
         ([(4,), (2,)], {}), ([(4,), ()], {"n": 2}), ([(2, 3), (1, 3), (2, 3)], {"axis": 0, "n": 2}), ([(2, 3), (), (2, 1)], {}), ([(3, 2), (3, 0), ()], {}),
         ([(0,), (), ()], {})],
        takes="fib", operands=("x", "prepend", "append"),
        errors=((lambda f: f(qb.ones(3), n=-1), ValueError, "n must be 0 or more, got -1"), (lambda f: f(qb.ones(3), axis=1), ValueError, "axis 1 is out of range"),
                (lambda f: f(qb.ones(3), prepend=qb.ones((1, 1))), ValueError, r"prepend has shape \(1, 1\), and x shape \(3,\)"),
                (lambda f: f(qb.ones((2, 3)), append=qb.ones((2, 3)), axis=0, prepend=qb.ones((2, 2))), ValueError, r"prepend has shape \(2, 2\).*along axis 0"),
                (lambda f: f(qb.ones(3), append=qb.ones(1, dtype="float32")), ValueError, "float64.*float32.*astype"),
                (lambda f: f(qb.array(1.0)), ValueError, "axis -1 is out of range")))  # fmt: skip
general("trapezoid", lambda y, x=None, dx=1.0, axis=-1: np.trapezoid(y, x, dx, axis),
        [([(4,)], {}), ([(2, 3)], {"dx": 0.5}), ([(2, 3)], {"axis": 0}), ([(2, 3), (3,)], {}), ([(3, 2), (3,)], {"axis": 0}), ([(2, 3), (2, 3)], {}), ([(2, 3), (2, 3)], {"axis": 0}),
         ([(1,)], {}), ([(0,)], {}), ([(2, 0)], {})],
        errors=((lambda f: f(qb.ones((2, 3)), qb.ones(4)), ValueError, r"x of shape \(4,\) does not give the points of 3 values along axis 1"),
                (lambda f: f(qb.ones(3), axis=1), ValueError, "axis 1 is out of range"),
                (lambda f: f(qb.array(BOOL)), ValueError, "bool.*astype")))  # fmt: skip

PLACES = [((4,), {}), ((2, 3), {}), ((2, 3), {"axis": 0}), ((2, 3, 4), {"axis": -2}), ((2, 3), {"axis": 1, "keepdims": True}), ((2, 3), {"keepdims": True}), ((), {}), ((1,), {"axis": 0}),
          ((0, 2), {"axis": 1})]  # fmt: skip
PLACE_ROW = {"result": "int64", "derivative": None, "ulps": 0, "takes": "fib"}
for name in ("argmax", "argmin"):
    general(name, getattr(np, name), PLACES, errors=(*ONE_AXIS_ERRORS, *EMPTY_REFUSED), **PLACE_ROW)


def np_argsort(x, axis=-1, descending=False):
    if not descending:
        return np.argsort(x, axis, kind="stable")
    x, axis = (np.ravel(x), 0) if axis is None else (x, axis)
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def np_sort(x, axis=-1, descending=False):
    x, axis = (np.ravel(x), 0) if axis is None else (x, axis)
    return np.flip(np.sort(x, axis), axis) if descending else np.sort(x, axis)


SORTED = [((5,), {}), ((2, 3), {}), ((2, 3), {"axis": 0}), ((2, 3, 4), {"axis": 1, "descending": True}), ((2, 3), {"axis": None}), ((70,), {}), ((70, 2), {"axis": 0}), ((1,), {}),
          ((0,), {}), ((2, 0), {"axis": 0})]  # fmt: skip
SORT_ERRORS = (
    *ONE_AXIS_ERRORS,
    (lambda f: f(qb.array(1.0)), ValueError, r"axis -1 is out of range for an array of shape \(\)"),
)
general("argsort", np_argsort, SORTED, errors=SORT_ERRORS, **PLACE_ROW)
general("sort", np_sort, SORTED, errors=SORT_ERRORS, takes="fib", ulps=0)
general("searchsorted", lambda a, v, side="left": np.searchsorted(a, v, side),
        [([np.array([-1.5, -1.2, -1.2, -0.4]), np.array([[-1.2, -2.0, 0.0], [-0.4, -1.3, -1.5]])], {"side": side}) for side in ("left", "right")]
        + [([np.array([-1.5]), np.array(-1.5)], {}), ([np.zeros(0), np.array([1.0])], {}), ([np.array([1.0]), np.zeros((0, 2))], {})],
        errors=((lambda f: f(qb.ones((2, 2)), 1.0), ValueError, r"one axis, got shape \(2, 2\)"), (lambda f: f(qb.ones(2), 1.0, side="middle"), ValueError, "side must be 'left' or 'right'"),
                (lambda f: f(qb.ones(2), 1.0, side=1), TypeError, "side must be a str, got 1"),
                (lambda f: f(qb.ones(2), qb.ones(2, dtype=qb.float32)), ValueError, "(?s)float64.*float32.*astype")), result="int64", derivative=None, ulps=0)  # fmt: skip
KNOTS, HEIGHTS = np.array([-1.1, -0.4, 0.3, 1.2]), np.array([0.7, -0.3, 1.4, 0.2])
general("interp", np.interp,
        [([np.array([-2.0, -0.7, 0.1, 0.9, 3.0]), KNOTS, HEIGHTS], {}), ([np.array([[0.5], [-0.9]]), KNOTS, HEIGHTS], {}), ([np.array(0.0), KNOTS, HEIGHTS], {}),
         ([np.zeros((0,)), KNOTS, HEIGHTS], {}), ([np.array([-2.0, 2.0]), KNOTS[:1], HEIGHTS[:1]], {})],
        ulps=16,
        errors=((lambda f: f(1.0, qb.ones(2), qb.ones(3)), ValueError, r"got shapes \(2,\) and \(3,\)"), (lambda f: f(1.0, qb.ones(0), qb.ones(0)), ValueError, "not empty"),
                (lambda f: f(1.0, qb.ones(2), qb.ones(2, dtype=qb.float32)), ValueError, "(?s)float64.*float32.*astype")))  # fmt: skip

# --------------------------------------------------------------------------------------------------------------- shapes

STRUCTURAL = {"takes": "fib", "ulps": 0}


def np_repeat(x, repeats, axis=None):
    return np.repeat(x, repeats, axis)


general(
    "reshape", lambda x, shape: np.reshape(x, shape),
    [
        ((2, 3), {"shape": (3, 2)}), ((2, 3), {"shape": -1}), ((2, 3, 4), {"shape": (4, -1)}),
        ((), {"shape": (1, 1)}), ((1,), {"shape": ()}), ((0, 3), {"shape": (3, 0)}), ((2, 0), {"shape": (0, 7)}),
        ((6,), {"shape": (1, 6, 1)}),
    ],
    errors=(
        (lambda f: f(qb.ones((2, 3)), (4, 2)), ValueError, r"shape \(2, 3\) has 6 elements.*\(4, 2\)"),
        (lambda f: f(qb.ones((2, 3)), (-1, -1)), ValueError, "one of them may be -1"),
        (lambda f: f(qb.ones((2, 3)), (4, -1)), ValueError, r"\(2, 3\).*\(4, -1\)"),
        (lambda f: f(qb.ones((0, 3)), (-1, 0)), ValueError, r"\(0, 3\).*\(-1, 0\)"),
        (lambda f: f(qb.ones((2, 3)), 6.0), TypeError, "shape must be"),
    ),
    **STRUCTURAL,
)  # fmt: skip
general("ravel", np.ravel, [((), {}), ((3,), {}), ((2, 3), {}), ((2, 0), {})], **STRUCTURAL)
general(
    "transpose", lambda x, axes=None: np.transpose(x, axes),
    [
        ((), {}), ((3,), {}), ((2, 3), {}), ((2, 3, 4), {}), ((2, 3, 4), {"axes": (1, 2, 0)}),
        ((2, 3, 4), {"axes": (-1, 0, 1)}), ((2, 0, 3), {}), ((0,), {"axes": (0,)}),
    ],
    errors=(
        (lambda f: f(qb.ones((2, 3)), (0,)), ValueError, r"axes \(0,\).*\(2, 3\)"),
        (lambda f: f(qb.ones((2, 3)), (0, 0)), ValueError, "given twice"),
        (lambda f: f(qb.ones((2, 3)), (0, 2)), ValueError, "axis 2 is out of range"),
    ),
    **STRUCTURAL,
)  # fmt: skip
general(
    "swapaxes", np.swapaxes,
    [
        ((2, 3), {"axis1": 0, "axis2": 1}), ((2, 3, 4), {"axis1": -1, "axis2": 0}),
        ((2,), {"axis1": 0, "axis2": 0}), ((2, 0), {"axis1": 0, "axis2": 1}),
    ],
    errors=((lambda f: f(qb.ones((2, 3)), 0, 2), ValueError, "axis 2 is out of range"),), **STRUCTURAL,
)  # fmt: skip
general(
    "moveaxis", np.moveaxis,
    [
        ((2, 3, 4), {"source": 0, "destination": -1}), ((2, 3, 4), {"source": (0, 2), "destination": (1, 0)}),
        ((0, 3), {"source": 1, "destination": 0}),
    ],
    errors=(
        (lambda f: f(qb.ones((2, 3)), (0, 1), 0), ValueError, "2 source axes for 1"),
        (lambda f: f(qb.ones((2, 3)), 2, 0), ValueError, "axis 2 is out of range"),
    ),
    **STRUCTURAL,
)  # fmt: skip
general(
    "squeeze", lambda x, axis=None: np.squeeze(x, axis),
    [
        ((1, 3, 1), {}), ((1, 3, 1), {"axis": 0}), ((1, 3, 1), {"axis": (0, -1)}), ((2,), {}), ((1,), {}),
        ((1, 0), {"axis": 0}),
    ],
    errors=((lambda f: f(qb.ones((2, 1)), axis=0), ValueError, r"axis 0 of shape \(2, 1\) has extent 2"),),
    **STRUCTURAL,
)  # fmt: skip
general(
    "expand_dims", np.expand_dims,
    [((), {"axis": 0}), ((2, 3), {"axis": 1}), ((2, 3), {"axis": (0, -1)}), ((0,), {"axis": -2})],
    errors=(
        (lambda f: f(qb.ones(2), 3), ValueError, "axis 3 is out of range"),
        (lambda f: f(qb.ones(2), None), TypeError, "axis must be an int"),
    ),
    **STRUCTURAL,
)  # fmt: skip
general(
    "broadcast_to", np.broadcast_to,
    [
        ((), {"shape": (2, 3)}), ((3,), {"shape": (2, 3)}), ((2, 1), {"shape": (2, 3)}), ((1,), {"shape": (0,)}),
        ((2, 1, 3), {"shape": (4, 2, 5, 3)}), ((2,), {"shape": 2}),
    ],
    errors=(
        (lambda f: f(qb.ones((2, 3)), (2, 2)), ValueError, r"\(2, 3\) does not broadcast to \(2, 2\)"),
        (lambda f: f(qb.ones((2, 3)), (3,)), ValueError, r"\(2, 3\) does not broadcast to \(3,\)"),
    ),
    **STRUCTURAL,
)  # fmt: skip
general(
    "flip", lambda x, axis=None: np.flip(x, axis),
    [((3,), {}), ((2, 3), {}), ((2, 3), {"axis": 0}), ((2, 3, 4), {"axis": (0, -1)}), ((0, 2), {}), ((), {})],
    errors=((lambda f: f(qb.ones(2), axis=1), ValueError, "axis 1 is out of range"),), **STRUCTURAL,
)  # fmt: skip
general(
    "astype", lambda x, dtype: x.astype(str(dtype)),
    [((2, 3), {"dtype": qb.float64}), ((), {"dtype": qb.float32}), ((0,), {"dtype": qb.float32})], takes="fib",
    result="parameter", ulps=0,
    errors=(
        (lambda f: f(qb.ones(2), None), TypeError, "dtype must be given"),
        (lambda f: f(qb.ones(2), "float128"), Exception, "float128"),
    ),
)  # fmt: skip
LIKE = [((2, 3), {}), ((), {}), ((0, 2), {})]
general("zeros_like", np.zeros_like, LIKE, derivative="flat", **STRUCTURAL)
general("ones_like", np.ones_like, LIKE, derivative="flat", **STRUCTURAL)
general(
    "full_like", lambda x, v: np.broadcast_to(v, x.shape).copy(),
    [
        ([(2, 3), np.array(2.5)], {}), ([(2, 3), np.array([1.5, 2.0, -1.0])], {}), ([(0,), np.array(2.0)], {}),
        ([(), np.array(1.0)], {}),
    ],
    errors=((lambda f: f(qb.ones(2), qb.ones(3)), ValueError, r"\(3,\) does not broadcast to .*\(2,\)"),),
    **STRUCTURAL,
)  # fmt: skip

PADDED = [
    ((3,), {"pad_width": 2}),
    ((2, 3), {"pad_width": (1, 2)}),
    ((2, 3), {"pad_width": ((1, 0), (2, 3))}),
    ((1, 2), {"pad_width": 3}),
    ((4,), {"pad_width": (0, 9)}),
    ((2, 3), {"pad_width": 0}),
]
general("pad", lambda x, pad_width, mode="constant", **values: np.pad(x, pad_width, mode, **values),
        [(shape, {**params, "mode": mode}) for mode in ("constant", "edge", "reflect", "symmetric", "wrap") for shape, params in PADDED]
        + [((0, 2), {"pad_width": 1}), ((), {"pad_width": 1}), ((2, 3), {"pad_width": ((1, 2), (0, 1)), "constant_values": 2.5})],
        errors=((lambda f: f(qb.ones(2), -1), ValueError, r"widths \(-1, -1\) along axis 0"), (lambda f: f(qb.ones(2), 1, mode="mean"), ValueError, "mode must be .*got 'mean'"),
                (lambda f: f(qb.ones((2, 2)), ((1, 1), (1, 1), (1, 1))), ValueError, r"3 pairs of widths for an array of shape \(2, 2\)"),
                (lambda f: f(qb.ones(0), 1, mode="edge"), ValueError, r"axis 0 of shape \(0,\) has no element"), (lambda f: f(qb.ones(2), 1.5), TypeError, "pad_width must be an int")),
        takes="fi", ulps=0)  # fmt: skip
general("roll", lambda x, shift, axis=None: np.roll(x, shift, axis),
        [((5,), {"shift": 2}), ((2, 3), {"shift": -4}), ((2, 3), {"shift": 1, "axis": 0}), ((2, 3), {"shift": (1, -1), "axis": (0, 1)}), ((2, 3), {"shift": 1, "axis": (0, -1)}),
         ((3,), {"shift": 0}), ((), {"shift": 1}), ((0,), {"shift": 1}), ((2, 0), {"shift": 3, "axis": 1})],
        errors=((lambda f: f(qb.ones((2, 2)), (1, 2, 3), axis=(0, 1)), ValueError, "3 shifts for 2 axes"), (lambda f: f(qb.ones(2), 1, axis=1), ValueError, "axis 1 is out of range")),
        **STRUCTURAL)  # fmt: skip
general("diag", np.diag, [((3,), {}), ((2,), {"k": 1}), ((2,), {"k": -2}), ((3, 3), {}), ((2, 4), {"k": 2}), ((2, 4), {"k": -1}), ((0,), {}), ((0,), {"k": 1})],
        errors=((lambda f: f(qb.ones((2, 2, 2))), ValueError, r"a vector or a matrix, got an array of shape \(2, 2, 2\)"), (lambda f: f(qb.array(1.0)), ValueError, "vector or a matrix")),
        **STRUCTURAL)  # fmt: skip

# -------------------------------------------------------------------------------------------------------------- joining

for name in ("concat", "concatenate"):
    general(
        name, lambda *arrays, axis=0: np.concatenate(arrays, axis),
        [
            ([(2,), (3,)], {}), ([(2, 3), (1, 3), (4, 3)], {}), ([(2, 3), (2, 1)], {"axis": 1}),
            ([(2, 3), (2, 1)], {"axis": -1}), ([(2, 3), (2,)], {"axis": None}), ([(2, 3)], {}),
            ([(0, 3), (2, 3), (0, 3)], {}), ([(0,), (0,)], {}),
        ],
        operands="list",
        errors=(
            (lambda f: f([]), ValueError, "needs an array at least"),
            (
                lambda f: f([qb.ones((2, 3)), qb.ones((2, 4))]), ValueError,
                r"array 0 has shape \(2, 3\) and array 1 has shape \(2, 4\)",
            ),
            (lambda f: f([qb.ones((2, 3)), qb.ones(3)]), ValueError, r"\(2, 3\).*\(3,\)"),
            (lambda f: f([qb.array(1.0), qb.array(2.0)]), ValueError, "stack"),
            (lambda f: f([qb.ones(2)], axis=1), ValueError, "axis 1 is out of range"),
            (lambda f: f([qb.ones(2), qb.ones(2, dtype=qb.float32)]), ValueError, "(?s)float64.*float32.*astype"),
            (lambda f: f(3.0), TypeError, "list or tuple of arrays"),
        ),
        **STRUCTURAL,
    )  # fmt: skip
general(
    "stack", lambda *arrays, axis=0: np.stack(arrays, axis),
    [
        ([(), ()], {}), ([(3,), (3,)], {}), ([(2, 3)] * 3, {"axis": 1}), ([(2, 3)] * 2, {"axis": -1}), ([(3,)], {}),
        ([(0,), (0,)], {"axis": 1}), ([(2, 0), (2, 0)], {}),
    ],
    operands="list",
    errors=(
        (lambda f: f([]), ValueError, "needs an array at least"),
        (lambda f: f([qb.ones(2), qb.ones(3)]), ValueError, r"\(2,\).*\(3,\).*all shapes must be equal"),
        (lambda f: f([qb.ones(2)], axis=2), ValueError, "axis 2 is out of range"),
    ),
    **STRUCTURAL,
)  # fmt: skip
general(
    "tile", np.tile,
    [
        ((3,), {"reps": 2}), ((2, 3), {"reps": (2, 1)}), ((2, 3), {"reps": 2}), ((3,), {"reps": (2, 2)}),
        ((), {"reps": 3}), ((2,), {"reps": 0}), ((0, 2), {"reps": (2, 2)}),
    ],
    errors=((lambda f: f(qb.ones(2), -1), ValueError, "cannot repeat -1 times"),), **STRUCTURAL,
)  # fmt: skip
general(
    "repeat", np_repeat,
    [
        ((3,), {"repeats": 2}), ((2, 3), {"repeats": 2}), ((2, 3), {"repeats": 3, "axis": 1}),
        ((2, 3), {"repeats": 2, "axis": -2}), ((), {"repeats": 3}), ((2,), {"repeats": 0}),
        ((0, 2), {"repeats": 2, "axis": 0}),
    ],
    errors=(
        (lambda f: f(qb.ones(2), -1), ValueError, "cannot repeat -1 times"),
        (lambda f: f(qb.ones(2), 2, axis=1), ValueError, "axis 1 is out of range"),
    ),
    **STRUCTURAL,
)  # fmt: skip

# ------------------------------------------------------------------------------------------------------------- indexing

INDICES = (
    0, -1, slice(None), slice(1, None), slice(None, None, 2), slice(None, None, -1), slice(2, 0, -2), slice(5, 9),
    None, Ellipsis, (1, 2), (slice(None), -1), (Ellipsis, 0), (None, slice(1, 2), 1), (slice(0, 0),),
    (Ellipsis, None), (slice(None, None, -2), slice(1, 3)), (0, slice(-2, None), None, 3), (),
    [0, 2], [], (slice(None), [1, 3, 1]), ([0, -1], slice(None), [4, 0]), (0, slice(None), [[1, 2]]),
    ([[0], [2]], [1, 3]), (None, [1], ..., np.array([2, 3])), np.arange(12).reshape(3, 4) % 5 == 0,
    (slice(1, None), [True, False, False, True]),
)  # fmt: skip
general(
    "getitem", lambda x, index: x[index],
    [((3, 4, 5), {"index": i}) for i in INDICES] + [
        ((), {"index": ()}), ((), {"index": (None, ...)}), ((0, 3), {"index": (slice(None), 1)}),
    ],
    errors=(
        (lambda f: f(qb.ones((2, 3)), 2), IndexError, r"index 2 is out of bounds for axis 0 with size 2, .*\(2, 3\)"),
        (lambda f: f(qb.ones((2, 3)), (0, -4)), IndexError, r"index -4 is out of bounds for axis 1"),
        (lambda f: f(qb.ones((2, 3)), (0, 0, 0)), IndexError, r"too many indices.*\(2, 3\)"),
        (lambda f: f(qb.ones((2, 3)), (..., ...)), IndexError, "one ellipsis"),
        (lambda f: f(qb.ones((2, 3)), slice(None, None, 0)), ValueError, "step of a slice cannot be 0"),
        (lambda f: f(qb.ones((2, 3)), 1.0), IndexError, "indexed by ints, slices, None"),
    ),
    **STRUCTURAL,
)  # fmt: skip
DIAGONALS = [
    ((3, 3), {}),
    ((2, 4), {"offset": 1}),
    ((2, 4), {"offset": -1}),
    ((2, 4), {"offset": 4}),
    ((2, 3, 4), {"axis1": 2, "axis2": 0}),
    ((2, 3, 4), {"offset": -1, "axis1": 1, "axis2": -1}),
    ((0, 3), {}),
]
PLANES_REFUSED = (
    (lambda f: f(qb.ones(3)), ValueError, r"two axes at least, got an array of shape \(3,\)"),
    (lambda f: f(qb.ones((2, 2)), 0, 1, 1), ValueError, "axis1 and axis2 are both 1"),
)
general("diagonal", np.diagonal, DIAGONALS, errors=PLANES_REFUSED, **STRUCTURAL)
general("trace", np.trace, DIAGONALS, errors=PLANES_REFUSED, takes="fib")
TRIANGLES = [
    ((3, 3), {}),
    ((2, 4), {"k": 1}),
    ((4, 2), {"k": -1}),
    ((2, 3, 4), {"k": 0}),
    ((2, 2), {"k": 5}),
    ((2, 2), {"k": -5}),
    ((0, 2), {}),
]
general("tril", np.tril, TRIANGLES, errors=PLANES_REFUSED[:1], **STRUCTURAL)
general("triu", np.triu, TRIANGLES, errors=PLANES_REFUSED[:1], **STRUCTURAL)

# --------------------------------------------------------------------------------------- elements by arrays of indices

BY_INDEX = {"takes": "fi", "ulps": 0}
ALONG = [
    ([(4,), np.array([0, 3, -1, 0])], {"axis": 0}), ([(2, 3), np.array([[0, 1], [-1, 0]])], {"axis": 0}),
    ([(2, 3, 4), np.array([2, 0], np.int32)], {"axis": 1}), ([(2, 3), np.array(1, np.uint32)], {"axis": -1}),
    ([(2, 3), np.zeros((0,), np.int64)], {"axis": 1}), ([(2, 0), np.array([1])], {"axis": 0}),
]  # fmt: skip
INDEX_REFUSED = (
    (lambda f: f(qb.ones((2, 3)), [0, 2], axis=0), IndexError, "index 2 is out of bounds for axis 0 with size 2"),
    (lambda f: f(qb.ones((2, 3)), qb.zeros(1), axis=0), IndexError, r"float64; convert with astype\(int64\)"),
    (lambda f: f(qb.ones((2, 3)), [0], axis=2), ValueError, "axis 2 is out of range"),
)
general("take", lambda x, i, axis=None: np.take(x, i, axis), [*ALONG, ([(2, 3), np.array([5, -6])], {})],
        errors=INDEX_REFUSED, **BY_INDEX)  # fmt: skip
general("gather", lambda x, i, axis=0: np.take(x, i, axis), [*ALONG, ([(2, 3), np.array([1, -1, 1])], {})],
        errors=INDEX_REFUSED, **BY_INDEX)  # fmt: skip
general(
    "take_along_axis", lambda x, i, axis=-1: np.take_along_axis(x, i, axis),
    [
        ([(4,), np.array([3, 3, 0])], {}), ([(2, 3), np.array([[0, 1, -1], [-1, 0, 0]])], {"axis": 0}),
        ([(2, 3, 4), np.arange(6).reshape(2, 3, 1) % 4], {}), ([(2, 3, 4), np.array([[[2]], [[0]]])], {"axis": 1}),
        ([(1, 3), np.array([[2, 0], [1, 1]])], {"axis": 1}), ([(2, 3), np.zeros((2, 0), np.int64)], {"axis": 1}),
    ],
    errors=(
        (lambda f: f(qb.ones((2, 3)), [[3]]), IndexError, "index 3 is out of bounds for axis 1 with size 3"),
        (lambda f: f(qb.ones((2, 3)), [0]), ValueError, r"shape \(1,\) need as many axes as the array, .*\(2, 3\)"),
        (lambda f: f(qb.ones((2, 3)), [[0]] * 4, axis=1), ValueError, r"do not broadcast"),
    ),
    **BY_INDEX,
)  # fmt: skip


def np_scatter_add(x, indices, updates, axis=0):
    out = np.moveaxis(x.copy(), axis, 0)
    rest = updates.ndim and np.moveaxis(np.broadcast_to(updates, np.take(x, indices, axis).shape), axis, 0)
    np.add.at(out, indices, rest if updates.ndim else updates)
    return np.moveaxis(out, 0, axis)


general(
    "scatter_add", np_scatter_add,
    [
        ([(4,), np.array([0, 3, -1, 0]), (4,)], {}), ([(3, 2), np.array([2, 2, 0]), (3, 2)], {}),
        ([(2, 3), np.array([1, 1], np.int32), (2, 2)], {"axis": 1}), ([(2, 3), np.array([1, 0]), ()], {"axis": -1}),
        ([(2, 3), np.array([0, 0]), (1, 3)], {}), ([(3,), np.zeros((0,), np.int64), (0,)], {}),
    ],
    takes="fi",
    errors=(
        (lambda f: f(qb.ones(2), [2], 1.0), IndexError, "index 2 is out of bounds for axis 0 with size 2"),
        (lambda f: f(qb.ones(2), [0], qb.ones(3)), ValueError, r"updates of shape \(3,\) do not broadcast .* \(1,\)"),
        (lambda f: f(qb.ones(2), [0], qb.ones(1, dtype=qb.float32)), ValueError, "(?s)float64.*float32.*astype"),
        (lambda f: f(qb.array(BOOL), [0], True), ValueError, "bool.*astype"),
    ),
)  # fmt: skip


def np_slice_at(x, start, shape):
    return tuple(slice(s, s + n) for s, n in zip(np.clip(start, 0, np.array(x.shape) - shape), shape))


def np_dynamic_update_slice(x, update, start):
    out = x.copy()
    out[np_slice_at(x, start, update.shape)] = update
    return out


general(
    "dynamic_slice", lambda x, start, slice_sizes: x[np_slice_at(x, start, slice_sizes)],
    [
        ([(5,), np.array([2])], {"slice_sizes": (2,)}), ([(5,), np.array([9])], {"slice_sizes": (2,)}),
        ([(3, 4), np.array([1, 0], np.int32)], {"slice_sizes": (2, 4)}),
        ([(3, 4, 2), np.array([0, 3, 1])], {"slice_sizes": (1, 3, 1)}),
        ([(3, 4), np.array([1, 2])], {"slice_sizes": (0, 2)}),
    ],
    errors=(
        (lambda f: f(qb.ones((2, 3)), (0, 0), (3, 1)), ValueError, r"shape \(3, 1\) does not fit .*\(2, 3\)"),
        (lambda f: f(qb.ones((2, 3)), (0,), (1, 1)), ValueError, r"1 start indices for an array of shape \(2, 3\)"),
        (lambda f: f(qb.ones((2, 3)), (0, 0), (1,)), ValueError, r"1 sizes for an array of shape \(2, 3\)"),
        (lambda f: f(qb.ones(2), (0.5,), (1,)), ValueError, "start indices are integers"),
    ),
    **BY_INDEX,
)  # fmt: skip
general(
    "dynamic_update_slice", np_dynamic_update_slice,
    [
        ([(5,), (2,), np.array([2])], {}), ([(5,), (2,), np.array([4])], {}),
        ([(3, 4), (2, 4), np.array([1, 0], np.int32)], {}),
        ([(3, 4, 2), (1, 3, 1), np.array([0, 3, 1])], {}), ([(3, 4), (0, 2), np.array([1, 2])], {}),
    ],
    errors=(
        (lambda f: f(qb.ones((2, 3)), qb.ones((3, 1)), (0, 0)), ValueError, r"shape \(3, 1\) does not fit .*\(2, 3\)"),
        (lambda f: f(qb.ones((2, 3)), qb.ones(2), (0, 0)), ValueError, r"shape \(2,\) for an array of shape \(2, 3\)"),
    ),
    **BY_INDEX,
)  # fmt: skip


def np_update(how):
    return lambda x, values, index: updated(x, index, how, values)


UPDATES = (
    ((3, 4), (), 0), ((3, 4), (4,), (slice(None, None, -2),)), ((3, 4), (3, 1), (slice(None), [0, 3, 0])),
    ((3, 4), (2,), ([0, 0], [1, 1])), ((3, 4), (), np.arange(12).reshape(3, 4) % 5 == 0),
    ((2, 3, 4), (2, 3), ([1, 0], slice(None), 2)),
    ((), (), ()), ((4,), (0,), []), ((0, 3), (3,), slice(None)), ((2, 3), (1, 2, 3), (None, ...)),
)  # fmt: skip
for how in ("set", "add", "multiply", "min", "max"):
    general(
        f"index_{how}", np_update(how),
        [([shape, distinct(how, values) + 0.05], {"index": index}) for shape, values, index in UPDATES],
        errors=(
            (lambda f: f(qb.ones((2, 3)), 1.0, 2), IndexError, "index 2 is out of bounds for axis 0 with size 2"),
            (lambda f: f(qb.ones((2, 3)), 1.0, [[2]]), IndexError, "index 2 is out of bounds for axis 0 with size 2"),
            (lambda f: f(qb.ones((2, 3)), qb.ones(2), 0), ValueError, r"shape \(2,\) do not broadcast .*\(3,\)"),
            (lambda f: f(qb.ones(2), qb.ones(2, dtype=qb.float32), ...), ValueError, "(?s)float64.*float32.*astype"),
        ),
        takes="fi", ulps=0 if how in ("set", "min", "max") else 8,
    )  # fmt: skip

import ops.cases_linalg  # noqa: E402, F401  (enters its rows)
