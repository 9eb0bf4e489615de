"""Machine code of small kernels against the interpreter: the same bits, whatever the lanes and their values are."""

import os
import subprocess
import sys

import numpy as np
import pytest
import quabla as qb

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-310, -3e300, 2.0, 1e-40]
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
    lambda a: qb.where(qb.isnan(a), 0.25, a),
    lambda a: qb.where(a != 0, 1, a),
    lambda a: qb.where(~(a < 0.5), a, -2.0),
    lambda a: (a > 0).astype(a.dtype),
    lambda a: a.astype("float32").astype(a.dtype),
    qb.floor,
]
BINARY = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    qb.maximum,
    qb.minimum,
    lambda a, b: qb.where(a < b, a, b),
    lambda a, b: qb.where((a <= b) & (b == b), a * b, b),
    lambda a, b: qb.where((a > 0) ^ (b > 0), a, 1.0),
    lambda a, b: qb.where((a == b) | (a >= 1), b, -b),
    lambda a, b: qb.where(a < 0.5, b.astype("float32"), a.astype("float32")).astype(a.dtype),
]
SHAPES = [
    (),
    (1,),
    (2,),
    (3,),
    (4,),
    (5,),
    (7,),
    (8,),
    (3, 5),
    (5, 1),
    (2, 9),
    (6, 6),
    (64,),
    (3, 85),
    (256,),
    (2, 128),
    (3, 100),
]


def random_program(rng, shape):
    """A function of three arrays that combines some dozens of operations, and what it is called with."""
    choices = rng.integers(0, 1 << 30, size=(int(rng.integers(2, 40)), 3))
    kinds = rng.random(len(choices))

    def program(x, y, z):
        values = [x, y, z]
        masks = [x > y]
        for (which, first, second), kind in zip(choices, kinds):
            a, b = values[first % len(values)], values[second % len(values)]
            if kind < 0.4:
                values.append(UNARY[which % len(UNARY)](a))
            elif kind < 0.9:
                values.append(BINARY[which % len(BINARY)](a, b))
            else:
                values.append(a.T + b if shape[:1] == shape[1:] else a * 0.5)
            if kind > 0.8:
                masks.append(values[-1] > b)
        outputs = [values[i] for i in range(len(values) - 1, 2, -5)]
        outputs += [
            qb.sum(values[-1]),
            qb.max(values[-2]),
            qb.sum(values[len(values) // 2] + x, axis=-1) if shape else x,
        ]
        return outputs + masks[-2:]

    return program


def arguments(rng, shape, dtype):
    def array(shape):
        ordinary = rng.standard_normal(shape)
        with np.errstate(over="ignore"):
            return np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), ordinary).astype(dtype)

    return array(shape), array(shape), array(shape[-1:] if rng.random() < 0.5 else ())


def results(seed):
    """Of one random program: called, in a loop, and its derivative along a direction."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    dtype = ["float64", "float32"][seed // len(SHAPES) % 2]
    program = random_program(rng, shape)
    x, y, z = (qb.asarray(a) for a in arguments(rng, shape, dtype))
    found = list(qb.jit(program)(x, y, z))
    found += list(qb.jvp(lambda x, y: program(x, y, z)[0], (x, y), (y, x)))
    found.append(
        qb.jit(lambda x, y: qb.fori_loop(0, 3, lambda i, c: (program(*c, z)[0] + 0 * c[0], c[0]), (x, y)))(x, y)[0]
    )
    with np.errstate(invalid="ignore"):  # of a NaN only that it is one: its payload is no result
        return [np.where(np.isnan(r), np.nan, r) if r.dtype.kind == "f" else r for r in map(np.asarray, found)]


def main(first, limit):
    for seed in range(first, limit):
        print(seed, " ".join(f"{r.dtype}{r.shape}{r.tobytes().hex()}" for r in results(seed)))


def run(first, limit, **environment):
    """The lines of main() in a process of its own."""
    environment = dict(os.environ, **environment)
    command = [sys.executable, __file__, str(first), str(limit)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()


# with the seeds from 310, a value of one size once met another in scratch memory
@pytest.mark.parametrize("first", [0, 34, 68, 102, 310, 430])
def test_random_programs_have_the_same_bits_with_and_without(first):
    interpreted = run(first, first + 34, QUABLA_MACHINE_CODE="0")
    assert len(interpreted) == 34
    for isa in ["avx512", "avx2"]:
        for a, b in zip(interpreted, run(first, first + 34, QUABLA_ISA=isa), strict=True):
            assert a == b


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
