"""What a careless or hostile caller does: nothing crashes, nothing is silently wrong, and messages say what to do."""

import copy
import ctypes
import gc
import pickle
import threading
import time

import numpy as np
import pytest
import quabla as qb

# --------------------------------------------------------------------------------------------------------- foreign data


def test_buffers_without_strides():
    doubles = (ctypes.c_double * 3)(1, 2, 3)
    assert qb.array(doubles).tolist() == [1.0, 2.0, 3.0]
    assert qb.array(((ctypes.c_int32 * 2) * 3)((1, 2), (3, 4), (5, 6))).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert qb.array(ctypes.c_double(2.5)).item() == 2.5


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]"])
def test_dates_are_refused(dtype):
    dates = np.zeros(2, dtype)
    for make in (lambda: qb.array(dates), lambda: qb.array(dates[0]), lambda: qb.concat([dates[0], dates[1]])):
        with pytest.raises(TypeError, match="(datetime|timedelta)64"):
            make()


def test_arrays_whose_protocols_fail():
    class Broken:
        def __array__(self, *args, **kwargs):
            raise ZeroDivisionError("mine")

    for call in (qb.array, qb.sin, lambda x: qb.ones(2) + qb.asarray(x)):
        with pytest.raises(ZeroDivisionError, match="mine"):
            call(Broken())


def test_cyclic_containers():
    cycle = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="nested more than"):
        qb.array(cycle)
    with pytest.raises(RecursionError):
        qb.tree.flatten(cycle)


def test_exports_outlive_the_tensor():
    tensor = qb.array([1.0, 2.0, 3.0])
    view, array, shared = memoryview(tensor), np.asarray(tensor), np.from_dlpack(tensor)
    del tensor
    gc.collect()
    assert view.tolist() == array.tolist() == shared.tolist() == [1.0, 2.0, 3.0]
    assert view.readonly and not array.flags.writeable


# ------------------------------------------------------------------------------------------------- Python ints, weak numbers

INT32 = qb.array([1, 2], dtype=qb.int32)
UINT32 = qb.array([1, 2], dtype=qb.uint32)


@pytest.mark.parametrize(
    "function, x",
    [
        (lambda x: x + 2**31, INT32),
        (lambda x: x < 2**40, INT32),
        (lambda x: 2**63 * x, qb.array([1], dtype=qb.int64)),
        (lambda x: x < -1, UINT32),
        (lambda x: x - (-1), qb.array([1], dtype=qb.uint64)),
        (lambda x: qb.maximum(x, 2**40), INT32),
        (lambda x: qb.clip(x, 0, 2**40), INT32),
        (lambda x: qb.full_like(x, 2**40), INT32),
        (lambda x: qb.stack([x[0], 2**40]), INT32),
        (lambda x: x * np.int64(2**40), INT32),
    ],
)
def test_an_int_must_fit_the_integers_that_it_meets(function, x):
    for call in (function, qb.jit(function)):
        with pytest.raises(ValueError, match="does not fit into u?int.*astype"):
            call(x)


def test_ints_that_fit():
    for call in (lambda f: f, qb.jit):
        assert call(lambda x: x * 0.5 + 2**40)(INT32).dtype == qb.float64
        assert call(lambda x: qb.full_like(x, 2**40, dtype=qb.int64))(INT32).tolist() == [2**40, 2**40]
        assert call(lambda x: x[-1])(UINT32).item() == 2
        assert call(lambda x: qb.where(x > 1, x, -5))(INT32).tolist() == [-5, 2]
        assert call(lambda x: x + True)(INT32).dtype == qb.int32
        assert call(lambda x: x + 2**70)(qb.ones(1)).item() == 2.0**70
        assert call(lambda x: x * np.bool_(True))(INT32).tolist() == [1, 2]


def test_vmap_keeps_weak_numbers_weak():
    mask, x = qb.array([True, False]), qb.array([1.0, 2.0], dtype=qb.float32)
    weak = mask * 2.0
    assert weak.weak
    assert qb.vmap(lambda m, a: m * a)(weak, x).dtype == qb.float32
    assert qb.vmap(lambda a: weak[0] * a)(x).dtype == qb.float32
    assert qb.jit(lambda m, a: qb.vmap(lambda m, a: m * 2.0 * a)(m, a))(mask, x).dtype == qb.float32
    assert qb.vmap(lambda m: m * 1.0)(weak).weak


# ------------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("argnums, error", [("s", TypeError), (None, TypeError), (True, TypeError), (1.0, TypeError)])
def test_static_argnums_of_a_wrong_type(argnums, error):
    with pytest.raises(error, match="static_argnums must be"):
        qb.jit(lambda x, s: x, static_argnums=argnums)


def test_static_arguments_that_are_not_there():
    for num in (2, -3):
        with pytest.raises(ValueError, match="2 positional parameters"):
            qb.jit(lambda x, s: x, static_argnums=num)
    with pytest.raises(TypeError, match="static_argnames must be"):
        qb.jit(lambda x, s: x, static_argnames=3)
    assert qb.jit(lambda *args: args[0] * args[3], static_argnums=3)(1.0, 2.0, 3.0, 4.0).item() == 4.0
    assert qb.jit(lambda x, s: x * s, static_argnums=[1])(1.0, 2.0).item() == 2.0


