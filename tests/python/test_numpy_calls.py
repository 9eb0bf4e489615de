"""NumPy's functions on traced arrays: an error that says what to write; its operators work."""

import operator

import numpy as np
import pytest
import quabla as qb

X = qb.array([0.5, 1.5, 2.5])
A = np.array([1.0, 2.0, 3.0])


def traced(fun, x=X):
    return qb.jit(fun)(x)


@pytest.mark.parametrize(
    ("fun", "called", "advice"),
    [
        (lambda x: np.sin(x), "numpy.sin of", "write qb.sin,"),
        (lambda x: np.tanh(x, where=True), "numpy.tanh of", "write qb.tanh,"),
        (lambda x: np.maximum(A, x), "numpy.maximum of", "write qb.maximum,"),
        (lambda x: np.arctan2(x, x), "numpy.arctan2 of", "write qb.atan2,"),
        (lambda x: np.absolute(x), "numpy.absolute of", "write qb.abs,"),
        (lambda x: np.heaviside(x, 1.0), "numpy.heaviside of", "quabla has no heaviside:"),
        (lambda x: np.add.reduce(x), "numpy.add.reduce of", "write qb.sum,"),
        (lambda x: np.multiply.outer(x, x), "numpy.multiply.outer of", "write qb.outer,"),
        (lambda x: np.subtract.reduce(x), "numpy.subtract.reduce of", "quabla has no reduce:"),
        (lambda x: np.sum(x), "numpy.sum of", "write qb.sum,"),
        (lambda x: np.stack([x, x]), "numpy.stack of", "write qb.stack,"),
        (lambda x: np.where(x > 1.0, x, 0.0), "numpy.where of", "write qb.where,"),
        (lambda x: np.linalg.norm(x), "numpy.linalg.norm of", "write qb.linalg.norm,"),
        (lambda x: np.fft.fft(x), "numpy.fft.fft of", "quabla has no fft:"),
        (lambda x: np.add(A, x, out=A.copy()), "numpy.add into a NumPy array", "a = a + x"),
        (lambda x: operator.iadd(A.copy(), x), "numpy.add into a NumPy array", "a = a + x"),
        (lambda x: np.asarray(x), "conversion to a NumPy array", "where"),
    ],
)
@pytest.mark.parametrize("transform", [qb.jit, lambda f: qb.grad(lambda x: qb.sum(f(x))), qb.vmap])
def test_a_function_of_numpy_says_what_to_write(fun, called, advice, transform):
    with pytest.raises(qb.TracerError) as caught:
        transform(fun)(X if transform is not qb.vmap else qb.stack([X, X]))
    assert called in str(caught.value) and advice in str(caught.value)
    assert isinstance(caught.value, TypeError)


BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"]
COMPARISONS = ["lt", "le", "gt", "ge"]


@pytest.mark.parametrize("name", BINARY + COMPARISONS)
def test_operators_between_numpy_arrays_and_traced_ones(name):
    op = getattr(operator, name)
    left, right = traced(lambda x: op(A, x)), traced(lambda x: op(x, A))
    assert isinstance(left, qb.Tensor)
    np.testing.assert_allclose(left.numpy(), op(A, X.numpy()), rtol=1e-15)
    np.testing.assert_allclose(right.numpy(), op(X.numpy(), A), rtol=1e-15)
    tracers = []
    traced(lambda x: tracers.append(op(A, x)) or x)
    assert type(tracers[0]).__name__ == "TraceTensor"


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_operators_of_truth_values(name):
    op, flags = getattr(operator, name), np.array([True, False, True])
    assert traced(lambda x: op(flags, x > 1.0)).tolist() == op(flags, X.numpy() > 1.0).tolist()
    assert traced(lambda x: op(x > 1.0, flags)).tolist() == op(X.numpy() > 1.0, flags).tolist()


def test_equality_is_identity_as_it_is_without_numpy():
    seen = []

    def fun(x):
        pairs = [(A, x), (x, A), (A, X)]
        seen.extend([(operator.eq(a, b), operator.ne(a, b)) for a, b in pairs])
        return x

    traced(fun)
    assert seen == 3 * [(False, True)]
    traced(lambda x: seen.extend([np.equal(x, x), np.not_equal(x, x)]) or x)
    assert seen[3:] == [True, False]


