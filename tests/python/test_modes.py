"""Which mode a derivative is made in: the cheaper one, and the text of the program says which."""

import numpy as np
import pytest
import quabla as qb

SCALAR = qb.ShapeDtype(())
RNG = np.random.default_rng(5)
V, W, M = RNG.normal(size=64), RNG.normal(size=64), RNG.normal(size=(64, 64))


def outer_sum(x):
    """Sums up n^2 products of n numbers: reverse mode needs none of their tangents."""
    return qb.sum(qb.outer(qb.sin(x * V), qb.cos(x * W)))


def weighted_outer_sum(x):
    """Reverse mode is cheaper here, too, but by too little: its second derivative would be dearer."""
    return qb.sum(M * qb.outer(qb.sin(x * V), qb.cos(x * W)))


def layers(x):
    return qb.sum(qb.tanh(qb.tanh(x * V) @ M))


def forward(fun):
    return lambda x: qb.jvp(fun, (x,), (1.0,))[1]


def reverse(fun):
    def derivative(x):
        out, pullback = qb.vjp(fun, x)
        return pullback(qb.ones_like(out))[0]

    return derivative


def flops(fun, *args):
    return qb.jit(fun).lower(*(args or (SCALAR,))).cost().flops


def notes(fun, *args):
    lines = qb.jit(fun).lower(*(args or (SCALAR,))).as_text().splitlines()
    return [line.strip().removeprefix("# ") for line in lines if line.strip().startswith("#")]


# ------------------------------------------------------------------------------------------------ the choice


def test_a_sum_of_an_outer_product_is_differentiated_in_reverse():
    grad = qb.grad(outer_sum)
    assert flops(grad) == flops(reverse(outer_sum)) < 0.6 * flops(forward(outer_sum))
    x = 0.7
    exact = np.cos(x * V) @ np.outer(V, np.cos(x * W)).sum(1) - np.sin(x * W) @ np.outer(W, np.sin(x * V)).sum(1)
    np.testing.assert_allclose(grad(x).item(), exact, rtol=1e-13)
    np.testing.assert_allclose(qb.value_and_grad(outer_sum)(x)[0].item(), outer_sum(qb.array(x)).item(), rtol=1e-14)


@pytest.mark.parametrize("fun", [weighted_outer_sum, layers, lambda x: x**3 - 2.0 * x, qb.sin])
def test_forward_mode_is_kept_unless_reverse_wins_clearly(fun):
    assert flops(qb.grad(fun)) == flops(forward(fun))
    assert flops(qb.grad(qb.grad(fun))) == flops(forward(forward(fun)))


@pytest.mark.parametrize("fun", [outer_sum, weighted_outer_sum, layers])
def test_the_choice_makes_no_higher_derivative_dearer(fun):
    nested, forwards = fun, fun
    for _ in range(4):
        nested, forwards = qb.grad(nested), forward(forwards)
        assert flops(nested) <= flops(forwards)
        np.testing.assert_allclose(nested(0.3).item(), forwards(0.3).item(), rtol=1e-11)


def random_program(seed):
    """A scalar function of a scalar, through vectors, outer products and products of matrices."""
    choose = np.random.default_rng(seed)
    size = int(choose.choice([4, 16, 32]))
    v, m = choose.normal(size=size), choose.normal(size=(size, size))
    steps = [(choose.integers(7), choose.random(3)) for _ in range(choose.integers(3, 9))]
    square = choose.random() < 0.3

    def fun(x):
        vectors, matrices = [qb.sin(x * v)], [qb.outer(qb.cos(x * v), v)]
        for kind, (i, j, k) in steps:
            a, b = vectors[int(i * len(vectors))], vectors[int(j * len(vectors))]
            p, q = matrices[int(i * len(matrices))], matrices[int(k * len(matrices))]
            match kind:
                case 0:
                    vectors.append(qb.tanh(a) if k < 0.5 else a / (2.0 + b * b))
                case 1:
                    vectors.append(a * b if k < 0.5 else a + b * v)
                case 2:
                    matrices.append(qb.outer(a, b))
                case 3:
                    matrices.append(p * q if j < 0.5 else qb.sin(p))
                case 4:
                    matrices.append(p @ q if j < 0.5 else m * p)
                case 5:
                    vectors.append(p @ b if k < 0.5 else m @ a)
                case 6:
                    vectors.append(qb.sum(p, axis=int(2 * j)))
        parts = [vectors[-1], *matrices[-2:]]
        return sum(qb.sum(part * part if square else part) for part in parts)

    return fun


def test_the_choice_makes_no_derivative_of_random_programs_dearer():
    reversed_ = 0
    for seed in range(300):
        fun = random_program(seed)
        nested, forwards = fun, fun
        for order in range(3):
            nested, forwards = qb.grad(nested), forward(forwards)
            taken, least = flops(nested), flops(forwards)
            assert taken <= least, (seed, order)
            reversed_ += order == 0 and taken < least
    assert reversed_ >= 3  # some are cheaper in reverse


def test_float32_stays_float32_in_either_mode():
    v = qb.array(V, dtype=qb.float32)
    grad = qb.grad(lambda x: qb.sum(qb.outer(qb.sin(x * v), qb.cos(x * v))))
    assert notes(grad, qb.ShapeDtype((), qb.float32))[0].startswith("gradient of <lambda>: reverse")
    x = np.float32(0.3)
    v64 = V.astype(np.float32).astype(np.float64)
    s, c = np.sin(0.3 * v64), np.cos(0.3 * v64)
    exact = (v64 * c).sum() * c.sum() - s.sum() * (v64 * s).sum()
    got = grad(qb.array(x, dtype=qb.float32))
    assert got.dtype == qb.float32
    np.testing.assert_allclose(got.item(), exact, rtol=1e-4)


