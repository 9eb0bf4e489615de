"""From a Python function and arguments to a graph: tracing once per signature, and the table of caches.

Every transform is a rule `impl(fun, args, kwargs)` that runs under a trace: it stages `fun` on the shapes of its
arguments
(`stage`), rewrites the graph, and applies the result to the arguments. A call on concrete arrays opens a trace for it
and
compiles what the rule leaves (`build`); a call on tracers is part of the trace that is there. So transforms compose
without
knowing one another.
"""

import weakref

from . import _core

Tensor = _core.Tensor
TraceTensor = _core.TraceTensor
Transform = _core.Transform

ARRAY_TYPES = (Tensor, TraceTensor)
NUMBER_TYPES = (bool, int, float)

MAX_TRACES = 8  # programs kept of one function under one configuration of a transform, unless jit is told otherwise
STAGES_KEPT = 8  # traced graphs kept of one function, which transforms of it share


# ---------------------------------------------------------------------------------------------------- caches by
# function


class _Table:
    """Values by the identity of a key, dropped when the key dies. The values must not refer to their key."""

    def __init__(self):
        self._held = {}

    def get(self, key):
        """The dictionary kept for `key`; a new one that nobody keeps where `key` cannot be referred to weakly."""
        found = self._held.get(id(key))
        if found is not None and found[0]() is key:
            return found[1]
        held, identity = self._held, id(key)
        try:
            reference = weakref.ref(key, lambda _: held.pop(identity, None))
        except TypeError:
            return {}
        value = {}
        held[identity] = (reference, value)
        return value


_table = _Table()
_held = _table._held


def _identity(fun):
    """What stands for `fun` in the table, and a key below it: a transform made again has the cache of the one
    before."""
    if isinstance(fun, Transform):
        return fun.cache, None
    owner = getattr(fun, "__self__", None)
    if owner is not None and hasattr(fun, "__func__"):  # a bound method is made anew at every access
        return owner, fun.__func__
    return fun, None


def cache_for(fun, configuration, max_traces=MAX_TRACES):
    """The Cache of `fun` under a hashable configuration of a transform.

    A tuple of functions has one, too, as long as all of them live.
    """
    held = _held.get(id(fun))
    if held is not None and held[0]() is fun:  # a plain function that was met before: the way of a transform in a loop
        found = held[1].get((None, configuration, max_traces))
        if found is not None:
            return found
    table, (*outer, fun) = _table, fun if isinstance(fun, tuple) else (fun,)
    for other in outer:
        key, below = _identity(other)
        table = table.get(key).setdefault((below, _Table), _Table())
    key, below = _identity(fun)
    caches = table.get(key)
    entry = (below, configuration, max_traces)
    found = caches.get(entry)
    if found is None:
        found = caches[entry] = _core.Cache(max_traces)
    return found


# ---------------------------------------------------------------------------------------------------------------
# staging


class ShapeDtype:
    """The shape and dtype of an array, without elements: an argument of `lower`, or a leaf of one."""

    __slots__ = ("dtype", "shape")
    weak = False

    def __init__(self, shape, dtype=None):
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = _core.float64 if dtype is None else _core.zeros((), dtype).dtype

    def __repr__(self):
        return f"ShapeDtype({self.shape}, {self.dtype})"

    def __eq__(self, other):
        return isinstance(other, ShapeDtype) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self):
        return hash((self.shape, self.dtype))


class Example(ShapeDtype):
    """What vmap traces with: one example of an array. It is weak (made of Python numbers only) where the array is."""

    __slots__ = ("weak",)

    def __init__(self, shape, dtype, weak):
        super().__init__(shape, dtype)
        self.weak = weak


class Stage:
    """A traced function: its graph over the array leaves of its arguments, then over what it captured.

    graph     inputs: array leaves in order, then captures; outputs: leaves of the result, then of aux
    captures  tracers of enclosing traces, in the order of the inputs that stand for them
    out_tree  structure of the result; aux_tree: of aux, with has_aux
    weak      for each output, whether it is made of Python numbers only
    derived   graphs made from this one, by what was asked for
    """

    __slots__ = ("aux_tree", "captures", "derived", "graph", "out_tree", "weak")

    def __init__(self, graph, captures, out_tree, aux_tree, weak):
        self.graph = graph
        self.captures = captures
        self.out_tree = out_tree
        self.aux_tree = aux_tree
        self.weak = weak
        self.derived = {}

    def derive(self, what, make):
        """make(), remembered under `what`."""
        found = self.derived.get(what)
        if found is None:
            found = self.derived[what] = make()
        return found


def as_array(leaf, dtype=None, what=None):
    """The leaf as an array if it is a number or foreign; tracers and tensors stay. Messages call it `what`."""
    if isinstance(leaf, ARRAY_TYPES):
        return leaf
    try:
        return _core.asarray(leaf, dtype)
    except (TypeError, ValueError) as error:
        if what is None:
            raise
        raise type(error)(str(error).replace("asarray", what, 1)) from None


def check_function(fun, name, what=None):
    if not callable(fun):
        expected = f"{what} must be a function" if what else "expected a function"
        raise TypeError(f"{name}: {expected}, got {type(fun).__name__}")


def is_number(leaf):
    return isinstance(leaf, NUMBER_TYPES)


def is_weak(leaf):
    """Whether a leaf, an array or a number, takes the dtype of what it meets. Truth values do not."""
    return not isinstance(leaf, bool) if is_number(leaf) else leaf.weak and leaf.dtype.kind != "b"


def weak_array(number):
    """A Python number as an array that is weak as the number is."""
    return as_array(number) if isinstance(number, bool) else _core.reshape(number, ())


