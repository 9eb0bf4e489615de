"""Indexing against NumPy: random expressions in bulk; then traces, derivatives, batches and updates."""

import numpy as np
import pytest
import quabla as qb
from compare import UPDATES, updated

READS, WRITES = 4000, 1000
DTYPES = ("float64", "float32", "bool", "int32", "int64", "uint32", "uint64")
INDEX_DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")


def tensor(array):
    return qb.array(array, dtype=str(array.dtype))


def same(got, expected, context):
    got = np.asarray(got)
    assert got.shape == expected.shape, context
    assert got.dtype == expected.dtype, context
    np.testing.assert_array_equal(got, expected, err_msg=context)


# ------------------------------------------------------------------------------------------------- random expressions


class Expressions:
    """Random arrays and indices of NumPy; `ours` turns some of the arrays in an index into tensors."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def chance(self, p):
        return self.rng.random() < p

    def array(self, most=4):
        shape = tuple(self.rng.integers(0 if self.chance(0.1) else 1, 5, self.rng.integers(0, most + 1)))
        dtype = DTYPES[self.rng.integers(len(DTYPES))]
        return (self.rng.integers(0, 100, shape) % (2 if dtype == "bool" else 100)).astype(dtype)

    def integer(self, extent):
        if extent == 0 or self.chance(0.02):
            return int(self.rng.integers(-9, 9))
        return int(self.rng.integers(-extent, extent))

    def slice(self, extent):
        def bound():
            return None if self.chance(0.4) else int(self.rng.integers(-extent - 2, extent + 3))

        step = None if self.chance(0.5) else int(self.rng.choice([-3, -2, -1, 1, 2, 3]))
        return slice(bound(), bound(), step)

    def places(self, extent, shape):
        size = int(np.prod(shape))
        values = np.array([self.integer(extent) for _ in range(size)], dtype="int64").reshape(shape)
        dtype = INDEX_DTYPES[self.rng.integers(len(INDEX_DTYPES))]
        if dtype.startswith("u"):
            values = np.where(values < 0, values + extent, values)
            if np.any(values < 0):
                dtype = "int64"
        values = values.astype(dtype)
        return values.tolist() if self.chance(0.3) and values.ndim and values.size else values

    def mask(self, shape):
        mask = self.rng.random(shape) < 0.5
        return mask.tolist() if self.chance(0.2) and mask.ndim and mask.size else mask

    def index(self, shape):
        """A tuple, or a single entry, that fits an array of that shape more or less."""
        common = tuple(self.rng.choice([1, 2, 3], self.rng.integers(0, 3))) if self.chance(0.95) else (0,)
        entries, axis, has_ellipsis = [], 0, False
        while axis < len(shape) and not self.chance(0.12):
            kind = self.rng.choice(
                ["integer", "slice", "places", "mask", "flag", "none", "ellipsis"],
                p=[0.2, 0.25, 0.3, 0.07, 0.03, 0.08, 0.07],
            )
            if kind == "integer":
                entries.append(self.integer(shape[axis]))
                axis += 1
            elif kind == "slice":
                entries.append(self.slice(shape[axis]))
                axis += 1
            elif kind == "places":
                own = tuple(
                    1 if self.chance(0.2) else extent for extent in common[self.rng.integers(len(common) + 1) :]
                )
                entries.append(self.places(shape[axis], own if not self.chance(0.02) else (5,)))
                axis += 1
            elif kind == "mask":
                rank = int(self.rng.integers(1, len(shape) - axis + 1))
                own = (
                    shape[axis : axis + rank]
                    if not self.chance(0.05)
                    else tuple(n + 1 for n in shape[axis : axis + rank])
                )
                entries.append(self.mask(own))
                axis += rank
            elif kind == "flag":
                entries.append([True, False, np.True_, np.array(False)][self.rng.integers(4)])
            elif kind == "none":
                entries.append(None)
            elif not has_ellipsis or self.chance(0.03):
                has_ellipsis = True
                entries.append(Ellipsis)
                axis += int(self.rng.integers(0, len(shape) - axis + 1))
        if self.chance(0.02):
            entries.append([0.5, np.array([0.0]), "x", 0, 0][self.rng.integers(5)])
        if len(entries) == 1 and self.chance(0.5):
            return entries[0]
        return tuple(entries)

    def ours(self, index):
        """The same index, its arrays now and then as tensors."""

        def entry(e):
            return tensor(e) if isinstance(e, np.ndarray) and e.dtype in DTYPES and self.chance(0.5) else e

        return tuple(entry(e) for e in index) if isinstance(index, tuple) else entry(index)


def outcome(call):
    """(result, None) or (None, type of the error)"""
    try:
        return call(), None
    except Exception as error:
        return None, type(error)


def agree(ours, numpys, context):
    (got, error), (expected, numpys_error) = outcome(ours), outcome(numpys)
    assert error is numpys_error, f"{context}: {error}, NumPy has {numpys_error}"
    if error is None:
        same(got, np.asarray(expected), context)


def cases(seed, count):
    draw = Expressions(seed)
    for _ in range(count):
        array = draw.array()
        index = draw.index(array.shape)
        yield draw, array, index, draw.ours(index), f"{array.dtype}{array.shape}[{index!r}]"


@pytest.mark.parametrize("seed", range(5))
def test_random_reads(seed):
    for _, array, index, ours, context in cases(seed, READS // 5):
        x = tensor(array)
        agree(lambda: x[ours], lambda: array[index], context)


@pytest.mark.parametrize("seed", range(5, 7))
def test_random_reads_in_a_trace(seed):
    """Of a traced array by known indices: the same, and the same errors."""
    for _, array, index, ours, context in cases(seed, 150):
        agree(lambda: qb.jit(lambda x: x[ours])(tensor(array)), lambda: array[index], context)


def split_arrays(index):
    """The integer arrays of an index, and a function that puts others in their places."""

    def is_places(entry):
        return isinstance(entry, (np.ndarray, list)) and np.asarray(entry).dtype.kind in "iu"

    entries = index if isinstance(index, tuple) else (index,)
    arrays = [np.asarray(e, "int64") for e in entries if is_places(e)]

    def fill(tracers):
        tracers = iter(tracers)
        return tuple(next(tracers) if is_places(e) else e for e in entries)

    return arrays, fill


@pytest.mark.parametrize("seed", range(7, 9))
def test_random_reads_by_traced_indices(seed):
    for _, array, index, _, context in cases(seed, 150):
        expected, error = outcome(lambda: array[index])
        if error is not None:
            continue
        arrays, fill = split_arrays(index)
        got = qb.jit(lambda x, arrays: x[fill(arrays)])(tensor(array), [tensor(a) for a in arrays])
        same(got, np.asarray(expected), context)


# -------------------------------------------------------------------------------------------------------------- updates


@pytest.mark.parametrize("how", UPDATES)
def test_random_writes(how):
    for draw, array, index, ours, context in cases(len(how), WRITES // 5):
        if array.dtype == bool and how != "set":
            continue
        part, error = outcome(lambda: array[index])
        if error is not None:
            with pytest.raises(error):
                getattr(tensor(array).at[ours], how)(0 if array.dtype != bool else False)
            continue
        shape = tuple(1 if draw.chance(0.2) else n for n in np.shape(part)[draw.rng.integers(np.ndim(part) + 1) :])
        values = (draw.rng.integers(0, 7, shape) % (2 if array.dtype == bool else 7)).astype(array.dtype)
        expected = updated(array, index, how, values)
        context = f"{context}.{how} of {values.shape}"
        x = tensor(array)
        same(getattr(x.at[ours], how)(tensor(values)), expected, context)
        same(qb.jit(lambda x, v: getattr(x.at[ours], how)(v))(x, tensor(values)), expected, context)
        same(x, array, "the array itself stays as it is")


def test_values_take_the_dtype_of_the_array():
    x = qb.zeros(3, dtype="float32")
    assert x.at[0].set(1.5).dtype == qb.float32
    assert x.at[[0, 1]].add(np.array([1, 2])).dtype == qb.float32
    assert x.at[0].set(True).dtype == qb.float32
    i = qb.zeros(3, dtype="int32")
    assert i.at[0].set(7).dtype == qb.int32
    assert i.at[0].set(qb.array(7, dtype="int64")).dtype == qb.int32
    assert qb.zeros(2, dtype="bool").at[0].set(True).tolist() == [True, False]
    for array, values in ((x, qb.ones(())), (i, 0.5), (i, qb.ones(())), (qb.zeros(2, dtype="bool"), 1.0)):
        with pytest.raises(ValueError, match="astype"):
            array.at[0].set(values)
    with pytest.raises(ValueError, match=r"bool.*astype"):
        qb.zeros(2, dtype="bool").at[0].add(True)


def test_update_errors():
    x = qb.ones((2, 3))
    with pytest.raises(ValueError, match=r"values of shape \(2,\) do not broadcast .*\(3,\)"):
        x.at[0].set(qb.ones(2))
    with pytest.raises(IndexError, match="index 2 is out of bounds for axis 0 with size 2"):
        x.at[2].set(0.0)
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 1 with size 3"):
        x.at[:, [0, 9]].set(0.0)
    with pytest.raises(AttributeError):
        x.at.set(0.0)
    with pytest.raises(TypeError, match="None"):
        x.at[0].set(None)


def test_at_get_mul_repr():
    x = qb.arange(4)
    assert x.at[1:3].get().tolist() == [1, 2]
    assert x.at[[1, 1]].mul(3.0).tolist() == [0, 9, 2, 3]
    assert repr(x.at[0]) == f"{x!r}.at[0]"
    assert repr(x.at) == f"{x!r}.at"


# ------------------------------------------------------------------------------------------------------ out of range


def test_known_indices_are_checked_everywhere():
    x = qb.ones((2, 3))
    for index in (
        [2],
        [-3],
        (slice(None), [0, 3]),
        ([0, 1], [0, -4]),
        np.array([5]),
        qb.array([5], dtype="uint32"),
        np.array([2**63], "uint64"),
    ):
        with pytest.raises(IndexError, match=r"out of bounds for axis . with size"):
            x[index]
        with pytest.raises(IndexError, match=r"out of bounds for axis . with size"):
            qb.jit(lambda x: x[index])(x)
    calls = (
        lambda x: qb.take(x, [6]),
        lambda x: qb.take(x, 9),
        lambda x: x.take([2], axis=0),
        lambda x: x.gather([0, -3]),
        lambda x: x.scatter_add([2], 1.0),
        lambda x: qb.take_along_axis(x, [[0, 3]], axis=1),
    )
    for call in calls:
        with pytest.raises(IndexError, match="out of bounds"):
            call(x)
        with pytest.raises(IndexError, match="out of bounds"):
            qb.jit(call)(x)


def traced(call, *indices):
    return qb.jit(call)(*(qb.array(i, dtype="int64") for i in indices))


def test_traced_indices_clamp_and_drop():
    x = qb.array([1.0, 2.0, 3.0])
    assert traced(lambda i: x[i], [0, -1, 3, -4, 99, -99]).tolist() == [1, 3, 3, 1, 3, 1]
    assert traced(lambda i: x[i], 7).item() == 3
    assert traced(lambda i: qb.take(x, i), [5, -5]).tolist() == [3, 1]
    assert traced(lambda i: x.at[i].set(9.0), [-1, 3, -4]).tolist() == [1, 2, 9]
    assert traced(lambda i: x.at[i].add(9.0), [0, 0, 3]).tolist() == [19, 2, 3]
    assert traced(lambda i: x.scatter_add(i, qb.ones(2)), [1, 8]).tolist() == [1, 3, 3]
    y = qb.arange(6).reshape(2, 3)
    assert traced(lambda i, j: y[i, j], [0, 5], [9, -9]).tolist() == [2, 3]
    assert traced(lambda i, j: y.at[i, j].set(-1.0), [0, 0], [1, 3]).tolist() == [[0, -1, 2], [3, 4, 5]]


def test_cotangent_of_a_clamped_read_goes_to_what_was_read():
    x, w = qb.array([1.0, 2.0, 3.0]), qb.array([1.0, 10.0, 100.0, 1000.0])
    i = qb.array([0, 3, -4, 99], dtype="int64")
    assert qb.grad(lambda x, i: qb.sum(w * x[i]))(x, i).tolist() == [101, 0, 1010]
    assert qb.grad(lambda x, i: qb.sum(w * qb.take(x, i)))(x, i).tolist() == [101, 0, 1010]


def test_dropped_writes_have_no_derivative():
    x, v = qb.array([1.0, 2.0, 3.0]), qb.array([5.0, 7.0])
    i = qb.array([1, 3], dtype="int64")
    gx, gv = qb.grad(lambda x, v, i: qb.sum(x.at[i].set(v) ** 2), argnums=(0, 1))(x, v, i)
    assert gx.tolist() == [2, 0, 6]
    assert gv.tolist() == [10, 0]


def test_indexing_an_empty_axis():
    x = qb.zeros((0, 3))
    assert x[[]].shape == (0, 3)
    assert qb.take(x, qb.array([], dtype="int64"), axis=0).shape == (0, 3)
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 0"):
        x[[0]]
    assert qb.zeros((3, 2))[[7], []].shape == (0,)  # nothing is selected, as in NumPy
    with pytest.raises(IndexError, match="extent 0"):
        traced(lambda i: x[i], [0])


# ------------------------------------------------------------------------------------------------------- index dtypes


def test_what_is_no_index():
    x = qb.ones((2, 3))
    for index in (1.0, [1.0], np.array([0.0]), qb.array([0, 1]), "x", (0, object()), {}, 1j):
        with pytest.raises(IndexError, match=r"ints|integers"):
            x[index]
    with pytest.raises(IndexError, match="float64; convert with astype"):
        qb.take(x, qb.array([0, 1]))
    with pytest.raises(IndexError, match="float64; convert with astype"):
        qb.jit(lambda x: x[x])(x)
    with pytest.raises(qb.TracerError, match="where"):
        qb.jit(lambda x: x[x > 0])(x)
    with pytest.raises(qb.TracerError, match="where"):
        qb.jit(lambda x: x.at[x > 0].set(0.0))(x)


def test_lists_may_hold_tracers():
    x = qb.arange(12).reshape(3, 4)
    i, j = qb.array(2, dtype="int64"), qb.array(1, dtype="int32")
    same(qb.jit(lambda i, j: x[[i, 0, j]])(i, j), np.asarray(x)[[2, 0, 1]], "a list")
    same(qb.jit(lambda i, j: x[:, [[i, 0], [j, 3]]])(i, j), np.asarray(x)[:, [[2, 0], [1, 3]]], "a nested list")
    same(qb.jit(lambda i, j: x[i, j])(i, j), np.asarray(x)[2, 1], "two numbers")
    same(qb.jit(lambda i: x[i, ::2])(i), np.asarray(x)[2, ::2], "a number and a slice")


def test_known_masks_in_a_trace():
    x = qb.arange(6).reshape(2, 3)
    mask = np.array([[True, False, True], [False, False, True]])
    assert qb.jit(lambda x: x[mask] * 2)(x).tolist() == [0, 4, 10]
    assert qb.grad(lambda x: qb.sum(x[mask] ** 2))(x).tolist() == [[0, 0, 4], [0, 0, 10]]
    assert qb.jit(lambda x: x.at[mask].set(-1.0))(x).tolist() == [[-1, 1, -1], [3, 4, -1]]
    with pytest.raises(IndexError, match=r"extent 3 does not match axis 0 of shape \(2, 3\)"):
        x[np.array([True, False, True])]


def test_iteration():
    x = qb.arange(6).reshape(3, 2)
    assert [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    *_, c = x
    assert c.tolist() == [4, 5]
    assert qb.jit(lambda x: sum(x))(x).tolist() == [6, 9]
    with pytest.raises(TypeError, match="iteration"):
        iter(qb.array(1.0))
    assert x[qb.array(1, dtype="uint64")].tolist() == [2, 3]
    assert x[np.int32(-1)].tolist() == [4, 5]


# -------------------------------------------------------------------------------------------------------- derivatives


def differences(f, x, h=1e-3):
    """The gradient of a function of one array, by the central difference of fourth order."""
    x = np.asarray(x)
    gradient = np.zeros_like(x)
    for k in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[k] = h
        at = [float(f(qb.array(x + c * step))) for c in (-2, -1, 1, 2)]
        gradient[k] = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)
    return gradient


@pytest.mark.parametrize("how", ["read", *UPDATES])
def test_random_gradients(how):
    """First and second derivatives of reads and updates, in the array and in the values."""
    tested = 0
    for draw, array, index, _, context in cases(1000 + len(how), 60):
        part, error = outcome(lambda: array[index])
        if error is not None or array.size > 40 or np.size(part) > 60:
            continue
        tested += 1
        x = qb.array(
            draw.rng.permutation(0.5 + 0.05 * np.arange(array.size)).reshape(array.shape)
        )  # no ties within a step
        v = qb.array(draw.rng.permutation(0.525 + 0.05 * np.arange(np.size(part))).reshape(np.shape(part)))
        arrays, fill = split_arrays(index)
        arrays = [tensor(a) for a in arrays]

        def update(x, v, arrays):
            ours = fill(arrays)
            return qb.sin(x[ours]) * v if how == "read" else getattr(x.at[ours], how)(v)

        w = qb.array(draw.rng.normal(size=update(x, v, arrays).shape))

        def scalar(x, v, arrays):
            return qb.sum(w * update(x, v, arrays) ** 2)

        gx, gv = qb.grad(scalar, argnums=(0, 1))(x, v, arrays)
        np.testing.assert_allclose(
            gx, differences(lambda x: scalar(x, v, arrays), x), rtol=1e-7, atol=1e-7, err_msg=context
        )
        np.testing.assert_allclose(
            gv, differences(lambda v: scalar(x, v, arrays), v), rtol=1e-7, atol=1e-7, err_msg=context
        )
        if tested % 4:
            continue
        c = qb.array(draw.rng.normal(size=x.shape))

        def slope(x, v, arrays):
            return qb.sum(c * qb.grad(scalar)(x, v, arrays))

        hx, hv = qb.grad(slope, argnums=(0, 1))(x, v, arrays)
        np.testing.assert_allclose(
            hx, differences(lambda x: slope(x, v, arrays), x), rtol=1e-6, atol=1e-6, err_msg=context
        )
        np.testing.assert_allclose(
            hv, differences(lambda v: slope(x, v, arrays), v), rtol=1e-6, atol=1e-6, err_msg=context
        )
    assert tested >= 20


def test_duplicates_in_set_keep_the_last():
    i = qb.array([0, 2, 0], dtype="int64")
    v = qb.array([5.0, 6.0, 7.0])
    f = lambda v, i: qb.zeros(3).at[i].set(v)
    assert f(v, i).tolist() == [7, 0, 6]
    assert qb.jacrev(f)(v, i).tolist() == [[0, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert qb.jacfwd(f)(v, i).tolist() == [[0, 0, 1], [0, 0, 0], [0, 1, 0]]


def test_products_with_zeros_are_exact_at_every_order():
    """d/dv of x v0 v1 v2 at zeros: nothing is divided."""
    i = qb.array([0, 0, 0], dtype="int64")
    f = lambda x, v, i: qb.sum(x.at[i].multiply(v))
    for v in ([2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]):
        x, v = qb.array([5.0]), qb.array(v)
        a, b, c = v.tolist()
        assert qb.grad(f)(x, v, i).tolist() == [a * b * c]
        assert qb.grad(f, argnums=1)(x, v, i).tolist() == [5 * b * c, 5 * a * c, 5 * a * b]
        assert qb.hessian(f, argnums=1)(x, v, i).tolist() == [[0, 5 * c, 5 * b], [5 * c, 0, 5 * a], [5 * b, 5 * a, 0]]


def test_ties_share_the_derivative():
    i = qb.array([0, 0, 1], dtype="int64")
    x, v = qb.array([2.0, 1.0]), qb.array([2.0, 2.0, 3.0])
    gx, gv = qb.grad(lambda x, v, i: qb.sum(x.at[i].max(v)), argnums=(0, 1))(x, v, i)
    np.testing.assert_allclose(gx, [1 / 3, 0])
    np.testing.assert_allclose(gv, [1 / 3, 1 / 3, 1])
    gx = qb.grad(lambda x: qb.sum(x.at[[0]].min(2.0)))(x)
    assert gx.tolist() == [0.5, 1]


def test_scatter_add_sums_in_index_order():
    """In floating point the order shows."""
    parts = np.array([1.0, 1e100, 1.0, -1e100] * 5)
    i = qb.zeros(20, dtype="int64")
    expected = 0.0
    for part in parts:
        expected += part
    assert qb.scatter_add(qb.zeros(1), i, qb.array(parts)).item() == expected
    assert qb.jit(lambda i, v: qb.zeros(1).at[i].add(v))(i, qb.array(parts)).item() == expected


def test_masked_parts_stay_out():
    """An infinite cotangent of what was overwritten does not come through."""
    x = qb.array([0.0, 4.0])
    assert qb.grad(lambda x: qb.sum(qb.sqrt(x.at[0].set(1.0))))(x).tolist() == [0, 0.25]
    assert qb.grad(lambda x: qb.sum(qb.log(x).at[0].set(1.0)))(x).tolist() == [0, 0.25]
    i = qb.array([0], dtype="int64")
    assert qb.grad(lambda x, i: qb.sum(qb.log(x).at[i].set(1.0)))(x, i).tolist() == [0, 0.25]


# ------------------------------------------------------------------------------------------------------------ batching


def example(array, axis, k):
    return array if axis is None else np.take(array, k, axis)


@pytest.mark.parametrize("how", ["read", *UPDATES])
def test_random_batches(how):
    """vmap over every combination of array, values and indices, against a loop."""
    tested = 0
    for draw, array, index, _, context in cases(2000 + len(how), 40):
        part, error = outcome(lambda: array[index])
        arrays, fill = split_arrays(index)
        if error is not None or not arrays or array.size == 0:
            continue
        tested += 1
        size = 3
        xs = draw.rng.normal(size=(size, *array.shape))
        vs = draw.rng.normal(size=(size, *np.shape(part)))
        stacks = [np.stack([np.roll(a, k) for k in range(size)]) for a in arrays]

        def call(x, v, arrays):
            ours = fill(arrays)
            return x[ours] if how == "read" else getattr(x.at[ours], how)(v)

        for mapped in np.ndindex(2, 2, 2):
            if not any(mapped):
                continue
            axes = tuple(0 if m else None for m in mapped)
            x, v = (many if m else many[0] for many, m in zip((xs, vs), mapped[:2], strict=True))
            places = stacks if mapped[2] else arrays
            got = qb.vmap(call, in_axes=axes)(qb.array(x), qb.array(v), [tensor(a) for a in places])
            loop = []
            for k in range(size):
                one = (qb.array(example(x, axes[0], k)), qb.array(example(v, axes[1], k)))
                loop.append(np.asarray(call(*one, [tensor(example(a, axes[2], k)) for a in places])))
            np.testing.assert_allclose(got, np.stack(loop), rtol=1e-15, err_msg=f"{context}, mapped {mapped}")
        nested = qb.vmap(qb.vmap(call, in_axes=(None, 0, 0)), in_axes=(0, None, None))(
            qb.array(xs), qb.array(vs), [tensor(a) for a in stacks]
        )
        loop = [
            [np.asarray(call(qb.array(x), qb.array(v), [tensor(a[k]) for a in stacks])) for k, v in enumerate(vs)]
            for x in xs
        ]
        np.testing.assert_allclose(nested, np.array(loop), rtol=1e-15, err_msg=f"{context}, nested")
    assert tested >= 8


def test_gradients_of_a_batch():
    x = qb.array(np.random.default_rng(0).normal(size=(4, 5)))
    i = qb.array([[0, 0, 3], [1, 2, 2], [4, 4, 4], [0, 1, 2]], dtype="int64")
    f = lambda x, i: qb.sum(x[i] ** 3)
    got = qb.vmap(qb.grad(f))(x, i)
    np.testing.assert_allclose(got, np.stack([np.asarray(qb.grad(f)(x[k], i[k])) for k in range(4)]), rtol=1e-15)


# ----------------------------------------------------------------------------------------- take and its like, slices


def test_take_against_numpy():
    x = np.arange(24.0).reshape(2, 3, 4)
    for axis in (None, 0, 1, -1):
        for i in (1, [0, 1], np.array([[1, 0], [-1, 1]]), np.zeros((0,), "int32")):
            same(qb.take(qb.array(x), i, axis=axis), np.take(x, i, axis), f"take {axis}")
            same(qb.array(x).take(i, axis), np.take(x, i, axis), f"take {axis}")
    same(qb.gather(qb.array(x), [1, 1, 0]), x[[1, 1, 0]], "gather")
    same(qb.array(x).gather([2, 0], axis=1), x[:, [2, 0]], "gather")
    same(qb.take([1.0, 2.0, 3.0], [2, 0]), np.array([3.0, 1.0]), "lists")


def test_take_along_axis_against_numpy():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 4, 5))
    for axis in (0, 1, 2, -1):
        order = np.argsort(x, axis=axis)
        same(qb.take_along_axis(qb.array(x), order, axis=axis), np.take_along_axis(x, order, axis), f"axis {axis}")
    i = rng.integers(-4, 4, (1, 2, 5))
    same(qb.take_along_axis(qb.array(x), i, axis=1), np.take_along_axis(x, i, 1), "broadcast")
    with pytest.raises(ValueError, match="as many axes"):
        qb.take_along_axis(qb.array(x), [0])


def test_scatter_add():
    x = np.zeros((3, 2))
    expected = x.copy()
    np.add.at(expected, [0, 2, 0], np.arange(6.0).reshape(3, 2))
    same(qb.array(x).scatter_add([0, 2, 0], np.arange(6.0).reshape(3, 2)), expected, "rows")
    expected = x.copy()
    np.add.at(expected, (slice(None), [1, 1]), 2.0)
    same(qb.scatter_add(qb.array(x), [1, 1], 2.0, axis=1), expected, "columns")
    with pytest.raises(ValueError, match=r"updates of shape \(4,\) do not broadcast"):
        qb.scatter_add(qb.array(x), [0], qb.ones(4))


def test_dynamic_slices():
    x = np.arange(60.0).reshape(3, 4, 5)
    t = qb.array(x)
    read = qb.jit(lambda i, j: qb.dynamic_slice(t, (i, 0, j), (2, 4, 3)))
    write = qb.jit(lambda u, i, j: qb.dynamic_update_slice(t, u, (i, 1, j)))
    u = -1 - np.arange(12.0).reshape(2, 2, 3)
    for i in range(-4, 5):
        for j in range(-6, 7):
            a, b = (min(max(k + n if k < 0 else k, 0), n - m) for k, n, m in ((i, 3, 2), (j, 5, 3)))
            at = [qb.array(k, dtype="int64") for k in (i, j)]
            same(read(*at), x[a : a + 2, :, b : b + 3], f"read at {i}, {j}")
            expected = x.copy()
            expected[a : a + 2, 1:3, b : b + 3] = u
            same(write(qb.array(u), *at), expected, f"write at {i}, {j}")
    same(qb.dynamic_slice(t, qb.array([1, 0, 2], dtype="int32"), (1, 1, 1)), x[1:2, :1, 2:3], "an array of positions")
    same(t.dynamic_slice([0, 0, 0], (0, 4, 5)), x[:0], "nothing")
    with pytest.raises(ValueError, match="does not fit"):
        qb.dynamic_slice(t, (0, 0, 0), (4, 1, 1))
    with pytest.raises(ValueError, match="2 start indices"):
        qb.dynamic_slice(t, (0, 0), (1, 1, 1))
    with pytest.raises(ValueError, match="start indices are integers"):
        qb.dynamic_slice(t, (0.5, 0, 0), (1, 1, 1))
    gx, gu = qb.grad(lambda t, u, i: qb.sum(qb.dynamic_update_slice(t, u, (i, 1, 1)) ** 2), argnums=(0, 1))(
        t, qb.array(u), qb.array(1, dtype="int64")
    )
    expected = 2 * x
    expected[1:3, 1:3, 1:4] = 0
    same(gx, expected, "gradient in the array")
    same(gu, 2 * u, "gradient in the update")


# --------------------------------------------------------------------------------------------------- memory in programs


def test_updates_in_a_program_do_not_overwrite_what_is_read_later():
    """A program writes over an array that nothing reads any more; here everything is read again."""
    x = np.arange(6.0)

    def chain(x):
        a = x * 2
        b = a.at[0].set(-1.0)
        c = b.at[[1, 2]].add(b[3])
        d = c.at[1:3].multiply(a[1:3])
        return a, b, c, d, b.at[5].set(a[5] + c[1]), qb.sum(c)

    a = x * 2
    b = a.copy()
    b[0] = -1
    c = b.copy()
    c[[1, 2]] += b[3]
    d = c.copy()
    d[1:3] *= a[1:3]
    e = b.copy()
    e[5] = a[5] + c[1]
    for got, expected in zip(qb.jit(chain)(qb.array(x)), (a, b, c, d, e, np.sum(c)), strict=True):
        same(got, expected, "an intermediate result")
    last = qb.jit(lambda x: chain(x)[3])
    same(last(qb.array(x)), d, "the last one alone")
    same(last(qb.array(x)), d, "a second time")


def test_boundary_values_in_a_loop():
    def step(u):
        u = u.at[1:-1, 1:-1].set((u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4)
        return u.at[0].set(1.0).at[-1].set(0.0).at[:, 0].set(2.0).at[:, -1].set(u[:, -2])

    def many(u):
        for _ in range(5):
            u = step(u)
        return u

    expected = np.random.default_rng(3).normal(size=(6, 7))
    u = qb.array(expected.copy())
    for _ in range(5):
        inner = (expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]) / 4
        expected[1:-1, 1:-1] = inner
        edge = expected[:, -2].copy()
        expected[0], expected[-1], expected[:, 0], expected[:, -1] = 1, 0, 2, edge
    np.testing.assert_allclose(qb.jit(many)(u), expected, rtol=1e-15)
    np.testing.assert_allclose(many(u), expected, rtol=1e-15)


def test_laplacian_and_series():
    """Taylor mode of reads and updates, with equal indices, against nested derivatives."""
    x = qb.array([1.0, 2.0, 3.0])
    i = qb.array([0, 2, 0], dtype="int64")
    functions = (
        lambda x, i: qb.sum(qb.sin(x)[i] * x[i]),
        lambda x, i: qb.sum(qb.sin(x.at[i].set(x[i] ** 3))),
        lambda x, i: qb.sum(qb.sin(x.at[i].add(x[i] ** 3))),
        lambda x, i: qb.sum(qb.sin(x.at[i].max(x[i] ** 3))),
        lambda x, i: qb.sum(qb.sin(x.at[i].multiply(x[i] ** 3))),
        lambda x, i: qb.sum(qb.sin(x.at[1:].multiply(x[1:] ** 3))),
    )
    for f in functions:
        trace = np.trace(np.asarray(qb.hessian(f)(x, i)))
        np.testing.assert_allclose(qb.laplacian(lambda x, f=f: f(x, i))(x), trace, rtol=1e-12)
        np.testing.assert_allclose(qb.laplacian(f)(x, i), trace, rtol=1e-12)
        np.testing.assert_allclose(qb.jit(qb.laplacian(f))(x, i), trace, rtol=1e-12)
