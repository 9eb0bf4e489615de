"""Rules of the user's own for derivatives: custom_vjp, custom_jvp, checkpoint.

The function and its rules are traced together, and one node of the graph holds them: the library runs the function
where nothing is differentiated, and takes the rule where something is. A rule is a graph like any other, so it is
differentiated, batched and compiled as such. A rule that calls its own function is traced with the rule inside, to
a depth of ORDER: so many derivatives it has.

An argument that is a Python float becomes a weak array, so that it has a cotangent like an array's; ints and bools are
static, as they are for jit.
"""

import functools
import threading
import types

from . import _core
from .staging import (
    Example,
    Transform,
    as_array,
    build,
    cache_for,
    check_function,
    is_number,
    is_weak,
    remembered,
    signature_key,
    split_statics,
    stage,
    trace_call,
    weak_array,
    weakened,
)
from .transforms import decorator

__all__ = ["checkpoint", "custom_jvp", "custom_vjp", "remat"]

ORDER = 5


class _Active(threading.local):
    """The custom functions whose rules this thread is tracing, outermost first."""

    def __init__(self):
        self.functions = []


_active = _Active()


def _is_floating(leaf):
    return leaf.dtype.kind == "f"


def _at(treedef, i):
    """Where leaf i is, for messages."""
    path = _core.tree_leaf_path(treedef, i)
    return f" at '{path}'" if path else ""


_LEAF = _core.tree_structure(0)


def _result_types(traced):
    return [Example(shape, dtype, weak) for (shape, dtype), weak in zip(traced.graph.outputs, traced.weak)]


def _example(array):
    return Example(array.shape, array.dtype, array.weak)


def _aligned(treedef, tree):
    """Leaves of a tree of this structure, None standing for any leaf; None where the structure is another."""
    try:
        leaves = _core.tree_flatten_up_to(treedef, tree, "custom")
    except (TypeError, ValueError):
        return None
    return leaves if all(leaf is None or _core.tree_structure(leaf) == _LEAF for leaf in leaves) else None


def _with_arrays(leaves, arrays):
    """The leaves with those that are no numbers replaced by the given ones, in order."""
    array = iter(arrays)
    return [leaf if is_number(leaf) else next(array) for leaf in leaves]


class _Traced:
    """A custom function and its rules as graphs with their captures, in the order in which the library takes them."""

    def __init__(self, graphs, primal):
        self.graphs = graphs
        self.captures = [capture for _, captures in graphs for capture in captures]
        self.out_tree = primal.out_tree
        self.weak = primal.weak


class _Arguments:
    """The arguments of a call that are not nondiff_argnums, flattened.

    leaves    arrays, and numbers (static) where is_number
    trees     structure of each argument
    spans     the places of each argument's leaves
    """

    def __init__(self, args):
        self.leaves, self.trees, self.spans = [], [], []
        for arg in args:
            leaves, tree = _core.tree_flatten(arg)
            self.trees.append(tree)
            self.spans.append(slice(len(self.leaves), len(self.leaves) + len(leaves)))
            self.leaves += [leaf if is_number(leaf) else as_array(leaf) for leaf in leaves]
        self.treedef = _core.tree_structure(tuple(args))
        self.arrays = [leaf for leaf in self.leaves if not is_number(leaf)]
        self.examples = [_example(array) for array in self.arrays]

    def fill(self, arrays):
        """The arguments with other arrays, as a tuple."""
        return self.treedef.unflatten(_with_arrays(self.leaves, arrays))

    def tangents(self, given):
        """The arguments' structure with a tangent for each floating array, None for the other leaves."""
        tangent = iter(given)
        filled = [None if is_number(leaf) or not _is_floating(leaf) else next(tangent) for leaf in self.leaves]
        return self.treedef.unflatten(filled)


