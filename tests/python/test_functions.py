"""Functions as Python objects: how arguments bind, what operators mean, which dtypes meet, and what errors say.

Values are the matter of tests/ops; here it is the way from a call to the library.
"""

import inspect
import pickle
import weakref

import numpy as np
import pytest
import quabla as qb

X = np.linspace(-1.0, 1.0, 24).reshape(2, 3, 4)
FUNCTIONS = sorted(name for name in dir(qb) if type(getattr(qb, name)).__name__ == "Function")


def x32():
    return qb.array([1, 2, 3], dtype="float32")


# --- the objects


@pytest.mark.parametrize("name", FUNCTIONS)
def test_describes_itself(name):
    function = getattr(qb, name)
    assert function.__name__ == function.__qualname__ == name
    assert function.__module__ == "quabla"
    assert function.__doc__.startswith(f"{name}{inspect.signature(function)!s}")
    assert repr(function) == f"<function quabla.{name}>"
    assert pickle.loads(pickle.dumps(function)) is function
    assert weakref.ref(function)() is function
    assert callable(function)


def test_signatures():
    assert str(inspect.signature(qb.var)) == "(x, axis=None, ddof=0, keepdims=False)"
    assert str(inspect.signature(qb.array(X).var)) == "(axis=None, ddof=0, keepdims=False)"
    assert str(inspect.signature(qb.clip)) == "(x, lo=None, hi=None)"
    assert str(inspect.signature(qb.reshape)) == "(x, *shape)"


def test_methods_of_both_kinds_of_arrays():
    assert qb.Tensor.sum is qb.sum
    assert qb.TraceTensor.sum is qb.sum
    assert not hasattr(qb.Tensor, "where")
    assert not hasattr(qb.Tensor, "concat")


# --- binding


def test_arguments_by_position_and_by_name():
    x = qb.array(X)
    expected = X.sum(axis=1, keepdims=True)
    for call in (
        lambda: qb.sum(x, 1, True),
        lambda: qb.sum(x, axis=1, keepdims=True),
        lambda: qb.sum(keepdims=True, axis=1, x=x),
        lambda: x.sum(1, keepdims=True),
        lambda: qb.jit(lambda v: v.sum((1,), True))(x),
    ):
        np.testing.assert_allclose(call(), expected, rtol=1e-15)
    np.testing.assert_array_equal(qb.subtract(b=x, a=1.0), 1.0 - X)


@pytest.mark.parametrize("wrap", [lambda f: f, qb.jit], ids=["eager", "jit"])
def test_integers_one_by_one_or_as_a_tuple(wrap):
    x = qb.array(X)
    for call in (
        lambda v: v.reshape(4, 6),
        lambda v: v.reshape((4, -1)),
        lambda v: v.reshape([4, 6]),
        lambda v: qb.reshape(v, 4, 6),
        lambda v: qb.reshape(v, shape=(4, 6)),
    ):
        np.testing.assert_array_equal(wrap(call)(x), X.reshape(4, 6))
    for call in (
        lambda v: v.transpose(1, 0, 2),
        lambda v: v.transpose((1, 0, 2)),
        lambda v: v.transpose(axes=[1, 0, 2]),
    ):
        np.testing.assert_array_equal(wrap(call)(x), X.transpose(1, 0, 2))
    np.testing.assert_array_equal(wrap(lambda v: v.transpose())(x), X.T)


def test_absent_operands():
    x = qb.array(X)
    np.testing.assert_array_equal(qb.clip(x, None, 0.5), np.minimum(X, 0.5))
    np.testing.assert_array_equal(x.clip(lo=0), np.maximum(X, 0))
    np.testing.assert_array_equal(qb.jit(lambda v: v.clip(hi=0))(x), np.minimum(X, 0))


