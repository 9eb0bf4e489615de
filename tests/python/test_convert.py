"""array, asarray and the functions that make arrays: dtypes, layouts, protocols, and what they refuse."""

import array
import decimal
import fractions
import subprocess
import sys

import numpy as np
import pytest
import quabla as qb

NAMES = ["float64", "float32", "bool", "int32", "int64", "uint32", "uint64"]


def check(tensor, expected, dtype):
    assert type(tensor) is qb.Tensor
    assert tensor.dtype.name == dtype
    assert tensor.shape == np.shape(expected)
    np.testing.assert_array_equal(np.asarray(tensor), np.asarray(expected, dtype=dtype))


# --- numbers and lists


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, "float64"),
        (3, "float64"),
        (True, "bool"),
        ([1.0, 2.0], "float64"),
        ([1, 2], "float64"),
        ([True, False], "bool"),
        ([True, 2], "float64"),
        ([True, 2.5], "float64"),
        ([], "float64"),
        ([[], []], "float64"),
        (((1, 2), [3, 4.5]), "float64"),
        (range(5), "float64"),
        ([range(3), [4, 5, 6]], "float64"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([np.float32(1), 2], "float32"),
        ([np.float32(1), 2.0], "float64"),
        ([np.float64(1), 2], "float64"),
        ([np.int32(1), 2], "float64"),
        ([np.bool_(True), False], "bool"),
        ([np.ones(2, "float32"), [1, 2.0]], "float32"),
        ([np.ones(2, "int8"), np.zeros(2, "int64")], "float64"),
        ([np.ones(2, "bool"), np.zeros(2, "bool")], "bool"),
        ([[np.ones(2)], [[3, 4]]], "float64"),
        ([np.array(1.0), 2], "float64"),
        (np.float32(2), "float32"),
        (np.int64(2), "float64"),
        (np.bool_(True), "bool"),
        (np.array(7), "float64"),
    ],
    ids=repr,
)
def test_inference(value, dtype):
    check(qb.array(value), value, dtype)
    check(qb.asarray(value), value, dtype)


def test_lists_of_tensors():
    x = qb.array([1.0, 2.0], dtype="float32")
    i = qb.array([3, 4], dtype="int32")
    check(qb.array([x, x]), [[1, 2], [1, 2]], "float32")
    check(qb.array([[x], [[5, 6.0]]]), [[[1, 2]], [[5, 6]]], "float32")
    check(qb.array([i, i]), [[3, 4], [3, 4]], "int32")
    check(qb.array([i, [5, 6]]), [[3, 4], [5, 6]], "int32")
    check(qb.array([i, [5, 6.5]]), [[3, 4], [5, 6.5]], "float64")
    check(qb.array([i, x]), [[3, 4], [1, 2]], "float32")
    check(qb.array([qb.array(True), 2]), [1, 2], "float64")
    check(qb.array((x, x), dtype="int64"), [[1, 2], [1, 2]], "int64")
    with pytest.raises(ValueError, match=r"array: operands have dtypes float32 and float64.*astype"):
        qb.array([x, qb.ones(2)])
    check(qb.array([x, qb.ones(2)], dtype="float64"), [[1, 2], [1, 1]], "float64")


