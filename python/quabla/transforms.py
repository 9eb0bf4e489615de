"""The function transforms: grad, value_and_grad, jvp, vjp, linearize, jacobian, hessian, vmap, jit.

Each is a rule on graphs (see staging.py), so any of them takes a function that contains, or is, any other.
"""

import functools
import math
import operator

from . import _core
from .chunks import along_basis, apply_vmap
from .lowering import lower
from .staging import (
    MAX_TRACES,
    Example,
    ShapeDtype,
    Transform,
    as_array,
    build,
    cache_for,
    check_function,
    is_number,
    split_statics,
    stage,
)

__all__ = [
    "ShapeDtype",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "linearize",
    "value_and_grad",
    "vjp",
    "vmap",
]  # fmt: skip


def decorator(transform):
    """Lets a transform that is called with keywords only return a decorator."""

    @_core.public
    @functools.wraps(transform)
    def wrapper(*args, **kwargs):
        if not args and "fun" not in kwargs:
            return functools.partial(wrapper, **kwargs)
        check_function(args[0] if args else kwargs["fun"], transform.__name__)
        return transform(*args, **kwargs)

    return wrapper


def _is_floating(leaf):
    return leaf.dtype.kind == "f"


# ------------------------------------------------------------------------------------------ choosing what to
# differentiate


def check_argnums(argnums, name):
    nums = argnums if isinstance(argnums, tuple) else (argnums,)
    for num in nums:
        if isinstance(num, bool) or not isinstance(num, int):
            raise TypeError(f"{name}: argnums must be an int or a tuple of ints, got {argnums!r}")
    if not nums:
        raise ValueError(f"{name}: argnums is empty: there is nothing to differentiate by")
    return nums


def _resolve_argnums(nums, count, name):
    resolved = [num + count if num < 0 else num for num in nums]
    for num, given in zip(resolved, nums):
        if not 0 <= num < count:
            raise ValueError(
                f"{name}: argnums contains {given}, but the function was called with {count} positional arguments"
            )
    if len(set(resolved)) != len(resolved):
        raise ValueError(f"{name}: argnums {nums} names an argument twice")
    return resolved


class Selected:
    """The arguments of a call, flattened, with the leaves to differentiate by picked out.

    leaves, treedef   all leaves of (args, kwargs); numbers among the selected arguments have become float64 arrays
    wrt               input indices (counting array leaves only) of the floating selected leaves
    positions         their places among all leaves
    trees             for each selected argument: (treedef, place of its first leaf among all leaves)
    """

    def __init__(self, args, kwargs, nums, name):
        selected = _resolve_argnums(nums, len(args), name)
        leaves, self.trees, spans = [], {}, []
        for i, arg in enumerate(args):
            arg_leaves, arg_tree = _core.tree_flatten(arg)
            if i in selected:
                arg_leaves = [as_array(leaf, _core.float64 if is_number(leaf) else None) for leaf in arg_leaves]
                self.trees[i] = (arg_tree, len(leaves))
                spans.extend(range(len(leaves), len(leaves) + len(arg_leaves)))
            leaves.extend(arg_leaves)
        keyword_leaves, _ = _core.tree_flatten(kwargs)
        leaves.extend(keyword_leaves)
        self.trees = [self.trees[i] for i in selected]
        self.leaves = [leaf if is_number(leaf) else as_array(leaf) for leaf in leaves]
        self.treedef = _core.tree_structure((args, kwargs))
        self.positions = [p for p in spans if _is_floating(self.leaves[p])]
        input_index, count = {}, 0
        for place, leaf in enumerate(self.leaves):
            if not is_number(leaf):
                input_index[place] = count
                count += 1
        self.wrt = tuple(input_index[p] for p in self.positions)

    def inputs(self):
        return [leaf for leaf in self.leaves if not is_number(leaf)]

    def gather(self, by_position, argnums):
        """The selected arguments' structure with by_position[place] for floating leaves, None for the others."""
        trees = []
        for treedef, first in self.trees:
            trees.append(treedef.unflatten([by_position.get(first + i) for i in range(treedef.num_leaves)]))
        return tuple(trees) if isinstance(argnums, tuple) else trees[0]


