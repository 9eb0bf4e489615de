"""Bad input: the promised error, with the words that lead out, and a library that works on afterwards."""

import math
import re

import numpy as np
import pytest
import quabla as qb


@pytest.fixture(autouse=True)
def library_works_on_afterwards():
    yield
    assert qb.grad(lambda x: qb.sum(qb.sin(x) ** 2))(qb.array([0.5])).item() == pytest.approx(math.sin(1.0), rel=1e-14)
    assert not qb._core.is_tracing()


def use(x, y=None):
    """Something that any array takes part in."""
    return qb.sum(x * 2.0) if y is None else qb.sum(x @ y)


# ----------------------------------------------------------------------------------------------------------- bad arrays


@pytest.mark.parametrize("ragged", [[[1.0, 2.0], [3.0]], [[1.0], 2.0], [[[1.0]], [[1.0, 2.0]]], [1.0, [2.0]]])
def test_ragged_lists(ragged):
    with pytest.raises(ValueError, match=r"(?i)ragged|\[1\]|\[0\]|shape|length"):
        qb.array(ragged)
    with pytest.raises((TypeError, ValueError)):
        qb.sum(ragged)


@pytest.mark.parametrize(
    "wrong", ["text", [["a"]], [object()], {"a": 1.0}, np.array(["a"]), np.array([object()]), np.float16([1.0]), 1j]
)
def test_not_numbers(wrong):
    with pytest.raises((TypeError, ValueError)):
        qb.array(wrong)


# ---------------------------------------------------------------------------------------------------- shapes and dtypes

WRONG_SHAPES = [
    (lambda a, b: a + b, (2, 3), (2, 4)),
    (lambda a, b: a * b, (3,), (4,)),
    (lambda a, b: qb.where(a > 0.0, a, b), (3,), (4,)),
    (lambda a, b: a @ b, (2, 3), (2, 3)),
    (lambda a, b: qb.dot(a, b), (3,), (4,)),
    (lambda a, b: qb.concat([a, b]), (2, 3), (2, 4)),
    (lambda a, b: qb.stack([a, b]), (3,), (4,)),
    (lambda a, b: qb.atan2(a, b), (2, 1, 3), (4, 2)),
    (lambda a, b: qb.broadcast_to(a, b.shape), (3,), (4,)),
    (lambda a, b: a.reshape(b.shape), (3,), (4,)),
    (lambda a, b: a < b, (3,), (4,)),
]


@pytest.mark.parametrize(("call", "a", "b"), WRONG_SHAPES)
def test_wrong_shapes_name_both(call, a, b):
    x, y = qb.ones(a), qb.ones(b)
    ways = [lambda: call(x, y), lambda: qb.jit(call)(x, y), lambda: qb.vmap(call)(qb.ones((5, *a)), qb.ones((5, *b)))]
    for way in ways:
        with pytest.raises(ValueError, match=re.escape(str(a))) as error:
            way()
        assert str(b) in str(error.value)


@pytest.mark.parametrize("call", [
    lambda a, b: a + b, lambda a, b: a @ b, lambda a, b: qb.where(a > 0, a, b), lambda a, b: qb.concat([a, b]),
    lambda a, b: qb.maximum(a, b), lambda a, b: a**b, lambda a, b: qb.less(a, b), lambda a, b: qb.stack([a, b]),
])  # fmt: skip
def test_float32_with_float64_names_astype(call):
    a, b = qb.ones(3), qb.ones(3, dtype=qb.float32)
    for way in (
        lambda: call(a, b),
        lambda: call(b, a),
        lambda: qb.jit(call)(a, b),
        lambda: qb.jit(lambda x: call(x, a))(b),
    ):
        with pytest.raises(ValueError, match="astype") as error:
            way()
        assert "float32" in str(error.value)
        assert "float64" in str(error.value)


def test_bool_arithmetic_names_astype():
    flags = qb.array([True, False])
    for call in (lambda x: x + x, lambda x: x * x, lambda x: x - x, lambda x: x / x, qb.sin, qb.exp, qb.negative):
        with pytest.raises(ValueError, match=r"bool.*astype"):
            call(flags)
        with pytest.raises(ValueError, match=r"bool.*astype"):
            qb.jit(call)(flags)


def test_signed_with_uint64_names_astype():
    with pytest.raises(ValueError, match="astype"):
        qb.array([1], dtype=qb.int64) + qb.array([1], dtype=qb.uint64)


