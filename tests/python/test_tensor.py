"""Tensor: attributes, Python numbers, memory and copies, text."""

import copy
import gc
import pickle
import sys
import weakref

import numpy as np
import pytest
import quabla as qb

DTYPES = [qb.float64, qb.float32, qb.bool_, qb.int32, qb.int64, qb.uint32, qb.uint64]
NAMES = [dtype.name for dtype in DTYPES]


def sample(name, shape=(2, 3)):
    values = np.arange(np.prod(shape)).reshape(shape) - (0 if name[0] == "u" else 2)
    return np.asarray(values).astype(name)


# --- dtypes


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
def test_dtype(dtype):
    name = dtype.name
    assert repr(dtype) == str(dtype) == name
    assert dtype.itemsize == np.dtype(name).itemsize
    assert dtype.kind == np.dtype(name).kind
    assert dtype == dtype
    assert dtype == np.dtype(name)
    assert np.dtype(name) == dtype
    assert (dtype != np.dtype(name)) is False
    assert dtype != np.dtype("complex128")
    assert dtype != name
    assert np.zeros(2, dtype).dtype == name
    for same in (name, dtype, np.dtype(name), np.dtype(name).type):
        assert qb.dtype(same) is dtype
    assert {dtype: 1}[dtype] == 1
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


def test_dtype_from_python_types():
    assert qb.dtype(float) is qb.float64
    assert qb.dtype(int) is qb.int64
    assert qb.dtype(bool) is qb.bool_
    assert qb.dtype("bool_") is qb.bool_
    assert len({*DTYPES}) == 7


@pytest.mark.parametrize("wrong", ["float16", "f8", np.float16, np.dtype("complex64"), complex, str, 3, None, [], b"x"])
def test_dtype_refused(wrong):
    with pytest.raises(TypeError, match=r"expected one of float64, float32, bool, int32.*got"):
        qb.dtype(wrong)


# --- the constructor and attributes


def test_constructor_of_shape_and_data():
    t = qb.Tensor([2, 2], [1.0, 2.0, 3.0, 4.0])
    assert t.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert t.dtype is qb.float64
    assert qb.Tensor([], [1.0]).shape == ()
    assert qb.Tensor([3], np.ones(3), dtype=qb.float32).dtype is qb.float32
    assert qb.Tensor(4, [1, 0, 1, 0], dtype="bool").tolist() == [True, False, True, False]
    assert qb.Tensor((2, 0), []).shape == (2, 0)


def test_constructor_refuses():
    with pytest.raises(ValueError, match=r"shape \(2, 2\) has 4 elements, data has 3"):
        qb.Tensor([2, 2], [1, 2, 3])
    with pytest.raises(TypeError, match=r"quabla\.array"):
        qb.Tensor([[1, 2], [3, 4]])
    with pytest.raises(TypeError, match="shape is an int or a tuple of ints"):
        qb.Tensor([1.5], [1])
    with pytest.raises(ValueError, match="negative"):
        qb.Tensor([-1], [])
    with pytest.raises(ValueError, match="ranks go from 0 to 32"):
        qb.Tensor([1] * 33, [1])
    with pytest.raises(ValueError, match="too many elements"):
        qb.Tensor([2**40, 2**40], [1])
    with pytest.raises(TypeError):
        type("Sub", (qb.Tensor,), {})


@pytest.mark.parametrize("name", NAMES)
def test_attributes(name):
    a = sample(name)
    t = qb.array(a, dtype=name)
    assert t.shape == (2, 3)
    assert type(t.shape) is tuple
    assert t.dtype == name or t.dtype.name == name
    assert (t.ndim, t.size, t.itemsize, t.nbytes) == (2, 6, a.itemsize, a.nbytes)
    assert t.device == "cpu"
    assert len(t) == 2
    with pytest.raises(AttributeError):
        t.shape = (3, 2)
    with pytest.raises(AttributeError):
        t.note = 1


def test_identity_semantics():
    a, b = qb.array([1.0]), qb.array([1.0])
    assert hash(a) == hash(a)
    assert len({a, b, a}) == 2
    reference = weakref.ref(a)
    assert reference() is a
    del a
    gc.collect()
    assert reference() is None


# --- Python numbers


@pytest.mark.parametrize("name", NAMES)
def test_item_and_tolist(name):
    a = sample(name)
    t = qb.array(a, dtype=name)
    assert t.tolist() == a.tolist()
    assert type(t.tolist()[0][0]) is type(a.tolist()[0][0])
    one = qb.array(a[:1, :1], dtype=name)
    assert one.item() == a[0, 0].item()
    assert type(one.item()) is type(a[0, 0].item())
    assert qb.zeros((), name).tolist() == 0
    assert qb.zeros((0, 3), name).tolist() == []
    assert qb.zeros((3, 0), name).tolist() == [[], [], []]
    with pytest.raises(ValueError, match=r"one element, got shape \(2, 3\)"):
        t.item()