def weakened(arrays, weak):
    """Tracers of the active trace, made weak where the flag is set."""
    if not any(weak):
        return list(arrays)
    examples = [Example(array.shape, array.dtype, flag) for array, flag in zip(arrays, weak)]
    graph, _ = _core.record(lambda tracers: tracers, examples)  # inlining it adds no node
    return graph.apply(arrays)


def _leaf_key(leaf):
    if isinstance(leaf, float):
        return (float, float(leaf).hex())
    if isinstance(leaf, int):
        return (type(leaf), leaf)
    return (leaf.shape, leaf.dtype, leaf.weak)


def _describe(result):
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__


def split_result(result, has_aux, name):
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            f"{name} with has_aux=True: the function must return a pair (out, aux), got {_describe(result)}"
        )
    return result


def flatten_result(result, name):
    """Leaves and structure of what a traced function returned; anything but arrays and numbers is refused by its
    path."""
    leaves, treedef = _core.tree_flatten(result)
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, ARRAY_TYPES) and not is_number(leaf):
            try:
                leaves[i] = _core.asarray(leaf)
            except (TypeError, ValueError) as error:
                path = _core.tree_leaf_path(treedef, i)
                where = f" at '{path}'" if path else ""
                raise TypeError(
                    f"{name}: the function returned {type(leaf).__name__}{where}, which is neither an array nor a "
                    "number; return it with neither, or register its class with qb.tree"
                ) from error
    return leaves, treedef


def trace_call(call, arrays, names=None, has_aux=False, name="trace"):
    """Traces call(tracers) -> result (or (result, aux)) on arrays of the given shapes and dtypes."""
    trees, weak = [], []

    def run(tracers):
        result, aux = split_result(call(tracers), has_aux, name)
        leaves, out_tree = flatten_result(result, name)
        trees.append(out_tree)
        if has_aux:
            aux_leaves, aux_tree = flatten_result(aux, name)
            trees.append(aux_tree)
            leaves = leaves + aux_leaves
        weak.extend(is_weak(leaf) for leaf in leaves)
        return leaves

    graph, captures = _core.record(run, arrays, names)
    return Stage(graph, captures, trees[0], trees[1] if has_aux else None, weak)


def remembered(fun, configuration, key, make):
    """make(), a Stage, kept under a hashable key of the function.

    Unless it captured tracers: those belong to the call at hand.
    """
    stages = cache_for(fun, configuration).stages
    found = stages.pop(key, None)
    if found is None:
        found = make()
        if found.captures:
            return found
        while len(stages) >= STAGES_KEPT:
            stages.pop(next(iter(stages)))
    stages[key] = found  # the most recently used is last
    return found


def signature_key(treedef, leaves):
    """A hashable key of arguments: equal where a trace on the ones serves the others."""
    return (treedef, tuple(map(_leaf_key, leaves)))


def stage(fun, leaves, treedef, has_aux=False, name="jit", statics=None):
    """Traces fun(*args, **kwargs), where (args, kwargs) has the structure `treedef` and the given leaves.

    Arrays (anything with shape and dtype) become tracers; numbers are static. Remembered per signature, except with
    statics.
    """
    is_array = [not is_number(leaf) for leaf in leaves]

    def call(tracers):
        tracer = iter(tracers)
        args, kwargs = treedef.unflatten([next(tracer) if a else leaf for a, leaf in zip(is_array, leaves)])
        args, kwargs = with_statics(args, kwargs, statics)
        return fun(*args, **kwargs)

    def make():
        arrays = [leaf for leaf in leaves if not is_number(leaf)]
        return trace_call(call, arrays, has_aux=has_aux, name=name)

    if statics is not None:
        return make()
    return remembered(fun, ("stage", has_aux), signature_key(treedef, leaves), make)


def split_statics(args, kwargs, static_argnums, static_argnames):
    """Arguments, keyword arguments, and what with_statics puts back among them (None where there is nothing)."""
    nums = [num + len(args) if num < 0 else num for num in static_argnums]
    statics = [(i, arg) for i, arg in enumerate(args) if i in nums]
    statics += [(name, value) for name, value in kwargs.items() if name in static_argnames]
    args = tuple(arg for i, arg in enumerate(args) if i not in nums)
    kwargs = {name: value for name, value in kwargs.items() if name not in static_argnames}
    return args, kwargs, tuple(statics) or None


def with_statics(args, kwargs, statics):
    """Puts static arguments, pairs of (position or name, value), back among the others."""
    if not statics:
        return args, kwargs
    args, kwargs = list(args), dict(kwargs)
    for where, value in statics:  # positions ascend
        if isinstance(where, int):
            args.insert(where, value)
        else:
            kwargs[where] = value
    return args, kwargs


# ------------------------------------------------------------------------------------------------- building a program


def build(transform, treedef, leaves, is_input, statics):
    """Traces a transform on the signature of a call, and compiles it: (Program, structure of the result).

    Where the function captured tracers of an enclosing trace, the call is part of that trace: (None, result).
    """

    def call(tracers):
        tracer = iter(tracers)
        args, kwargs = treedef.unflatten([next(tracer) if flag else leaf for flag, leaf in zip(is_input, leaves)])
        args, kwargs = with_statics(args, kwargs, statics)
        return transform.impl(transform.__wrapped__, tuple(args), kwargs)

    inputs = [leaf for flag, leaf in zip(is_input, leaves) if flag]
    traced = trace_call(call, inputs, name="jit")
    if traced.captures:
        outputs = traced.graph.apply(inputs + traced.captures)
        return None, traced.out_tree.unflatten(outputs)
    return traced.graph.compile(vars(transform).get("device") or "cpu"), traced.out_tree