# -------------------------------------------------------------------------------------------------------------
# gradients


def _value_and_grad_impl(fun, args, kwargs, *, argnums, has_aux, name, with_value):
    chosen = Selected(args, kwargs, check_argnums(argnums, name), name)
    staged = stage(fun, chosen.leaves, chosen.treedef, has_aux, name)
    if staged.out_tree.num_leaves != 1 or staged.out_tree != LEAF:
        raise ValueError(
            f"{name} requires a scalar output, got the structure {staged.out_tree}: return one scalar (sum or mean "
            f"of the parts; "
            "has_aux=True for values beside it), or use jacobian or vjp"
        )
    graph = gradient_of(fun, staged, chosen.wrt, name)
    outputs = graph.apply(chosen.inputs() + staged.captures)
    value, rest = outputs[0], outputs[1:]
    aux_count = staged.aux_tree.num_leaves if has_aux else 0
    grads = chosen.gather(dict(zip(chosen.positions, rest[aux_count:])), argnums)
    if has_aux:
        aux = staged.aux_tree.unflatten(rest[:aux_count])
        return ((value, aux), grads) if with_value else (grads, aux)
    return (value, grads) if with_value else grads


LEAF = _core.tree_structure(0)


def _written(fun):
    """How a person writes the function, as in "grad(loss)"."""
    if isinstance(fun, Transform) and isinstance(fun.impl, functools.partial):
        transform = fun.impl.keywords.get("name") or fun.impl.func.__name__.removeprefix("_").removesuffix("_impl")
        return f"{transform}({_written(fun.__wrapped__)})"
    name = getattr(fun, "__name__", None)
    return name if isinstance(name, str) and name.isprintable() else type(fun).__name__


def described(what, fun):
    """What a note in the text of a program says of a derivative: "gradient of loss"."""
    return f"{what} of {_written(fun)}"


def gradient_of(fun, staged, wrt, name):
    """The graph of the results, then the gradients of the first. Errors speak of the transform that the user called."""
    try:
        return staged.derive(("gradient", wrt), lambda: staged.graph.gradient(wrt, described("gradient", fun)))
    except ValueError as error:
        raise type(error)(str(error).replace("grad requires", f"{name} requires", 1)) from None


@functools.lru_cache(maxsize=256, typed=True)
def _gradient_rule(argnums, has_aux, name, with_value):
    """What does not depend on the function: kept, since transforms are made again in loops."""
    nums = check_argnums(argnums, name)
    impl = functools.partial(_value_and_grad_impl, argnums=argnums, has_aux=has_aux, name=name, with_value=with_value)
    return nums, impl, (name, argnums, has_aux)


def _gradient(fun, argnums, has_aux, name, with_value):
    try:
        nums, impl, configuration = _gradient_rule(argnums, has_aux, name, with_value)
    except TypeError:  # unhashable, or wrong: said by
        check_argnums(argnums, name)
        raise
    return Transform(fun, impl, build, cache_for(fun, configuration), number_argnums=nums)


@decorator
def grad(fun, argnums=0, has_aux=False):
    """The gradient of a scalar function.

    Args:
        fun: a function of pytrees whose result is a floating scalar (rank 0), or a pair (scalar, aux) with has_aux.
        argnums: position, or tuple of positions, of the arguments to differentiate by; negative ones count from the
        end.
        has_aux: whether fun returns (out, aux); aux comes back beside the gradients, from the same program.

    Returns:
        A function of the same arguments that returns the gradients: structures like the selected arguments, each leaf
        with its
        argument's shape and dtype, None for bool and integer leaves; a tuple of them if argnums is one; (gradients,
        aux) with has_aux.

    Raises:
        ValueError: the result is not a scalar, or argnums does not fit the call.

    Reverse mode, at the cost of a few evaluations of fun whatever the number of inputs. Where the one selected leaf is
    a scalar, the mode that takes fewer operations: forward, unless reverse takes less than 60 % of them. The
    first lines of jit(grad(fun)).lower(...).as_text() say which.
    """
    return _gradient(fun, argnums, has_aux, "grad", False)


