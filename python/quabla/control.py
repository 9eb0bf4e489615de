"""Control flow: scan, fori_loop, while_loop, cond, switch.

A body or branch is traced once (`staging`), whatever the trip count, and the graph is handed to one of two primitives:
`loop` or `switch` of the library. This file fits what users write to them: pytrees, weak numbers, bounds, unrolling,
and checkpoints. An unrolled block of iterations and a checkpointed segment are graphs that apply the body's graph a few
times, so neither needs a primitive of its own.

A call on concrete arrays is compiled and cached as that of any transform; a call on tracers is part of their trace.
"""

import contextlib
import functools
import math
import operator

from . import _core
from .staging import (
    ARRAY_TYPES,
    Example,
    Transform,
    as_array,
    build,
    cache_for,
    check_function,
    is_number,
    remembered,
    signature_key,
    stage,
    trace_call,
    weak_array,
    weakened,
)

__all__ = ["cond", "fori_loop", "scan", "switch", "while_loop"]

INDEX = Example((), _core.int64, False)
ALL = math.inf  # unroll=True and checkpoint=True as they are kept: True and 1 would be one key of a cache
BALANCED = "balanced"
LARGEST = 2**63 - 1  # indices are int64


def _example(array):
    return Example(array.shape, array.dtype, False)


def _describe(shape, dtype):
    return f"{dtype} of shape {shape}"


def _at(treedef, i):
    """Where leaf i is, for messages."""
    path = _core.tree_leaf_path(treedef, i)
    return f" at '{path}'" if path else ""


def _paths(treedef):
    return [_core.tree_leaf_path(treedef, i) for i in range(treedef.num_leaves)]


def _structure_difference(expected, found):
    """A few words on where two different structures differ, by the path of a leaf that only one of them has."""
    missing = [path for path in _paths(expected) if path not in _paths(found)]
    added = [path for path in _paths(found) if path not in _paths(expected)]
    if missing:
        return f" ('{missing[0]}' is missing)"
    return f" ('{added[0]}' is new)" if added else ""


def _arrays_and_numbers(tree):
    """The tree with foreign arrays converted; numbers stay, since they are static."""
    return _core.tree_map(lambda leaf: leaf if is_number(leaf) else as_array(leaf), tree)


def _operands(operands, name):
    if not isinstance(operands, (tuple, list)):
        raise TypeError(f"{name}: operands must be a tuple, got {type(operands).__name__}: write operands=(x,)")
    return tuple(operands)


def _arrays(tree):
    """The tree with every leaf an array; numbers as weak ones."""
    return _core.tree_map(lambda leaf: weak_array(leaf) if is_number(leaf) else as_array(leaf), tree)


# ---------------------------------------------------------------------------------------------------- types of carries

_RANK = {"b": 0, "i": 1, "u": 1, "f": 2}


def _adopts(weak_dtype, dtype):
    """Whether a weak value of the one dtype can take the other: numbers go up from integers to floating, not down."""
    return weak_dtype == dtype or 0 < _RANK[weak_dtype.kind] <= _RANK[dtype.kind]


def _carry_types(types, treedef, out_tree, outputs, weak, name):
    """The types of a carry that came in with `types` and left as `outputs`: the same, unless weak leaves change.

    A weak leaf (a Python number) takes the type that the body gives it, and a weak result that of the carry, as
    everywhere else. TypeError for any other difference.
    """
    if out_tree != treedef:
        raise TypeError(
            f"{name}: the body must return a carry of the structure that it was given, {treedef}, but returned "
            f"{out_tree}{_structure_difference(treedef, out_tree)}"
        )
    settled = []
    for i, (given, (shape, dtype), is_weak) in enumerate(zip(types, outputs, weak)):
        fits = shape == given.shape
        if given.weak and fits and _adopts(given.dtype, dtype):
            given = Example(shape, dtype, is_weak)
        elif dtype != given.dtype:
            fits = fits and is_weak and _adopts(dtype, given.dtype)
        if not fits:
            raise TypeError(
                f"{name}: the body changes the carry{_at(treedef, i)}: it comes in as "
                f"{_describe(given.shape, given.dtype)} and goes out as {_describe(shape, dtype)}; convert the initial "
                "value or the result (astype, broadcast_to), so that both are the same"
            )
        settled.append(given)
    return settled


