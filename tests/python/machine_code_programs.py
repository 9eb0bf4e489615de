"""Random programs over floating, whole and bool arrays, for comparing the ways to compute them bit by bit.

Called as a program with two numbers, it prints a line for each seed between them: the bits of all results. What decides
about the way (QUABLA_MACHINE_CODE, QUABLA_ISA) is read once in a process, so each way is a process of its own.
"""

import sys
import zlib

import numpy as np
import quabla as qb

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-310, -3e300, 2.0, 1e-40]
FLOATING = ["float64", "float32"]
LIMIT = 1000.0  # of what becomes a whole number

UNARY = [
    lambda a: -a,
    abs,
    qb.sqrt,
    qb.tanh,
    qb.sin,
    lambda a: a * a,
    lambda a: a + 1,
    lambda a: 2.5 - a,
    lambda a: a / 3,
    qb.sign,
    qb.floor,
    qb.relu,
    lambda a: qb.clip(a, -0.75, 1.5),
    lambda a: qb.where(qb.isnan(a), 0.25, a),
    lambda a: qb.where(qb.not_equal(a, 0), 1, a),
    lambda a: qb.where(~(a < 0.5), a, -2.0),
    lambda a: qb.where(qb.isfinite(a), a, 3.0),
    lambda a: qb.hypot(a, 2.0),
]
BINARY = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    qb.maximum,
    qb.minimum,
    lambda a, b: qb.where(a < b, a, b),
    lambda a, b: qb.where((a <= b) & qb.equal(b, b), a * b, b),
    lambda a, b: qb.where((a > 0) ^ (b > 0), a, 1.0),
    lambda a, b: qb.where(qb.equal(a, b) | (a >= 1), b, -b),
]
WHOLE = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    qb.maximum,
    lambda a, b: qb.where(a < b, a, b),
    lambda a, b: abs(a) - (b & 7),
    lambda a, b: (a ^ b) | 1,
    lambda a, b: a // (1 + (b & 3)),
]
LOGIC = [
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: a ^ b,
    lambda a, b: ~a,
    lambda a, b: qb.where(a, b, ~b),
]
COMPARE = [
    lambda a, b: a < b,
    lambda a, b: a <= b,
    qb.equal,
    qb.not_equal,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]
REDUCE = [qb.sum, qb.max, qb.min, qb.mean, qb.prod]


def to_whole(a, dtype):
    return qb.floor(qb.clip(qb.where(qb.isnan(a), 0.0, a), -LIMIT, LIMIT)).astype(dtype)