def test_numbers():
    x = qb.array(2.75)
    assert float(x) == 2.75
    assert int(x) == 2
    assert int(qb.array(True)) == 1
    assert float(qb.array([[3]])) == 3.0
    assert float(qb.array(3, dtype="int32")) == 3.0
    assert int(qb.array(2**63 + 1, dtype="uint64")) == 2**63 + 1
    with pytest.raises(TypeError, match="one element"):
        float(qb.zeros(2))
    with pytest.raises(TypeError, match="one element"):
        int(qb.zeros(0))
    with pytest.raises(ValueError, match="NaN"):
        int(qb.array(float("nan")))
    assert [10, 20, 30][qb.array(1, dtype="int64")] == 20
    for wrong in (qb.array(1.0), qb.array([1], dtype="int64"), qb.array(True)):
        with pytest.raises(TypeError, match="index"):
            [10, 20][wrong]


def test_truth():
    assert qb.array(True)
    assert not qb.array([[0.0]])
    assert qb.array(float("nan"))
    assert not qb.array(-0.0)
    for size in (0, 2):
        with pytest.raises(ValueError, match="ambiguous"):
            bool(qb.zeros(size))


def test_format():
    assert f"{qb.array(0.125):.2e}" == "1.25e-01"
    assert f"{qb.array(7, dtype='int32'):03d}" == "007"
    assert f"{qb.array([1.0, 2.0])}" == "Tensor([1., 2.], dtype=float64)"
    with pytest.raises(TypeError, match=r"not to a Tensor of shape \(2,\)"):
        format(qb.zeros(2), ".2f")


# --- memory


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,), (3, 0, 2), (2, 3, 4)], ids=str)
def test_export(name, shape):
    a = sample(name, shape)
    t = qb.array(a, dtype=name)
    for out in (t.numpy(), np.asarray(t), np.array(t), np.asarray(memoryview(t)), t.__array__(), np.from_dlpack(t)):
        assert out.dtype == a.dtype
        assert out.shape == a.shape
        assert np.array_equal(out, a)
    for shared in (t.numpy(), np.asarray(t), t.__array__(), np.from_dlpack(t)):
        assert not shared.flags.writeable
        assert a.size == 0 or np.shares_memory(shared, t.numpy())
    assert np.array(t).flags.writeable
    assert not np.shares_memory(np.array(t), t.numpy()) or a.size == 0


def test_export_keeps_the_storage():
    views = [qb.array(np.full(1000, float(i))).numpy() for i in range(50)]
    gc.collect()
    assert all((view == i).all() for i, view in enumerate(views))


def test_array_protocol():
    t = qb.array([1.5, 2.5])
    assert t.__array__(np.float32).dtype == np.float32
    assert t.__array__(np.float64, copy=False).base is not None
    assert t.__array__(copy=True).flags.writeable
    assert t.__array__(dtype=np.dtype("float64"), copy=True).flags.writeable
    assert np.asarray(t, dtype=np.int64).tolist() == [1, 2]
    assert t.__array__(qb.float32).dtype == np.float32
    with pytest.raises(ValueError, match="is not the Tensor's float64"):
        t.__array__(np.float32, copy=False)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="copy"):
            np.asarray(t, dtype=np.float32, copy=False)


def test_buffer():
    t = qb.array(np.arange(6.0).reshape(2, 3))
    view = memoryview(t)
    assert (view.format, view.itemsize, view.shape, view.strides) == ("d", 8, (2, 3), (24, 8))
    assert view.readonly
    assert view.c_contiguous
    assert view.tolist() == t.tolist()
    assert bytes(t) == t.numpy().tobytes()
    with pytest.raises(TypeError, match="read-only"):
        view[0, 0] = 1
    with pytest.raises((BufferError, TypeError, ValueError)):
        np.frombuffer(t, dtype=np.float64)[0] = 1
    assert memoryview(qb.array(True)).tolist() is True


def test_dlpack():
    torch_like = qb.array(np.arange(6, dtype=np.int32).reshape(2, 3), dtype="int32")
    assert torch_like.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(torch_like.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(torch_like.__dlpack__())
    for capsule in (torch_like.__dlpack__(), torch_like.__dlpack__(max_version=(1, 1), copy=True)):
        again = qb.from_dlpack(capsule)
        assert again.dtype is qb.int32
        assert again.tolist() == torch_like.tolist()
        with pytest.raises(ValueError, match="unused DLPack capsule"):
            qb.from_dlpack(capsule)
    with pytest.raises(BufferError, match="stream"):
        torch_like.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"not on device \(2, 0\)"):
        torch_like.__dlpack__(dl_device=(2, 0))
    assert torch_like.__dlpack__(dl_device=(1, 0), max_version=(1, 0), copy=False)
    with pytest.raises(BufferError, match="read-only"):
        torch_like.__dlpack__(copy=False)
    with pytest.raises(TypeError, match="from_dlpack: float16 data are not supported"):
        qb.from_dlpack(np.zeros(2, "float16"))
    with pytest.raises(TypeError, match="from_dlpack: complex128 data are not supported"):
        qb.from_dlpack(np.zeros(2, "complex"))
    before = sys.getrefcount(torch_like)
    for _ in range(10):
        np.from_dlpack(torch_like)
        torch_like.__dlpack__()
    assert sys.getrefcount(torch_like) == before