@decorator
def value_and_grad(fun, argnums=0, has_aux=False):
    """Like grad, with the value: (value, gradients), or ((value, aux), gradients) with has_aux."""
    return _gradient(fun, argnums, has_aux, "value_and_grad", True)


def _fitted(flatten, treedef, tree, name):
    """Leaves of a tree that should fit the structure; another one is a TypeError, as for every argument of a wrong
    structure."""
    try:
        return flatten(treedef, tree, name)
    except ValueError as error:
        raise TypeError(str(error)) from None


# ------------------------------------------------------------------------------------------------- forward mode,
# products


def _match_leaves(given, like, treedef, what, name):
    """The leaves of tangents or cotangents, checked against the arrays they belong to; None for bool and integer
    arrays."""
    pairs = _fitted(_core.tree_flatten_up_to, treedef, given, name)

    def where(i):
        path = _core.tree_leaf_path(treedef, i)
        return f" at '{path}'" if path else ""

    matched = []
    for i, (leaf, array) in enumerate(zip(pairs, like)):
        if not _is_floating(array):
            if leaf is not None:
                raise TypeError(f"{name}: the {what}{where(i)} belongs to a {array.dtype} array and must be None")
            matched.append(None)
            continue
        if leaf is None:
            raise TypeError(f"{name}: the {what}{where(i)} is None, but belongs to a {array.dtype} array")
        leaf = as_array(leaf, array.dtype if is_number(leaf) else None, f"{name}: the {what}{where(i)}")
        if leaf.shape != array.shape or leaf.dtype != array.dtype:
            raise ValueError(
                f"{name}: the {what}{where(i)} is {leaf.dtype} of shape {leaf.shape}, but must be like its array: "
                f"{array.dtype} of shape {array.shape}"
            )
        matched.append(leaf)
    return matched


def arrays_of(tree):
    """Leaves of a tree of primals: numbers as float64 arrays."""
    leaves, treedef = _core.tree_flatten(tree)
    return [as_array(leaf, _core.float64 if is_number(leaf) else None, "primal") for leaf in leaves], treedef


def _zeros_for(tangents, like):
    return [_core.zeros(a.shape, a.dtype) if t is None and _is_floating(a) else t for t, a in zip(tangents, like)]


def _jvp_impl(fun, args, kwargs, *, has_aux):
    primals, tangents = args
    leaves, treedef = arrays_of(primals)
    matched = _match_leaves(tangents, leaves, treedef, "tangent", "jvp")
    staged = stage(fun, leaves, _core.tree_structure((primals, {})), has_aux, "jvp")
    captured = staged.captures
    outputs, out_tangents = staged.graph.apply_jvp(leaves + captured, matched + [None] * len(captured))
    count = staged.out_tree.num_leaves
    out = staged.out_tree.unflatten(outputs[:count])
    tangent_out = staged.out_tree.unflatten(_zeros_for(out_tangents[:count], outputs[:count]))
    return (out, tangent_out, staged.aux_tree.unflatten(outputs[count:])) if has_aux else (out, tangent_out)


