"""Compilation: cached traces, signatures, static arguments, lowering, threads, and lifetimes."""

import gc
import math
import os
import threading
import warnings
import weakref

import numpy as np
import pytest
import quabla as qb
from compare import assert_same_bits


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self, fun):
        self.fun, self.calls = fun, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.fun(*args, **kwargs)


# --------------------------------------------------------------------------------------------------------------- caches


@pytest.mark.parametrize(
    "transform", [qb.jit, qb.grad, qb.value_and_grad, qb.hessian, qb.jacfwd, qb.jacrev], ids=lambda t: t.__name__
)
def test_one_trace_per_signature(transform):
    counted = Counted(lambda x: qb.sum(qb.sin(x)))
    g = transform(counted)
    for _ in range(3):
        g(qb.ones(3))
    assert counted.calls == 1
    g(qb.ones(4))
    g(qb.ones(3, dtype=qb.float32))
    g(qb.ones((3, 1)))
    assert counted.calls == 4
    g(qb.ones(3))
    assert counted.calls == 4


def test_a_transform_made_again_finds_its_traces():
    counted = Counted(lambda x: qb.sum(x**2))
    for k in range(4):
        qb.grad(counted)(qb.ones(3) * float(k))
        qb.jit(counted)(qb.ones(3))
        qb.vmap(counted)(qb.ones((2, 3)))
        qb.jvp(counted, (qb.ones(3),), (qb.ones(3),))
        qb.vjp(counted, qb.ones(3))
    assert counted.calls == 1, "all of them share the trace of the function"


def test_what_a_signature_distinguishes():
    counted = Counted(lambda x, s: x * s)
    g = qb.jit(counted, max_traces=32)
    x = qb.ones(2)
    signatures = [
        1,
        1.0,
        True,
        2.0,
        0.0,
        -0.0,
        math.nan,
        qb.array(1.0),
        qb.array([1.0, 2.0]),
        qb.array(1.0, dtype=qb.int64),
    ]
    for repeat in range(2):
        for s in signatures:
            g(x, s)
        assert counted.calls == len(signatures), f"pass {repeat}"


def test_structure_belongs_to_the_signature():
    counted = Counted(lambda p: p["a"] if isinstance(p, dict) else p[0])
    g = qb.jit(counted)
    g({"a": qb.ones(1)})
    g([qb.ones(1)])
    g((qb.ones(1),))
    g({"a": qb.ones(1)})
    assert counted.calls == 3


def test_python_scalars_are_static():
    seen = []

    def g(x, n, flag):
        seen.append((type(n), n, type(flag)))
        return x**n if flag else x

    assert qb.jit(g)(qb.array(3.0), 2, True).item() == 9.0
    assert qb.jit(g)(qb.array(3.0), 2, False).item() == 3.0
    assert seen == [(int, 2, bool), (int, 2, bool)]