class _Custom:
    """A function with a rule: what custom_vjp and custom_jvp have in common. Subclasses trace and apply."""

    _name = ""
    _define = ""  # the method that gives it its rule

    def __new__(cls, *args, **kwargs):
        if not args and "fun" not in kwargs:  # called with keywords only, it returns a decorator
            return functools.partial(cls, **kwargs)
        return super().__new__(cls)

    def __init__(self, fun, nondiff_argnums=()):
        check_function(fun, self._name)
        nums = tuple(nondiff_argnums) if isinstance(nondiff_argnums, (tuple, list)) else (nondiff_argnums,)
        for num in nums:
            if isinstance(num, bool) or not isinstance(num, int) or num < 0:
                raise TypeError(
                    f"{self._name}: nondiff_argnums must be a tuple of positions, ints of at least 0, got "
                    f"{nondiff_argnums!r}"
                )
        self.fun = fun
        self.nondiff_argnums = tuple(sorted(set(nums)))
        self._rules = None
        self._signature = None
        functools.update_wrapper(self, fun)

    def __repr__(self):
        return f"<{self._name} {self.fun!r}>"

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def _set_rules(self, *rules):
        for rule in rules:
            if not callable(rule):
                raise TypeError(f"{self._name}: {self._define} takes functions, got {type(rule).__name__}")
        if self._rules is not None:
            raise ValueError(
                f"{self._name}: {self._label()} has its rule already, and programs made of it may be cached; wrap the "
                f"function again for another one"
            )
        self._rules = rules

    def _label(self):
        return getattr(self.fun, "__name__", repr(self.fun))

    def _positional(self, args, kwargs):
        """All arguments by position, with the defaults of the function's signature."""
        if self._signature is None:
            import inspect  # takes longer to import than the rest of the package

            try:
                self._signature = inspect.signature(self.fun)
            except (TypeError, ValueError):
                self._signature = False
        if not self._signature:
            if kwargs:
                raise TypeError(f"{self._name}: pass all arguments of {self._label()} by position: it has no signature")
            return args
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(
                f"{self._name}: {self._label()} has arguments that can be passed by keyword only "
                f"({', '.join(bound.kwargs)}): a rule gets its arguments by position"
            )
        return bound.args

    def __call__(self, *args, **kwargs):
        if self._rules is None:
            raise ValueError(f"{self._name}: {self._label()} has no rule yet: give it one with {self._define}")
        args = list(self._positional(args, kwargs))
        nums = [num for num in self.nondiff_argnums if num < len(args)]
        if len(nums) < len(self.nondiff_argnums):
            raise ValueError(
                f"{self._name}: nondiff_argnums contains {self.nondiff_argnums[-1]}, but {self._label()} was called "
                f"with {len(args)} arguments"
            )
        for i, arg in enumerate(args):
            if i not in nums:
                args[i] = _core.tree_map(lambda leaf: weak_array(leaf) if isinstance(leaf, float) else leaf, arg)
        cache = cache_for(self, ("custom", tuple(nums)))
        return Transform(self, _custom_impl, build, cache, static_argnums=tuple(nums))(*args)

    # ---- Tracing

    def _inject(self, nondiff, dynamic):
        """All arguments in their order."""
        rest = iter(dynamic)
        return [nondiff[i] if i in nondiff else next(rest) for i in range(len(nondiff) + len(dynamic))]

    def _traced(self, args, nondiff):
        active = _active.functions

        def call(tracers):
            return self.fun(*self._inject(nondiff, args.fill(tracers)))

        def make():
            primal = trace_call(call, args.examples, name=self._name)
            if active.count(self) == ORDER:
                return _Traced([(primal.graph, primal.captures)], primal)
            active.append(self)
            try:
                return self._trace(args, nondiff, primal)
            finally:
                active.pop()

        if nondiff:
            return make()
        within = tuple(sorted(map(id, active)))  # it decides how deep rules go
        return remembered(self, ("custom", within), signature_key(args.treedef, args.leaves), make)

    def _emit(self, traced, operands):
        parts = [part for pair in traced.graphs for part in pair]
        if len(traced.graphs) == 1:
            return _core.custom_end(*parts, operands, ORDER)
        return self._operation(*parts, operands)

    def _fit_results(self, what, leaves, tree, primal):
        """What a rule returns for the results, fitted to those of the function."""
        if tree != primal.out_tree:
            raise TypeError(
                f"{self._name}: {what} must have the structure of the result of {self._label()}, {primal.out_tree}, "
                f"but has {tree}"
            )
        return [
            self._fitted(leaf, like, f"{what}{_at(tree, i)}", "the result")
            for i, (leaf, like) in enumerate(zip(leaves, _result_types(primal)))
        ]

    def _fitted(self, leaf, like, what, owner):
        """A leaf that must have the shape and dtype of `like`; what is weak, on either side, adapts."""
        weak = is_weak(leaf)
        leaf = weak_array(leaf) if is_number(leaf) else as_array(leaf)
        if leaf.dtype != like.dtype and (weak or like.weak) and leaf.dtype.kind != "b":
            leaf = _core.astype(leaf, like.dtype)
        if (leaf.shape, leaf.dtype) != (like.shape, like.dtype):
            raise ValueError(
                f"{self._name}: {what} is {leaf.dtype} of shape {leaf.shape}, but must be like {owner}: {like.dtype} "
                f"of shape {like.shape}"
            )
        return leaf

    def _pair(self, result, what):
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            got = f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__
            raise TypeError(f"{self._name}: the rule must return a pair {what}, got {got}")
        return result