@_core.public
def jvp(fun, primals, tangents, has_aux=False):
    """Forward mode: the value of fun at the primals, and its derivative along the tangents.

    Args:
        primals: a tuple (or list) with one entry for each argument of fun.
        tangents: the same structure; each leaf has the shape and dtype of its primal (Python numbers adopt them), None
        for bool
            and integer primals.

    Returns:
        (out, tangent_out), or (out, tangent_out, aux) with has_aux.

    Raises:
        TypeError: another structure. ValueError: another shape or dtype; names the leaf by its path.
    """
    check_function(fun, "jvp")
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError("jvp: primals and tangents must be tuples with one entry for each argument")
    if len(primals) != len(tangents):
        raise TypeError(f"jvp: {len(primals)} primals, but {len(tangents)} tangents")
    primals, tangents = tuple(primals), tuple(tangents)
    leaves, treedef = arrays_of(primals)
    matched = _match_leaves(tangents, leaves, treedef, "tangent", "jvp")
    impl = functools.partial(_jvp_impl, has_aux=has_aux)
    run = Transform(fun, impl, build, cache_for(fun, ("jvp", has_aux)))
    return run(treedef.unflatten(leaves), treedef.unflatten(matched))


class _Split:
    """A derivative in two programs: what the primals decide (outputs and residuals), and what is linear in what
    comes later."""

    def __init__(self, graph, late_inputs, early_outputs):
        self.early, self.late = graph.split(late_inputs, early_outputs)
        self.early_outputs = early_outputs
        self._programs = {}

    def run(self, which, leaves):
        """On tracers: inlined into the active trace; on arrays: by the compiled program."""
        graph = getattr(self, which)
        if any(isinstance(leaf, _core.TraceTensor) for leaf in leaves):
            return graph.apply(leaves)
        program = self._programs.get(which)
        if program is None:
            program = self._programs[which] = graph.compile()
        return program.run(leaves)


def _linearized(fun, primals, has_aux, name, mode):
    """Evaluates fun at the primals, and what of its derivative they decide.

    Returns (stage, split, results and residuals, primal leaves, treedef of the primals).
    """
    leaves, treedef = arrays_of(primals)
    staged = stage(fun, leaves, _core.tree_structure((primals, {})), has_aux, name)
    wrt = tuple(i for i, leaf in enumerate(leaves) if _is_floating(leaf))
    inputs, outputs = len(leaves) + len(staged.captures), len(staged.graph.outputs)

    def make():
        graph = getattr(staged.graph, mode)(wrt)
        late = [False] * inputs + [True] * (len(graph.inputs) - inputs)
        return _Split(graph, late, outputs)

    split = staged.derive(("split", mode, wrt), make)
    return staged, split, split.run("early", leaves + staged.captures), leaves, treedef


@_core.public
def vjp(fun, *primals, has_aux=False):
    """Reverse mode: the value of fun at the primals, and the function that pulls cotangents back.

    Returns:
        (out, vjp_fun), or (out, vjp_fun, aux) with has_aux. vjp_fun(ct) takes a cotangent with the structure, shapes
        and dtypes of
        out (None for its bool and integer leaves) and returns a tuple with one entry for each primal: None for bool
        and integer
        leaves, zeros where out does not depend on the primal. fun is evaluated once; vjp_fun may be called many times.
    """
    check_function(fun, "vjp")
    staged, split, results, leaves, treedef = _linearized(fun, primals, has_aux, "vjp", "vjp")
    count, residuals = staged.out_tree.num_leaves, results[split.early_outputs :]
    out_leaves = results[:count]
    aux_leaves = results[count : split.early_outputs]
    positions = [i for i, leaf in enumerate(leaves) if _is_floating(leaf)]

    @_core.public
    def vjp_fun(ct):
        cotangents = [c for c in _match_leaves(ct, out_leaves, staged.out_tree, "cotangent", "vjp") if c is not None]
        cotangents += [_core.zeros(a.shape, a.dtype) for a in aux_leaves if _is_floating(a)]
        pulled = dict(zip(positions, split.run("late", residuals + cotangents)))
        return treedef.unflatten([pulled.get(i) for i in range(len(leaves))])

    out = staged.out_tree.unflatten(out_leaves)
    return (out, vjp_fun, staged.aux_tree.unflatten(aux_leaves)) if has_aux else (out, vjp_fun)