def test_messages_of_results():
    with pytest.raises(TypeError, match="got a tuple of 3"):
        qb.grad(lambda x: (x, x, x), has_aux=True)(1.0)
    with pytest.raises(ValueError, match="vmap: out_axes: axis 5 is out of range"):
        qb.vmap(lambda x: x, out_axes=5)(qb.ones(3))


def test_wide_trees_take_linear_time():
    start = time.perf_counter()
    pairs, _ = qb.tree.flatten_with_path({"a": (0,) * 50_000, "b": [None, 1]})
    assert time.perf_counter() - start < 2.0
    assert pairs[49_999] == (("a", 49_999), 0) and pairs[-1] == (("b", 1), 1)


# -------------------------------------------------------------------------------------------------------------- lifetime


def test_transforms_copy_like_functions():
    step = qb.jit(lambda x: x * 2.0)
    assert copy.copy(step) is step and copy.deepcopy({"step": step})["step"] is step


@pytest.mark.parametrize("optimizer", [qb.optim.Adam(0.1), qb.optim.AdamW(0.1), qb.optim.SGD(0.1, momentum=0.9)])
def test_optimizers_copy_and_pickle(optimizer):
    params, grads = {"w": qb.ones(3)}, {"w": qb.full((3,), 0.5)}
    state = optimizer.init(params)
    expected, _ = optimizer.update(params, grads, state)
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        got, after = again.update(*pickle.loads(pickle.dumps((params, grads, state))))
        assert got["w"].tolist() == expected["w"].tolist()
        assert type(after) is type(state)


def test_many_functions_leave_nothing_behind():
    from quabla import staging

    x = qb.ones(2)
    gc.collect()
    before = len(staging._table._held)
    for _ in range(200):
        qb.jit(qb.grad(lambda x: qb.sum(x * x)))(x)
    gc.collect()
    assert len(staging._table._held) <= before + 2


def test_errors_while_tracing_leave_no_trace():
    def fails(x):
        raise ZeroDivisionError("mine")

    for transform in (qb.jit, qb.grad, qb.vmap, qb.hessian, lambda f: qb.jit(qb.vmap(qb.grad(f)))):
        with pytest.raises(ZeroDivisionError, match="mine"):
            transform(fails)(qb.ones(3))
        assert not qb.is_tracing()
    assert qb.jit(lambda x: x + 1)(1.0).item() == 2.0


def test_tracers_do_not_cross_threads():
    seen = []

    def use(tracer):
        with pytest.raises(qb.TracerError, match="another thread"):
            tracer + 1
        seen.append(True)

    def spawns(x):
        thread = threading.Thread(target=use, args=(x,))
        thread.start()
        thread.join()
        return x

    qb.jit(spawns)(qb.array(1.0))
    assert seen


def test_first_call_from_many_threads():
    for _ in range(5):
        step = qb.jit(qb.value_and_grad(lambda x: qb.sum(qb.sin(x) * x)))
        barrier, results, errors = threading.Barrier(8), [], []

        def work(step=step, barrier=barrier, results=results, errors=errors):
            try:
                barrier.wait()
                for i in range(20):
                    value, gradient = step(qb.full((2 + i % 3,), 0.5))
                    results.append((i % 3, value.item(), tuple(gradient.tolist())))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors and len(results) == 160 and len(set(results)) == 3


# ------------------------------------------------------------------------------------------------------------ optimizers


@pytest.mark.parametrize("optimizer", [qb.optim.Adam(0.1), qb.optim.SGD(0.1, momentum=0.9)])
def test_what_optimizers_refuse(optimizer):
    x, integers = qb.ones(2), qb.array([1, 2], dtype=qb.int64)
    state = optimizer.init({"w": x})
    with pytest.raises(TypeError, match="State that init or update returned, got NoneType"):
        optimizer.update({"w": x}, {"w": x}, None)
    with pytest.raises(TypeError, match="w is a Python number"):
        optimizer.update({"w": 1.0}, {"w": x}, optimizer.init({"w": 1.0}))
    with pytest.raises(TypeError, match="gradient of w is a Python number"):
        optimizer.update({"w": x}, {"w": 1.0}, state)
    with pytest.raises(ValueError, match="w is int64, which a step would round"):
        optimizer.update({"w": integers}, {"w": integers}, optimizer.init({"w": integers}))
    with pytest.raises(TypeError, match="belongs to parameters of the structure.*make a state for them with init"):
        optimizer.update({"v": x}, {"v": x}, state)
    with pytest.raises(ValueError, match=r"state has shape \(2,\) for w, which has shape \(3,\)"):
        optimizer.update({"w": qb.ones(3)}, {"w": qb.ones(3)}, state)
    other = qb.optim.SGD() if isinstance(optimizer, qb.optim.Adam) else qb.optim.Adam()
    with pytest.raises(TypeError, match=f"got {type(other.init(x)).__name__}"):
        optimizer.update({"w": x}, {"w": x}, other.init({"w": x}))
    with pytest.raises(TypeError, match="structure.*have no gradient"):
        optimizer.update({"n": integers, "w": x}, {"n": None, "w": x}, optimizer.init({"n": integers, "w": x}))


def test_split_of_nothing():
    assert [part.shape for part in qb.split(qb.zeros((0, 2)), 3)] == [(0, 2)] * 3
    assert [part.tolist() for part in qb.split(qb.arange(6), 3)] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert [part.shape for part in qb.split(qb.arange(2), 1)] == [(2,)]
    with pytest.raises(MemoryError):
        qb.split(qb.zeros(0), 2**62)