class _Body:
    """The body of a loop, traced once: what the primitive repeats.

    fun        the user's function
    arguments  arguments(i, carry, x) -> the arguments of fun, operands included
    has_y      whether fun returns (carry, y); otherwise carry
    x_tree     structure of what an iteration reads from xs
    """

    def __init__(self, name, fun, arguments, has_y, carry, x_tree=None, x_types=()):
        self.name = name
        self.fun = fun
        self.arguments = arguments
        self.has_y = has_y
        self.x_tree = x_tree
        self.x_types = list(x_types)
        leaves, self.carry_tree = _core.tree_flatten(carry)
        self.types = [Example(leaf.shape, leaf.dtype, leaf.weak) for leaf in leaves]
        self.initial = leaves

    def settle(self):
        """Traces until the types of the carry are those of the result: again each time that a weak leaf rises.

        A leaf that only turns strong needs no other graph, and nested loops would be traced twice a level for it.
        """
        count = self.carry_tree.num_leaves
        while True:
            self.staged = self._stage()
            outputs, weak = self.staged.graph.outputs, self.staged.weak
            settled = _carry_types(
                self.types, self.carry_tree, self.staged.out_tree, outputs[:count], weak[:count], self.name
            )
            unchanged = settled == self.types
            self.types = settled
            if unchanged:
                break
        self.y_tree, self.y_weak = self.staged.aux_tree, weak[count:]
        self.initial = [_converted(leaf, type_.dtype) for leaf, type_ in zip(self.initial, self.types)]
        return self

    def _flatten(self, i, carry, x):
        x = self.x_tree.unflatten(x) if self.x_tree is not None else None
        return _core.tree_flatten((self.arguments(i, self.carry_tree.unflatten(carry), x), {}))

    def _stage(self):
        leaves, treedef = self._flatten(INDEX, self.types, self.x_types)

        def call(tracers):
            tracer = iter(tracers)
            args, _ = treedef.unflatten([leaf if is_number(leaf) else next(tracer) for leaf in leaves])
            return self.call(*args)

        def make():
            arrays = [leaf for leaf in leaves if not is_number(leaf)]
            return trace_call(call, arrays, has_aux=self.has_y, name=self.name)

        return remembered(self.fun, self.name, signature_key(treedef, leaves), make)

    def call(self, *args):
        """The user's function, which returns a pair where it should."""
        result = self.fun(*args)
        if self.has_y and (not isinstance(result, (tuple, list)) or len(result) != 2):
            got = f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__
            raise TypeError(f"{self.name}: the function must return a pair (carry, y), got {got}")
        return tuple(result) if self.has_y else result

    def step(self, i, carry, x):
        """An iteration in the active trace: (leaves of the carry, leaves of y)."""
        leaves, _ = self._flatten(_index(i), carry, x)
        inputs = [leaf for leaf in leaves if not is_number(leaf)]
        outputs = self.staged.graph.apply(inputs + self.staged.captures)
        count = len(carry)
        fitted = [_converted(leaf, type_.dtype) for leaf, type_ in zip(outputs[:count], self.types)]
        return fitted, outputs[count:]

    def finish(self, carry):
        """Leaves of a carry as the user sees it."""
        return self.carry_tree.unflatten(weakened(carry, [type_.weak for type_ in self.types]))


def _converted(leaf, dtype):
    return leaf if leaf.dtype == dtype else _core.astype(leaf, dtype)


def _index(i):
    return i if isinstance(i, ARRAY_TYPES) else _core.full((), i, _core.int64)


# ------------------------------------------------------------------------------------------------------------ repeating


