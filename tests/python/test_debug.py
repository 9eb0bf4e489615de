"""Lines of the user's file in texts and tracebacks, and where numbers that are not finite come from."""

import copy
import inspect
import os
import pickle
import re
import subprocess
import sys
import threading
import traceback

import pytest
import quabla as qb


def line_of(fun, text):
    """The number of the line of fun's source that contains the text."""
    lines, first = inspect.getsourcelines(fun)
    return first + next(i for i, line in enumerate(lines) if text in line)


def network(x):
    y = qb.sin(x)
    z = y * x
    return qb.sum(qb.exp(z))


def sources(text):
    """Of each operation of the text: the lines that it comes from."""
    found = {}
    for match in re.finditer(r"= (\w+)\(.*# (.*):(\d+)$", text, re.MULTILINE):
        assert match[2] == __file__
        found.setdefault(match[1], set()).add(int(match[3]))
    return found


def test_text_names_the_line_of_each_operation():
    lowered = qb.jit(network).lower(qb.ones((3,)))
    assert "#" not in lowered.as_text()
    assert sources(lowered.as_text(source=True)) == {
        "sin": {line_of(network, "sin")},
        "mul": {line_of(network, "y * x")},
        "exp": {line_of(network, "exp")},
        "reduce_sum": {line_of(network, "exp")},
    }


@pytest.mark.parametrize("transform", [qb.grad, lambda f: qb.vmap(qb.grad(f)), qb.hessian, qb.jacfwd, qb.laplacian])
def test_derivatives_name_the_line_of_what_they_are_derivatives_of(transform):
    x = qb.ones((2, 3)) if "lambda" in repr(transform) else qb.ones((3,))
    found = sources(qb.jit(transform(network)).lower(x).as_text(source=True))
    assert found["cos"] == {line_of(network, "sin")}
    arithmetic = set().union(*(lines for name, lines in found.items() if name not in ("permute", "broadcast")))
    assert arithmetic <= {line_of(network, text) for text in ("sin", "y * x", "exp")}


def test_taylor_mode_and_splits_keep_lines():
    def fun(x):
        return qb.tanh(x)

    text = qb.jit(lambda x: qb.derivatives(fun, x, 3)).lower(qb.ones(())).as_text(source=True)
    assert sources(text)["tanh"] == {line_of(fun, "tanh")}

    def pulled(x):
        return qb.vjp(fun, x)[1](1.0)

    assert sources(qb.jit(pulled).lower(qb.ones(())).as_text(source=True))["tanh"] == {line_of(fun, "tanh")}


# ------------------------------------------------------------------------------------------------ not finite


def root(x):
    y = qb.sin(x)
    z = qb.sqrt(y - 2.0)
    return qb.sum(z)


def inverse(x):
    return qb.sum(qb.arcsin(x))


def masked(x):
    return qb.sum(qb.where(x > 0.0, qb.log(x), 0.0))


X = qb.array([-1.0, 0.5, 1.0])


def failure(fun, *args):
    with qb.debug_nans(), pytest.raises(FloatingPointError) as caught:
        fun(*args)
    return str(caught.value)


def test_error_names_operation_line_and_operands():
    message = failure(qb.jit(root), X)
    assert message.startswith(f"sqrt, of {__file__}:{line_of(root, 'sqrt')}, gave a result that is not finite: 3 nan")
    assert "float64[3] from -2.84147 to -1.15853" in message
    with pytest.raises(FloatingPointError, match="sqrt"):
        qb.jit(root, debug_nans=True)(X)
    assert qb.isnan(qb.jit(root)(X)).item()


@pytest.mark.parametrize(
    "run", [qb.grad(inverse), qb.value_and_grad(inverse), lambda x: qb.vjp(inverse, x)[1](1.0), qb.jacfwd(inverse)]
)
def test_backward_pass_names_the_line_of_the_forward_operation(run):
    assert f"{__file__}:{line_of(inverse, 'arcsin')}" in failure(run, X)


def test_under_vmap_the_element_is_named():
    message = failure(qb.vmap(qb.grad(lambda x: qb.log(x))), qb.array([1.0, 2.0, 0.0]))
    assert "1 infinite of 3 elements, the first at (2,)" in message