def test_lists_of_operands():
    x = qb.array(X)
    np.testing.assert_array_equal(qb.concat((x, X, x), axis=-1), np.concatenate((X, X, X), axis=-1))
    np.testing.assert_array_equal(qb.stack([x[0, 0, 0], 1.0, 2]), [X[0, 0, 0], 1, 2])
    np.testing.assert_array_equal(qb.stack([x] * 20, axis=1), np.stack([X] * 20, axis=1))
    np.testing.assert_array_equal(qb.jit(lambda v: qb.concat([v, X], axis=None))(x), np.concatenate([X, X], axis=None))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: qb.sum(), "sum() misses the argument 'x'"),
        (lambda x: qb.sum(x, x=x), "multiple values for argument 'x'"),
        (lambda x: qb.sum(x, axes=0), "unexpected keyword argument 'axes'; the signature is sum(x, axis=None"),
        (lambda x: qb.sum(x, 0, True, 1), "takes at most 3 arguments, got 4"),
        (lambda x: x.sum(axis=0.5), "sum: axis must be an int, a tuple of ints or None, got 0.5"),
        (lambda x: x.var(ddof="a"), "var: ddof must be a number"),
        (lambda x: x.reshape(2, "a"), "reshape: shape must be ints"),
        (lambda x: x.reshape(), "misses the argument 'shape'"),
        (lambda x: x.swapaxes(0, None), "swapaxes: axis2 must be an int, got None"),
        (lambda x: qb.sin(None), "sin: expected an array or a number, got None"),
        (lambda x: qb.concat(3.5j), "takes a list or tuple of arrays"),
        (lambda x: x + "a", "unsupported operand"),
        (lambda x: pow(x, 2, 3), "unsupported operand"),
        (lambda x: round(x, 2), "digits"),
        (lambda x: x["a":], "bounds of a slice"),
        (lambda x: len(x.sum()), "len()"),
        (lambda x: iter(x.sum()), "iteration"),
    ],
)
def test_type_errors(call, words):
    with pytest.raises(TypeError) as caught:
        call(qb.array(X))
    assert words in str(caught.value)


# --- operators

OPERATORS = [
    ("x + y", "a + b"),
    ("1 - x", "1 - a"),
    ("x - 1", "a - 1"),
    ("x * b", "a * b"),
    ("b * x", "b * a"),
    ("x / y", "a / b"),
    ("2 / x", "2 / a"),
    ("x // 0.3", "a // 0.3"),
    ("1 % x", "1 % a"),
    ("divmod(x, 0.3)[1]", "a % 0.3"),
    ("x ** 3", "a ** 3"),
    ("x ** 0", "a ** 0"),
    ("x ** -1", "a ** -1.0"),
    ("2 ** x", "2 ** a"),
    ("x @ x.T", "a @ a.T"),
    ("x @ a.T", "a @ a.T"),
    ("a @ x.T", "a @ a.T"),
    ("-x", "-a"),
    ("+x", "a"),
    ("abs(x)", "abs(a)"),
    ("round(x)", "np.round(a)"),
    ("x < y", "a < b"),
    ("0 < x", "0 < a"),
    ("b >= x", "b >= a"),
    ("(x < 0) & (y < 0)", "(a < 0) & (b < 0)"),
    ("(x < 0) | True", "(a < 0) | True"),
    ("~(x < 0) ^ (y < 0)", "~(a < 0) ^ (b < 0)"),
    ("x + [1, 2, 3, 4]", "a + [1, 2, 3, 4]"),
    ("np.float64(2) * x", "2 * a"),
    ("x + np.arange(4)", "a + np.arange(4)"),
    ("x.T", "a.T"),
    ("qb.stack(list(x))", "a"),
]


@pytest.mark.parametrize(("ours", "reference"), OPERATORS)
@pytest.mark.parametrize("wrap", [lambda f: f, qb.jit], ids=["eager", "jit"])
def test_operators(ours, reference, wrap):
    a, b = X[0] + 0.05, X[1] - 0.4
    code = compile(ours, "operator", "eval")
    got = wrap(lambda x, y: eval(code, {"x": x, "y": y, "a": a, "b": b, "np": np, "qb": qb}))(qb.array(a), qb.array(b))
    np.testing.assert_allclose(got, eval(reference, {"a": a, "b": b, "np": np}), rtol=1e-14)


def test_equality_is_identity():
    x, y = qb.array(X), qb.array(X)
    assert (x == x) is True
    assert (x == y) is False
    assert (x != y) is True
    assert len({x, y, x}) == 2
    assert X[0, 0, 0] in x
    assert 7.0 not in x
    assert "a" not in x


def test_in_place_operators_make_new_arrays():
    x = y = qb.array(X)
    x += 1
    assert x is not y
    np.testing.assert_array_equal(y, X)