@pytest.mark.parametrize("dtype", NAMES)
def test_explicit_dtype(dtype):
    check(qb.array([0, 1, 2], dtype=dtype), [0, 1, 2], dtype)
    check(qb.array([0.0, 1.0, 2.75], dtype=dtype), np.array([0, 1, 2.75]).astype(dtype), dtype)
    check(qb.array([True, False], dtype=dtype), [1, 0], dtype)
    check(qb.array(1, dtype), 1, dtype)
    for source in NAMES:
        a = np.array([0, 1, 5]).astype(source)
        check(qb.array(a, dtype=dtype), a.astype(dtype), dtype)
        check(qb.array(qb.array(a, dtype=source), dtype=dtype), a.astype(dtype), dtype)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1, 2], [3, 4, 5]], r"array: ragged nested sequence: element \[1\] has length 3, expected 2"),
        ([[1, 2], 3], r"element \[1\] is a number, expected 2 numbers"),
        ([1, [2]], r"element \[1\] has length 1, expected a number"),
        ([[[1], [2]], [[3], 4]], r"element \[1\]\[1\] is a number, expected 1 numbers"),
        ([[[1], [2]], 4], r"element \[1\] is a number, expected shape \(2, 1\)"),
        ([[], [1]], r"element \[1\] has length 1, expected 0"),
        ([[1, 2], np.ones(3)], r"element \[1\] has shape \(3,\), expected 2 numbers"),
        ([1.0, np.ones(2)], r"element \[1\] has shape \(2,\), expected a number"),
        ([np.ones((2, 2)), [1, 2]], r"element \[1\]\[0\] is a number, expected 2 numbers"),
    ],
    ids=repr,
)
def test_ragged(value, message):
    with pytest.raises(ValueError, match=message):
        qb.array(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("text", "a string is not a number: 'text'"),
        (b"bytes", "a string is not a number"),
        ([1, "2"], r"element \[1\]: a string is not a number: '2'"),
        ([[1], [None]], r"element \[1\]\[0\]: cannot convert an object of type NoneType"),
        ({1, 2}, "object of type set"),
        ({"a": 1}, "object of type dict"),
        (None, "object of type NoneType"),
        (1j, "object of type complex"),
        (object(), "object of type object"),
        ((i for i in range(3)), "object of type generator"),
        (fractions.Fraction(1, 2), "object of type Fraction"),
        ([decimal.Decimal(1)], r"element \[0\]: cannot convert an object of type decimal.Decimal"),
        (np.ones(2, "float16"), "float16 data"),
        ([np.float16(1)], "float16 data"),
        (np.ones(2, "complex128"), "complex data"),
        (np.ones(2, "longdouble"), "extended precision"),
        (np.array(["a"]), "string data"),
        (np.array([b"abc"]), "string data"),
        (np.array([None]), "object data"),
        (np.zeros(2, [("x", "f8")]), "structured data"),
        (np.zeros(2, "datetime64[s]"), r"dtype datetime64\[s\]"),
    ],
    ids=repr,
)
def test_refused(value, message):
    with pytest.raises(TypeError, match=message):
        qb.array(value)
    with pytest.raises(TypeError, match=message):
        qb.asarray(value)


def test_numbers_that_do_not_fit():
    for value, dtype in [
        (2**31, "int32"),
        (-1, "uint32"),
        (2**63, "int64"),
        (2**64, "uint64"),
        (-1, "uint64"),
        (float("nan"), "int32"),
        (float("inf"), "int64"),
        (2.0**63, "int64"),
        (-1.5, "uint32"),
        (10**400, "float64"),
    ]:
        with pytest.raises(ValueError, match=f"does not fit into {dtype}"):
            qb.array(value, dtype=dtype)
        with pytest.raises(ValueError, match=f"does not fit into {dtype}"):
            qb.array([[0], [value]], dtype=dtype)
    assert qb.array(2**63, dtype="uint64").item() == 2**63
    assert qb.array(-(2**63), dtype="int64").item() == -(2**63)
    assert qb.array([-0.5], dtype="uint32").item() == 0


def test_integers_that_float64_rounds():
    assert qb.array(10**20).item() == 1e20
    for value in (2**53 + 1, [1, 2**53 + 1]):
        with pytest.raises(ValueError, match=r"9007199254740993 is not exact in float64.*dtype=int64"):
            qb.array(value)
    assert qb.array(2**53 + 1, dtype="float64").item() == 2.0**53
    assert qb.array(2**53 + 1, dtype="int64").item() == 2**53 + 1


def test_nesting_is_bounded():
    deep = 1
    for _ in range(32):
        deep = [deep]
    assert qb.array(deep).ndim == 32
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        qb.array([deep])
    cycle = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        qb.array(cycle)
    with pytest.raises(ValueError, match="ranks go from 0 to 32"):
        qb.array([np.ones([1] * 32)])


def test_lists_that_change_while_they_are_converted():
    class Hostile:
        def __init__(self, items):
            self.items = items

        def __array__(self, dtype=None, copy=None):
            self.items.append(1.0)
            return np.array(1.0)

    items = [1.0, 2.0]
    items[0] = Hostile(items)
    with pytest.raises((RuntimeError, ValueError)):
        qb.array(items)


# --- foreign arrays