def test_divmod_and_the_named_forms_of_operators():
    for got, expected in zip(traced(lambda x: divmod(A, x)), divmod(A, X.numpy())):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-15)
    np.testing.assert_allclose(traced(lambda x: np.multiply(A, x)).numpy(), A * X.numpy(), rtol=1e-15)
    np.testing.assert_allclose(traced(lambda x: np.power(x, 2)).numpy(), X.numpy() ** 2, rtol=1e-15)


@pytest.mark.parametrize(
    "number", [np.float64(2.0), np.float32(2.0), np.int64(2), np.int32(2), np.array(2.0), np.array(2)], ids=repr
)
def test_numpy_scalars_have_the_dtype_on_both_sides(number):
    for name in ("add", "mul", "truediv", "pow"):
        op = getattr(operator, name)
        expected = op(qb.array(number), X) if isinstance(number, np.ndarray) else op(number, X)
        got = traced(lambda x, op=op: op(number, x))
        assert got.dtype == expected.dtype and got.tolist() == expected.tolist()
        assert traced(lambda x, op=op: op(x, number)).tolist() == op(X, number).tolist()


def test_float32_is_refused_as_it_is_without_numpy():
    x = qb.array([1.0, 2.0, 3.0], dtype=qb.float32)
    with pytest.raises(ValueError, match="do not mix") as with_tensor:
        A * x
    with pytest.raises(ValueError, match="do not mix") as with_tracer:
        traced(lambda x: A * x, x)
    assert str(with_tracer.value) == str(with_tensor.value)
    assert traced(lambda x: A.astype(np.float32) * x, x).dtype == qb.float32


def test_gradients_through_the_operators():
    grad = qb.grad(lambda x: qb.sum(A * x / (A + x) - np.float64(2.0) * x))(X)
    a, x = A, X.numpy()
    np.testing.assert_allclose(grad.numpy(), a**2 / (a + x) ** 2 - 2.0, rtol=1e-14)


def test_what_numpy_reads_off_the_array_itself():
    shapes = []

    def fun(x):
        shapes.append((np.shape(x), np.ndim(x), np.size(x)))
        return np.transpose(qb.reshape(x, (1, 3)))

    assert traced(fun).shape == (3, 1)
    assert shapes == [((3,), 1, 3)]


@pytest.mark.parametrize(
    "fun",
    [
        np.sin,
        np.sum,
        lambda x: np.mean(x, axis=0),
        lambda x: np.concatenate([x, A]),
        lambda x: np.maximum(x, 1.0),
        lambda x: np.add.reduce(x),
        lambda x: np.add(A, x, where=A > 1, out=np.zeros(3)),
        np.linalg.norm,
        lambda x: np.where(x > 1, x, A) if isinstance(x, np.ndarray) else np.where(np.asarray(x > 1), x, A),
        lambda x: np.stack([x, x]),
        np.array,
    ],
)
def test_functions_of_numpy_on_tensors_give_numpy_arrays(fun):
    wanted, found = fun(X.numpy()), fun(X)
    assert type(found) is type(wanted)
    np.testing.assert_array_equal(found, wanted)


def test_operators_of_numpy_arrays_and_tensors_give_tensors():
    assert isinstance(A * X, qb.Tensor) and isinstance(X * A, qb.Tensor)
    assert (A - X).tolist() == [0.5, 0.5, 0.5] and (np.float64(2.0) - X).tolist() == [1.5, 0.5, -0.5]
    assert (A == X) is False and (A != X) is True  # identity, as between tensors


def test_arrays_of_numpy_are_changed_in_place_and_tensors_are_not():
    a = np.ones(3)
    a += X
    assert type(a) is np.ndarray and a.tolist() == [1.5, 2.5, 3.5]
    with pytest.raises(TypeError, match="a Tensor never changes"):
        np.add(a, X, out=X)


def test_a_tensor_beside_a_traced_array_is_refused_as_that_is():
    with pytest.raises(qb.TracerError, match="write qb.concatenate"):
        traced(lambda x: np.concatenate([X, x]))
    with pytest.raises(qb.TracerError, match="write qb.maximum"):
        traced(lambda x: np.maximum(X, x))
    assert traced(lambda x: A * (X * x)).tolist() == (A * X.numpy() ** 2).tolist()