@_core.public
def linearize(fun, *primals):
    """The value of fun at the primals, and its derivative there as a linear function of tangents.

    Returns:
        (out, jvp_fun); jvp_fun(*tangents) gives the tangent of out. fun is evaluated once; what the derivative needs
        of it is
        kept.
    """
    check_function(fun, "linearize")
    staged, split, results, leaves, treedef = _linearized(fun, primals, False, "linearize", "linearize")
    out_leaves, residuals = results[: split.early_outputs], results[split.early_outputs :]

    @_core.public
    def jvp_fun(*tangents):
        matched = [t for t in _match_leaves(tangents, leaves, treedef, "tangent", "linearize") if t is not None]
        pushed = iter(split.run("late", residuals + matched))
        return staged.out_tree.unflatten([next(pushed) if _is_floating(leaf) else None for leaf in out_leaves])

    return staged.out_tree.unflatten(out_leaves), jvp_fun


# ------------------------------------------------------------------------------------------------------ dense
# derivatives


def _columns(staged, inputs, wrt, outputs):
    """Forward mode: for each floating output and each input of wrt, the block [*out.shape, *in.shape]."""
    blocks = {}
    widest = max(math.prod(staged.graph.outputs[i][0]) for i in outputs)
    for j in wrt:
        graph = staged.derive(("jvp", (j,)), lambda j=j: staged.graph.jvp((j,)))
        size, shape, dtype = inputs[j].size, inputs[j].shape, inputs[j].dtype
        results, is_mapped = along_basis(graph, [*inputs, None], len(inputs), shape, dtype, widest)
        tangents = zip(outputs, results[len(staged.graph.outputs) :], is_mapped[len(staged.graph.outputs) :])
        for i, tangent, varies in tangents:
            out_shape = staged.graph.outputs[i][0]
            if not varies:
                tangent = _core.broadcast_to(tangent, (size, *tangent.shape))
            blocks[i, j] = _core.reshape(_core.moveaxis(tangent, 0, -1), (*out_shape, *shape))
    return blocks


def _rows(staged, inputs, wrt, outputs):
    """Reverse mode: the same blocks, a row of each at a time."""
    blocks = {}
    graph = staged.derive(("vjp", tuple(wrt)), lambda: staged.graph.vjp(tuple(wrt)))
    first = len(staged.graph.outputs)
    widest = max(inputs[j].size for j in wrt)
    for place, i in enumerate(outputs):
        cotangents = [_core.zeros(*staged.graph.outputs[k]) for k in outputs]
        shape, dtype = staged.graph.outputs[i]
        all_inputs = [*inputs, *cotangents]
        results, is_mapped = along_basis(graph, all_inputs, len(inputs) + place, shape, dtype, widest)
        for j, cotangent, varies in zip(wrt, results[first:], is_mapped[first:]):
            if not varies:
                cotangent = _core.broadcast_to(cotangent, (math.prod(shape), *cotangent.shape))
            blocks[i, j] = _core.reshape(cotangent, (*shape, *inputs[j].shape))
    return blocks


def _jacobian_impl(fun, args, kwargs, *, argnums, mode, name):
    chosen = Selected(args, kwargs, check_argnums(argnums, name), name)
    staged = stage(fun, chosen.leaves, chosen.treedef, False, name)
    inputs = chosen.inputs() + staged.captures
    kinds = [dtype.kind for _, dtype in staged.graph.outputs]
    outputs = [i for i, kind in enumerate(kinds) if kind == "f"]
    if not outputs:
        raise ValueError(f"{name}: the function has no floating result to differentiate")
    rows = sum(math.prod(staged.graph.outputs[i][0]) for i in outputs)
    columns = sum(inputs[j].size for j in chosen.wrt)
    if mode is None:
        mode = _rows if staged.graph.reverse_only or rows < columns else _columns
    taken = "reverse mode, by rows" if mode is _rows else "forward mode, by columns"
    what = described("hessian", fun.__wrapped__) if name == "hessian" else described("jacobian", fun)
    _core.note(f"{what}: {taken} (it is {rows} x {columns})")
    blocks = mode(staged, inputs, chosen.wrt, outputs)
    by_output = []
    for i in range(len(kinds)):
        row = {p: blocks[i, j] for p, j in zip(chosen.positions, chosen.wrt)} if i in outputs else {}
        by_output.append(chosen.gather(row, argnums))
    return staged.out_tree.unflatten(by_output)