INDICES = [
    0,
    -1,
    (0, 1),
    (0, 1, 2),
    ...,
    (..., 0),
    None,
    (None, 0, ..., None),
    (),
    slice(None, None, -1),
    slice(5, 1),
    slice(-100, 100, 100),
    (slice(None), slice(2, 0, -1), slice(0, 4, 3)),
    (..., slice(None, None, -2)),
    (1, slice(0, 0)),
    (slice(None, None, -1), 0, slice(None, None, 2)),
    np.int64(1),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_basic_indexing(index):
    x = qb.array(X)
    for got in (x[index], qb.jit(lambda v: v[index])(x), qb.getitem(x, index)):
        np.testing.assert_array_equal(got, X[index])
        assert got.shape == X[index].shape


@pytest.mark.parametrize("index", [2, -3, (0, 3), (0, 0, 0, 0), (..., ...)], ids=str)
def test_index_errors(index):
    x = qb.array(X)
    for call in (lambda v: v[index], qb.jit(lambda v: v[index])):
        with pytest.raises(IndexError):
            call(x)


def test_index_error_says_where():
    with pytest.raises(
        IndexError, match=r"index 5 is out of bounds for axis 1 with size 3, of an array of shape \(2, 3, 4\)"
    ):
        qb.array(X)[:, 5]


# --- promotion

DTYPES = [
    ("x32 * 0.5", "float32"),
    ("True + x32", "float32"),
    ("mask * 2.0", "float64"),
    ("mask * 2", "float64"),
    ("mask * 2.0 * x32", "float32"),
    ("ints * 2.5", "float64"),
    ("ints * 2.5 + x32", "float32"),
    ("ints * 2", "int64"),
    ("ints ** 2", "int64"),
    ("ints.astype('int32') + 1", "int32"),
    ("ints / 2", "float64"),
    ("ints / x32", "float32"),
    ("ints.astype('int32') + ints.astype('uint32')", "int64"),
    ("x32 * np.arange(3)", "float32"),
    ("np.arange(3) * x32", "float32"),
    ("np.float64(2) * x32", "float32"),
    ("x32 * np.int64(2)", "float32"),
    ("x32 ** 2.5", "float32"),
    ("2 ** x32", "float32"),
    ("x32 + [1, 2, 3]", "float32"),
    ("mask & True", "bool"),
    ("mask.sum()", "int64"),
    ("ints.astype('uint32').sum()", "uint64"),
    ("mask.mean()", "float64"),
    ("qb.where(mask, 1.0, 0.0) * x32", "float32"),
    ("qb.where(mask, x32, 0)", "float32"),
    ("qb.stack([x32[0], 1.0, 2])", "float32"),
    ("qb.full_like(x32, 2.5)", "float32"),
    ("qb.sin(ints)", "float64"),
    ("qb.sin(np.arange(3))", "float64"),
    ("qb.reshape(np.arange(3), 3, 1)", "float64"),
    ("qb.softmax(x32)", "float32"),
    ("qb.norm(x32)", "float32"),
    ("qb.gelu(x32)", "float32"),
]


@pytest.mark.parametrize(("expression", "dtype"), DTYPES)
def test_promotion(expression, dtype):
    code = compile(expression, "promotion", "eval")
    ints = qb.array([1, 2, 3], dtype="int64")

    def call(x32, mask, ints):
        return eval(code, {"x32": x32, "mask": mask, "ints": ints, "np": np, "qb": qb})

    for wrap in (lambda f: f, qb.jit):
        assert str(wrap(call)(x32(), x32() > 1, ints).dtype) == dtype


@pytest.mark.parametrize("wrap", [lambda f: f, qb.jit])
def test_ints_beyond_int64_meet_uint64(wrap):
    u = qb.array([1, 2], dtype="uint64")
    big = 2**63
    for call in (
        lambda u: u + big,
        lambda u: big + u,
        lambda u: qb.where(qb.array([True, True]), big + u, u),
        lambda u: u.at[:].add(big),
    ):
        result = wrap(call)(u)
        assert (str(result.dtype), result.tolist()) == ("uint64", [big + 1, big + 2])
    assert wrap(lambda u: u.at[0].set(2**64 - 1))(u).tolist() == [2**64 - 1, 2]
    assert wrap(lambda u: qb.clip(u, 0, big))(u).dtype == qb.uint64
    assert str(wrap(lambda x: x + big)(x32()).dtype) == "float32"
    assert str(qb.add(big, 1).dtype) == "float64"  # of numbers alone
    with pytest.raises(ValueError, match="does not fit into uint64"):
        wrap(lambda u: u + 2**64)(u)
    with pytest.raises(ValueError, match="does not fit into int64"):
        wrap(lambda i: i + big)(qb.array([1], dtype="int64"))


@pytest.mark.parametrize("wrap", [lambda f: f, qb.jit])
def test_results_of_numbers_are_checked_as_numbers(wrap):
    """2**20 * 2**20 as a weak array does not wrap around in int32 any more than the Python int does."""
    i32 = qb.array([1, 2], dtype="int32")
    assert wrap(lambda i: i + qb.multiply(2**10, 2**10))(i32).tolist() == [2**20 + 1, 2**20 + 2]
    for call in (lambda i: i + qb.multiply(2**20, 2**20), lambda i: qb.negative(1) * i.astype("uint32")):
        with pytest.raises(ValueError, match="does not fit into u?int32.*astype"):
            wrap(call)(i32)


def test_array_is_the_base_class():
    seen = []
    qb.jit(lambda x: seen.append(isinstance(x, qb.Array)) or x)(1.0 * qb.ones(2))
    assert seen == [True]
    assert isinstance(qb.ones(2), qb.Array)
    assert not isinstance(np.ones(2), qb.Array)
    with pytest.raises(TypeError, match="abstract"):
        qb.Array()


def test_nothing_internal_is_public():
    from quabla import _core

    hidden = {name for name in vars(_core) if name.startswith("tree_")} | {"version", "Cache", "Graph", "record"}
    assert not hidden & set(vars(qb))
    assert set(_core.__all__) <= set(vars(qb))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, mask: x + qb.ones(3),
        lambda x, mask: qb.where(mask, x, qb.ones(3)),
        lambda x, mask: qb.concat([x, qb.ones(3)]),
        lambda x, mask: mask + mask,
        lambda x, mask: mask * True,
        lambda x, mask: -mask,
        lambda x, mask: qb.sin(mask),
        lambda x, mask: mask & x,
        lambda x, mask: ~x,
        lambda x, mask: qb.array([1], dtype="int64") + qb.array([1], dtype="uint64"),
    ],
)
def test_dtype_errors_name_astype(call):
    for wrap in (lambda f: f, qb.jit):
        with pytest.raises(ValueError, match="astype"):
            wrap(call)(x32(), x32() > 1)