class Drawing:
    """Values so far by kind, all of one shape or broadcast to it, and how new ones come about."""

    def __init__(self, rng, shape, constants):
        self.rng = rng
        self.shape = shape
        self.constants = constants
        self.values = {"float64": [], "float32": [], "int64": [], "int32": [], "bool": []}

    def pick(self, kind):
        values = self.values[kind]
        if self.rng.random() < 0.5:  # a recent one
            return values[-1 - self.rng.integers(min(len(values), 4))]
        return values[self.rng.integers(len(values))]

    def floating(self):
        return self.pick(FLOATING[self.rng.random() < self.singles])

    def add(self, value):
        self.values[str(value.dtype).removeprefix("quabla.")].append(value)

    def moved(self, a):
        """a with its lanes in another order, or a part of it broadcast."""
        rng = self.rng
        if not self.shape or a.shape != self.shape:
            return a
        way = rng.integers(6)
        if way == 0:
            return a[::-1]
        if way == 1:
            return a[..., ::-1]
        if way == 2 and self.shape == self.shape[::-1]:
            return a.T
        if way == 3:
            return a[..., :1]
        if way == 4:
            return a[:1]
        return qb.roll(a, 1, axis=-1)

    def reduced(self, a):
        if not self.shape or a.shape != self.shape:
            return a
        axis = [None, 0, -1][self.rng.integers(3)]
        if str(a.dtype).endswith("bool"):
            return [qb.any, qb.all][self.rng.integers(2)](a, axis=axis, keepdims=True)
        if str(a.dtype).endswith(("32", "64")) and "int" in str(a.dtype):
            return qb.sum(a, axis=axis, keepdims=True).astype(a.dtype)
        return REDUCE[self.rng.integers(len(REDUCE))](a, axis=axis, keepdims=True)

    def step(self):
        rng = self.rng
        draw = rng.random()
        if draw < 0.22:
            self.add(UNARY[rng.integers(len(UNARY))](self.floating()))
        elif draw < 0.52:
            kind = FLOATING[rng.random() < self.singles]
            self.add(BINARY[rng.integers(len(BINARY))](self.pick(kind), self.pick(kind)))
        elif draw < 0.60:
            kind = FLOATING[rng.integers(2)]
            self.add(COMPARE[rng.integers(len(COMPARE))](self.pick(kind), self.pick(kind)))
        elif draw < 0.66:
            self.add(LOGIC[rng.integers(len(LOGIC))](self.pick("bool"), self.pick("bool")))
        elif draw < 0.76:
            kind = FLOATING[rng.integers(2)] if rng.random() < 0.8 else ["int32", "int64"][rng.integers(2)]
            self.add(qb.where(self.pick("bool"), self.pick(kind), self.pick(kind)))
        elif draw < 0.80:
            kind = ["int32", "int64"][rng.integers(2)]
            self.add(WHOLE[rng.integers(len(WHOLE))](self.pick(kind), self.pick(kind)))
        elif draw < 0.82:
            kind = ["int32", "int64"][rng.integers(2)]
            self.add(COMPARE[rng.integers(len(COMPARE))](self.pick(kind), self.pick(kind)))
        elif draw < 0.90:
            kinds = list(self.values)
            source, target = kinds[rng.integers(5)], kinds[rng.integers(5)]
            a = self.pick(source)
            self.add(to_whole(a, target) if source in FLOATING and "int" in target else a.astype(target))
        elif draw < 0.94:
            self.add(self.moved(self.pick(list(self.values)[rng.integers(5)])))
        elif draw < 0.97:
            self.add(self.constants[rng.integers(len(self.constants))] + 0 * self.pick("float64"))
            self.add(self.pick("float64") * float(rng.choice([0.5, -0.0, 3.0, np.inf])))
        elif self.reductions > 0:
            self.reductions -= 1
            kind = list(self.values)[rng.integers(5)]
            self.add(self.reduced(self.pick(kind)))


def random_program(seed, shape, length, constants):
    """A function of arrays x, y (float64), u, v (float32), k (int64), m (bool) and big, of which it takes slices."""

    def program(x, y, u, v, k, m, big):
        rng = np.random.default_rng(seed)
        drawing = Drawing(rng, shape, constants)
        drawing.reductions = int(rng.integers(4))
        drawing.singles = [0.5, 0.5, 0.1, 0.9][rng.integers(4)]
        for value in (x, y, u, v, k, m, k.astype("int32"), x > y, u < v):
            drawing.add(value)
        inner = tuple(slice(1, 1 + 2 * n, 2) for n in shape)
        outer = tuple(slice(n, None, -1) if n > 1 else slice(0, 1) for n in shape)
        drawing.add(big[inner])
        drawing.add(big[outer][tuple(slice(0, n) for n in shape)])
        for _ in range(length):
            drawing.step()
        outputs = []
        for values in drawing.values.values():
            outputs += values[-1 : -1 - int(rng.integers(1, 4)) : -1]
        last, single = drawing.values["float64"][-1], drawing.values["float32"][-1]
        which = int(rng.integers(6))
        outputs.append([qb.sum, qb.max, qb.mean, qb.argmax, qb.argmin, qb.sum][which](last))
        outputs.append(qb.any(drawing.values["bool"][-1]))
        outputs.append(qb.sum(single, axis=0) if single.ndim else single)
        outputs.append(qb.all(drawing.values["bool"][-1], axis=-1) if drawing.values["bool"][-1].ndim else last)
        return outputs

    return program