def _jacobian(fun, argnums, mode, name):
    nums = check_argnums(argnums, name)
    impl = functools.partial(_jacobian_impl, argnums=argnums, mode=mode, name=name)
    return Transform(fun, impl, build, cache_for(fun, (name, argnums)), number_argnums=nums)


@decorator
def jacobian(fun, argnums=0):
    """The Jacobian: for each floating leaf of the result and of the selected arguments, the block [*out.shape,
    *in.shape].

    Reverse mode when the results have fewer elements than the selected arguments, forward mode otherwise. The result
    has the
    structure of fun's result, with the selected arguments' structure at each leaf.
    """
    return _jacobian(fun, argnums, None, "jacobian")


@decorator
def jacfwd(fun, argnums=0):
    """jacobian in forward mode: a derivative along each element of the selected arguments."""
    return _jacobian(fun, argnums, _columns, "jacfwd")


@decorator
def jacrev(fun, argnums=0):
    """jacobian in reverse mode: a pullback for each element of the result."""
    return _jacobian(fun, argnums, _rows, "jacrev")


def _hessian_impl(fun, args, kwargs, *, argnums):
    gradient = _gradient(fun, argnums, False, "hessian", False)
    return _jacobian(gradient, argnums, _columns, "hessian")(*args, **kwargs)


@decorator
def hessian(fun, argnums=0):
    """The second derivatives of a scalar function: blocks [*in.shape, *in.shape]. Forward mode over the gradient."""
    nums = check_argnums(argnums, "hessian")
    impl = functools.partial(_hessian_impl, argnums=argnums)
    return Transform(fun, impl, build, cache_for(fun, ("hessian", argnums)), number_argnums=nums)


# -------------------------------------------------------------------------------------------------------------------
# vmap


def _axis_of(axis, shape, what, is_result=False):
    """The axis, counted from the front; of a result, whose first axis is that of the examples, or of an argument."""
    rank = len(shape)
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"vmap: {what()}: an axis must be an int or None, got {axis!r}")
    if not -rank <= axis < rank:
        counted = f": with the axis of examples, a result of shape {shape[1:]} has {rank} axes"
        where = counted if is_result else f" for an array of shape {shape}"
        raise ValueError(f"vmap: {what()}: axis {axis} is out of range{where}")
    return axis % rank


def _in_axes_by_leaf(args, kwargs, in_axes):
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ValueError(
            f"vmap: in_axes has {len(in_axes)} entries, but the function was called with {len(args)} positional "
            f"arguments"
        )
    treedef = _core.tree_structure((args, kwargs))
    axes = _fitted(_core.tree_flatten_prefix, treedef, (in_axes, 0), "vmap")
    return treedef, axes