def test_messages_name_function_and_shapes():
    x = qb.array(X)
    with pytest.raises(ValueError, match=r"add: shapes \(2, 3, 4\) and \(5,\) do not broadcast"):
        x + qb.ones(5)
    with pytest.raises(ValueError, match=r"sum: axis 3 is out of range for an array of shape \(2, 3, 4\)"):
        x.sum(axis=3)
    with pytest.raises(ValueError, match=r"matmul: shapes \(2, 3, 4\) and \(3, 3\)"):
        x @ qb.ones((3, 3))
    with pytest.raises(ValueError, match=r"reshape: an array of shape \(2, 3, 4\) has 24 elements"):
        x.reshape(5, -1)


# --- squares of roots of sums of squares


@pytest.mark.parametrize(
    "radial",
    [
        lambda x: qb.norm(x) ** 2,
        lambda x: qb.square(qb.norm(x, keepdims=True)).sum(),
        lambda x: qb.sqrt(qb.sum(x * x)) ** 2,
        lambda x: qb.norm(x) * qb.norm(x),
        lambda x: qb.exp(qb.sqrt(x[0] ** 2 + x[1] ** 2) ** 2),
    ],
)
def test_hessian_of_a_radial_function_at_its_centre(radial):
    np.testing.assert_allclose(qb.hessian(radial)(qb.zeros(2)), 2 * np.eye(2), atol=1e-15)


# --- lists with traced arrays in them


def test_lists_of_traced_arrays_are_arrays():
    """A list means the same whether its items are traced or not."""
    x, i = qb.array([1.0, 2.0, 3.0]), qb.array(2, dtype="int64")
    for call in (
        lambda x, i: qb.array([x[0], x[1] * x[2]]),
        lambda x, i: qb.asarray([[x[0], 2], (x[1], qb.ones(()))], dtype="float32"),
        lambda x, i: qb.sum([x[0], 1.0]),
        lambda x, i: x - [x[0], 1, 2.0],
        lambda x, i: [x[0], 1.0, 2.0] @ x,
        lambda x, i: qb.concat([[x[0], 1.0], x]),
        lambda x, i: qb.take(x, [i, 0]),
        lambda x, i: qb.array([x, [4.0, 5.0, 6.0]]),
        lambda x, i: qb.interp(0.5, [0.0, 1.0], [x[0], x[1]]),
    ):
        expected, got = call(x, i), qb.jit(call)(x, i)
        assert (got.dtype, got.tolist()) == (expected.dtype, expected.tolist())
    gradient = qb.grad(lambda x: qb.sum(qb.array([x[0] * x[1], x[2] ** 2]) ** 2))(x)
    np.testing.assert_allclose(gradient, [8.0, 4.0, 108.0], rtol=1e-15)
    for wrong, error, words in (
        (lambda x: qb.array([x[0], [1.0, 2.0]]), ValueError, r"shape \(\) and array 1 has shape \(2,\)"),
        (lambda x: qb.array([x[0], "a"]), TypeError, "a string is not a number"),
        (lambda x: qb.array([x[0], x.astype("float32")[0]]), ValueError, "astype"),
    ):
        with pytest.raises(error, match=words):
            qb.jit(wrong)(x)
