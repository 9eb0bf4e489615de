"""Random programs: lists of instructions over arrays of small random shapes, to be interpreted with Quabla or NumPy.

A program is data, so hypothesis can shrink it and a failure prints it. All functions in it are smooth or their kinks
have a documented derivative; values stay moderate, since what can grow passes through a bounded function first.

QUABLA_EXAMPLES=20 looks at twenty times as many programs, and at other ones in every run.
"""

import os

import numpy as np
import quabla as qb
import scipy.special
from hypothesis import settings
from hypothesis import strategies as st


def np_logsumexp(x, axis=None, keepdims=False):
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


UNARY = {
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": scipy.special.expit,
    "softplus": lambda x: np.logaddexp(0, x),
    "arctan": np.arctan,
    "negative": np.negative,
    "erf": scipy.special.erf,
    "square": np.square,
    "arcsinh": np.arcsinh,
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0),
}
BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "hypot": np.hypot,
    "atan2": np.arctan2,
}
REDUCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max, "prod": np.prod, "logsumexp": np_logsumexp}
SHAPES = ((), (1,), (3,), (2, 3), (3, 1), (2, 1, 3), (1, 1), (4, 3))
MOST = 200  # elements of any value


def examples(count):
    """How many programs a law is tried on."""
    factor = int(os.environ.get("QUABLA_EXAMPLES", "1"))
    return settings(max_examples=count * factor, derandomize=factor == 1)


def interpret(program, inputs, namespace):
    """All values of a program; namespace is `quabla` or `NumpyFunctions`."""
    values = list(inputs)
    for name, places, params in program:
        values.append(getattr(namespace, name)(*(values[i] for i in places), **params))
    return values


class Functions:
    """The instructions in Quabla: its own functions, and a few forms of calls."""

    def __getattr__(self, name):
        return getattr(qb, name)

    index = staticmethod(lambda x, index: x[index])
    join = staticmethod(lambda x, y, axis: qb.concat([x, y], axis=axis))
    pile = staticmethod(lambda x, y, axis: qb.stack([x, y], axis=axis))
    scale = staticmethod(lambda x, factor: factor * x)
    shift = staticmethod(lambda x, values: qb.array(values) + x)
    pick = staticmethod(lambda x, y, z: qb.where(x > y, y, z))
    quotient = staticmethod(lambda x, y: x / (2.0 + qb.sin(y)))
    power = staticmethod(lambda x, n: x**n)
    product = staticmethod(lambda x, y: x @ y)
    crop = staticmethod(lambda x: qb.clip(x, -1.5, 1.5))


class NumpyFunctions:
    """The same in NumPy."""

    def __getattr__(self, name):
        return UNARY.get(name) or BINARY.get(name) or REDUCTIONS.get(name) or getattr(np, name)

    index = staticmethod(lambda x, index: x[index])
    join = staticmethod(lambda x, y, axis: np.concatenate([x, y], axis))
    pile = staticmethod(lambda x, y, axis: np.stack([x, y], axis))
    scale = staticmethod(lambda x, factor: factor * x)
    shift = staticmethod(lambda x, values: np.array(values) + x)
    pick = staticmethod(lambda x, y, z: np.where(x > y, y, z))
    quotient = staticmethod(lambda x, y: x / (2.0 + np.sin(y)))
    power = staticmethod(lambda x, n: x**n)
    product = staticmethod(lambda x, y: x @ y)
    crop = staticmethod(lambda x: np.clip(x, -1.5, 1.5))
    reshape = staticmethod(lambda x, shape: np.reshape(x, shape))
    transpose = staticmethod(lambda x, axes: np.transpose(x, axes))


def draw_index(draw, shape):
    entries = []
    for extent in shape:
        start, stop = draw(st.integers(-extent, extent - 1)), draw(st.integers(-extent, extent))
        step = draw(st.sampled_from([1, 1, 2, -1]))
        entries.append(
            draw(
                st.sampled_from(
                    [slice(None), start, slice(start, None), slice(None, stop if stop else None, step), slice(None)]
                )
            )
        )
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), None)
    return tuple(entries)


def broadcasts(*shapes):
    try:
        return int(np.prod(np.broadcast_shapes(*shapes))) <= MOST
    except ValueError:
        return False


