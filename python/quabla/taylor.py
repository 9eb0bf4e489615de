"""Derivatives of high order without nesting: Taylor mode, and the forward Laplacian (src/transforms/taylor.c says
how)."""

import functools
import math

from . import _core
from .staging import Transform, as_array, build, cache_for, check_function, is_number, stage
from .transforms import Selected, arrays_of, check_argnums, decorator

__all__ = ["derivatives", "jet", "laplacian"]


MOST_ORDERS = 170  # k! is a float64 up to there


def _check_order(order, name):
    if order > MOST_ORDERS:
        raise ValueError(f"{name}: orders go up to {MOST_ORDERS}, whose factorial is the last in float64; got {order}")


def _from_derivatives(derivatives):
    """Derivatives along the path to Taylor coefficients: divided by k!; None stays None."""
    return [d if d is None or k < 2 else d / math.factorial(k) for k, d in enumerate(derivatives)]


def _to_derivatives(coefficients, like):
    filled = [_core.zeros(like.shape, like.dtype) if c is None else c for c in coefficients]
    return [c if k < 2 else c * float(math.factorial(k)) for k, c in enumerate(filled)]


def _propagate(staged, inputs, rows, order):
    """Derivatives of the outputs, a list of order + 1 for each, from those of the inputs."""
    flat = []
    for row in rows:
        flat.extend(_from_derivatives(row))
    for captured in staged.captures:
        flat.extend([captured, *[None] * order])
    out = staged.graph.apply_taylor(flat, order)
    width = order + 1
    return [_to_derivatives(out[i : i + width], out[i]) for i in range(0, len(out), width)]


def _jet_impl(fun, args, kwargs):
    primals, series = args
    leaves, treedef = arrays_of(primals)
    staged = stage(fun, leaves, _core.tree_structure((primals, {})), False, "jet")
    order = len(series[0])
    rows = [[leaf] for leaf in leaves]
    for k in range(order):
        terms = _core.tree_flatten_up_to(treedef, tuple(terms[k] for terms in series), "jet")
        for row, leaf, term in zip(rows, leaves, terms):
            term = as_array(term, leaf.dtype if is_number(term) else None)
            if term.shape != leaf.shape or term.dtype != leaf.dtype:
                raise ValueError(
                    f"jet: a term of order {k + 1} is {term.dtype} of shape {term.shape}, its primal {leaf.dtype} of "
                    f"shape {leaf.shape}"
                )
            row.append(term)
    out = _propagate(staged, leaves, rows, order)
    primal_out = staged.out_tree.unflatten([row[0] for row in out])
    series_out = [staged.out_tree.unflatten([row[k] for row in out]) for k in range(1, order + 1)]
    return primal_out, series_out


@_core.public
def jet(fun, primals, series):
    """Derivatives of fun along a path, to any order, in one forward pass.

    Args:
        fun: a function of arrays (pytrees).
        primals: a tuple: where the path is at t = 0.
        series: a tuple with, for each primal, the list of the path's derivatives at t = 0: [x', x'', ...]; all of one
        length n.

    Returns:
        (out, [out', out'', ...]): value and the n derivatives of fun along the path, each with the structure of out.

    The cost is O(n^2) evaluations of fun at the most, against O(2^n) for nested derivatives. n is at most 170.
    """
    check_function(fun, "jet")
    if not isinstance(primals, (tuple, list)) or not isinstance(series, (tuple, list)) or len(primals) != len(series):
        raise TypeError("jet: primals and series must be tuples with one entry for each argument of the function")
    lengths = {len(terms) for terms in series}
    if len(lengths) != 1:
        raise ValueError(f"jet: the series must all have one length, got {sorted(lengths)}")
    _check_order(max(lengths), "jet")
    run = Transform(fun, _jet_impl, build, cache_for(fun, "jet"), number_argnums=(0, 1))
    return run(tuple(primals), tuple(list(terms) for terms in series))


def _derivatives_impl(fun, args, kwargs, *, order):
    (x,) = args
    x = as_array(x, _core.float64 if is_number(x) else None)
    if x.shape or x.dtype.kind != "f":
        raise ValueError(
            f"derivatives: x must be a floating scalar, got {x.dtype} of shape {x.shape}; map over an array with vmap"
        )
    staged = stage(fun, [x], _core.tree_structure(((x,), {})), False, "derivatives")
    row = [x, *([_core.ones((), x.dtype)] if order else []), *[None] * (order - 1)]
    out = _propagate(staged, [x], [row], order)
    return tuple(staged.out_tree.unflatten([row[k] for row in out]) for k in range(order + 1))


@_core.public
def derivatives(fun, x, order):
    """(f(x), f'(x), ..., f^(order)(x)) of a function of one scalar; fun may return any pytree of arrays.

    By Taylor mode, whose cost grows with the square of the order. Use vmap for many points; differentiate the result
    by any transform.
    """
    check_function(fun, "derivatives")
    if isinstance(order, bool) or not isinstance(order, int) or order < 0:
        raise ValueError(f"derivatives: order must be an int of at least 0, got {order!r}")
    _check_order(order, "derivatives")
    impl = functools.partial(_derivatives_impl, order=order)
    return Transform(fun, impl, build, cache_for(fun, ("derivatives", order)), number_argnums=(0,))(x)


def _laplacian_impl(fun, args, kwargs, *, argnums):
    chosen = Selected(args, kwargs, check_argnums(argnums, "laplacian"), "laplacian")
    staged = stage(fun, chosen.leaves, chosen.treedef, False, "laplacian")
    inputs = chosen.inputs()
    directions = sum(inputs[j].size for j in chosen.wrt)
    tangents, first = [None] * len(inputs), 0
    for j in chosen.wrt:
        tangents[j] = _directions(inputs[j], directions, first)
        first += inputs[j].size
    captured = staged.captures
    out = staged.graph.apply_laplacian(inputs + captured, tangents + [None] * len(captured), directions)
    results = []
    for value, second in zip(out[::3], out[2::3]):
        if value.dtype.kind != "f":
            raise ValueError(f"laplacian: the function returned {value.dtype}: only floating results have derivatives")
        results.append(_core.zeros(value.shape, value.dtype) if second is None else second)
    return staged.out_tree.unflatten(results)


def _directions(array, count, first):
    """Unit tangents [count, *shape]: rows first, first + 1, ... are those of the array's elements, the others zero."""
    size = array.size
    basis = _core.eye(count, size, dtype=array.dtype)
    if first:  # rotate the rows into place
        basis = _core.concat([basis[count - first :], basis[: count - first]], axis=0)
    return _core.reshape(basis, (count, *array.shape))


@decorator
def laplacian(fun, argnums=0):
    """The Laplacian of fun: the sum of its second derivatives by each element of the selected arguments (the Hessian's
    trace).

    Args:
        fun: a function whose results are floating arrays (usually a scalar); the Laplacian of each element is returned.
        argnums: position, or tuple of positions, of the arguments to differentiate by.

    One forward pass that carries value, gradient and Laplacian: the second-order streams of all directions are one.
    Composes with
    vmap (many points), grad (training), jit.
    """
    nums = check_argnums(argnums, "laplacian")
    impl = functools.partial(_laplacian_impl, argnums=argnums)
    return Transform(fun, impl, build, cache_for(fun, ("laplacian", argnums)), number_argnums=nums)