@pytest.mark.parametrize("name", [*NAMES, "int8", "int16", "uint8", "uint16"])
def test_layouts(name):
    rng = np.random.default_rng(1)
    base = (rng.normal(size=(6, 7, 8)) * 50).astype("float64" if name[0] == "f" else "int64").astype(name)
    layouts = [
        base,
        base.T,
        base[::2],
        base[::-1, ::-2, ::-1],
        base[:, 1:5, ::3],
        base.transpose(1, 0, 2),
        base.transpose(2, 0, 1)[::-1],
        np.asfortranarray(base),
        np.broadcast_to(base[:, :1, :], base.shape),
        np.broadcast_to(base[0, 0, 0], (3, 4)),
        base[:, :, 2:3],
        base[:0],
        base[1, 2, 3, ...],
        np.lib.stride_tricks.as_strided(base, (5, 5), (base.itemsize, base.itemsize)),
    ]
    for a in layouts:
        for dtype in NAMES:
            saturates = name[0] == "f" and dtype[0] == "u"
            expected = np.maximum(a, 0).astype(dtype) if saturates else a.astype(dtype)
            check(qb.array(a, dtype=dtype), expected, dtype)


def test_unaligned_and_odd_memory():
    raw = np.zeros(8 * 10 + 1, "uint8")
    unaligned = raw[1:].view("float64")
    unaligned[:] = np.arange(10)
    check(qb.array(unaligned), np.arange(10), "float64")
    bools = np.array([0, 1, 2, 255], "uint8").view("bool")
    assert bytes(qb.array(bools)) == b"\0\1\1\1"
    records = np.zeros(4, [("x", "f8"), ("y", "f4")])
    records["y"] = [1, 2, 3, 4]
    check(qb.array(records["y"]), [1, 2, 3, 4], "float32")


def test_large_transposed():
    a = np.arange(300.0 * 257).reshape(300, 257)
    check(qb.array(a.T), a.T, "float64")
    check(qb.array(a.T.astype("float32")), a.T, "float32")
    b = np.arange(40 * 50 * 60, dtype="int32").reshape(40, 50, 60).transpose(2, 0, 1)
    check(qb.array(b, dtype="int32"), b, "int32")
    check(qb.array(b), b, "float64")


def test_import_copies():
    a = np.zeros(3)
    for t in (qb.array(a), qb.asarray(a), qb.from_dlpack(a), qb.array([a])):
        a[0] = 5
        assert np.asarray(t).ravel()[0] == 0
        a[0] = 0


def test_byte_swapped_is_refused():
    swapped = np.arange(3.0).astype(np.dtype("f8").newbyteorder())
    with pytest.raises(ValueError, match=r"byte-swapped.*newbyteorder"):
        qb.array(swapped)
    with pytest.raises(ValueError, match="byte-swapped"):
        qb.array([swapped])
    check(qb.array(np.arange(3.0).astype("=f8")), [0, 1, 2], "float64")
    check(qb.array(np.ones(2, ">i1")), [1, 1], "float64")


def test_other_buffers():
    check(qb.array(array.array("d", [1, 2])), [1, 2], "float64")
    check(qb.array(array.array("f", [1, 2])), [1, 2], "float32")
    check(qb.array(array.array("i", [1, 2])), [1, 2], "float64")
    check(qb.array(array.array("q", [1, 2]), dtype="int64"), [1, 2], "int64")
    check(qb.array(memoryview(np.ones((2, 3)))[::-1]), np.ones((2, 3)), "float64")
    check(qb.array(memoryview(b"\1\2")), [1, 2], "float64")


def test_array_method():
    class Wraps:
        def __init__(self, value):
            self.value = value

        def __array__(self, dtype=None, copy=None):
            return self.value

    check(qb.array(Wraps(np.ones(2, "float32"))), [1, 1], "float32")
    check(qb.array([Wraps(np.ones(2)), [1, 2]]), [[1, 1], [1, 2]], "float64")
    with pytest.raises(TypeError, match="__array__ of Wraps returned an object of type list"):
        qb.array(Wraps([1]))
    with pytest.raises(TypeError, match="object data"):
        qb.array(Wraps(np.array([None])))


