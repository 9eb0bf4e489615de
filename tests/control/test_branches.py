"""cond and switch: one branch, chosen late; agreement of the branches; and the branch not taken leaves no trace."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import quabla as qb
from compare import assert_close, assert_same_bits

# ------------------------------------------------------------------------------------------------------------- choosing


def test_a_known_predicate_calls_one_branch():
    """Also while tracing; the other branch is not even traced."""

    def never(*_):
        raise AssertionError("the branch not taken was called")

    for yes in (True, 1, 2.5, qb.array(True), qb.array(3.0), np.bool_(True), np.array(1.0)):
        assert qb.cond(yes, lambda x: x + 1, never, 1) == 2
        assert qb.jit(lambda x: qb.cond(yes, lambda x: x + 1, never, x))(qb.array(1.0)).item() == 2
    for no in (False, 0, qb.array(False), qb.array(0.0)):
        assert qb.cond(no, never, lambda: "anything") == "anything"
    assert [qb.switch(i, [lambda: "a", lambda: "b", lambda: "c"]) for i in (-5, 0, 1, 2, 9)] == list("aabcc")
    assert qb.switch(qb.array(1, dtype=qb.int32), [never, lambda x: -x], 4) == -4


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint64", "float64"])
def test_a_traced_predicate_of_any_dtype(dtype):
    f = qb.jit(lambda p, x: qb.cond(p, lambda x: x * 2, lambda x: -x, x))
    assert f(qb.array(1, dtype=dtype), qb.array(3.0)).item() == 6.0
    assert f(qb.array(0, dtype=dtype), qb.array(3.0)).item() == -3.0


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_switch_clamps_its_index(dtype):
    f = qb.jit(lambda i, x: qb.switch(i, [lambda x: x, lambda x: x * 10, lambda x: x * 100], x))
    indices = (0, 1, 2, 3, 2**31 - 1) if dtype == "uint32" else (-(2**31), -1, 0, 1, 2, 3, 2**31 - 1)
    for i in indices:
        assert f(qb.array(i, dtype=dtype), qb.array(1.0)).item() == 10.0 ** min(max(i, 0), 2)


def test_switch_with_one_branch():
    f = qb.jit(lambda i, x: qb.switch(i, [qb.sin], x))
    assert_close(f(qb.array(5, dtype=qb.int64), qb.array(1.0)), qb.sin(1.0))


def test_operands_captures_and_constants_of_branches():
    w = qb.array([1.0, 2.0])

    def f(p, x, tree):
        y = qb.sin(x)
        return qb.cond(
            p, lambda t, s: {"r": t["a"] * w + y, "s": (s, None)}, lambda t, s: {"r": w - x, "s": (s, None)}, tree, 3
        )

    tree = {"a": qb.array([3.0, 4.0]), "b": (qb.array(1, dtype=qb.int32),)}
    for p in (True, False):
        got = qb.jit(f)(qb.array(p), qb.array(0.5), tree)
        x = np.array(0.5)
        expected = np.array([3.0, 8.0]) + np.sin(x) if p else np.array([1.0, 2.0]) - x
        assert_close(got["r"], qb.array(expected))
        assert got["s"][0].item() == 3 and got["s"][0].dtype == qb.int64 and got["s"][1] is None


def test_constants_adapt_to_the_other_branch():
    x32, p = qb.array([1.0], dtype=qb.float32), qb.array(True)
    scalar = qb.array(1.0, dtype=qb.float32)
    f = qb.jit(lambda p, x: qb.cond(p, lambda: x, lambda: 0))
    assert f(p, scalar).dtype == qb.float32 and f(qb.array(False), scalar).item() == 0.0
    g = qb.jit(lambda p, x: qb.cond(p, lambda: 2.5, lambda: x))
    assert g(p, scalar).dtype == qb.float32 and g(p, scalar).item() == 2.5
    h = qb.jit(lambda p: qb.cond(p, lambda: 1, lambda: 2.5))
    assert h(p).item() == 1.0 and h(p).dtype == qb.float64
    assert (h(p) * x32).dtype == qb.float32, "two constants give a weak number"
    k = qb.jit(lambda p, n: qb.cond(p, lambda: n, lambda: 7))
    assert k(qb.array(False), qb.array(1, dtype=qb.int32)).dtype == qb.int32
    s = qb.jit(
        lambda i, x: qb.switch(
            i,
            [lambda: 1, lambda: x, lambda: 2.0],
        )
    )
    assert [s(qb.array(i, dtype=qb.int64), scalar).item() for i in range(3)] == [1.0, 1.0, 2.0]


# --------------------------------------------------------------------------------------------------------------- errors


def raises(message, f, *args):
    with pytest.raises(TypeError, match=message):
        qb.jit(f)(*args)


def test_branches_that_disagree():
    p, x = qb.array(True), qb.array([1.0, 2.0])
    raises("true_fun.*structure|structure.*true_fun", lambda p, x: qb.cond(p, lambda: (x, x), lambda: x), p, x)
    raises("'b' is new", lambda p, x: qb.cond(p, lambda: {"a": x, "b": x}, lambda: {"a": x}), p, x)
    raises(r"disagree at 'a/1'.*float64 of shape \(2,\).*float64 of shape \(1,\)|disagree at 'a/1'.*float64 of shape \(1,\).*float64 of shape \(2,\)",
           lambda p, x: qb.cond(p, lambda: {"a": (x, x)}, lambda: {"a": (x, x[:1])}), p, x)  # fmt: skip
    raises("int64.*float64|float64.*int64", lambda p, x: qb.cond(p, lambda: x, lambda: qb.astype(x, qb.int64)), p, x)
    raises("bool", lambda p, x: qb.cond(p, lambda: x[0] > 0, lambda: 1.0), p, x)
    raises(
        "int32.*float64|float64.*int32", lambda p, n: qb.cond(p, lambda: n, lambda: 1.5), p, qb.array(1, dtype=qb.int32)
    )
    raises(
        r"branches\[2\]",
        lambda i, x: qb.switch(i, [lambda: x, lambda: x, lambda: x[0]]),
        qb.array(0, dtype=qb.int64),
        x,
    )


def test_bad_predicates_indices_and_branches():
    x = qb.array([1.0, 2.0])
    raises(r"pred must be a scalar.*\(2,\)", lambda x: qb.cond(x > 0, lambda: 1, lambda: 2), x)
    raises(r"pred must be a scalar", lambda x: qb.cond(np.ones(2), lambda: 1, lambda: 2), x)
    raises("index must be an integer scalar.*float64", lambda x: qb.switch(x[0], [lambda: 1, lambda: 2]), x)
    raises(r"index must be an integer scalar.*\(2,\)", lambda x: qb.switch(qb.astype(x, qb.int64), [lambda: 1]), x)
    for index in (1.0, True, None, "1", qb.array(1.0)):
        with pytest.raises(TypeError, match="index must be an integer"):
            qb.switch(index, [lambda: 1, lambda: 2])
    with pytest.raises(ValueError, match="branches is empty"):
        qb.switch(0, [])
    for args in ((True, 1, lambda: 2), (True, lambda: 2, None)):
        with pytest.raises(TypeError, match="_fun must be a function"):
            qb.cond(*args)
    with pytest.raises(TypeError, match=r"branches\[1\] must be a function"):
        qb.switch(0, [lambda: 1, 2])
    with pytest.raises(TypeError, match="returned str at 'a'"):
        qb.jit(lambda p: qb.cond(p, lambda: {"a": "text"}, lambda: {"a": 1}))(qb.array(True))


# ------------------------------------------------------------------------------------------- the branch not taken: no NaN


def forward(g):
    return lambda t: qb.jvp(g, (t,), (qb.ones_like(t),))[1]


POISONED = {
    "log": (lambda x: qb.log(x), lambda x: x * 0.25),
    "sqrt": (lambda x: qb.sqrt(x) * x, lambda x: x**2),
    "reciprocal": (lambda x: 1.0 / qb.relu(x), lambda x: qb.sin(x)),
    "power": (lambda x: x**1.5, lambda x: qb.exp(x)),
    "nan": (lambda x: x * float("nan"), lambda x: x**3),
    "infinite": (lambda x: qb.exp(x * -1e6) * x, lambda x: qb.cos(x)),
    "loop": (lambda x: qb.fori_loop(0, 5, lambda i, c: qb.log(c) * x, x), lambda x: x * x),
}


@pytest.mark.parametrize("name", POISONED)
def test_the_branch_not_taken_injects_no_nan(name):
    """At a negative number the first branch is NaN or infinite; value and three derivatives are those of the other."""
    poisoned, clean = POISONED[name]

    def f(x):
        return qb.cond(x > 0, poisoned, clean, x)

    def closed(x):
        return qb.cond(x > 0, lambda: poisoned(x), lambda: clean(x))

    def masked(x):
        return qb.switch(qb.astype(x > 0, qb.int32) * 2, [clean, poisoned, poisoned], x)

    def looped(x):
        return qb.scan(lambda c, i: (qb.cond(x > 0, poisoned, clean, x) + 0.0 * c, None), x * 0.0, length=3)[0]

    x = qb.array(-1.3)
    batch = qb.array([-1.3, -0.4, -2.0])
    for g in (f, closed, masked, looped):
        h, e = g, clean
        for modes in ((qb.grad, qb.grad, qb.grad), (forward, qb.grad, forward), (forward, forward, forward)):
            h, e = g, clean
            assert_close(h(x), e(x), 1e-13)
            for mode in modes:
                h, e = mode(h), mode(e)
                assert_close(h(x), e(x), 1e-12)
                assert_close(qb.vmap(h)(batch), qb.vmap(e)(batch), 1e-12)
        total = lambda g: lambda batch: qb.sum(qb.sin(qb.vmap(g)(batch)))
        assert_close(qb.grad(total(g))(batch), qb.grad(total(clean))(batch), 1e-12)
        assert_close(qb.hessian(total(g))(batch), qb.hessian(total(clean))(batch), 1e-12)


@pytest.mark.parametrize("name", POISONED)
def test_examples_of_either_branch_in_one_batch(name):
    """Each example has the value and derivatives of its own branch, though all compute both."""
    poisoned, clean = POISONED[name]

    def f(x):
        return qb.cond(x > 0, clean, poisoned, -x)  # the argument of poisoned is positive where it is taken

    batch = np.array([0.7, -0.6, 1.4, -1.1, 0.3])
    g = f
    for _ in range(3):
        one_by_one = qb.stack([g(qb.array(x)) for x in batch])
        assert_close(qb.vmap(g)(qb.array(batch)), one_by_one, 1e-12)
        g = qb.grad(g)
    total = qb.grad(lambda b: qb.sum(qb.vmap(f)(b)))(qb.array(batch))
    assert_close(total, qb.stack([qb.grad(f)(qb.array(x)) for x in batch]), 1e-12)


def test_a_nan_of_the_branch_taken_stays():
    f = qb.jit(lambda x: qb.cond(x > 0, lambda: x, lambda: qb.log(x)))
    assert np.isnan(f(qb.array(-1.0)).item())
    assert np.isnan(
        qb.vmap(lambda x: qb.cond(x > 0, lambda: x, lambda: qb.log(x)))(qb.array([-1.0, 2.0])).numpy()
    ).tolist() == [True, False]


def test_one_branch_runs():
    """A loop without end in the branch not taken: the program ends. Also under vmap, where examples of both branches
    share the loop, which runs only as long as an example that took the branch needs it."""
    code = """
        import quabla as qb

        def count(x):  # without end where x is 0
            return qb.while_loop(lambda c: c < 5.0, lambda c: c + x, x)

        f = lambda x: qb.cond(x > 0, count, lambda x: x - 1.0, x)
        assert qb.jit(f)(qb.array(0.0)).item() == -1.0
        assert qb.jit(f)(qb.array(2.0)).item() == 6.0
        assert qb.vmap(f)(qb.array([2.0, 0.0, 1.5, 0.0])).tolist() == [6.0, -1.0, 6.0, -1.0]
        assert qb.vmap(f)(qb.array([0.0, 0.0])).tolist() == [-1.0, -1.0]
        assert qb.vmap(qb.vmap(f))(qb.array([[0.0, 0.0], [2.0, 0.0]])).tolist() == [[-1.0, -1.0], [6.0, -1.0]]
        g = qb.vmap(lambda x: qb.jvp(f, (x,), (1.0,))[1])
        assert g(qb.array([2.0, 0.0, 1.5, 0.0])).tolist() == [3.0, 1.0, 4.0, 1.0]
        s = lambda i, x: qb.switch(i, [lambda x: x, count, lambda x: qb.cond(x > 0, count, lambda x: x * 3, x)], x)
        i = qb.array([0, 1, 2, 2], dtype=qb.int64)
        assert qb.vmap(s)(i, qb.array([0.0, 1.5, 0.0, 2.0])).tolist() == [0.0, 6.0, 0.0, 6.0]
        nested = lambda x: qb.fori_loop(0, 3, lambda k, c: qb.cond(c > 0, lambda c: count(c) - 5.5, lambda c: c, c), x)
        assert qb.vmap(nested)(qb.array([2.0, 0.0])).tolist() == [nested(qb.array(2.0)).item(), 0.0]
        print("done")
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "done", result.stderr