def test_what_is_not_used_is_not_blamed():
    with qb.debug_nans():
        assert qb.jit(masked)(X).item() == pytest.approx(-0.6931471805599453)
        assert qb.grad(masked)(X).tolist() == [0.0, 2.0, 1.0]


def test_inputs_that_are_not_finite_blame_the_first_operation_on_them():
    message = failure(qb.jit(lambda x: qb.sum(x[::-1] * 2.0)), qb.array([1.0, float("nan")]))
    assert message.startswith("mul")
    assert "1 nan of 2 elements" in message
    assert failure(qb.jit(lambda x: x), qb.array(float("inf"))).startswith("the function gave")


def test_eager_calls_are_checked_where_the_number_is_made():
    here = inspect.currentframe().f_lineno + 1
    message = failure(lambda: qb.log(qb.array(-1.0)))
    assert message.startswith(f"log, of {__file__}:{here}, gave")
    with qb.debug_nans():
        assert (qb.array(float("inf")) * 2.0).item() == float("inf")


def shrink(c):
    s = c - 1.0
    return qb.sqrt(s)


def test_inside_loops_and_branches():
    x, line = qb.array(3.0), line_of(shrink, "sqrt")
    where = f"sqrt, of {__file__}:{line}, gave a result that is not finite: 1 nan"

    def step(i, c):
        return shrink(c)

    def pick(i, x):
        return qb.switch(i, [lambda x: x, shrink], x)

    five, low = qb.array(5, dtype=qb.int64), x - 3.0
    message = failure(qb.jit(lambda x: qb.fori_loop(0, 5, step, x)), x)
    assert message.startswith(where)
    assert "Its operand: float64[] from -0.356" in message  # in the third iteration
    assert failure(qb.jit(lambda x, n: qb.fori_loop(0, n, step, x)), x, five).startswith(where)
    assert failure(qb.jit(lambda x: qb.scan(lambda c, y: (shrink(c) * y, c), x, xs=qb.ones((5,)))), x).startswith(where)
    assert failure(qb.jit(lambda x: qb.while_loop(lambda c: c < 9.0, shrink, x)), x).startswith(where)
    assert failure(qb.jit(lambda p, x: qb.cond(p, qb.sin, shrink, x)), qb.array(False), low).startswith(where)
    assert failure(qb.jit(qb.checkpoint(shrink)), low).startswith(where)
    assert failure(qb.jit(pick), qb.array(7, dtype=qb.int64), low).startswith(where)


def test_inside_the_derivative_of_a_loop():
    def body(i, c):
        return qb.arcsin(c * 0.5 + 0.5)  # its derivative is infinite where c is 1

    def by_array(v):
        return qb.sum(qb.fori_loop(0, 2, body, v))

    for fun, x in ((lambda x: qb.fori_loop(0, 2, body, x), qb.array(1.0)), (by_array, qb.ones((2,)))):
        assert f"{__file__}:{line_of(body, 'arcsin')}" in failure(qb.grad(fun), x)


def test_scope_of_debug_nans():
    log = qb.jit(qb.log)
    log(qb.array(0.0))  # a program compiled before is checked too
    assert failure(log, qb.array(0.0)).startswith("log")

    @qb.debug_nans()
    def decorated():
        return log(qb.array(0.0))

    with pytest.raises(FloatingPointError):
        decorated()
    with qb.debug_nans():
        with qb.debug_nans(False):
            log(qb.array(0.0))
        results = []
        thread = threading.Thread(target=lambda: results.append(log(qb.array(0.0))))
        thread.start()
        thread.join()
        assert results[0].item() == -float("inf")  # other threads are not concerned
        with pytest.raises(FloatingPointError):
            log(qb.array(0.0))
    log(qb.array(0.0))


# ------------------------------------------------------------------------------------------------ tracebacks