def _loop(step, carry, xs, count, reverse=False, run_time_count=None):
    """The primitive: step(i, carry, x) -> (carry, y) for i in range(count). Returns (carry, ys), lists of leaves."""
    types = [INDEX, *map(_example, carry), *(Example(x.shape[1:], x.dtype, False) for x in xs)]
    first = 1 + len(carry)

    def body(tracers):
        new, y = step(tracers[0], tracers[1:first], tracers[first:])
        return [*new, *y]

    graph, captures = _core.record(body, types)
    carry, ys, _ = _core.loop(graph, captures, None, [], count, reverse, run_time_count, carry, xs)
    return carry, ys


def _steps(step, start, count, carry, xs, reverse):
    """`count` iterations one after the other in the active trace."""
    rows = [None] * count
    for j in reversed(range(count)) if reverse else range(count):
        carry, rows[j] = step(start + j, carry, [x[j] for x in xs])
    return carry, [_core.stack(list(column)) for column in zip(*rows)]


def _blocks(block, carry, xs, count, size, reverse):
    """A loop over blocks of `size` iterations, and one smaller block for what is left, in the order of the iterations.

    block(start, count, carry, xs) -> (carry, ys) stands for iterations start to start + count.
    """
    whole, left = divmod(count, size)
    middle, end = (left, 0) if reverse else (0, whole * size)  # where whole blocks start, and where the rest does
    shaped = [_core.reshape(x[middle : middle + whole * size], (whole, size, *x.shape[1:])) for x in xs]
    carry, ys = _loop(lambda b, c, x: block(b * size + middle, size, c, x), carry, shaped, whole, reverse)
    ys = [_core.reshape(y, (whole * size, *y.shape[2:])) for y in ys]
    if left:
        carry, rest = block(end, left, carry, [x[end : end + left] for x in xs])
        ys = [_core.concat([b, a] if reverse else [a, b], axis=0) for a, b in zip(ys, rest)]
    return carry, ys


def _checkpointed(run, carry, xs):
    """run(carry, xs) -> (carry, ys) as one node, which reverse mode computes again instead of keeping its inside."""
    count = len(carry)
    sizes = []

    def region(tracers):
        new, ys = run(tracers[:count], tracers[count:])
        sizes.append(len(new))
        return [*new, *ys]

    graph, captures = _core.record(region, [_example(leaf) for leaf in (*carry, *xs)])
    results = _core.checkpoint(graph, captures, [*carry, *xs])
    return results[: sizes[0]], results[sizes[0] :]


