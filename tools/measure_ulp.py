#!/usr/bin/env python3
"""Measures the errors of the lane kernels and writes the table of docs/accuracy.md.

    tools/measure_ulp.py [--build build/dev] [--count 4000000] [--isa avx2 ...]

Needs mpmath, a C compiler, and a finished build. tools/measure_ulp.c searches random arguments for the largest error,
with long double as its reference (which must be wider than double: x86-64). Each largest error is then computed anew
with mpmath, from the kernel's result: what is written does not rest on the C library. lgamma and digamma, for which
there is no such reference, are compared with mpmath at every argument, of which there are fewer.
"""

import argparse
import glob
import os
import random
import struct
import subprocess
import sys
import tempfile

import mpmath
from mpmath import mp, mpf

mp.prec = 2400  # sin of the largest double takes more than 1100 bits

BOUNDS = {"sqrt": ("0.5", "0.5"), "fmod": ("0", "0")} | dict.fromkeys(("erfc", "pow", "lgamma", "digamma"), ("4", "4"))
PYTHON_NAME = {"pow": "power"}
FUNCTIONS = {
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "exp2": lambda x: mpf(2) ** x,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "log1p": lambda x: mpmath.log(1 + x),
    "expm1": lambda x: mpmath.exp(x) - 1,
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "arctan": mpmath.atan,
    "arcsinh": mpmath.asinh,
    "arccosh": mpmath.acosh,
    "arctanh": mpmath.atanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log(1 + mpmath.exp(x)),
    "pow": lambda x, y: x**y,
    "fmod": lambda x, y: mpmath.sign(x) * mpmath.fmod(abs(x), abs(y)),
}


def error_in_ulp(name, dtype, result, arguments):
    function = FUNCTIONS.get(name) or getattr(mpmath, name)
    return ulps(dtype, result, function(*(mpf(x) for x in arguments)))


def ulps(dtype, result, exact):
    digits, least = (53, -1021) if dtype == "float64" else (24, -125)
    if exact == 0:
        return float(abs(mpf(result)))
    exponent = max(mpmath.frexp(exact)[1], least)
    return float(abs(mpf(result) - exact) / mpf(2) ** (exponent - digits))


# By mpmath alone: reference, and the zeros near which arguments are dense
GAMMA = {"lgamma": (mpmath.loggamma, (1.0, 2.0)), "digamma": (mpmath.digamma, (1.4616321449683623,))}
GAMMA_COUNT = 20000


def positive_arguments(zeros, dtype):
    """Of all magnitudes, between 0 and 20, and around the zeros."""
    rng, low, high, bits = random.Random(0), *((-1020, 1013, 50) if dtype == "float64" else (-125, 120, 22))
    for i in range(GAMMA_COUNT):
        if i % 3 == 0:
            x = rng.uniform(1, 2) * 2.0 ** rng.randint(low, high)
        elif i % 3 == 1:
            x = rng.uniform(0, 20)
        else:
            x = rng.choice(zeros) * (1 + rng.choice((-1, 1)) * rng.uniform(1, 2) * 2.0 ** -rng.randint(2, bits))
        yield x if dtype == "float64" else struct.unpack("f", struct.pack("f", x))[0]


def measure_gamma(program, isa):
    """{(name, dtype): error} for lgamma and digamma."""
    errors = {}
    for name, (function, zeros) in GAMMA.items():
        for dtype in ("float64", "float32"):
            arguments = list(positive_arguments(zeros, dtype))
            run = subprocess.run(
                [program, "evaluate", isa, name, dtype],
                input="\n".join(map(float.hex, arguments)),
                check=True,
                capture_output=True,
                text=True,
            )
            results = map(float.fromhex, run.stdout.split())
            with mpmath.workprec(300):
                errors[name, dtype] = max(
                    ulps(dtype, y, function(mpf(x))) for x, y in zip(arguments, results, strict=True)
                )
    return errors


def build_program(build, folder):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    libraries = [os.path.join(build, "libquabla_core.a"), *sorted(glob.glob(os.path.join(build, "src/cpu/*lanes*.a")))]
    program = os.path.join(folder, "measure_ulp")
    command = [os.environ.get("CC", "cc"), "-std=c17", "-O2", "-D_GNU_SOURCE", "-I" + os.path.join(root, "src")]
    command += ["-I" + os.path.join(root, "include"), os.path.join(root, "tools/measure_ulp.c"), "-o", program]
    subprocess.run([*command, "-Wl,--start-group", *libraries, "-Wl,--end-group", "-lm"], check=True)
    return program


def measure(program, count, isa):
    """{(name, dtype): error}, and the name of the instruction set."""
    lines = subprocess.run([program, str(count), *([isa] if isa else [])], check=True, capture_output=True, text=True)
    errors, used = {}, None
    for line in lines.stdout.splitlines():
        name, dtype, claimed, *rest = line.split()
        if name == "instruction-set":
            used = dtype
            continue
        result, *arguments = [float.fromhex(x) for x in rest]
        error = (
            error_in_ulp(name, dtype, result, arguments) if float(claimed) else 0.0
        )  # none found: no arguments either
        if abs(error - float(claimed)) > 0.01:
            sys.exit(f"{name} {dtype} at {arguments}: mpmath says {error}, long double {claimed}")
        errors[name, dtype] = error
    return errors | measure_gamma(program, used), used


def table(columns):
    """Markdown: a row per function, a column per format and instruction set."""
    heads = [f"{dtype}, {isa}" for dtype in ("float64", "float32") for _, isa in columns]
    lines = ["| Function | Bound (float64, float32) | " + " | ".join(heads) + " |", "|---|---|" + "---|" * len(heads)]
    for name in dict.fromkeys(name for name, _ in columns[0][0]):
        bounds = ", ".join(BOUNDS.get(name, ("2", "4")))
        cells = [f"{errors[name, dtype]:.2f}" for dtype in ("float64", "float32") for errors, _ in columns]
        lines.append(f"| `{PYTHON_NAME.get(name, name)}` | {bounds} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


BEGIN, END = "<!-- begin measured by tools/measure_ulp.py -->", "<!-- end measured -->"


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(root, "build/dev"))
    parser.add_argument("--count", type=int, default=4000000)
    parser.add_argument("--isa", nargs="*", default=[None], help="default: the one that the machine would choose")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = build_program(arguments.build, folder)
        columns = [measure(program, arguments.count, isa) for isa in arguments.isa]
    path = os.path.join(root, "docs/accuracy.md")
    with open(path) as f:
        text = f.read()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    note = (
        f"Largest errors in ulp found on {arguments.count} random arguments a function and format, {GAMMA_COUNT} "
        "positive ones of `lgamma` and `digamma`:"
    )
    with open(path, "w") as f:
        f.write(f"{before}{BEGIN}\n\n{note}\n\n{table(columns)}\n\n{END}{after}")


if __name__ == "__main__":
    main()