def test_what_has_one_mode_only_is_differentiated_in_that():
    def loop(x):  # no bound: forward mode only
        values = qb.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * x), (0, x * qb.ones(40)))[1]
        return qb.sum(qb.outer(values, values))

    assert notes(qb.grad(loop)) == ["gradient of loop: forward mode (there is no reverse mode of it)"]
    assert qb.grad(loop)(1.0).item() == 12.0 * 1600

    @qb.custom_vjp
    def reversed_only(x):
        return x * x

    reversed_only.defvjp(lambda x: (x * x, x), lambda x, ct: (3.0 * x * ct,))
    assert notes(qb.grad(lambda x: qb.sin(reversed_only(x)))) == [
        "gradient of <lambda>: reverse mode (something in it has no other)"
    ]
    np.testing.assert_allclose(qb.grad(lambda x: qb.sin(reversed_only(x)))(0.5).item(), 1.5 * np.cos(0.25), rtol=1e-14)

    @qb.custom_jvp
    def both(x):
        return qb.outer(x, x)

    @both.defjvp
    def _(primals, tangents):
        return both(primals[0]), 3.0 * qb.outer(primals[0], tangents[0])

    assert notes(qb.grad(lambda x: qb.sum(both(x * V))))[0].startswith("gradient of <lambda>: ")
    np.testing.assert_allclose(qb.grad(lambda x: qb.sum(both(x * V)))(2.0).item(), 6.0 * V.sum() ** 2, rtol=1e-13)


@pytest.mark.parametrize("size", [0, 1])
def test_arrays_of_no_and_of_one_element(size):
    v = V[:size]
    grad = qb.grad(lambda x: qb.sum(qb.outer(x * v, x * v)))
    np.testing.assert_allclose(grad(2.0).item(), 4.0 * v.sum() ** 2, rtol=1e-14)


def test_results_beside_the_value_do_not_take_part():
    grad, aux = qb.grad(lambda x: (outer_sum(x), qb.exp(x)), has_aux=True)(0.3)
    np.testing.assert_allclose(grad.item(), qb.grad(outer_sum)(0.3).item(), rtol=1e-14)
    np.testing.assert_allclose(aux.item(), np.exp(0.3), rtol=1e-15)


# ------------------------------------------------------------------------------------------------ what the text says


def test_the_text_names_the_mode_and_what_both_cost():
    (line,) = notes(qb.grad(outer_sum))
    assert line == (
        f"gradient of outer_sum: reverse mode, {flops(reverse(outer_sum))} operations "
        f"(forward mode {flops(forward(outer_sum))})"
    )
    (line,) = notes(qb.grad(weighted_outer_sum))
    assert line == (
        f"gradient of weighted_outer_sum: forward mode, {flops(forward(weighted_outer_sum))} operations "
        f"(reverse mode {flops(reverse(weighted_outer_sum))})"
    )
    assert notes(qb.grad(layers)) == ["gradient of layers: forward mode (reverse mode could not save 40 %)"]
    assert notes(qb.grad(lambda x: qb.sum(qb.sin(x))), qb.ShapeDtype((3,))) == ["gradient of <lambda>: reverse mode"]


def test_notes_survive_nesting_and_every_transform():
    first = notes(qb.grad(outer_sum))
    points = qb.ShapeDtype((5,))
    assert notes(qb.vmap(qb.grad(outer_sum)), points) == first
    assert notes(qb.jit(qb.grad(qb.jit(outer_sum))))[0].startswith("gradient of jit(outer_sum): reverse mode")
    nested = notes(qb.vmap(qb.grad(qb.grad(outer_sum))), points)
    assert nested[0] == first[0] and nested[1].startswith("gradient of grad(outer_sum): forward mode")
    for fun in (
        lambda x: qb.jvp(qb.grad(outer_sum), (x,), (x,))[1],
        lambda x: qb.vjp(qb.grad(outer_sum), x)[1](x)[0],
        lambda x: qb.derivatives(qb.grad(outer_sum), x, 2)[2],
        lambda x: qb.checkpoint(qb.grad(outer_sum))(x),
        lambda x: sum(qb.grad(outer_sum)(x + k) for k in range(3)),
    ):
        assert notes(fun) == first  # once, however often it is used
    inside = notes(lambda x: qb.scan(lambda c, _: (c + qb.grad(outer_sum)(c), None), x, length=3)[0])
    assert inside == first


def test_jacobian_and_hessian_say_by_rows_or_by_columns():
    x = qb.ShapeDtype((3,))

    def f(x):
        return qb.sin(x)[:2]

    assert notes(qb.jacobian(f), x) == ["jacobian of f: reverse mode, by rows (it is 2 x 3)"]
    assert notes(qb.jacfwd(f), x) == ["jacobian of f: forward mode, by columns (it is 2 x 3)"]
    assert notes(qb.hessian(lambda x: qb.sum(f(x))), x) == [
        "hessian of <lambda>: forward mode, by columns (it is 3 x 3)",
        "gradient of <lambda>: reverse mode",
    ]


def test_notes_are_no_part_of_the_graph():
    def plain(x):
        return qb.cos(x)

    lowered = qb.jit(qb.grad(qb.sin)).lower(SCALAR)
    assert lowered.program.text() == qb.jit(plain).lower(SCALAR).program.text().replace("arg0", "x")
    assert [line for line in lowered.as_text().splitlines() if not line.startswith("#")] == (
        lowered.program.text().splitlines()
    )


def test_a_name_that_cannot_be_written_is_left_out():
    def f(x):
        return x * x

    f.__name__ = "two\nlines"
    assert notes(qb.grad(f)) == ["gradient of function: forward mode (reverse mode could not save 40 %)"]