def frames(fun, *args):
    try:
        fun(*args)
    except Exception as error:
        return [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    raise AssertionError("no error")


def wrong(x):
    return x @ qb.ones((7,))


def test_traceback_shows_the_frames_of_the_user_only():
    for fun in (qb.jit(wrong), qb.grad(wrong), qb.jit(qb.vmap(wrong)), qb.jit(qb.grad(wrong))):
        found = frames(fun, qb.ones((2, 3)))
        assert {file for file, _ in found} == {__file__}
        assert found[-1] == (__file__, line_of(wrong, "@"))
    found = frames(qb.grad(lambda x: x), qb.ones((3,)))  # an error of the transform itself: where it was called
    assert {file for file, _ in found} == {__file__}


def test_errors_of_the_package_itself_end_where_it_was_called():
    pull = qb.vjp(lambda x: x, X)[1]
    calls = [
        lambda: qb.jvp(lambda x: x, (X,), ()),
        lambda: qb.vjp(wrong, X),
        lambda: pull(1.0),
        lambda: qb.linearize(lambda x: x, X)[1](1.0),
        lambda: qb.grad(3),
        lambda: qb.jit(lambda x: x, static_argnums="x"),
        lambda: qb.derivatives(lambda x: x, X, 2),
        lambda: qb.scan(lambda c, i: c, X, length=2),
        lambda: qb.debug_print(X),
        lambda: qb.hessian(lambda x: x)(X),
    ]
    for call in calls:
        assert {file for file, _ in frames(call)} == {__file__}


def test_public_functions_are_functions_in_every_respect():
    assert str(inspect.signature(qb.vjp)) == "(fun, *primals, has_aux=False)"
    assert str(inspect.signature(qb.grad)) == "(fun, argnums=0, has_aux=False)"
    for fun in (qb.vjp, qb.grad, qb.scan, qb.jet, qb.debug_print):
        assert pickle.loads(pickle.dumps(fun)) is fun
        assert copy.deepcopy(fun) is fun
        assert fun.__doc__ and fun.__module__.startswith("quabla.")
        assert repr(fun).startswith(f"<function {fun.__name__} at")
    assert "public" not in dir(qb)


def test_full_tracebacks_on_request():
    code = "import quabla as qb, traceback\ntry: qb.grad(lambda x: x)(qb.ones((3,)))\nexcept ValueError: traceback.print_exc()"
    run = [sys.executable, "-c", code]
    for value, shown in (("1", True), ("0", False)):
        result = subprocess.run(
            run, capture_output=True, text=True, check=True, env={**os.environ, "QUABLA_FULL_TRACEBACKS": value}
        )
        assert ("staging.py" in result.stderr) == shown
        assert "grad requires a scalar output" in result.stderr


# ------------------------------------------------------------------------------------------------ printing


def printed(capfd, fun, *args):
    """The lines that the call prints, run twice: the second time by the compiled program alone."""
    capfd.readouterr()
    fun(*args)
    first = capfd.readouterr().out.splitlines()
    fun(*args)
    assert capfd.readouterr().out.splitlines() == first
    return first


def chatty(x):
    qb.debug_print("x = {:.2f}", x)
    y = qb.sin(x)
    qb.debug_print("y = {:.3f}, x = {:.2f}", y, x)
    qb.debug_print("done")
    return y * x


LINES = ["x = 0.50", "y = 0.479, x = 0.50", "done"]
HALF = qb.array(0.5)


@pytest.mark.parametrize(
    "fun",
    [
        chatty,
        qb.jit(chatty),
        qb.grad(chatty),
        qb.jit(qb.value_and_grad(chatty)),
        qb.grad(qb.grad(chatty)),
        lambda x: qb.jvp(chatty, (x,), (1.0,)),
        lambda x: qb.vjp(chatty, x)[1](1.0),
        lambda x: qb.linearize(chatty, x)[1](1.0),
        qb.grad(lambda v: chatty(v[0])),
        qb.hessian(lambda v: chatty(v[0])),
        qb.laplacian(lambda v: chatty(v[0])),
        lambda x: qb.derivatives(chatty, qb.reshape(x, ()), 3),
        qb.grad(qb.checkpoint(chatty)),
    ],
)
def test_prints_once_in_order_under_every_transform(capfd, fun):
    takes_vector = "<lambda>" in repr(fun) and repr(fun).startswith("<transformed")
    assert printed(capfd, fun, qb.reshape(HALF, (1,)) if takes_vector else HALF) == LINES


def test_vmap_prints_each_example(capfd):
    points = qb.array([0.5, 1.0])
    expected = ["x = 0.50", "x = 1.00", "y = 0.479, x = 0.50", "y = 0.841, x = 1.00", "done"]
    assert printed(capfd, qb.vmap(chatty), points) == expected
    assert printed(capfd, qb.jit(qb.vmap(qb.grad(chatty))), points) == expected

    def shared(x, w):
        qb.debug_print("{} {}", x, w)
        qb.debug_print("{}", w)
        return x * w

    nested = qb.vmap(qb.vmap(shared, in_axes=(0, None)), in_axes=(None, 0))
    lines = printed(capfd, nested, points, qb.array([2.0, 3.0]))
    assert sorted(lines) == sorted(["0.5 2.0", "1.0 2.0", "0.5 3.0", "1.0 3.0", "2.0", "3.0"])


def test_prints_values_of_every_kind(capfd):
    def fun(x, n, flag):
        qb.debug_print("{1} {0} {2}", n, flag, x)
        return x

    args = (qb.array([1.0, 2.0]), qb.array(3, dtype=qb.int64), qb.array(True))
    assert printed(capfd, qb.jit(fun), *args) == [f"True 3 {args[0]}"]


@pytest.mark.parametrize("derive", [lambda f: f, qb.grad, lambda f: qb.grad(lambda v: qb.sum(f(v)))])
def test_prints_in_every_iteration(capfd, derive):
    def body(i, c):
        qb.debug_print("{}", i)
        qb.debug_print("next")
        return qb.sin(c)

    fun = qb.jit(derive(lambda x: qb.fori_loop(0, 3, body, x)))
    x = HALF if derive in (qb.grad,) else qb.array([0.5, 1.0])
    assert printed(capfd, fun, x) == ["0", "next", "1", "next", "2", "next"]


def test_prints_where_the_branch_is_taken_and_the_example_runs(capfd):
    def taken(name):
        def branch(x):
            qb.debug_print(name + " {}", x)
            return x

        return branch

    def choose(x):
        return qb.cond(x > 1.0, taken("large"), taken("small"), x)

    assert printed(capfd, qb.jit(choose), HALF) == ["small 0.5"]
    assert sorted(printed(capfd, qb.vmap(choose), qb.array([0.5, 2.0, 0.25]))) == [
        "large 2.0",
        "small 0.25",
        "small 0.5",
    ]

    def count(x):
        return qb.while_loop(lambda c: c < 3.0, lambda c: taken("at")(c) + 1.0, x)

    assert sorted(printed(capfd, qb.vmap(count), qb.array([1.0, 2.0]))) == ["at 1.0", "at 2.0", "at 2.0"]


def test_prints_where_nothing_else_is_needed(capfd):
    def fun(x):
        qb.fori_loop(0, 2, lambda i, c: (qb.debug_print("{}", c), c + 1.0)[1], x)
        return 2.0

    assert printed(capfd, qb.jit(fun), HALF) == ["0.5", "1.5"]


def test_wrong_formats_fail_where_they_are_written():
    for fmt, error in (("{:.2f}", TypeError), ("{0} {1}", IndexError), ("{name}", KeyError), ("{", ValueError)):
        with pytest.raises(error):
            qb.jit(lambda x, fmt=fmt: qb.debug_print(fmt, x) or x)(X)
    with pytest.raises(TypeError, match="debug_print: the first argument must be a format string, got TraceTensor"):
        qb.jit(lambda x: qb.debug_print(x) or x)(X)


def test_prints_from_threads(capfd):
    fun = qb.jit(chatty)
    fun(HALF)
    capfd.readouterr()
    threads = [threading.Thread(target=fun, args=(HALF,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(capfd.readouterr().out.split()) == sorted(" ".join(LINES * 8).split())


def test_printing_does_not_change_results_or_sparsity(capfd):
    assert qb.jit(chatty)(HALF).item() == qb.jit(lambda x: qb.sin(x) * x)(HALF).item()

    def fun(x):
        qb.debug_print("{}", x[0])
        return qb.sum(x**2 * x[0])

    capfd.readouterr()
    matrix = qb.sparse_hessian(fun)(qb.array([1.0, 2.0, 3.0]))
    assert matrix.rows.size == 7
    assert capfd.readouterr().out.splitlines() == ["1.0"]
    assert "print" in failure_text(capfd)


def failure_text(capfd):
    def fun(x):
        qb.debug_print("print {}", x)
        return qb.log(x)

    assert failure(qb.jit(fun), qb.array(-1.0)).startswith("log")
    return capfd.readouterr().out