def test_dlpack_import():
    class Wraps:
        """Speaks DLPack only, and only the old form."""

        def __init__(self, value, device=(1, 0)):
            self.value, self.device = value, device

        def __dlpack__(self, stream=None):
            return self.value.__dlpack__()

        def __dlpack_device__(self):
            return self.device

    for dtype in ("float32", "float64", "bool", "int32", "int64", "uint32", "uint64"):
        a = np.arange(6).reshape(2, 3).astype(dtype)
        check(qb.from_dlpack(a), a, dtype)
        check(qb.from_dlpack(Wraps(a.T)), a.T, dtype)
        check(qb.array(Wraps(a[:, ::-1])), a[:, ::-1], dtype if dtype[0] in "fb" else "float64")
    check(qb.from_dlpack(np.ones(2, "int8")), [1, 1], "int32")
    check(qb.from_dlpack(np.ones(2, "uint16")), [1, 1], "uint32")
    with pytest.raises(ValueError, match="DLPack device type 2; copy it to the CPU first"):
        qb.from_dlpack(Wraps(np.ones(2), (2, 0)))
    with pytest.raises(TypeError, match="not supported"):
        qb.from_dlpack(np.ones(2, "complex64"))
    with pytest.raises(TypeError, match="expected an array with __dlpack__"):
        qb.from_dlpack([1, 2])


# --- array and asarray


def test_identity():
    t = qb.array([1.0, 2.0])
    assert qb.asarray(t) is t
    assert qb.asarray(t, dtype=qb.float64) is t
    assert qb.asarray(t, dtype="float32") is not t
    assert qb.array(t) is not t
    check(qb.array(t), [1, 2], "float64")
    ints = qb.array([1], dtype="int32")
    assert qb.asarray(ints) is ints


def test_arguments():
    check(qb.array(obj=[1]), [1], "float64")
    check(qb.array([1], dtype=None), [1], "float64")
    with pytest.raises(TypeError, match="argument 'obj' is missing"):
        qb.array()
    with pytest.raises(TypeError, match="given twice"):
        qb.array([1], obj=[1])
    with pytest.raises(TypeError, match="no parameter is named 'like'"):
        qb.array([1], like=2)
    with pytest.raises(TypeError, match="at most 2"):
        qb.array(1, 2, 3)
    with pytest.raises(TypeError, match=r"expected one of float64, float32, bool.*got 'float16'"):
        qb.array([1], dtype="float16")


