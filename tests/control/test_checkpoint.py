"""checkpoint: the same numbers from less memory."""

import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import quabla as qb
from compare import assert_close


def layer(w, x):
    return qb.tanh(x @ w) * qb.cos(x)


W = np.random.default_rng(0).normal(size=(4, 4)) / 2


def plain(x):
    h = x
    for _ in range(3):
        h = layer(qb.array(W), h)
    return qb.sum(h * x)


def checkpointed(x):
    h = x
    for _ in range(3):
        h = qb.checkpoint(layer)(qb.array(W), h)
    return qb.sum(h * x)


def closed(x):
    """Closes over what it needs, a tracer among it."""
    return qb.sum(qb.checkpoint(lambda h: layer(qb.array(W), layer(qb.array(W), layer(qb.array(W), h))) * x)(x))


def nested(x):
    inner = qb.remat(lambda h: layer(qb.array(W), h))
    return qb.sum(qb.checkpoint(lambda h: inner(inner(inner(h))))(x) * x)


V = qb.array([1.0, -0.5, 0.25, 2.0])
TRANSFORMS = {
    "value": lambda f: f,
    "grad": qb.grad,
    "hessian": qb.hessian,
    "jvp": lambda f: lambda x: qb.jvp(f, (x,), (V,))[1],
    "jvp of grad": lambda f: lambda x: qb.jvp(qb.grad(f), (x,), (V,))[1],
    "grad of jvp": lambda f: qb.grad(lambda x: qb.jvp(f, (x,), (V,))[1]),
    "third": lambda f: qb.grad(lambda x: qb.sum(qb.hessian(f)(x) ** 2)),
    "linearize": lambda f: lambda x: qb.linearize(f, x)[1](V),
    "vjp": lambda f: lambda x: qb.vjp(f, x)[1](1.0),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("f", [checkpointed, closed, nested], ids=lambda f: f.__name__)
def test_values_and_derivatives_are_those_of_the_function(f, transform):
    make, x = TRANSFORMS[transform], qb.array([0.3, -0.2, 0.9, 1.4])
    expected = make(plain)(x)
    assert_close(make(f)(x), expected, 1e-12)
    assert_close(qb.jit(make(f))(x), expected, 1e-12)
    batch = qb.stack([x, 2.0 * x, -x])
    assert_close(qb.vmap(make(f))(batch), qb.vmap(make(plain))(batch), 1e-12)


def test_trees_statics_and_keywords():
    @qb.checkpoint(static_argnums=(1, -1))
    def f(tree, power, *, scale=1.0, last=None):
        assert isinstance(power, int)
        return {"y": tree["x"] ** power * scale, "n": tree["n"] + 1}

    def f2(tree, power, mode):
        assert mode == "twice"
        return {"y": tree["x"] ** power * 2.0, "n": tree["n"] + 1}

    g = qb.checkpoint(f2, static_argnums=(1, -1))
    tree = {"x": qb.array([1.0, 2.0]), "n": qb.array(1, dtype=qb.int64)}
    out = g(tree, 3, "twice")
    assert out["y"].tolist() == [2.0, 16.0] and out["n"].item() == 2
    grads = qb.grad(lambda tree: qb.sum(g(tree, 3, "twice")["y"]))(tree)
    assert grads["x"].tolist() == [6.0, 24.0] and grads["n"] is None
    h = qb.checkpoint(lambda x, scale: x * scale)
    assert h(qb.array(2.0), scale=3.0).item() == 6.0
    assert qb.grad(lambda x: h(x, scale=x))(3.0).item() == 6.0
    assert qb.checkpoint(lambda x: (x, 2))(qb.array(1.0))[1].item() == 2
    for bad in ("0", 1.5, (True,)):
        with pytest.raises(TypeError, match="static_argnums"):
            qb.checkpoint(f2, static_argnums=bad)
    with pytest.raises(TypeError, match="expected a function"):
        qb.checkpoint(3)
    assert qb.remat is qb.checkpoint and h.__wrapped__(qb.array(2.0), 3.0).item() == 6.0


def test_weak_numbers_stay_weak():
    x = qb.array(2.0, dtype=qb.float32)
    assert qb.jit(lambda x: qb.checkpoint(lambda a: a * 0.5)(1.0) * x)(x).dtype == qb.float32
    assert qb.grad(lambda x: qb.checkpoint(lambda a: a * 0.5)(x))(x).dtype == qb.float32


# ------------------------------------------------------------------------------------------------------------ recomputation


def deep(wrap, depth=24):
    """A network of equal layers, a few elementwise functions in each."""
    block = wrap(lambda w, h: qb.tanh(qb.sin(h @ w) * 1.5 + qb.exp(-h)))

    def loss(ws, x):
        for w in ws:
            x = block(w, x)
        return qb.mean(x**2)

    return loss


def network(depth=24, width=16, points=2048):
    rng = np.random.default_rng(1)
    ws = [qb.array(rng.normal(size=(width, width)) / 4) for _ in range(depth)]
    return ws, qb.array(rng.normal(size=(points, width)))


def count(text, name):
    return sum(f"= {name}(" in line for line in text.splitlines())


def test_the_text_shows_the_recomputation():
    ws, x = network(depth=4, points=8)
    kept = qb.jit(qb.grad(deep(lambda f: f))).lower(ws, x).as_text()
    again = qb.jit(qb.grad(deep(qb.checkpoint))).lower(ws, x).as_text()
    for name in ("sin", "tanh", "exp"):
        assert count(again, name) >= count(kept, name) + 3, again


def test_peak_memory_falls():
    ws, x = network(points=200)  # more examples would be taken tile by tile, with little memory either way
    peaks = {}
    for name, wrap in (("kept", lambda f: f), ("again", qb.checkpoint)):
        g = qb.jit(qb.grad(deep(wrap)))
        peaks[name] = g.lower(ws, x).cost().peak_bytes
    assert peaks["again"] < 0.55 * peaks["kept"], peaks
    assert_close(qb.grad(deep(qb.checkpoint))(ws, x), qb.grad(deep(lambda f: f))(ws, x), 1e-12)


def test_memory_of_the_gradient_of_a_scan():
    """About T carries plainly, about 2 sqrt(T) with checkpoint, less nested; as cost() says and as the process shows."""
    length, width = 20_000, 100
    carry_bytes = 8 * width

    def gradient(checkpoint):
        return qb.jit(
            qb.grad(
                lambda x: qb.sum(qb.scan(lambda c, i: (qb.sin(c), None), x, length=length, checkpoint=checkpoint)[0])
            )
        )

    x = qb.linspace(0.1, 1.0, width)
    predicted = {c: gradient(c).lower(x).cost().peak_bytes / carry_bytes for c in (None, True, 50)}
    assert 0.9 * length < predicted[None] < 1.3 * length, predicted
    assert predicted[True] < 0.02 * length, predicted
    assert predicted[True] < predicted[50] < 0.05 * length, predicted
    assert_close(gradient(True)(x), gradient(None)(x), 1e-13)
    assert_close(gradient(50)(x), gradient(None)(x), 1e-13)


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_of_the_process():
    """The peak of a process that takes such a gradient, above what it has before: as predicted."""
    code = """
        import sys
        import quabla as qb

        def peak():  # of this process alone: getrusage gives a new process the peak of its parent
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

        def loss(x):
            return qb.sum(qb.scan(lambda c, i: (qb.sin(c), None), x, length=20_000, checkpoint={})[0])

        g, x = qb.jit(qb.grad(loss)), qb.ones(1000)
        predicted, before = g.lower(x).cost().peak_bytes, peak()
        g(x)
        print(predicted, peak() - before)
    """
    carries = 20_000 * 1_000 * 8
    for checkpoint, low, high in ((None, 0.9, 1.2), (True, 0.0, 0.03)):
        command = [sys.executable, "-c", textwrap.dedent(code.format(checkpoint))]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        predicted, found = map(int, printed.split())
        assert low * carries <= found <= high * carries, (checkpoint, found / carries)
        assert abs(found - predicted) < 0.02 * carries, (checkpoint, found / carries, predicted / carries)


def test_nested_checkpoints_need_less():
    """A scan of scans of scans: memory of about 3 T^(1/3) carries."""
    length, width = 27_000, 100

    def nested(x):
        inner = lambda c: qb.scan(lambda c, i: (qb.sin(c), None), c, length=30)[0]
        middle = lambda c: qb.scan(lambda c, i: (qb.checkpoint(inner)(c), None), c, length=30)[0]
        return qb.sum(qb.scan(lambda c, i: (qb.checkpoint(middle)(c), None), x, length=30)[0])

    plain = lambda x: qb.sum(qb.scan(lambda c, i: (qb.sin(c), None), x, length=length, checkpoint=True)[0])
    x = qb.linspace(0.1, 1.0, width)
    peaks = [qb.jit(qb.grad(f)).lower(x).cost().peak_bytes for f in (nested, plain)]
    assert peaks[0] < 0.5 * peaks[1], peaks
    assert_close(qb.grad(nested)(x), qb.grad(plain)(x), 1e-13)
