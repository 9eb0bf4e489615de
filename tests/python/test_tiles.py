"""Programs over many examples run tile by tile: the values are those of the examples taken a few at a time."""

import numpy as np
import pytest
import quabla as qb

RNG = np.random.default_rng(11)


def network(widths, dtype):
    return [
        {
            "w": qb.array((RNG.normal(size=(m, n)) / np.sqrt(m)).astype(dtype)),
            "b": qb.array(RNG.normal(size=n).astype(dtype)),
        }
        for m, n in zip(widths, widths[1:])
    ]


def apply(params, x):
    for layer in params[:-1]:
        x = qb.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def residual(params, x):
    u = lambda x: apply(params, x)[0]
    return qb.trace(qb.hessian(u)(x)) + u(x) * qb.grad(u)(x)[0]


def is_tiled(program, *args):
    return "loop of" in program.lower(*args).program.compile().text()


def assert_all_close(a, b, tolerance):
    a, b = qb.tree.leaves(a), qb.tree.leaves(b)
    assert [leaf.shape for leaf in a] == [leaf.shape for leaf in b]
    for x, y in zip(a, b):
        scale = np.abs(y.numpy()).max() + 1e-30
        np.testing.assert_allclose(x.numpy() / scale, y.numpy() / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-13), ("float32", 2e-5)])
@pytest.mark.parametrize("count", [1024, 1000, 2477, 10_007])
def test_sums_over_examples(count, dtype, tolerance):
    params, x = network([2, 50, 33, 1], dtype), qb.array(RNG.uniform(size=(count, 2)).astype(dtype))
    target = qb.array(RNG.uniform(size=count).astype(dtype))

    def loss(params, x, target):
        r = qb.vmap(residual, in_axes=(None, 0))(params, x) - target
        return qb.sum(r**2), r

    program = qb.jit(qb.value_and_grad(loss, has_aux=True))
    assert is_tiled(program, params, x, target)
    (value, rows), grads = program(params, x, target)
    parts = [program(params, x[i : i + 100], target[i : i + 100]) for i in range(0, count, 100)]
    assert not is_tiled(program, params, x[:100], target[:100])
    assert_all_close(value, sum(part[0][0] for part in parts), tolerance)
    assert_all_close(rows, qb.concat([part[0][1] for part in parts], axis=0), tolerance)
    for layer, name in ((i, name) for i in range(len(params)) for name in ("w", "b")):
        assert_all_close(grads[layer][name], sum(part[1][layer][name] for part in parts), tolerance)


def test_what_comes_after_the_sums():
    """Values centred by their mean over the examples, and the optimizer's step in the same program."""
    params, x = network([3, 64, 64, 2], "float64"), qb.array(RNG.normal(size=(3000, 3)))
    opt = qb.optim.Adam(learning_rate=1e-2)

    def loss(params, x):
        y = apply(params, x)
        centred = (y - qb.mean(y, axis=0)) / qb.std(y, axis=0)
        return qb.mean(qb.sum(centred[:, :1] * qb.sin(x[:, 0:1]), axis=1)) + qb.max(y) * 1e-3

    def step(params, state, x):
        value, grads = qb.value_and_grad(loss)(params, x)
        return value, opt.update(params, grads, state)

    program = qb.jit(step)
    assert is_tiled(program, params, opt.init(params), x)
    value, (new, _) = program(params, opt.init(params), x)
    apart = qb.vmap(lambda x: apply(params, x), chunk_size=100)(x).numpy()
    centred = (apart - apart.mean(axis=0)) / apart.std(axis=0)
    expected = (centred[:, :1] * np.sin(x.numpy()[:, :1])).sum(axis=1).mean() + apart.max() * 1e-3
    assert value.item() == pytest.approx(expected, rel=1e-12)
    direction = [{k: qb.array(RNG.normal(size=v.shape)) for k, v in layer.items()} for layer in params]
    moved = lambda h: [{k: layer[k] + h * d[k] for k in layer} for layer, d in zip(params, direction)]
    slope = qb.jvp(lambda p: loss(p, x), (params,), (direction,))[1].item()
    grads = qb.grad(loss)(params, x)
    inner = sum(float(np.sum(g[k].numpy() * d[k].numpy())) for g, d in zip(grads, direction) for k in g)
    assert slope == pytest.approx(inner, rel=1e-10)
    difference = (loss(moved(1e-6), x) - loss(moved(-1e-6), x)).item() / 2e-6
    assert slope == pytest.approx(difference, rel=1e-4)
    assert all(np.isfinite(leaf.numpy()).all() for leaf in qb.tree.leaves(new))


@pytest.mark.parametrize("width", [256, 512])
def test_weights_as_wide_as_there_are_examples(width):
    """The extent of the examples is also that of a weight's axes: only examples are cut."""
    params, x = network([width, width, width, 1], "float64"), qb.array(RNG.normal(size=(width, width)))
    loss = lambda params, x: qb.sum(apply(params, x) ** 2)
    value, grads = qb.jit(qb.value_and_grad(loss))(params, x)
    parts = [qb.value_and_grad(loss)(params, x[i : i + 64]) for i in range(0, width, 64)]
    assert_all_close(value, sum(part[0] for part in parts), 1e-12)
    assert_all_close(grads[1]["w"], sum(part[1][1]["w"] for part in parts), 1e-12)


def test_examples_on_another_axis_and_products_of_pairs():
    x, w = qb.array(RNG.normal(size=(40, 2000))), qb.array(RNG.normal(size=(40, 40)) / 6)

    def f(w):
        h = qb.tanh(w @ qb.tanh(w @ x))
        return qb.sum(qb.cos(h) * h), h

    (value, h), grad = qb.jit(qb.value_and_grad(f, has_aux=True))(w)
    t = np.tanh(w.numpy() @ np.tanh(w.numpy() @ x.numpy()))
    np.testing.assert_allclose(h.numpy(), t, rtol=1e-13, atol=1e-13)
    assert value.item() == pytest.approx((np.cos(t) * t).sum(), rel=1e-12)
    direction = qb.array(RNG.normal(size=(40, 40)))
    slope = qb.jvp(lambda w: f(w)[0], (w,), (direction,))[1].item()
    assert slope == pytest.approx((grad.numpy() * direction.numpy()).sum(), rel=1e-11)

    def pairs(x):
        a = qb.vmap(lambda v: qb.outer(qb.sin(v), v) @ qb.cos(v))(x)
        return qb.sum(qb.tanh(a @ qb.ones((20, 20))) ** 2)

    points = qb.array(RNG.normal(size=(2000, 20)))
    assert_all_close(
        qb.grad(pairs)(points),
        qb.concat([qb.grad(pairs)(points[i : i + 100]) for i in range(0, 2000, 100)], axis=0),
        1e-11,
    )


def test_memory_is_that_of_tiles():
    params, x = network([2, 64, 64, 64, 1], "float64"), qb.ShapeDtype((20_000, 2))
    loss = lambda params, x: qb.mean(qb.vmap(residual, in_axes=(None, 0))(params, x) ** 2)
    assert qb.jit(qb.grad(loss)).lower(params, x).cost().peak_bytes < 20_000 * 64 * 8 * 2