def _map_inputs(leaves, axes, treedef):
    """The leaves with their mapped axis first, the stand-ins for one example, and the size of the mapped axis."""
    size, sized = None, None
    arrays, examples = [], []

    def path(i):  # in messages only: to find one takes a walk over the tree
        return _core.tree_argument_path(treedef, i)

    for i, (leaf, axis) in enumerate(zip(leaves, axes)):
        if is_number(leaf):
            if axis is not None:
                raise ValueError(
                    f"vmap: {path(i)} is a Python number and cannot be mapped: its in_axes entry must be None"
                )
            arrays.append(leaf)
            examples.append(leaf)
            continue
        leaf = as_array(leaf)
        if axis is None:
            arrays.append(leaf)
            examples.append(leaf)
            continue
        if not leaf.shape:
            raise ValueError(f"vmap: {path(i)} is a scalar and has no axis to map: its in_axes entry must be None")
        axis = _axis_of(axis, leaf.shape, lambda i=i: f"in_axes of {path(i)}")
        if size is None:
            size, sized = leaf.shape[axis], (i, leaf.shape, axis)
        elif leaf.shape[axis] != size:
            raise ValueError(
                f"vmap: mapped axes differ in size: {path(sized[0])} has {size} (axis {sized[2]} of shape {sized[1]}), "
                f"{path(i)} has {leaf.shape[axis]} (axis {axis} of shape {leaf.shape})"
            )
        arrays.append(_core.moveaxis(leaf, axis, 0) if axis else leaf)
        examples.append(Example(leaf.shape[:axis] + leaf.shape[axis + 1 :], leaf.dtype, leaf.weak))
    if size is None:
        raise ValueError("vmap: nothing is mapped: at least one entry of in_axes must be an int and belong to an array")
    return arrays, examples, size


def _vmap_impl(fun, args, kwargs, *, in_axes, out_axes, chunk_size):
    treedef, axes = _in_axes_by_leaf(args, kwargs, in_axes)
    leaves = _core.tree_leaves((args, kwargs))
    arrays, examples, size = _map_inputs(leaves, axes, treedef)
    staged = stage(fun, examples, treedef, False, "vmap")
    inputs = [leaf for leaf in arrays if not is_number(leaf)]
    mapped = [isinstance(example, Example) for example in examples if not is_number(example)]
    captured = staged.captures
    all_mapped = mapped + [False] * len(captured)
    outputs, is_mapped = apply_vmap(staged.graph, inputs + captured, all_mapped, size, chunk_size)
    out_by_leaf = _fitted(_core.tree_flatten_prefix, staged.out_tree, out_axes, "vmap")
    results = []
    for i, (output, varies, axis) in enumerate(zip(outputs, is_mapped, out_by_leaf)):

        def what(i=i):
            path = _core.tree_leaf_path(staged.out_tree, i)
            return f"out_axes of '{path}'" if path else "out_axes"

        if axis is None:
            if varies:
                raise ValueError(f"vmap: {what()} is None, but that result differs between examples")
            results.append(output)
            continue
        if not varies:
            output = _core.broadcast_to(output, (size, *output.shape))
        results.append(_core.moveaxis(output, 0, _axis_of(axis, output.shape, what, is_result=True)))
    return staged.out_tree.unflatten(results)


def check_chunk_size(chunk_size):
    try:
        chunk = operator.index(chunk_size)
    except TypeError:
        chunk = 0
    if chunk < 1 or isinstance(chunk_size, bool):
        raise ValueError(f"vmap: chunk_size must be a positive int or None, got {chunk_size!r}")
    return chunk


def _hashable(axes):
    try:
        hash(axes)
    except TypeError:
        leaves, treedef = _core.tree_flatten(axes)
        return (tuple(leaves), treedef)
    return axes


@decorator
def vmap(fun, in_axes=0, out_axes=0, chunk_size=None):
    """fun over a batch: one call, each operation over all examples.

    Args:
        in_axes: the axis of each argument to map over, None for arguments that all examples share; an int for all
        arguments,
            or a tuple with one entry (an int, None, or a tree of them that is a prefix of the argument) for each.
            Keyword arguments
            are mapped over axis 0. Python numbers cannot be mapped.
        out_axes: where the axis of examples goes in each result (an int, or a prefix tree of the result); None returns
        a result
            that is the same for all examples as it is.
        chunk_size: the most examples to compute at once (None: all). Chunks run one after the other in a loop, the
            last one smaller, so that the workspace is that of one chunk.

    Raises:
        ValueError: mapped axes of different sizes, nothing mapped, an axis out of range.
    """
    if chunk_size is not None:
        chunk_size = check_chunk_size(chunk_size)
    impl = functools.partial(_vmap_impl, in_axes=in_axes, out_axes=out_axes, chunk_size=chunk_size)
    configuration = ("vmap", _hashable(in_axes), _hashable(out_axes), chunk_size)
    return Transform(fun, impl, build, cache_for(fun, configuration))