def test_numpy_refuses_to_write():
    with pytest.raises(ValueError, match="read-only"):
        qb.zeros(3).numpy()[0] = 1


# --- copies


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(name, protocol):
    for shape in ((), (0, 2), (2, 3)):
        t = qb.array(sample(name, shape), dtype=name)
        again = pickle.loads(pickle.dumps(t, protocol))
        assert again.dtype is t.dtype
        assert again.shape == shape
        assert again.tolist() == t.tolist()


def test_pickle_out_of_band():
    t, buffers = qb.array(np.arange(1000.0)), []
    data = pickle.dumps(t, 5, buffer_callback=buffers.append)
    assert len(data) < 300
    assert pickle.loads(data, buffers=buffers).tolist() == t.tolist()


def test_copy_is_the_same():
    t = qb.array([1.0])
    assert copy.copy(t) is t
    assert copy.deepcopy([t])[0] is t


# --- text


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        ([1.0, 2.0], "float32", "Tensor([1., 2.], dtype=float32)"),
        (2.5, "float64", "Tensor(2.5, dtype=float64)"),
        ([0.1, 0.25, 3.0], "float64", "Tensor([0.1 , 0.25, 3.  ], dtype=float64)"),
        ([[1.0, 2.0], [3.0, 4.0]], "float64", "Tensor([[1., 2.],\n        [3., 4.]], dtype=float64)"),
        ([1 / 3], "float32", "Tensor([0.33333334], dtype=float32)"),
        ([1 / 3], "float64", "Tensor([0.33333333], dtype=float64)"),
        ([1e-10, 1.0], "float64", "Tensor([1.e-10, 1.e+00], dtype=float64)"),
        ([True, False], "bool", "Tensor([ True, False], dtype=bool)"),
        (True, "bool", "Tensor(True, dtype=bool)"),
        ([1, -20, 300], "int32", "Tensor([  1, -20, 300], dtype=int32)"),
        ([2**64 - 1, 0], "uint64", "Tensor([18446744073709551615,                    0], dtype=uint64)"),
        ([float("nan"), 1.0, float("-inf")], "float64", "Tensor([ nan,   1., -inf], dtype=float64)"),
        ([float("inf")], "float32", "Tensor([inf], dtype=float32)"),
        ([], "float64", "Tensor([], dtype=float64)"),
        ([[], []], "float64", "Tensor([], shape=(2, 0), dtype=float64)"),
        (5e-324, "float64", "Tensor(5.e-324, dtype=float64)"),
        (-0.0, "float64", "Tensor(-0., dtype=float64)"),
    ],
)
def test_repr(value, dtype, text):
    assert repr(qb.array(value, dtype=dtype)) == text
    assert str(qb.array(value, dtype=dtype)) == text


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="older NumPy has other bounds for exponents")
@pytest.mark.parametrize("seed", range(60))
def test_repr_is_that_of_numpy(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, rng.integers(0, 5)))
    dtype = ["float64", "float32"][seed % 2]
    values = [
        rng.normal(size=shape),
        rng.normal(size=shape) * 10.0 ** rng.integers(-12, 12),
        10.0 ** rng.uniform(-4, 4, shape),
        np.round(rng.normal(size=shape), 2),
        np.where(rng.random(shape) < 0.2, np.nan, np.where(rng.random(shape) < 0.2, -np.inf, rng.normal(size=shape))),
        rng.integers(-1000, 1000, shape),
    ][seed % 6]
    a = np.asarray(values).astype(dtype)
    with np.printoptions(threshold=1000):
        body = np.array2string(a, separator=", ", prefix="Tensor(", suffix=")")
    assert repr(qb.array(a)).startswith(f"Tensor({body},")


def test_repr_of_large_tensors():
    assert repr(qb.arange(1001)) == (
        "Tensor([   0.,    1.,    2., ...,  998.,  999., 1000.],\n       shape=(1001,), dtype=float64)"
    )
    assert "..." not in repr(qb.zeros(1000))
    text = repr(qb.zeros((100, 100, 3), "int32"))
    assert text.count("...") == 1 + 6
    assert text.endswith("shape=(100, 100, 3), dtype=int32)")
    assert len(repr(qb.zeros((3000, 3000)))) < 600