def draw_instruction(draw, shapes):
    """(name, places of operands, parameters) that fit the shapes of the values so far; None if the draw does not."""
    kind = draw(
        st.sampled_from(
            [
                "unary",
                "unary",
                "binary",
                "binary",
                "reduce",
                "index",
                "shape",
                "join",
                "pick",
                "product",
                "other",
                "max",
            ]
        )
    )
    i, j, k = (draw(st.integers(0, len(shapes) - 1)) for _ in range(3))
    shape = shapes[i]
    axes = st.integers(-len(shape), len(shape) - 1) if shape else st.none()
    if kind == "unary":
        return draw(st.sampled_from(sorted(UNARY))), (i,), {}
    if kind == "binary" and broadcasts(shape, shapes[j]):
        return draw(st.sampled_from([*sorted(BINARY), "quotient"])), (i, j), {}
    if kind == "reduce" and int(np.prod(shape)) > 0:
        axis = draw(st.one_of(st.none(), axes))
        params = {"keepdims": draw(st.booleans()), **({} if axis is None else {"axis": axis})}
        return draw(st.sampled_from(sorted(REDUCTIONS))), (i,), params
    if kind == "index":
        return "index", (i,), {"index": draw_index(draw, shape)}
    if kind == "shape":
        name = draw(st.sampled_from(["reshape", "transpose", "flip", "expand_dims", "broadcast_to", "tile", "repeat"]))
        params = {
            "reshape": lambda: {"shape": draw(st.sampled_from([(-1,), (*reversed(shape),), (1, *shape)]))},
            "transpose": lambda: {"axes": tuple(draw(st.permutations(range(len(shape)))))},
            "flip": lambda: {"axis": draw(st.one_of(st.none(), axes))},
            "expand_dims": lambda: {"axis": draw(st.integers(-len(shape) - 1, len(shape)))},
            "broadcast_to": lambda: {"shape": (2, *shape)},
            "tile": lambda: {"reps": (2, 1)},
            "repeat": lambda: {"repeats": 2},
        }[name]()
        size = int(np.prod(shape))
        if (-1 in params.get("shape", ()) and size == 0) or size > MOST // 2 or len(shape) > 4:
            return None
        return name, (i,), params
    if kind == "join" and shape == shapes[j]:
        if shape and draw(st.booleans()):
            return "join", (i, j), {"axis": draw(axes)}
        return "pile", (i, j), {"axis": draw(st.integers(-len(shape) - 1, len(shape)))}
    if kind == "pick" and broadcasts(shape, shapes[j], shapes[k]):
        return "pick", (i, j, k), {}
    if kind == "product":
        for a, b in ((i, j), (j, i), (i, i)):
            fits = shapes[a] and shapes[b] and shapes[a][-1] == shapes[b][-2 if len(shapes[b]) > 1 else 0]
            if fits and broadcasts(shapes[a][:-2], shapes[b][:-2]):
                return "product", (a, b), {}
    if kind == "other":
        name = draw(st.sampled_from(["scale", "shift", "power", "crop"]))
        values = draw(
            st.lists(
                st.sampled_from([-0.5, 0.25, 1.5]),
                min_size=shape[-1] if shape else 1,
                max_size=shape[-1] if shape else 1,
            )
        )
        params = {"scale": {"factor": draw(st.sampled_from([0.5, -1.0, 1.0, 0.0, 2]))}, "shift": {"values": values},
            "power": {"n": draw(st.integers(0, 4))}}  # fmt: skip
        return name, (i,), params.get(name, {})
    return None


BOUNDED = {"sin", "cos", "tanh", "sigmoid", "arctan", "erf", "crop", "atan2", "index", "reshape", "transpose", "flip",
    "expand_dims",
           "broadcast_to", "tile", "repeat", "max", "join", "pile", "pick", "abs", "negative", "relu",
               "maximum"}  # fmt: skip


@st.composite
def programs(draw, most_instructions=8, inputs=(1, 3)):
    """(input arrays, instructions); the last value is the result."""
    count = draw(st.integers(*inputs))
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1.2, 1.2, draw(st.sampled_from(SHAPES))) for _ in range(count)]
    values, program = list(arrays), []
    numpy_functions = NumpyFunctions()
    for _ in range(draw(st.integers(1, most_instructions))):
        instruction = draw_instruction(draw, [v.shape for v in values])
        if instruction is None:
            continue
        for step in (instruction,) if instruction[0] in BOUNDED else (instruction, ("tanh", (len(values),), {})):
            new = np.asarray(interpret([step], values, numpy_functions)[-1])
            if new.size > MOST or new.size == 0:
                break
            program.append(step)
            values.append(new)
    return arrays, tuple(program)


def as_function(program, keep_scalar=False):
    """The program as a Quabla function of its inputs."""
    functions = Functions()

    def run(*inputs):
        result = interpret(program, inputs, functions)[-1]
        return qb.sum(qb.sin(result)) if keep_scalar else result

    return run