# ----------------------------------------------------------------------------------------------------------- transforms


@pytest.mark.parametrize("shape", [(3,), (1,), (2, 2), (0,)])
def test_grad_of_a_result_that_is_no_scalar(shape):
    for transform in (qb.grad, qb.value_and_grad, qb.hessian, qb.sparse_hessian):
        with pytest.raises(ValueError, match=f"^{transform.__name__} requires a scalar output") as error:
            transform(lambda x: 2.0 * x)(qb.ones(shape))
        for word in (str(shape), "sum", "mean", "jacobian", "vjp"):
            assert word in str(error.value)


@pytest.mark.parametrize("wrong", [None, 3.0, "sin"])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        *((name, getattr(qb, name)) for name in ("grad", "value_and_grad", "jacobian", "jacfwd", "jacrev", "hessian")),
        *((name, getattr(qb, name)) for name in ("jit", "vmap", "laplacian", "sparse_jacobian", "sparse_hessian")),
        *((name, getattr(qb, name)) for name in ("checkpoint", "custom_jvp", "custom_vjp")),
        ("grad", lambda wrong: qb.grad(argnums=1)(wrong)),
        ("custom_vjp", lambda wrong: qb.custom_vjp(nondiff_argnums=(1,))(wrong)),
        ("grad", lambda wrong: qb.grad(fun=wrong)),
        ("jvp", lambda wrong: qb.jvp(wrong, (1.0,), (1.0,))),
        ("vjp", lambda wrong: qb.vjp(wrong, 1.0)),
        ("linearize", lambda wrong: qb.linearize(wrong, 1.0)),
        ("jet", lambda wrong: qb.jet(wrong, (1.0,), ([1.0],))),
        ("derivatives", lambda wrong: qb.derivatives(wrong, 1.0, 2)),
    ],
)
def test_not_a_function(name, call, wrong):
    with pytest.raises(TypeError, match=f"^{name}: expected a function, got {type(wrong).__name__}"):
        call(wrong)


def test_an_object_in_an_argument_names_the_ways_out():
    class Model:
        @qb.jit
        def whole(self, x):
            return x

        @qb.jit(static_argnums=0)
        def apart(self, x):
            return x * 2.0

    with pytest.raises(TypeError, match=r"argument 0 is of type Model.*register.*static_argnums.*self of a method"):
        Model().whole(1.0)
    assert Model().apart(1.0).item() == 2.0


NO_VALUE = {
    "if": lambda x: 1.0 if x > 0.0 else 2.0,
    "while": lambda x: [x for _ in iter(lambda: bool(x), False)],
    "and": lambda x: (x > 0.0) and (x < 1.0),
    "not": lambda x: not x,
    "float": float,
    "int": int,
    "index": lambda x: [1, 2][x],
    "range": lambda x: list(range(x)),
    "item": lambda x: x.item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "math": math.sin,
}


@pytest.mark.parametrize("transform", [qb.jit, qb.grad, qb.vmap, qb.hessian], ids=lambda t: t.__name__)
@pytest.mark.parametrize("what", NO_VALUE)
def test_a_tracer_has_no_value(what, transform):
    def g(x):
        NO_VALUE[what](x)
        return x

    with pytest.raises(qb.TracerError) as error:
        transform(g)(qb.ones(3) if transform is qb.vmap else qb.array(1.0))
    assert isinstance(error.value, TypeError)
    assert isinstance(error.value, qb.QuablaError)
    for word in ("TraceTensor", "where", "cond", "has_aux"):
        assert word in str(error.value)
    assert what != "math" or "qb.sin" in str(error.value)


def test_a_tracer_prints_itself():
    seen = []

    def g(x):
        seen.extend([repr(x), str(x), f"{x}"])
        return x

    qb.jit(g)(qb.ones((2, 3), dtype=qb.float32))
    for text in seen:
        assert "TraceTensor" in text
        assert "float32[2, 3]" in text or "float32[2,3]" in text


