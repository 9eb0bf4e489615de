"""Sparse Jacobians and Hessians: found in the graph, coloured, and evaluated in few products.

Which elements of the result depend on which of the argument is read off the graph (src/transforms/sparsity.c); elements
that never meet share a direction of differentiation (src/transforms/colour.c); so one product per colour, all of them
mapped together, gives every entry. Curtis, Powell and Reid (1974); Coleman and More (1983, 1984); Gebremedhin, Manne
and Pothen (2005).
"""

import dataclasses
import functools
import math

from . import _core, tree
from .staging import Transform, build, cache_for, stage
from .transforms import LEAF, Selected, check_argnums, decorator, gradient_of

__all__ = ["COO", "sparse_hessian", "sparse_jacobian"]


@functools.partial(tree.register_dataclass, meta_fields=("shape",))
@dataclasses.dataclass(frozen=True)
class COO:
    """A sparse matrix as coordinate triplets: entry e is values[e], at row rows[e] and column cols[e]; ordered by rows.

    rows, cols  int64 arrays [entries]
    values      floating array [entries]; entries that happen to be 0 are kept
    shape       (rows, columns) of the matrix
    """

    rows: object
    cols: object
    values: object
    shape: tuple

    def to_dense(self):
        """The matrix as an array of shape `shape`."""
        return _core.zeros(self.shape, self.values.dtype).at[self.rows, self.cols].add(self.values)

    def to_scipy(self):
        """The matrix as a scipy.sparse.coo_array, which the other formats of SciPy are made from."""
        from scipy.sparse import coo_array

        return coo_array((self.values.numpy(), (self.rows.numpy(), self.cols.numpy())), shape=self.shape)


def _one_array(fun, args, kwargs, argnums, name):
    """The traced function of one array with one array as result: (stage, its inputs, index of the argument)."""
    chosen = Selected(args, kwargs, check_argnums(argnums, name), name)
    if len(chosen.trees) != 1 or chosen.trees[0][0] != LEAF or len(chosen.wrt) != 1:
        raise ValueError(
            f"{name}: the argument to differentiate by must be one floating array; pass the parts of a tree as one "
            "array (concat), or use jacobian"
        )
    staged = stage(fun, chosen.leaves, chosen.treedef, False, name)
    if staged.out_tree != LEAF or staged.graph.outputs[0][1].kind != "f":
        raise ValueError(
            f"{name}: the function must return one floating array, got the structure {staged.out_tree}; return the "
            "parts as one array (concat), or use jacobian"
        )
    return staged, chosen.inputs() + staged.captures, chosen.wrt[0]


def _evaluate(graph, inputs, seed_shape, dtype, plan, output, shape):
    """The entries, from the products of the graph's derivative with one seed for each colour."""
    rows, cols, places, colours, count, _ = plan
    if not rows.size:
        return COO(rows, cols, _core.zeros((0,), dtype), shape)
    seeds = _core.equal(_core.arange(count, dtype=_core.int64)[:, None], colours[None, :]).astype(dtype)
    mapped = [False] * len(inputs) + [True]
    results, varies = graph.apply_vmap([*inputs, _core.reshape(seeds, (count, *seed_shape))], mapped, count)
    products = results[output]
    if not varies[output]:
        products = _core.broadcast_to(products, (count, *products.shape))
    return COO(rows, cols, _core.reshape(products, (-1,))[places], shape)


def _sparse_jacobian_impl(fun, args, kwargs, *, argnums):
    staged, inputs, j = _one_array(fun, args, kwargs, argnums, "sparse_jacobian")
    plan = staged.derive(("sparse", j), lambda: _core.compress(staged.graph, j, 0, False))
    out_shape, dtype = staged.graph.outputs[0]
    by_rows = plan[-1]
    mode, seed_shape = ("vjp", out_shape) if by_rows else ("jvp", inputs[j].shape)
    graph = staged.derive((mode, (j,)), lambda: getattr(staged.graph, mode)((j,)))
    shape = (math.prod(out_shape), inputs[j].size)
    return _evaluate(graph, inputs, seed_shape, dtype if by_rows else inputs[j].dtype, plan, 1, shape)


@decorator
def sparse_jacobian(fun, argnums=0):
    """The Jacobian of an array by an array, as the coordinate triplets of those entries that can be other than zero.

    Args:
        fun: a function whose result is one floating array.
        argnums: position of the argument to differentiate by, one floating array.

    Returns:
        A function of the same arguments that returns a COO of shape (result.size, argument.size), both in row-major
        order. Its pattern depends on shapes only, never on values; an entry of it may happen to be 0.

    Raises:
        ValueError: a tree instead of one array, or a pattern too dense to be held.

    As many products with the Jacobian, forward or reverse, as its columns or rows need colours: for a banded matrix as
    many as it has bands. Composes with every transform.
    """
    nums = check_argnums(argnums, "sparse_jacobian")
    impl = functools.partial(_sparse_jacobian_impl, argnums=argnums)
    return Transform(fun, impl, build, cache_for(fun, ("sparse_jacobian", argnums)), number_argnums=nums)


def _sparse_hessian_impl(fun, args, kwargs, *, argnums):
    staged, inputs, j = _one_array(fun, args, kwargs, argnums, "sparse_hessian")
    gradient = gradient_of(fun, staged, (j,), "sparse_hessian")
    plan = staged.derive(("sparse hessian", j), lambda: _core.compress(gradient, j, 1, True))
    graph = staged.derive(("hessian", j), lambda: gradient.jvp((j,)))
    x = inputs[j]
    return _evaluate(graph, inputs, x.shape, x.dtype, plan, 3, (x.size, x.size))


@decorator
def sparse_hessian(fun, argnums=0):
    """The second derivatives of a scalar function of an array, as the triplets of those that can be other than zero.

    Args:
        fun: a function whose result is a floating scalar.
        argnums: position of the argument to differentiate by, one floating array.

    Returns:
        A function of the same arguments that returns a COO of shape (argument.size, argument.size), symmetric, with
        the entries of both triangles.

    Raises:
        ValueError: the result is not a scalar, a tree instead of one array, or a pattern too dense to be held.

    As many products with the Hessian, forward over reverse, as a star colouring has colours: three where it is
    tridiagonal, whatever its size. Composes with every transform.
    """
    nums = check_argnums(argnums, "sparse_hessian")
    impl = functools.partial(_sparse_hessian_impl, argnums=argnums)
    return Transform(fun, impl, build, cache_for(fun, ("sparse_hessian", argnums)), number_argnums=nums)