def _segment_length(count, checkpoint):
    """Iterations in a segment: BALANCED keeps as many carries between segments as inside one."""
    segments = math.isqrt(count - 1) + 1 if checkpoint == BALANCED else checkpoint
    return -(-count // segments)


def _repeat(step, carry, xs, count, reverse, unroll, checkpoint):
    """`count` iterations, a known number."""
    if checkpoint and count > 1:

        def segment(start, length, carry, xs):
            def run(carry, xs):
                return _repeat(
                    lambda i, c, x: step(i + start, c, x), carry, xs, length, reverse, unroll, checkpoint=None
                )

            return _checkpointed(run, carry, xs)

        return _blocks(segment, carry, xs, count, _segment_length(count, checkpoint), reverse)
    if 1 < count <= unroll:
        return _steps(step, 0, count, carry, xs, reverse)
    if unroll > 1 and count > 1:

        def block(start, length, carry, xs):
            return _steps(step, start, length, carry, xs, reverse)

        return _blocks(block, carry, xs, count, unroll, reverse)
    return _loop(step, carry, xs, count, reverse)


def _repeat_counted(step, carry, capacity, count, checkpoint):
    """As many iterations as `count`, a traced number, says: at most `capacity`, where that is not -1."""
    if not checkpoint or capacity < 2:
        return _loop(step, carry, [], capacity, run_time_count=count)[0]
    length = _segment_length(capacity, checkpoint)
    count = _core.clip(count, 0, capacity)

    def segment(s, carry, _):
        start = s * length

        def run(carry, _):
            left = _core.clip(count - start, 0, length)
            return _loop(lambda i, c, x: step(i + start, c, x), carry, [], length, run_time_count=left)

        return _checkpointed(run, carry, [])

    segments = (count + (length - 1)) // length
    return _loop(segment, carry, [], -(-capacity // length), run_time_count=segments)[0]


def _unrolled(body, indices, slices):
    """The iterations one by one, with Python ints for indices: (carry, the leaves of y by iteration, their structure).

    Weak leaves of the carry start over with another type where an iteration gives it to them, as in a loop.
    """
    initial = body.carry_tree.unflatten(body.initial)
    while True:
        carry, rows, y_tree, retyped = initial, {}, None, False
        for i in indices:
            result = body.call(*body.arguments(i, carry, slices(i)))
            carry, y = result if body.has_y else (result, None)
            leaves, out_tree = _core.tree_flatten(_arrays(carry))
            outputs = [(leaf.shape, leaf.dtype) for leaf in leaves]
            weak = [leaf.weak for leaf in leaves]
            settled = _carry_types(body.types, body.carry_tree, out_tree, outputs, weak, body.name)
            retyped = any(new != old for new, old in zip(settled, body.types))
            body.types = settled
            if retyped:
                break
            carry = out_tree.unflatten([_converted(leaf, t.dtype) for leaf, t in zip(leaves, settled)])
            rows[i], tree = _core.tree_flatten(_arrays(y))
            if y_tree is not None and tree != y_tree:
                raise TypeError(f"{body.name}: y has the structure {y_tree} first, then {tree}: it must stay the same")
            y_tree = tree
        if not retyped:
            return carry, rows, y_tree
        leaves = [_converted(leaf, t.dtype) for leaf, t in zip(_core.tree_leaves(initial), body.types)]
        initial = body.carry_tree.unflatten(leaves)


# ------------------------------------------------------------------------------------------------------------- options


def _check_int(value, what, least):
    """A Python int of at least `least`, from anything that is an integer with a value."""
    if isinstance(value, (bool, float)):
        raise TypeError(f"{what} must be an int, got {value!r}")
    if isinstance(value, _core.TraceTensor):
        raise TypeError(f"{what} must be known when the loop is traced, but it is a {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an int, got {value!r}") from None
    if not least <= number <= LARGEST:
        bound = f"at least {least}" if number < least else f"at most {LARGEST}"
        raise ValueError(f"{what} must be {bound}, got {number}")
    return number


def _check_unroll(unroll, name):
    """The number of iterations in a block: 1 for False, ALL for True."""
    if isinstance(unroll, bool):
        return ALL if unroll else 1
    return _check_int(unroll, f"{name}: unroll (True, False, or the iterations to a block)", 1)


def _check_checkpoint(checkpoint, unroll, name):
    """The number of segments, or BALANCED for True; None for none."""
    if checkpoint is None or checkpoint is False:
        return None
    if unroll == ALL:
        raise ValueError(f"{name}: unroll=True leaves no loop to checkpoint: unroll blocks (unroll=8), or drop one")
    if checkpoint is True:
        return BALANCED
    return _check_int(checkpoint, f"{name}: checkpoint (None, True, or a number of segments)", 1)


def _check_max_steps(max_steps, name):
    return None if max_steps is None else _check_int(max_steps, f"{name}: max_steps", 0)


# ---------------------------------------------------------------------------------------------------------------- scan


def _check_xs(xs, length):
    """Leaves and structure of xs, and the number of iterations."""
    leaves, treedef = _core.tree_flatten(xs)
    for i, leaf in enumerate(leaves):
        if is_number(leaf) or not leaf.shape:
            raise ValueError(f"scan: xs{_at(treedef, i)} is a scalar: every leaf of xs needs an axis to scan over")
    for i, leaf in enumerate(leaves[1:], 1):
        if leaf.shape[0] != leaves[0].shape[0]:
            raise ValueError(
                f"scan: the leaves of xs differ in their leading extent: {leaves[0].shape[0]}{_at(treedef, 0)}, "
                f"{leaf.shape[0]}{_at(treedef, i)}"
            )
    if not leaves and length is None:
        raise ValueError(
            "scan: give length=, or xs with at least one array: nothing says how many iterations there are"
        )
    if leaves and length is not None and length != leaves[0].shape[0]:
        raise ValueError(f"scan: length is {length}, but the leading extent of xs is {leaves[0].shape[0]}")
    return leaves, treedef, leaves[0].shape[0] if leaves else length


def _scan_impl(f, args, kwargs, *, reverse, unroll, checkpoint):
    carry, xs, length, operands = args
    operands = _arrays_and_numbers(operands)
    leaves, x_tree, count = _check_xs(_arrays_and_numbers(xs), length)
    if xs is None:

        def arguments(i, carry, x):
            return (carry, i, *operands)
    else:

        def arguments(i, carry, x):
            return (carry, x, *operands)

    x_types = [Example(x.shape[1:], x.dtype, x.weak) for x in leaves]
    body = _Body("scan", f, arguments, True, carry, x_tree, x_types)
    if unroll == ALL and count > 0:
        indices = reversed(range(count)) if reverse else range(count)
        carry, rows, y_tree = _unrolled(body, list(indices), lambda i: x_tree.unflatten([x[i] for x in leaves]))
        ys = [_core.stack(list(column)) for column in zip(*(rows[i] for i in range(count)))]
        return carry, y_tree.unflatten(ys)
    body.settle()
    carry, ys = _repeat(body.step, body.initial, leaves, count, reverse, unroll, checkpoint)
    return body.finish(carry), body.y_tree.unflatten(weakened(ys, body.y_weak))


@_core.public
def scan(f, init, *, length=None, xs=None, operands=(), reverse=False, unroll=False, checkpoint=None):
    """Repeats a function that carries a state along and leaves a result at every iteration.

    Args:
        f: without xs f(carry, i, *operands) -> (carry, y), i an int64 scalar; with xs f(carry, x, *operands) ->
            (carry, y), x a row of xs. It may close over arrays and tracers.
        init: the first carry, a pytree of any dtypes. Python numbers in it take the dtype that f gives them.
        length: the number of iterations, an int; needed without xs.
        xs: a pytree of arrays of one leading extent, that of the iterations.
        operands: a tuple of pytrees that f gets as further arguments, the same in every iteration.
        reverse: whether to go from the last row to the first. ys stay in the order of xs.
        unroll: how many iterations the compiled body holds; True traces f once for each, with i a Python int.
        checkpoint: what reverse mode keeps. None: the carry of every iteration. True: about sqrt(length) carries, and
            computes the iterations between them once more. An int: that many segments.

    Returns:
        (carry, ys): the last carry, and the pytree of all y, with a leading axis of the iterations.

    Raises:
        TypeError: f changes the structure, a shape or a dtype of the carry (the message names the leaf), or returns no
            pair; length, unroll or checkpoint of another type.
        ValueError: neither length nor xs, a negative length, leading extents that differ.

    The size of the graph does not depend on the number of iterations (except with unroll=True). All derivatives, of any
    order and mode, are loops again; vmap makes one loop over all examples.
    """
    check_function(f, "scan", "f")
    operands = _operands(operands, "scan")
    if length is None and xs is None:
        raise ValueError("scan: give length=, or xs: nothing says how many iterations there are")
    if length is not None:
        length = _check_int(length, "scan: length", 0)
    if not isinstance(reverse, bool):
        raise TypeError(f"scan: reverse must be a bool, got {reverse!r}")
    unroll = _check_unroll(unroll, "scan")
    checkpoint = _check_checkpoint(checkpoint, unroll, "scan")
    impl = functools.partial(_scan_impl, reverse=reverse, unroll=unroll, checkpoint=checkpoint)
    run = Transform(f, impl, build, cache_for(f, ("scan", reverse, unroll, checkpoint)))
    return run(_arrays(init), xs, length, operands)


# ----------------------------------------------------------------------------------------------------------- fori_loop


def _bound(value, name):
    """A loop's bound: a Python int where it has a value, an int64 tracer otherwise."""
    if not isinstance(value, _core.TraceTensor):
        if not isinstance(value, (bool, float)):
            with contextlib.suppress(TypeError):
                number = operator.index(value)
                if abs(number) > LARGEST:
                    raise ValueError(f"fori_loop: {name} must be between -{LARGEST} and {LARGEST}, got {number}")
                return number
        raise TypeError(f"fori_loop: {name} must be an integer, got {value!r}")
    if value.shape or value.dtype.kind not in "iu":
        raise TypeError(
            f"fori_loop: {name} must be an integer scalar, got {_describe(value.shape, value.dtype)}: convert it with "
            "astype(int64)"
        )
    return _core.astype(value, _core.int64)


def _fori_impl(body_fun, args, kwargs, *, unroll, checkpoint):
    lower, upper, carry, operands, max_steps = args
    operands = _arrays_and_numbers(operands)
    is_static = isinstance(lower, int) and isinstance(upper, int)

    def arguments(i, carry, x):
        return (i, carry, *operands)

    body = _Body("fori_loop", body_fun, arguments, False, carry)
    if not is_static and unroll != 1:
        raise ValueError(
            "fori_loop: unroll needs bounds that are Python ints; these are traced, so their number is not known"
        )
    if not is_static and checkpoint and max_steps is None:
        raise ValueError(
            "fori_loop: checkpoint with traced bounds needs max_steps, the most iterations that there can be"
        )
    count = upper - lower
    if is_static:
        count = max(count, 0) if max_steps is None else min(max(count, 0), max_steps)
        if unroll == ALL:
            carry, _, _ = _unrolled(body, range(lower, lower + count), lambda i: None)
            return carry
    body.settle()

    def step(i, carry, x):
        return body.step(i + lower, carry, x)

    if is_static:
        carry, _ = _repeat(step, body.initial, [], count, False, unroll, checkpoint)
    else:
        capacity = -1 if max_steps is None else max_steps
        carry = _repeat_counted(step, body.initial, capacity, count, checkpoint)
    return body.finish(carry)


@_core.public
def fori_loop(lower, upper, body_fun, init, *, operands=(), unroll=False, checkpoint=None, max_steps=None):
    """Repeats carry = body_fun(i, carry, *operands) for i from lower to upper - 1.

    Args:
        lower, upper: integers, or traced integer scalars. No iteration where upper is not above lower.
        body_fun: a function of the index (an int64 scalar), the carry and the operands that returns the next carry. It
            may close over arrays and tracers.
        init: the first carry, a pytree of any dtypes. Python numbers in it take the dtype that body_fun gives them.
        operands: a tuple of pytrees that body_fun gets as further arguments.
        unroll: how many iterations the compiled body holds; True traces body_fun once for each, with i a Python int.
            Needs bounds that are not traced.
        checkpoint: what reverse mode keeps: see scan. With traced bounds it needs max_steps.
        max_steps: the most iterations, an int: the loop ends there. With traced bounds reverse mode needs it.

    Returns: the last carry.

    Raises:
        TypeError: bounds that are no integers; a body that changes the structure, a shape or a dtype of the carry (the
            message names the leaf); another option of a wrong type.
        ValueError: unroll, or checkpoint without max_steps, with traced bounds; reverse mode through traced bounds
            without max_steps.
    """
    check_function(body_fun, "fori_loop", "body_fun")
    operands = _operands(operands, "fori_loop")
    lower, upper = _bound(lower, "lower"), _bound(upper, "upper")
    unroll = _check_unroll(unroll, "fori_loop")
    checkpoint = _check_checkpoint(checkpoint, unroll, "fori_loop")
    max_steps = _check_max_steps(max_steps, "fori_loop")
    impl = functools.partial(_fori_impl, unroll=unroll, checkpoint=checkpoint)
    run = Transform(body_fun, impl, build, cache_for(body_fun, ("fori_loop", unroll, checkpoint)))
    return run(lower, upper, _arrays(init), operands, max_steps)


# ---------------------------------------------------------------------------------------------------------- while_loop


def _while_impl(body_fun, args, kwargs, *, cond_fun):
    carry, operands, max_steps = args
    operands = _arrays_and_numbers(operands)

    def arguments(i, carry, x):
        return (carry, *operands)

    body = _Body("while_loop", body_fun, arguments, False, carry).settle()
    types = [INDEX, *map(_example, body.initial)]

    def condition(tracers):
        leaves, treedef = _core.tree_flatten((arguments(None, body.finish(tracers[1:]), None), {}))
        staged = stage(cond_fun, leaves, treedef, False, "while_loop")
        outputs = staged.graph.outputs
        if staged.out_tree != _LEAF or outputs[0][0] or outputs[0][1].kind != "b":
            got = _describe(*outputs[0]) if staged.out_tree == _LEAF else f"the structure {staged.out_tree}"
            raise TypeError(f"while_loop: cond_fun must return a bool scalar, got {got}")
        return staged.graph.apply([leaf for leaf in leaves if not is_number(leaf)] + staged.captures)

    def step(tracers):
        return body.step(tracers[0], tracers[1:], [])[0]

    graph, captures = _core.record(step, types)
    test, test_captures = _core.record(condition, types)
    capacity = -1 if max_steps is None else max_steps
    carry, _, _ = _core.loop(graph, captures, test, test_captures, capacity, False, None, body.initial, [])
    return body.finish(carry)


_LEAF = _core.tree_structure(0)


@_core.public
def while_loop(cond_fun, body_fun, init, *, operands=(), max_steps=None):
    """Repeats carry = body_fun(carry, *operands) while cond_fun(carry, *operands) holds.

    Args:
        cond_fun: returns a bool scalar; asked before each iteration. It and body_fun may close over arrays and tracers.
        body_fun: returns the next carry.
        init: the first carry, a pytree of any dtypes. Python numbers in it take the dtype that body_fun gives them.
        operands: a tuple of pytrees that both functions get as further arguments.
        max_steps: the most iterations, an int: the loop ends there and returns the carry so far. Reverse mode needs it,
            since it bounds the memory; the work is that of the iterations that were run.

    Returns: the last carry.

    Raises:
        TypeError: cond_fun returns no bool scalar; body_fun changes the structure, a shape or a dtype of the carry (the
            message names the leaf).
        ValueError: reverse mode without max_steps. Forward mode always works.

    Under vmap the loop runs while any example goes on, and those that are done keep their carry.
    """
    check_function(cond_fun, "while_loop", "cond_fun")
    check_function(body_fun, "while_loop", "body_fun")
    operands = _operands(operands, "while_loop")
    max_steps = _check_max_steps(max_steps, "while_loop")
    impl = functools.partial(_while_impl, cond_fun=cond_fun)
    run = Transform(body_fun, impl, build, cache_for((cond_fun, body_fun), "while_loop"))
    return run(_arrays(init), operands, max_steps)


# ------------------------------------------------------------------------------------------------------------ branches


def _result_types(staged, names, name):
    """The types that all branches give, leaf by leaf: constants (weak numbers) take those of the other branches."""
    first = staged[0]
    for other, label in zip(staged[1:], names[1:]):
        if other.out_tree != first.out_tree:
            raise TypeError(
                f"{name}: the branches must return one structure, but {names[0]} returns {first.out_tree} and {label} "
                f"returns {other.out_tree}{_structure_difference(first.out_tree, other.out_tree)}"
            )
    types = []
    for i in range(first.out_tree.num_leaves):
        found = [(*branch.graph.outputs[i], branch.weak[i]) for branch in staged]
        best = max(range(len(found)), key=lambda k: (not found[k][2], _RANK[found[k][1].kind]))  # strong before weak
        shape, dtype, is_weak = found[best]
        for k, (other_shape, other_dtype, other_weak) in enumerate(found):
            if other_shape != shape or not (other_dtype == dtype or (other_weak and _adopts(other_dtype, dtype))):
                raise TypeError(
                    f"{name}: the branches disagree{_at(first.out_tree, i)}: {names[best]} returns "
                    f"{_describe(shape, dtype)}, {names[k]} {_describe(other_shape, other_dtype)}; convert one of them "
                    "(astype, broadcast_to)"
                )
        types.append(Example(shape, dtype, is_weak))
    return types


def _with_dtypes(graph, types):
    """The graph with its results converted where they are of other dtypes."""
    if all(dtype == type_.dtype for (_, dtype), type_ in zip(graph.outputs, types)):
        return graph

    def call(tracers):
        return [_converted(leaf, type_.dtype) for leaf, type_ in zip(graph.apply(tracers), types)]

    return _core.record(call, [Example(shape, dtype, False) for shape, dtype in graph.inputs])[0]


def _branch(index, branches, names, operands, name):
    """The branch that the traced index chooses, as one node."""
    operands = _arrays_and_numbers(operands)
    leaves, treedef = _core.tree_flatten((operands, {}))
    staged = [stage(branch, leaves, treedef, False, name) for branch in branches]
    types = _result_types(staged, names, name)
    graphs = [_with_dtypes(each.graph, types) for each in staged]
    inputs = [leaf for leaf in leaves if not is_number(leaf)]
    results = _core.switch(index, graphs, [each.captures for each in staged], inputs)
    return staged[0].out_tree.unflatten(weakened(results, [type_.weak for type_ in types]))


@_core.public
def cond(pred, true_fun, false_fun, *operands):
    """true_fun(*operands) where pred holds, false_fun(*operands) otherwise; only that one is computed.

    Args:
        pred: a scalar, bool or a number (which holds where it is not zero). One with a value (a Python bool, a Tensor)
            calls one function, and the other is not even traced.
        true_fun, false_fun: functions of the operands that return the same structure, shapes and dtypes; Python numbers
            that one returns take the dtype that the other gives. They may close over arrays and tracers.
        operands: pytrees.

    Returns: the result of the function chosen. The branch not taken contributes nothing to a derivative of any order,
        so it injects no NaN.

    Raises: TypeError: pred is no scalar, or the branches disagree; the message names the leaf.

    With a predicate that vmap maps, both branches are computed and the results selected; a loop inside a branch runs
    only while an example that took this branch needs it.
    """
    check_function(true_fun, "cond", "true_fun")
    check_function(false_fun, "cond", "false_fun")
    if not is_number(pred):
        pred = as_array(pred)
        if pred.shape:
            raise TypeError(
                f"cond: pred must be a scalar, got {_describe(pred.shape, pred.dtype)}: use where to choose between "
                "elements, any or all to sum them up"
            )
    if not isinstance(pred, _core.TraceTensor):
        return true_fun(*operands) if pred else false_fun(*operands)
    holds = pred if pred.dtype.kind == "b" else _core.not_equal(pred, 0)
    index = _core.astype(holds, _core.int64)
    return _branch(index, (false_fun, true_fun), ("false_fun", "true_fun"), operands, "cond")


@_core.public
def switch(index, branches, *operands):
    """branches[index](*operands); only that one is computed.

    Args:
        index: an integer scalar, clamped to the branches that there are. One with a value calls one function.
        branches: a sequence of functions of the operands that return the same structure, shapes and dtypes; Python
            numbers take the dtype of the other branches. They may close over arrays and tracers.
        operands: pytrees.

    Raises: TypeError: index is no integer scalar, or the branches disagree (the message names the leaf). ValueError:
        there are no branches.

    For derivatives and vmap see cond.
    """
    branches = tuple(branches)
    if not branches:
        raise ValueError("switch: branches is empty: there is nothing to choose from")
    for i, branch in enumerate(branches):
        check_function(branch, "switch", f"branches[{i}]")
    if isinstance(index, _core.TraceTensor):
        if index.shape or index.dtype.kind not in "iu":
            raise TypeError(
                f"switch: index must be an integer scalar, got {_describe(index.shape, index.dtype)}: convert it with "
                "astype(int64)"
            )
        names = [f"branches[{i}]" for i in range(len(branches))]
        return _branch(_core.astype(index, _core.int64), branches, names, operands, "switch")
    if isinstance(index, (bool, float)):
        raise TypeError(f"switch: index must be an integer, got {index!r}")
    try:
        place = operator.index(index)
    except TypeError:
        raise TypeError(f"switch: index must be an integer scalar, got {index!r}") from None
    return branches[min(max(place, 0), len(branches) - 1)](*operands)