@pytest.mark.parametrize("later", [
    lambda t: t + 1.0, lambda t: 1.0 - t, qb.sin, lambda t: qb.jit(lambda x: x + t)(1.0),
        lambda t: qb.grad(lambda x: x * t)(1.0),
    lambda t: qb.stack([t, t]), lambda t: qb.jit(lambda x: x)(t), lambda t: t[None],
        lambda t: qb.jvp(qb.sin, (t,), (1.0,)),
    lambda t: qb.vmap(lambda x: x)(t[None]), lambda t: qb.grad(qb.sin)(t), lambda t: t.sum(),
    float, int, bool, np.asarray, lambda t: t.item(), lambda t: t.tolist(), lambda t: t.numpy(),
    lambda t: qb.jit(lambda x: x * t.item())(1.0),
])  # fmt: skip
def test_an_escaped_tracer(later):
    for transform in (qb.jit, qb.grad, lambda f: lambda x: qb.vmap(f)(x[None])):
        kept = []

        def g(x, kept=kept):
            kept.append(x * 2.0)
            return x

        transform(g)(qb.array(1.0))
        with pytest.raises(qb.TracerError, match="escaped"):
            later(kept[0])


def test_a_tracer_of_an_inner_trace_used_outside_it():
    def outer(w):
        kept = []

        def inner(x):
            kept.append(x)
            return x * w

        qb.grad(inner)(1.0)
        return kept[0] * w

    with pytest.raises(qb.TracerError, match="escaped"):
        qb.grad(outer)(2.0)


def test_an_escaped_tracer_still_prints():
    kept = []
    qb.jit(lambda x: kept.append(x) or x)(1.0 * qb.ones(2))
    assert "TraceTensor" in repr(kept[0])


# -------------------------------------------------------------------------------------------------------------- devices


def test_devices():
    assert "cpu" in [str(device) for device in qb.devices()]
    assert qb.jit(lambda x: x, device="cpu")(qb.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("device", ["gpu", "", "CPU:7", "cuda:x"])
def test_unknown_device(device):
    with pytest.raises(ValueError, match="unknown device") as error:
        qb.jit(lambda x: x, device=device)
    assert f'"{device}"' in str(error.value)
    assert 'available here: "cpu"' in str(error.value)


@pytest.mark.parametrize(("device", "meant"), [("CPU", "cpu"), ("CUDA:1", "cuda:1"), ("Mlx", "mlx"), ("cpus", None)])
def test_a_device_spelt_in_capitals(device, meant):
    with pytest.raises(ValueError, match="unknown device") as error:
        qb.jit(lambda x: x, device=device)
    assert ("did you mean" in str(error.value)) == (meant is not None)
    assert meant is None or f'did you mean "{meant}"?' in str(error.value)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "opencl:0", "mlx"])
def test_device_that_is_not_there(device):
    with pytest.raises(qb.UnsupportedOperationError, match=device) as error:
        qb.jit(lambda x: x, device=device)(1.0)
    assert isinstance(error.value, qb.QuablaError)
    assert isinstance(error.value, ValueError)
    assert isinstance(error.value, NotImplementedError)
    assert error.value.device == device


# ------------------------------------------------------------------------------------------------- indices, axes, names


def test_indices():
    x = qb.ones((2, 3))
    for call in (lambda x: x[2], lambda x: x[0, -4], lambda x: x[0, 0, 0]):
        with pytest.raises(IndexError, match=r"\(2, 3\)"):
            call(x)
        with pytest.raises(IndexError, match=r"\(2, 3\)"):
            qb.jit(call)(x)
    with pytest.raises(IndexError, match=r"1\.0"):
        x[1.0]


def test_axes():
    for call in (qb.sum, qb.max, qb.softmax, qb.logsumexp, qb.std, qb.flip):
        with pytest.raises(ValueError, match=r"axis 5 is out of range for an array of shape \(2, 3\)"):
            call(qb.ones((2, 3)), axis=5)


@pytest.mark.parametrize("call", [qb.expand_dims, lambda x, axis: qb.stack([x, x], axis)])
def test_new_axes(call):
    for axis in (9, 3, -4):
        with pytest.raises(
            ValueError, match=rf"axis {axis} is out of range: with 1 new, an array of shape \(2, 3\) has 3 axes"
        ):
            call(qb.ones((2, 3)), axis)
    assert [call(qb.ones((2, 3)), axis).ndim for axis in (-3, 2)] == [3, 3]
    with pytest.raises(ValueError, match=r"axis -3 is given twice, for an array of shape \(2,\)"):
        qb.expand_dims(qb.ones(2), (0, -3))