def _custom_impl(custom, args, kwargs):
    nondiff = {i: args[i] for i in custom.nondiff_argnums}
    flat = _Arguments([arg for i, arg in enumerate(args) if i not in nondiff])
    traced = custom._traced(flat, nondiff)
    results = custom._emit(traced, flat.arrays)
    return traced.out_tree.unflatten(weakened(results, traced.weak))


class custom_jvp(_Custom):
    """A function with a derivative rule of its own.

    f = qb.custom_jvp(fun); f.defjvp(rule). Also a decorator, with keywords too.

    Args:
        fun: a function of pytrees.
        nondiff_argnums: positions of arguments that are passed to fun and rule as they are (functions, options); the
            rule gets them first. They must be hashable.

    rule(*nondiff, primals, tangents) returns (out, tangent_out): primals and tangents are tuples with an entry for each
    other argument, tangents with None for bool and integer arrays and for Python ints; out is what fun returns, and
    tangent_out has its structure, shapes and dtypes (None: zero). The rule must be linear in the tangents: reverse mode
    transposes it. It is differentiated like any function, so second derivatives are those of the rule. fun and rule may
    close over arrays and tracers; a tracer that only they hold cannot be differentiated by: pass it as an argument.

    Raises:
        TypeError: a structure that does not fit. ValueError: shapes or dtypes that do not; no rule, or a second one.

    After JAX's custom_jvp.
    """

    _name = "custom_jvp"
    _define = "defjvp(rule)"

    def defjvp(self, rule):
        """Gives the function its rule, and returns the rule: so it is also a decorator."""
        self._set_rules(rule)
        return rule

    _operation = staticmethod(_core.custom_jvp)

    def _trace(self, args, nondiff, primal):
        floating = [example for example in args.examples if _is_floating(example)]
        count = len(args.examples)

        def call(tracers):
            primals, tangents = args.fill(tracers[:count]), args.tangents(tracers[count:])
            out, tangent = self._pair(self._rules[0](*nondiff.values(), primals, tangents), "(out, tangent_out)")
            leaves, tree = _core.tree_flatten(out)
            leaves = self._fit_results("the rule's result", leaves, tree, primal)
            return leaves + self._tangents(tangent, primal)

        rule = _core.record(call, [*args.examples, *floating])
        return _Traced([(primal.graph, primal.captures), rule], primal)

    def _tangents(self, tangent, primal):
        """A tangent for each floating result."""
        given = _aligned(primal.out_tree, tangent)
        if given is None:
            raise TypeError(
                f"{self._name}: the rule's tangent must have the structure of the result of {self._label()}, "
                f"{primal.out_tree}, but has {_core.tree_structure(tangent)}"
            )
        tangents = []
        for i, (leaf, like) in enumerate(zip(given, _result_types(primal))):
            if _is_floating(like):
                leaf = _core.zeros(like.shape, like.dtype) if leaf is None else leaf
                tangents.append(self._fitted(leaf, like, f"the rule's tangent{_at(primal.out_tree, i)}", "the result"))
        return tangents


