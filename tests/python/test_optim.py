"""Optimizers against their formulas written out in NumPy, over trees, eagerly and inside compiled steps."""

import math

import numpy as np
import pytest
import quabla as qb
from compare import assert_close, assert_same_bits

P = {"w": np.array([[1.0, -2.0], [0.5, 3.0]]), "b": [np.array(0.25), None]}


def tensors(tree):
    return qb.tree.map(qb.array, tree)


def gradients(k):
    """The gradients of step k, different in every step."""
    return qb.tree.map(lambda p: np.sin(p + k) * 10.0**-k, P)


def run(optimizer, steps=4, params=None, compiled=False):
    p = tensors(P if params is None else params)
    state = optimizer.init(p)
    update = qb.jit(optimizer.update) if compiled else optimizer.update
    for k in range(steps):
        p, state = update(p, tensors(gradients(k)), state)
    return p, state


def reference(rule, steps=4):
    """rule(p, gradient, memory, k) -> p, with a dictionary of its own for each leaf."""
    leaves, structure = qb.tree.flatten(P)
    memories = [{} for _ in leaves]
    for k in range(steps):
        leaves = [rule(p, g, memory, k) for p, g, memory in zip(leaves, qb.tree.leaves(gradients(k)), memories)]
    return qb.tree.unflatten(structure, [np.asarray(p) for p in leaves])


def adam(rate, b1=0.9, b2=0.999, eps=1e-8, decay=0.0):
    def rule(p, g, memory, k):
        m = memory["m"] = b1 * memory.get("m", 0.0) + (1 - b1) * g
        v = memory["v"] = b2 * memory.get("v", 0.0) + (1 - b2) * g**2
        step = (m / (1 - b1 ** (k + 1))) / (np.sqrt(v / (1 - b2 ** (k + 1))) + eps)
        return p - rate * (step + decay * p)

    return rule


def sgd(rate, momentum=0.0, nesterov=False):
    def rule(p, g, memory, k):
        v = memory["v"] = momentum * memory.get("v", 0.0) + g
        return p - rate * (g + momentum * v if nesterov else v)

    return rule