# ----------------------------------------------------------------------------------------------------------------- vmap


def test_vmap_of_cond_and_switch():
    """Every combination of what is mapped, against a Python loop."""
    x = qb.array(np.array([[0.3, -0.2], [0.7, 0.1], [-1.2, 0.5]]))
    p = qb.array([True, False, True])
    i = qb.array([2, 0, 7], dtype=qb.int64)
    c = qb.array([0.5, 1.5, 2.5])

    def f(p, x, c):
        return qb.cond(p, lambda x: {"a": qb.sin(x) * c, "n": 1}, lambda x: {"a": x - c, "n": 0}, x)

    def g(i, x, c):
        return qb.switch(i, [lambda x: x * c, lambda x: x, lambda x: qb.exp(x) + c], x)

    for h, first in ((f, p), (g, i)):
        for axes in (
            (0, 0, 0),
            (0, 0, None),
            (0, None, 0),
            (None, 0, 0),
            (0, None, None),
            (None, 0, None),
            (None, None, 0),
        ):
            args = [value if axis == 0 else value[1] for value, axis in zip((first, x, c), axes)]
            got = qb.vmap(h, in_axes=axes)(*args)
            rows = [qb.jit(h)(*(value[k] if axis == 0 else value for value, axis in zip(args, axes))) for k in range(3)]
            assert_close(got, qb.tree.map(lambda *r: qb.stack(list(r)), *rows), 1e-14)


def test_unmapped_branches_are_computed_once():
    f = lambda p, x: qb.cond(p, lambda: qb.sin(x), lambda: qb.cos(x))
    got = qb.vmap(f, in_axes=(0, None))(qb.array([True, False]), qb.array([1.0, 2.0]))
    assert_same_bits(got, qb.stack([qb.sin(qb.array([1.0, 2.0])), qb.cos(qb.array([1.0, 2.0]))]))
    shared = qb.vmap(
        lambda p, x, y: (qb.cond(p, lambda: y, lambda: -y), x), in_axes=(None, 0, None), out_axes=(None, 0)
    )
    assert shared(qb.array(True), qb.array([1.0, 2.0]), qb.array(5.0))[0].shape == ()