def test_numpy_is_not_imported():
    code = (
        "import sys, array, quabla as qb;"
        "t = qb.array([[1, 2.5], [True, 4]]);"
        "repr(t), t.tolist(), t.shape, memoryview(t), qb.array(array.array('d', [1.0]), dtype='float32'), qb.ones(3);"
        "assert 'numpy' not in sys.modules;"
        "t.numpy(); assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- making arrays


@pytest.mark.parametrize("dtype", [None, *NAMES])
def test_constants(dtype):
    name = dtype or "float64"
    check(qb.zeros((2, 3), dtype), np.zeros((2, 3)), name)
    check(qb.ones([2, 0], dtype=dtype), np.ones((2, 0)), name)
    check(qb.ones((), dtype), 1, name)
    check(qb.zeros(4, dtype), np.zeros(4), name)
    check(qb.full((2, 2), 1, dtype), np.ones((2, 2)), name)
    check(qb.eye(3, dtype=dtype), np.eye(3), name)
    check(qb.eye(2, 4, dtype), np.eye(2, 4), name)
    check(qb.eye(3, 0, dtype), np.eye(3, 0), name)


def test_full():
    check(qb.full(2, True), [1, 1], "bool")
    check(qb.full((2, 3), [1.0, 2.0, 3.0]), [[1, 2, 3]] * 2, "float64")
    check(qb.full((2, 3), np.ones((2, 1), "float32")), np.ones((2, 3)), "float32")
    check(qb.full((0,), 1.5), np.zeros(0), "float64")
    check(qb.full((), float("inf"), "float32"), np.inf, "float32")
    with pytest.raises(ValueError, match=r"full: a value of shape \(2,\) does not broadcast to shape \(3,\)"):
        qb.full(3, [1, 2])
    with pytest.raises(ValueError, match="does not broadcast"):
        qb.full((), [1])


def test_like():
    x = qb.array([[1, 2]], dtype="float32")
    check(qb.zeros_like(x), [[0, 0]], "float32")
    check(qb.ones_like(x), [[1, 1]], "float32")
    check(qb.ones_like(x, dtype="int32"), [[1, 1]], "int32")
    check(qb.full_like(x, 2.5), [[2.5, 2.5]], "float32")
    check(qb.full_like(x, 2, dtype="int64"), [[2, 2]], "int64")
    check(qb.full_like(qb.zeros(2, "int32"), 7), [7, 7], "int32")
    check(qb.ones_like(np.zeros(2, "bool")), [1, 1], "bool")
    check(qb.ones_like([1, 2]), [1, 1], "float64")


@pytest.mark.parametrize(
    "arguments",
    [(5,), (0,), (-3,), (2, 7), (0.5, 3), (1, 0, -0.1), (0, 1, 0.1), (7, 2), (3, 3), (1e17, 1e17 + 5), (0.0, 2.0, 0.3),
     (-1, 1, 0.25)],
)  # fmt: skip
def test_arange(arguments):
    check(qb.arange(*arguments), np.arange(*map(float, arguments)), "float64")
    check(qb.arange(*arguments, dtype="float32"), np.arange(*map(float, arguments), dtype="float32"), "float32")
    if all(argument == int(argument) for argument in arguments):
        check(qb.arange(*arguments, dtype="int64"), np.arange(*map(int, arguments)), "int64")


def test_arange_arguments():
    check(qb.arange(stop=3, start=1), [1, 2], "float64")
    check(qb.arange(3, None, 2), [0, 2], "float64")
    check(qb.arange(qb.array(3)), [0, 1, 2], "float64")
    check(qb.arange(3, dtype="uint64"), [0, 1, 2], "uint64")
    for wrong in [(0, 1, 0), (float("nan"),), (0, float("inf"))]:
        with pytest.raises(ValueError, match="arange: no finite number of steps"):
            qb.arange(*wrong)
    with pytest.raises(ValueError, match="do not fit into uint32"):
        qb.arange(-3, 3, dtype="uint32")
    with pytest.raises(ValueError, match="bool"):
        qb.arange(2, dtype="bool")
    with pytest.raises(TypeError):
        qb.arange("3")


@pytest.mark.parametrize(
    "arguments", [(0, 1, 5), (0.05, 0.95, 8), (1, -1, 7), (2, 2, 3), (3, 9, 1), (0, 1, 0), (0, 5e-324, 3)]
)
def test_linspace(arguments):
    check(qb.linspace(*arguments), np.linspace(*arguments), "float64")
    check(qb.linspace(*arguments, dtype="float32"), np.linspace(*arguments, dtype="float32"), "float32")
    check(qb.linspace(*arguments, dtype="int32"), np.linspace(*arguments, dtype="int32"), "int32")


def test_linspace_refuses():
    with pytest.raises(ValueError, match="linspace: num must be an int of at least 0, got -1"):
        qb.linspace(0, 1, -1)
    with pytest.raises(TypeError, match="linspace: num must be an int of at least 0, got 2.5"):
        qb.linspace(0, 1, 2.5)
    with pytest.raises(TypeError, match="linspace: stop must be a number, got 'a'"):
        qb.linspace(0, "a", 2)


def test_shapes_refused():
    for make in (qb.zeros, qb.ones):
        with pytest.raises(ValueError, match="negative"):
            make((2, -1))
        with pytest.raises(TypeError, match="shape is an int or a tuple of ints"):
            make((2, 1.5))
        with pytest.raises(TypeError, match="shape is an int or a tuple of ints"):
            make("3")
        with pytest.raises(ValueError, match="too many elements"):
            make((2**62, 2**62))
        with pytest.raises(MemoryError):
            make(2**56)
    check(qb.zeros((np.int64(2), qb.array(3, dtype="int32"))), np.zeros((2, 3)), "float64")


# --- traced arrays


def test_traced_arrays():
    tracers = []

    def f(x):
        tracers.append(x)
        assert qb.array(x) is x
        assert qb.asarray(x, dtype="float64") is x
        assert qb.asarray(x, dtype="float32").dtype is qb.float32
        for like in (qb.ones_like(x), qb.full_like(x, 3)):
            assert (like.shape, like.dtype) == ((2, 3), qb.float64)
        assert qb.array([qb.zeros((2, 3)), x]).shape == (2, 2, 3)
        assert qb.full((5, 2, 2, 3), [x, 1.0 * x], dtype="float32").shape == (5, 2, 2, 3)
        with pytest.raises(qb.TracerError, match="no value"):
            qb.linspace(x, 1, 5)
        with pytest.raises(TypeError):
            float(x)
        return qb.full((3, 2, 3), x) + qb.zeros_like(x)

    out = qb.jit(f)(qb.ones((2, 3)))
    check(out, np.ones((3, 2, 3)), "float64")
    assert len(tracers) == 1
