"""Lowering: a function's compiled program to look at, without executing anything."""

from typing import NamedTuple

from . import _core
from .staging import ShapeDtype, as_array, is_number, split_statics, trace_call, with_statics


class Cost(NamedTuple):
    """What one run of a program costs, estimated from its plan.

    flops       floating-point operations: 1 for an addition or a test, 4 for a division or a root, 8 for an elementary
                function, 2 m n k for a product of matrices
    bytes       read from and written to arrays; what is fused into one kernel moves none
    peak_bytes  of work memory and results
    """

    flops: int
    bytes: int
    peak_bytes: int


class Lowered:
    """What jit(f).lower(*args) returns.

    program   the traced graph
    out_tree  structure of the result
    """

    def __init__(self, graph, out_tree, in_tree, leaves, paths, device):
        self.program = graph
        self.out_tree = out_tree
        self._in_tree = in_tree
        self._leaves = leaves
        self._paths = paths
        self._device = device

    def as_text(self, source=False):
        """The program after dead-code elimination, folding and merging of equal nodes: one line a node.

        Before it, a line "# ..." for each derivative, with the mode in which it was made: in operations of what was
        differentiated, so of one example under vmap.

        Inputs are named by path. With source, each line ends in the line of the user's program that the operation, or
        the one that it is the derivative of, was written on.
        """
        return self.program.text(True, source, True)

    def cost(self):
        """Cost(flops, bytes, peak_bytes) of the compiled program; nothing is executed."""
        return Cost(*self.program.compile(self._device).cost())

    def compile(self):
        """A callable of arguments of exactly the lowered structure, shapes and dtypes."""
        program = self.program.compile(self._device)

        def run(*args, **kwargs):
            leaves, treedef = _core.tree_flatten((args, kwargs))
            if treedef != self._in_tree:
                raise TypeError(f"compiled for arguments of the structure {self._in_tree}, got {treedef}")
            inputs = []
            for leaf, expected, path in zip(leaves, self._leaves, self._paths):
                if is_number(expected):
                    if type(leaf) is not type(expected) or leaf != expected:
                        raise ValueError(f"compiled for the static value {expected!r} at '{path}', got {leaf!r}")
                    continue
                leaf = as_array(leaf, expected.dtype if is_number(leaf) else None)
                if (leaf.shape, leaf.dtype) != (expected.shape, expected.dtype):
                    raise ValueError(
                        f"compiled for {expected.dtype} of shape {expected.shape} at '{path}', got {leaf.dtype} of "
                        f"shape {leaf.shape}"
                    )
                inputs.append(leaf)
            return self.out_tree.unflatten(program.run(inputs))

        return run


def _argument_names(fun, args):
    """The names that messages and texts give to positional arguments."""
    import inspect  # here, since it takes longer to import than the rest of the package

    try:
        bound = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        bound = ()
    names = [p.name for p in bound if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [names[i] if i < len(names) else f"arg{i}" for i in range(len(args))]


def lower(fun, static_argnums, static_argnames, device, /, *args, **kwargs):
    """Traces fun on arrays or ShapeDtype leaves; executes nothing."""
    nums = [num + len(args) if num < 0 else num for num in static_argnums]
    names = [name for i, name in enumerate(_argument_names(fun, args)) if i not in nums]
    dynamic, named, statics = split_statics(args, kwargs, static_argnums, static_argnames)
    paths, treedef = _core.tree_flatten_with_path((dynamic, named))
    leaves, labels, inputs = [], [], []
    for (where, key, *rest), leaf in paths:
        label = "/".join([names[key] if where == 0 else str(key), *map(str, rest)])
        leaves.append(leaf if is_number(leaf) or isinstance(leaf, ShapeDtype) else as_array(leaf))
        labels.append(label)
        if not is_number(leaf):
            inputs.append(label)

    def call(tracers):
        tracer = iter(tracers)
        filled = treedef.unflatten([leaf if is_number(leaf) else next(tracer) for leaf in leaves])
        positional, keywords = with_statics(filled[0], filled[1], statics)
        return fun(*positional, **keywords)

    traced = trace_call(call, [leaf for leaf in leaves if not is_number(leaf)], inputs, name="lower")
    return Lowered(traced.graph, traced.out_tree, treedef, leaves, labels, device)