@pytest.mark.parametrize("name", ["set", "add", "multiply", "min", "max"])
def test_updates_are_named_as_they_are_written(name):
    x = qb.ones((2, 3))
    for index in (0, qb.array([0, 1], dtype=qb.int64)):
        for wrong, error in ((qb.ones(7), ValueError), (qb.ones(3, dtype=qb.float32), ValueError), ("7", TypeError)):
            for way in (lambda f: f, qb.jit):
                with pytest.raises(error, match=rf"^x\.at\[\.\.\.\]\.{name}: "):
                    way(lambda x: getattr(x.at[index], name)(wrong))(x)


def test_what_is_no_number_is_named_by_its_place():
    with pytest.raises(TypeError, match=r"^array: element \[1\]\[0\]: a string is not a number: 'a'"):
        qb.array([[1.0], ["a"]])
    with pytest.raises(TypeError, match=r"^sin: element \[1\]: cannot convert an object of type NoneType"):
        qb.sin([1.0, None])


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda wrong: qb.sin(wrong), "sin"),
        (lambda wrong: qb.add(qb.ones(2), wrong), "add"),
        (lambda wrong: qb.jit(lambda x: qb.add(x, wrong))(qb.ones(2)), "add"),
        (lambda wrong: qb.concat([qb.ones(2), wrong]), "concat"),
        (lambda wrong: qb.take(qb.ones(2), wrong), "take"),
        (lambda wrong: qb.full(2, wrong), "full"),
        (lambda wrong: qb.zeros_like(wrong), "zeros_like"),
        (lambda wrong: qb.split(wrong, 1), "split"),
        (lambda wrong: qb.meshgrid(qb.ones(2), wrong), "meshgrid: array 1"),
        (lambda wrong: qb.jvp(lambda x: x, (1.0,), (wrong,)), "jvp: the tangent at '0'"),
        (lambda wrong: qb.asarray(wrong), "asarray"),
    ],
)
def test_conversions_name_the_function_called(call, name):
    with pytest.raises(TypeError, match=f"^{name}: a string is not a number: 'wrong'"):
        call("wrong")


def test_wrong_arguments_show_the_signature():
    with pytest.raises(TypeError, match=r"sum.*x, axis=None, keepdims=False"):
        qb.sum(qb.ones(2), axes=0)
    with pytest.raises(TypeError, match=r"sin.*x"):
        qb.sin()
    with pytest.raises(AttributeError):
        qb.ones(2).no_such_method()


def test_tensors_are_immutable():
    x = qb.ones(3)
    with pytest.raises(TypeError):
        x[0] = 2.0
    with pytest.raises(AttributeError):
        x.shape = (1, 3)
    with pytest.raises(ValueError, match=r"(?i)read-only|writeable"):
        x.numpy()[0] = 2.0


def test_truth_of_several_elements():
    with pytest.raises(ValueError, match=r"any|all"):
        bool(qb.array([True, False]))
    assert bool(qb.array(True))


# ------------------------------------------------------------------------------------ errors in the middle of something


def test_an_error_deep_inside_nested_traces_unwinds_them_all():
    def g(a):
        return qb.grad(
            lambda b: qb.vmap(lambda c: qb.jit(lambda d: qb.ones(2) + qb.ones(3) + d)(c))(qb.ones(4))[0] * b
        )(a)

    for _ in range(3):
        with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
            qb.jit(g)(1.0)
        assert not qb._core.is_tracing()


def test_exceptions_of_every_kind_pass_through():
    class Custom(Exception):
        pass

    def g(x):
        raise Custom("mine")

    for transform in (qb.jit, qb.grad, qb.value_and_grad, qb.hessian, qb.jacfwd):
        with pytest.raises(Custom, match="mine"):
            transform(g)(1.0)
    with pytest.raises(KeyboardInterrupt):
        qb.jit(lambda x: (_ for _ in ()).throw(KeyboardInterrupt()))(1.0)


def test_recursion_is_an_exception():
    def g(x):
        return qb.grad(g)(x)

    with pytest.raises(RecursionError):
        g(1.0)
    assert not qb._core.is_tracing()


def test_impossible_sizes():
    for call in (
        lambda: qb.ones((2**40, 2**40)),
        lambda: qb.broadcast_to(qb.ones(1), (2**62, 4)),
        lambda: qb.zeros(-1),
    ):
        with pytest.raises((ValueError, MemoryError)):
            call()
    with pytest.raises((ValueError, MemoryError)):
        qb.jit(lambda x: qb.broadcast_to(x, (2**62, 4)))(qb.ones(1))