class custom_vjp(_Custom):
    """A function with a reverse-mode rule of its own.

    f = qb.custom_vjp(fun); f.defvjp(fwd, bwd). Also a decorator, with keywords too.

    Args:
        fun: a function of pytrees.
        nondiff_argnums: positions of arguments that are passed to fun and fwd as they are (functions, options), and to
            bwd first. They must be hashable.

    fwd(*args) returns (out, residuals): what fun returns, and any pytree that bwd needs. bwd(*nondiff, residuals, ct)
    gets the cotangent of out (None for its bool and integer leaves) and returns a tuple with a cotangent for each
    argument that is not in nondiff_argnums: its structure, shapes and dtypes, None for zero and for bool and integer
    leaves. Forward mode is refused (ValueError), except of the rule itself: grad(grad(f)) differentiates bwd. The three
    functions may close over arrays and tracers; a tracer that only they hold cannot be differentiated by: pass it as an
    argument.

    Raises:
        TypeError: a structure that does not fit. ValueError: shapes or dtypes that do not; no rule, or a second one;
            forward mode. The message names the argument.

    After JAX's custom_vjp.
    """

    _name = "custom_vjp"
    _define = "defvjp(fwd, bwd)"

    def defvjp(self, fwd, bwd):
        """Gives the function its rule."""
        self._set_rules(fwd, bwd)

    _operation = staticmethod(_core.custom_vjp)

    def _trace(self, args, nondiff, primal):
        residuals = []  # leaves and structure of what fwd keeps

        def forward(tracers):
            result = self._rules[0](*self._inject(nondiff, args.fill(tracers)))
            out, kept = self._pair(result, "(out, residuals)")
            leaves, tree = _core.tree_flatten(out)
            leaves = self._fit_results("the result of fwd", leaves, tree, primal)
            kept_leaves, kept_tree = _core.tree_flatten(kept)
            residuals.extend([[leaf if is_number(leaf) else as_array(leaf) for leaf in kept_leaves], kept_tree])
            return leaves + [leaf for leaf in residuals[0] if not is_number(leaf)]

        fwd = _core.record(forward, args.examples)
        kept, kept_tree = residuals
        examples = [_example(leaf) for leaf in kept if not is_number(leaf)]
        cotangents = [Example(*type_, False) for type_ in primal.graph.outputs if type_[1].kind == "f"]

        def backward(tracers):
            res = kept_tree.unflatten(_with_arrays(kept, tracers[: len(examples)]))
            given = iter(tracers[len(examples) :])
            ct = [next(given) if dtype.kind == "f" else None for _, dtype in primal.graph.outputs]
            result = self._rules[1](*nondiff.values(), res, primal.out_tree.unflatten(ct))
            return self._cotangents(args, result)

        bwd = _core.record(backward, examples + cotangents)
        return _Traced([(primal.graph, primal.captures), fwd, bwd], primal)

    def _cotangents(self, args, result):
        """What bwd returned: a cotangent for each floating array of the arguments."""
        count = len(args.trees)
        if not isinstance(result, (tuple, list)) or len(result) != count:
            got = f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__
            raise TypeError(
                f"{self._name}: bwd of {self._label()} must return a tuple with a cotangent for each of its {count} "
                f"differentiable arguments, got {got}"
            )
        cotangents = []
        for k, (given, tree, span) in enumerate(zip(result, args.trees, args.spans)):
            for i, (leaf, array) in enumerate(zip(self._spread(given, tree, k), args.leaves[span])):
                what = f"the cotangent of argument {k}{_at(tree, i)}"
                if is_number(array):
                    continue
                if not _is_floating(array):
                    if leaf is not None:
                        raise TypeError(
                            f"{self._name}: {what} belongs to {array.dtype}, which has none: bwd must return None"
                        )
                    continue
                leaf = _core.zeros(array.shape, array.dtype) if leaf is None else leaf
                cotangents.append(self._fitted(leaf, array, what, "the argument"))
        return cotangents

    def _spread(self, given, tree, k):
        """Leaves of a cotangent by those of its argument; None stands for a whole subtree of zeros."""
        leaves = _aligned(tree, given)
        if leaves is not None:
            return leaves
        try:
            spread = _core.tree_flatten_prefix(tree, given, self._name)
        except (TypeError, ValueError):
            spread = []
        leaves = [leaf for leaf in spread if leaf is not None]
        if not spread or len(leaves) != len(_core.tree_leaves(given)):  # an array for a subtree
            raise TypeError(
                f"{self._name}: the cotangent of argument {k} of {self._label()} must have the structure of the "
                f"argument, {tree}, or be None, but has {_core.tree_structure(given)}"
            )
        return spread


# ---------------------------------------------------------------------------------------------------------- checkpoint


def _checkpoint_impl(fun, args, kwargs, *, static_argnums):
    args, kwargs, statics = split_statics(args, kwargs, static_argnums, ())
    leaves, treedef = _core.tree_flatten((args, kwargs))
    leaves = [leaf if is_number(leaf) else as_array(leaf) for leaf in leaves]
    staged = stage(fun, leaves, treedef, False, "checkpoint", statics)
    operands = [leaf for leaf in leaves if not is_number(leaf)]
    results = _core.checkpoint(staged.graph, staged.captures, operands)
    return staged.out_tree.unflatten(weakened(results, staged.weak))


@decorator
def checkpoint(fun, static_argnums=()):
    """fun, with its inside computed again in the backward pass instead of being kept. Also called remat.

    Args:
        fun: a function of pytrees; it may close over arrays and tracers.
        static_argnums: position, or tuple of positions, of arguments that are passed as they are; hashable.

    Returns: a function with the values and the derivatives, of every order, of fun. Reverse mode keeps its arguments
        only: the peak memory falls by what fun computes on the way, and the work grows by one evaluation of fun.
    """
    nums = tuple(static_argnums) if isinstance(static_argnums, (tuple, list)) else (static_argnums,)
    if any(isinstance(num, bool) or not isinstance(num, int) for num in nums):
        raise TypeError(f"checkpoint: static_argnums must be an int or a tuple of ints, got {static_argnums!r}")
    impl = functools.partial(_checkpoint_impl, static_argnums=nums)
    return Transform(fun, impl, build, cache_for(fun, ("checkpoint", nums)), static_argnums=nums)


remat = checkpoint