# --------------------------------------------------------------------------------------------------------------------
# jit


def _jit_impl(fun, args, kwargs, *, static_argnums, static_argnames):
    args, kwargs, statics = split_statics(args, kwargs, static_argnums, static_argnames)
    leaves, treedef = _core.tree_flatten((args, kwargs))
    leaves = [leaf if is_number(leaf) else as_array(leaf) for leaf in leaves]
    staged = stage(fun, leaves, treedef, False, "jit", statics)
    inputs = [leaf for leaf in leaves if not is_number(leaf)]
    return staged.out_tree.unflatten(staged.graph.apply(inputs + staged.captures))


def _static_positions(fun, static_argnums, static_argnames):
    """Both spellings of a static argument: a position has a name, and a name a position, where the signature shows
    it."""
    nums = tuple(static_argnums) if isinstance(static_argnums, (tuple, list)) else (static_argnums,)
    names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
    if any(isinstance(num, bool) or not isinstance(num, int) for num in nums):
        raise TypeError(f"jit: static_argnums must be an int or a tuple of ints, got {static_argnums!r}")
    if not isinstance(names, (tuple, list, set, frozenset)) or any(not isinstance(name, str) for name in names):
        raise TypeError(f"jit: static_argnames must be a name or a tuple of names, got {static_argnames!r}")
    if not nums and not names:
        return (), frozenset()
    import inspect

    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return nums, frozenset(names)
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    spread = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for num in nums:
        if not spread and not -len(positional) <= num < len(positional):
            raise ValueError(
                f"jit: static_argnums contains {num}, but {fun!r} has {len(positional)} positional parameters"
            )
    for name in names:
        if name not in [p.name for p in parameters] and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise ValueError(f"jit: static_argnames contains {name!r}, which is not a parameter of {fun!r}")
    all_names = frozenset(names) | {positional[num] for num in nums if -len(positional) <= num < len(positional)}
    all_nums = tuple(sorted(set(nums) | {positional.index(name) for name in names if name in positional}))
    return all_nums, all_names


@decorator
def jit(
    fun, device=None, static_argnums=(), static_argnames=(), max_traces=MAX_TRACES, precision=None, debug_nans=False
):
    """fun, traced once per signature and compiled.

    Args:
        device: where it runs: None or "cpu". Never chosen automatically.
        static_argnums, static_argnames: arguments passed to fun as they are; hashable, part of the signature.
        precision: None or "float64"; on the CPU float64 programs run in float64 always.
        debug_nans: a result that is not finite is a FloatingPointError that says where it comes from, as under
            debug_nans().
        max_traces: programs kept; one more evicts the least recently used, with a RetraceWarning.

    The signature is the structure of the arguments, shape and dtype of each array, and the value of each Python
    number. The
    result has a method lower(*args, **kwargs): see Lowered.
    """
    device = _core.check_device("cpu" if device is None else device)
    if precision not in (None, "float64"):
        raise ValueError(f'jit: precision must be None or "float64", got {precision!r}')
    nums, names = _static_positions(fun, static_argnums, static_argnames)
    impl = functools.partial(_jit_impl, static_argnums=nums, static_argnames=names)
    cache = cache_for(fun, ("jit", nums, names, device), max_traces)
    transform = Transform(fun, impl, build, cache, static_argnums=nums, static_argnames=names, debug_nans=debug_nans)
    transform.device = device
    transform.lower = functools.partial(lower, fun, nums, names, device)
    return transform