SIZES = [*range(1, 18), 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1000]


def random_shape(rng):
    draw = rng.random()
    if draw < 0.05:
        return ()
    size = int(SIZES[rng.integers(len(SIZES))])
    if draw < 0.5:
        return (size,)
    if draw < 0.65:
        size = min(size, 33)
        return (size, size)
    other = int(rng.integers(1, 10))
    return (size, other) if draw < 0.8 else (other, size) if draw < 0.95 else (2, other, min(size, 65))


def arguments(rng, shape):
    def floating(shape, dtype):
        with np.errstate(over="ignore"):
            return np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape), rng.standard_normal(shape)).astype(
                dtype
            )

    def laid_out(a):
        """Equal to a, in memory of another order."""
        way = rng.integers(4)
        if way == 1 and a.ndim:
            return np.asfortranarray(a)
        if way == 2 and a.ndim:
            return np.ascontiguousarray(a[::-1])[::-1]
        if way == 3 and a.ndim:
            return np.repeat(a, 2, axis=-1)[..., ::2]
        return a

    arrays = [floating(shape, "float64"), floating(shape, "float64"), floating(shape, "float32")]
    arrays += [floating(shape, "float32"), rng.integers(-9, 9, shape), rng.random(shape) < 0.5]
    arrays = [qb.asarray(laid_out(np.asarray(a)), dtype=str(a.dtype)) for a in arrays]
    return [*arrays, qb.asarray(floating(tuple(2 * n + 1 for n in shape), "float64"))]


def results(seed):
    """Of one random program: jitted, along a direction, in a loop, and in a batch of loops of different lengths."""
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    length = int([8, 20, 60, 300][rng.choice(4, p=[0.3, 0.4, 0.25, 0.05])])
    given = arguments(rng, shape)
    constants = [qb.asarray(rng.standard_normal(s)) for s in (shape, shape[-1:], ())]
    program = random_program(seed, shape, length, constants)
    way = int(rng.integers(5))
    if way <= 1 or length > 60:
        found = list(qb.jit(program)(*given))
    elif way == 2:
        x, y = given[:2]
        found = list(qb.jvp(lambda x, y: program(x, y, *given[2:])[0], (x, y), (y, x)))
    elif way == 3:

        def body(i, carry):
            x, y, s, n = carry
            outputs = program(x, y, *given[2:])
            more = qb.broadcast_to(outputs[0], shape)
            inner = qb.fori_loop(0, n, lambda j, t: qb.where(t > 2, t * 0.5, t + s), s)
            return more, x, inner + qb.sum(outputs[0]), (n + i) % 4

        carry = given[0], given[1], qb.asarray(0.5), qb.asarray(2, dtype="int64")
        found = list(qb.jit(lambda *carry: qb.fori_loop(0, 3, body, carry))(*carry))
    else:

        def until(x, y, limit):
            def body(carry):
                i, x, y = carry
                return i + 1, qb.broadcast_to(program(x, y, *given[2:])[0], shape), x

            return qb.while_loop(lambda carry: carry[0] < limit, body, (qb.asarray(0, dtype="int64"), x, y))

        limits = qb.asarray(np.arange(3), dtype="int64")
        found = list(qb.jit(qb.vmap(until, in_axes=(None, None, 0)))(given[0], given[1], limits))
    with np.errstate(invalid="ignore"):  # of a NaN only that it is one: its payload is no result
        return [np.where(np.isnan(r), np.nan, r) if r.dtype.kind == "f" else r for r in map(np.asarray, found)]


def main(first, limit):
    for seed in range(first, limit):
        print(seed, " ".join(f"{r.dtype}{r.shape}{zlib.crc32(r.tobytes()):x}" for r in results(seed)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