OPTIMIZERS = {
    "adam": (lambda: qb.optim.Adam(learning_rate=0.1), adam(0.1)),
    "adam with other decays": (lambda: qb.optim.Adam(0.05, b1=0.5, b2=0.9, eps=1e-3), adam(0.05, 0.5, 0.9, 1e-3)),
    "adamw": (lambda: qb.optim.AdamW(0.1, weight_decay=0.02), adam(0.1, decay=0.02)),
    "sgd": (lambda: qb.optim.SGD(learning_rate=0.1), sgd(0.1)),
    "momentum": (lambda: qb.optim.SGD(0.1, momentum=0.9), sgd(0.1, 0.9)),
    "nesterov": (lambda: qb.optim.SGD(0.1, momentum=0.9, nesterov=True), sgd(0.1, 0.9, True)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_formula(name, compiled):
    make, rule = OPTIMIZERS[name]
    p, state = run(make(), compiled=compiled)
    assert_close(p, tensors(reference(rule)), 1e-14)
    assert state.step.item() == 4
    assert state.step.dtype == qb.int64


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_eager_and_compiled_have_the_same_bits(name):
    make, _ = OPTIMIZERS[name]
    assert_same_bits(run(make(), compiled=True), run(make()))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_update_is_pure(name):
    optimizer = OPTIMIZERS[name][0]()
    p, g = tensors(P), tensors(gradients(0))
    state = optimizer.init(p)
    before = [leaf.tolist() for leaf in qb.tree.leaves((p, g, state))]
    first = optimizer.update(p, g, state)
    assert_same_bits(optimizer.update(p, g, state), first)
    assert [leaf.tolist() for leaf in qb.tree.leaves((p, g, state))] == before
    assert qb.tree.structure(first[0]) == qb.tree.structure(p)
    assert qb.tree.structure(first[1]) == qb.tree.structure(state)


def test_parameters_keep_their_dtype_and_moments_are_float64():
    params = {"a": qb.ones(3, dtype=qb.float32), "b": qb.ones(2)}
    grads = {"a": qb.ones(3, dtype=qb.float32), "b": qb.ones(2)}
    for optimizer in (qb.optim.Adam(0.1), qb.optim.AdamW(0.1), qb.optim.SGD(0.1, momentum=0.9)):
        state = optimizer.init(params)
        p, state = optimizer.update(params, grads, state)
        assert p["a"].dtype == qb.float32
        assert p["b"].dtype == qb.float64
        moments = [leaf for leaf in qb.tree.leaves(state) if leaf.dtype != qb.int64]
        assert {str(leaf.dtype) for leaf in moments} == {"float64"}


def test_schedule():
    optimizer = qb.optim.SGD(learning_rate=lambda step: 0.1 / (1 + step))
    p, state = qb.array(0.0), None
    state = optimizer.init(p)
    expected = 0.0
    for k in range(4):
        p, state = optimizer.update(p, qb.array(1.0), state)
        expected -= 0.1 / (1 + k)
        assert p.item() == pytest.approx(expected, rel=1e-14)


def test_clip_by_global_norm():
    grads = {"a": qb.array([3.0, 0.0]), "b": qb.array(4.0)}
    clipped, norm = qb.optim.clip_by_global_norm(grads, 1.0)
    assert norm.item() == pytest.approx(5.0, rel=1e-15)
    assert_close(clipped, {"a": qb.array([0.6, 0.0]), "b": qb.array(0.8)}, 1e-15)
    clipped, norm = qb.optim.clip_by_global_norm(grads, 10.0)
    assert_same_bits(clipped, grads)
    clipped, norm = qb.optim.clip_by_global_norm({"a": qb.zeros(3)}, 1.0)
    assert norm.item() == 0.0
    assert clipped["a"].tolist() == [0.0] * 3


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_the_global_norm_neither_overflows_nor_underflows(scale):
    clipped, norm = qb.optim.clip_by_global_norm([qb.array([3.0 * scale, 4.0 * scale])], 2.5 * scale)
    assert norm.item() == pytest.approx(5 * scale, rel=1e-14)
    assert_close(clipped[0], qb.array([1.5 * scale, 2.0 * scale]), 1e-14)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_makes_everything_nan(bad):
    clipped, norm = qb.optim.clip_by_global_norm([qb.array([bad, 1.0]), qb.array(2.0)], 1.0)
    assert not math.isfinite(norm.item())
    assert all(np.isnan(np.asarray(leaf)).all() for leaf in clipped)


def test_clip_norm():
    p = qb.array([1.0, 1.0])
    optimizer = qb.optim.SGD(learning_rate=1.0, clip_norm=1.0)
    p, _ = optimizer.update(p, qb.array([30.0, 40.0]), optimizer.init(p))
    assert_close(p, qb.array([0.4, 0.2]), 1e-14)


def test_a_whole_training_loop_compiled():
    optimizer = qb.optim.Adam(learning_rate=0.1)

    def loss(p):
        return qb.sum((p - qb.array([1.0, -2.0])) ** 2)

    @qb.jit
    def five(p, state):
        for _ in range(5):
            p, state = optimizer.update(p, qb.grad(loss)(p), state)
        return p, state

    p = qb.zeros(2)
    state = optimizer.init(p)
    for _ in range(60):
        p, state = five(p, state)
    assert_close(p, qb.array([1.0, -2.0]), 1e-3)
    assert state.step.item() == 300


@pytest.mark.parametrize(("make", "message"), [
    (lambda: qb.optim.Adam(learning_rate=-1.0), "learning_rate"),
    (lambda: qb.optim.Adam(b1=1.0), "b1"),
    (lambda: qb.optim.Adam(b2=-0.1), "b2"),
    (lambda: qb.optim.Adam(eps=-1.0), "eps"),
    (lambda: qb.optim.Adam(clip_norm=0.0), "clip_norm"),
    (lambda: qb.optim.AdamW(weight_decay=-1.0), "weight_decay"),
    (lambda: qb.optim.SGD(momentum=1.0), "momentum"),
    (lambda: qb.optim.SGD(nesterov=True), "nesterov"),
    (lambda: qb.optim.Adam(learning_rate=math.nan), "learning_rate"),
])  # fmt: skip
def test_settings_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_gradients_must_mirror_parameters():
    optimizer = qb.optim.Adam()
    params = {"layers": [{"w": qb.ones((2, 3))}]}
    state = optimizer.init(params)
    with pytest.raises(ValueError, match=r"layers/0/w.*\(3, 2\).*\(2, 3\)"):
        optimizer.update(params, {"layers": [{"w": qb.ones((3, 2))}]}, state)
    with pytest.raises(ValueError, match=r"layers/0/w.*float32.*float64"):
        optimizer.update(params, {"layers": [{"w": qb.ones((2, 3), dtype=qb.float32)}]}, state)
    with pytest.raises(TypeError, match="structure"):
        optimizer.update(params, {"layers": [{"v": qb.ones((2, 3))}]}, state)
    with pytest.raises(TypeError, match="Python number"):
        optimizer.update(2.0, qb.array(1.0), optimizer.init(qb.array(2.0)))