def test_retrace_warning():
    def g(x):
        return 2.0 * x

    compiled = qb.jit(g, max_traces=2)
    compiled(qb.ones(1))
    compiled(qb.ones(2))
    compiled(qb.ones(1))
    with pytest.warns(qb.RetraceWarning, match=r"(?s)g.*max_traces=2.*float64\[2\].*evicted.*float64\[3\]"):
        compiled(qb.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(qb.ones(1))
        compiled(qb.ones(3))
    with pytest.warns(qb.RetraceWarning):
        assert compiled(qb.ones(2)).tolist() == [2.0, 2.0]
    assert issubclass(qb.RetraceWarning, UserWarning)
    assert issubclass(qb.RetraceLimitError, qb.QuablaError)


def test_retrace_warning_as_an_error_leaves_the_cache_whole():
    compiled = qb.jit(lambda x: x + 1.0, max_traces=1)
    compiled(qb.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", qb.RetraceWarning)
        with pytest.raises(qb.RetraceWarning):
            compiled(qb.ones(2))
    assert compiled(qb.ones(1)).tolist() == [2.0]


# ----------------------------------------------------------------------------------------------------- static arguments


def test_static_arguments():
    counted = Counted(lambda x, mode, *, axis=0: qb.sum(x, axis=axis) if mode == "sum" else qb.max(x, axis=axis))

    def g(x, mode, *, axis=0):
        return counted(x, mode, axis=axis)

    compiled = qb.jit(g, static_argnums=1, static_argnames="axis")
    x = qb.array([[1.0, 2.0], [3.0, 5.0]])
    assert compiled(x, "sum").tolist() == [4.0, 7.0]
    assert compiled(x, "max").tolist() == [3.0, 5.0]
    assert compiled(x, "max", axis=1).tolist() == [2.0, 5.0]
    assert compiled(x, mode="sum").tolist() == [4.0, 7.0]
    compiled(x, "max", axis=1)
    assert counted.calls == 4
    assert qb.jit(lambda a, shape: qb.zeros(shape) + a, static_argnums=-1)(1.0, (2, 3)).shape == (2, 3)
    assert qb.jit(lambda a, cfg: a * cfg["k"], static_argnames=("cfg",), static_argnums=())  # made, not called


def test_static_arguments_must_be_hashable():
    with pytest.raises(TypeError, match=r"argument 1 is static, but unhashable \(dict\)"):
        qb.jit(lambda x, cfg: x, static_argnums=1)(1.0, {"a": 1})
    with pytest.raises(TypeError, match=r"argument 'cfg' is static, but unhashable \(list\)"):
        qb.jit(lambda x, cfg: x, static_argnames="cfg")(1.0, cfg=[1])


def test_messages_say_which_argument():
    def call(*args, **kwargs):
        qb.jit(lambda *args, **kwargs: 0.0, static_argnums=1)(*args, **kwargs)

    with pytest.raises(TypeError, match=r"argument 0 is of type object, which"):
        call(object())
    with pytest.raises(TypeError, match=r"argument 2 at 'a/1' is of type str, which"):  # the static one counts
        call(1.0, "static", {"a": [1.0, "x"]})
    with pytest.raises(TypeError, match=r"argument 'k' at 'b' is of type str, which"):
        call(1.0, "static", k={"b": "x"})
    with pytest.raises(TypeError, match=r"argument 0: float16 data"):
        call(np.zeros(2, "float16"))
    with pytest.raises(ValueError, match=r"argument 2 at 'w': byte-swapped"):
        call(1.0, "static", {"w": np.zeros(2, ">f8")})
    with pytest.raises(ValueError, match=r"differ in size: argument 0 has 3 \(.*argument 'y' at 'b' has 4 \("):
        qb.vmap(lambda x, y: x)(qb.ones(3), y={"b": qb.ones(4)})


def test_unknown_static_argnames():
    with pytest.raises(ValueError, match="static_argnames contains 'nope'"):
        qb.jit(lambda x: x, static_argnames="nope")


# -------------------------------------------------------------------------------------------------------------- results


def test_results():
    compiled = qb.jit(lambda x: {"x": x, "n": 3, "t": (2.5, None), "flag": True})
    out = compiled(qb.ones(2))
    assert out["x"].tolist() == [1.0, 1.0]
    assert isinstance(out["n"], qb.Tensor)
    assert out["t"][0].item() == 2.5
    assert out["t"][1] is None
    assert out["flag"].dtype == qb.bool_
    assert qb.jit(lambda: qb.array([1.0]))().tolist() == [1.0]
    assert qb.jit(lambda x: None)(1.0) is None


def test_the_same_result_twice():
    a, b = qb.jit(lambda x: (lambda y: (y, y))(2.0 * x))(qb.ones(2))
    assert a.tolist() == b.tolist() == [2.0, 2.0]
    x = qb.ones(2)
    assert qb.jit(lambda x: (x, x))(x)[1].tolist() == [1.0, 1.0]


def test_closed_over_values_are_fixed_at_trace_time():
    scale = [2.0]
    compiled = qb.jit(lambda x: scale[0] * x)
    assert compiled(qb.ones(1)).item() == 2.0
    scale[0] = 3.0
    assert compiled(qb.ones(1)).item() == 2.0


def test_an_exception_leaves_the_function_usable():
    for transform in (qb.jit, qb.grad, qb.vmap):
        fail, x = [True], qb.ones(2) if transform is qb.vmap else qb.array(1.0)

        def g(x, fail=fail):
            if fail:
                raise RuntimeError("from the user's function")
            return 2.0 * x

        for _ in range(2):
            with pytest.raises(RuntimeError, match="from the user's function"):
                transform(g)(x)
        fail.clear()
        transform(g)(x)


def test_large_programs():
    """Hundreds of nodes, arguments and results."""
    xs = [qb.array(float(i)) for i in range(300)]
    out = qb.jit(lambda xs: [qb.sin(x) + i for i, x in enumerate(xs)])(xs)
    np.testing.assert_allclose([y.item() for y in out], [math.sin(i) + i for i in range(300)], rtol=1e-15)

    def deep(x):
        for _ in range(2000):
            x = qb.sin(x) + 0.1
        return x

    y = 0.5
    for _ in range(2000):
        y = math.sin(y) + 0.1
    assert qb.jit(deep)(0.5).item() == pytest.approx(y, rel=1e-12)
    qb.grad(deep)(0.5)


# ------------------------------------------------------------------------------------------------------------- lowering


def test_lowering():
    def g(params, x):
        return x @ params["layers"][0]["w"] + params["shift"]

    params = {"layers": [{"w": qb.ones((3, 2))}], "shift": qb.ones(2)}
    lowered = qb.jit(g).lower(params, qb.ones((5, 3)))
    text = lowered.as_text()
    for name in ("params/layers/0/w", "params/shift", "x"):
        assert name in text
    assert "float64[5, 2]" in text or "float64[5,2]" in text
    program = lowered.compile()
    assert_same_bits(program(params, qb.ones((5, 3))), g(params, qb.ones((5, 3))))
    with pytest.raises(ValueError, match=r"float64 of shape \(5, 3\) at 'x', got float64 of shape \(4, 3\)"):
        program(params, qb.ones((4, 3)))
    with pytest.raises(ValueError, match="float32"):
        program(params, qb.ones((5, 3), dtype=qb.float32))
    with pytest.raises(TypeError, match="structure"):
        program(params)


def test_lowering_takes_shapes_alone_and_executes_nothing():
    lowered = qb.jit(lambda x, y: qb.sum(x) + y).lower(qb.ShapeDtype((3, 4), qb.float32), qb.ShapeDtype((), qb.float32))
    assert "float32[3, 4]" in lowered.as_text() or "float32[3,4]" in lowered.as_text()
    assert lowered.compile()(qb.ones((3, 4), dtype=qb.float32), qb.array(1.0, dtype=qb.float32)).item() == 13.0


def test_lowering_of_transforms():
    lowered = qb.jit(qb.grad(lambda x: qb.sum(qb.sin(x)))).lower(qb.ones(3))
    assert "cos(" in lowered.as_text()
    assert lowered.compile()(qb.zeros(3)).tolist() == [1.0, 1.0, 1.0]


def test_lowering_with_static_arguments():
    compiled = qb.jit(lambda x, n: x**n, static_argnums=1)
    assert compiled.lower(qb.array(2.0), 3).as_text().count("mul(") == 2


# -------------------------------------------------------------------------------------------------------------- threads


def run_in_threads(count, work):
    errors, barrier = [], threading.Barrier(count)

    def body(k):
        try:
            barrier.wait()
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_from_the_first_call_on():
    """Eight threads call a function that none has called before, and go on calling it."""

    def loss(w, x):
        return qb.mean((qb.tanh(x @ w) - qb.sin(x[:, 0:1])) ** 2)

    step = qb.jit(qb.value_and_grad(loss))
    rng = np.random.default_rng(0)
    ws = [qb.array(rng.normal(size=(4, 1))) for _ in range(8)]
    x = qb.array(rng.normal(size=(64, 4)))
    results = [None] * 8

    def work(k):
        for _ in range(20):
            results[k] = step(ws[k], x)

    run_in_threads(8, work)
    for k in range(8):
        assert_same_bits(results[k], step(ws[k], x))


def test_threads_trace_independently():
    """Nested transforms with closures over tracers, in several threads at once."""

    def outer(w):
        return qb.grad(lambda x: qb.sin(x * w))(0.3) ** 2

    values = [None] * 8

    def work(k):
        for i in range(10):
            values[k] = qb.grad(lambda w, i=i: outer(w) + i * 0.0)(1.2).item()
            qb.vmap(outer)(qb.ones(3 + k))

    run_in_threads(8, work)
    assert values == [values[0]] * 8
    assert values[0] == pytest.approx(1.8173126966773971, rel=1e-14)


def test_threads_with_eager_calls_of_large_arrays():
    x = qb.array(np.random.default_rng(1).normal(size=(300, 300)))
    expected = qb.sum(qb.exp(x @ x.T * 1e-3)).item()

    def work(k):
        for _ in range(5):
            assert qb.sum(qb.exp(x @ x.T * 1e-3)).item() == expected

    run_in_threads(8, work)


def test_threads_that_evict():
    compiled = qb.jit(lambda x: qb.sum(x) * 2.0, max_traces=2)

    def work(k):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(30):
                n = 1 + (i + k) % 5
                assert compiled(qb.ones(n)).item() == 2.0 * n

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_in_threads(8, work)


# ------------------------------------------------------------------------------------------------------------ lifetimes


class Big:
    """Something that can be referred to weakly, held by a closure."""


def collected(reference):
    for _ in range(3):
        if reference() is None:
            return True
        gc.collect()
    return reference() is None


@pytest.mark.parametrize("use", [
    pytest.param(lambda g: qb.jit(g)(1.0), id="jit"),
    pytest.param(lambda g: qb.grad(g)(1.0), id="grad"),
    pytest.param(lambda g: qb.vmap(g)(qb.ones(2)), id="vmap"),
    pytest.param(lambda g: qb.jvp(g, (1.0,), (1.0,)), id="jvp"),
    pytest.param(lambda g: qb.vjp(g, 1.0)[1](1.0), id="vjp"),
    pytest.param(lambda g: qb.linearize(g, 1.0)[1](1.0), id="linearize"),
    pytest.param(lambda g: qb.hessian(g)(1.0), id="hessian"),
    pytest.param(lambda g: qb.jit(qb.vmap(qb.grad(g)))(qb.ones(3)), id="nested"),
    pytest.param(lambda g: qb.jit(g).lower(1.0).as_text(), id="lower"),
    pytest.param(lambda g: qb.grad(lambda w: qb.grad(lambda x: g(x * w))(1.0))(2.0), id="closure"),
])  # fmt: skip
def test_functions_and_what_they_close_over_die(use):
    def scope():
        held, weight = Big(), qb.ones(3)

        def g(x, held=held):
            return qb.sum(weight) * x**2

        use(g)
        return [weakref.ref(thing) for thing in (g, held, weight)]

    for reference in scope():
        assert collected(reference)


def test_transforms_die():
    step = qb.jit(lambda x: x)
    step(1.0)
    reference = weakref.ref(step)
    del step
    assert collected(reference)


def test_methods_do_not_keep_their_objects():
    class Model:
        def loss(self, x):
            return x**2

    model = Model()
    qb.grad(model.loss)(1.0)
    qb.jit(model.loss)(1.0)
    reference = weakref.ref(model)
    del model
    assert collected(reference)


def test_tracers_do_not_keep_arguments():
    x = qb.ones(1000)
    reference = weakref.ref(x)
    qb.jit(lambda x: qb.sum(x))(x)
    del x
    assert collected(reference)


def test_repeated_new_functions_do_not_grow_the_process():
    resource = pytest.importorskip("resource")
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("AddressSanitizer keeps what was freed")

    def use():
        for _ in range(200):
            qb.jit(qb.grad(lambda x: qb.sum(qb.sin(x) ** 2)))(qb.ones(50))

    use()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        use()
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024, (
        "more than 8 MB for 1000 dead functions"
    )


# --------------------------------------------------------------------------------------------------------------- import


def test_import_is_light():
    """NumPy is not imported, nor anything else outside the standard library."""
    import subprocess
    import sys

    code = "import sys; import quabla as qb; qb.jit(qb.grad(lambda x: qb.sin(x)))(1.0); print('numpy' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "False"


def test_a_reversed_array_is_read_by_a_kernel_and_by_a_product():
    x, y = np.random.default_rng(0).normal(size=(2, 3, 3))

    def f(x, y):
        turned = qb.flip(x, 0)
        return qb.sort(turned, axis=1), turned.T @ y

    turned = np.flip(x, 0)
    ordered, product = qb.jit(f)(qb.array(x), qb.array(y))
    np.testing.assert_array_equal(np.asarray(ordered), np.sort(turned, axis=1))
    np.testing.assert_allclose(np.asarray(product), turned.T @ y, rtol=1e-14)
