#!/usr/bin/env python3
"""Writes the tables of docs/operations.md from what the library says of itself.

    tools/operations.py            renew the page
    tools/operations.py --check    fail if it is not what would be written

Needs a finished build whose package Python imports (`make build`).
"""

import argparse
import inspect
import math
import pathlib
import sys

import quabla as qb
from quabla import _core

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/operations.md"
BEGIN, END = "<!-- begin written by tools/operations.py: {} -->", "<!-- end -->"


def rules(operation):
    """The cells of a primitive operation: forward mode, reverse mode, batching, CPU."""
    leaf = operation["arity"] == 0
    if operation["flat"]:
        forward, reverse = ("not needed: a leaf",) * 2 if leaf else ("zero", "not needed: zero")
    elif leaf:
        forward, reverse = "the tangent given", "the cotangent asked for"
    else:
        origin = "derived" if operation["elementwise"] else "written"
        forward = origin if operation["jvp"] else "refused: no derivative"
        reverse = origin if operation["transpose"] else "not needed: not linear"
    if leaf:
        batching = "not needed: a leaf"
    elif operation["elementwise"]:
        batching = "derived"
    elif operation["transpose_only"]:
        batching = "not needed: transposed before anything is batched"
    else:
        batching = "written" if operation["batch"] else "refused: no rule"
    return forward, reverse, batching, cpu(operation)


def cpu(operation):
    if operation["lane"]:
        return "lane kernel, fused"
    if operation["view"]:
        return "strides: nothing is moved"
    if operation["cpu"]:
        return "kernel, in place" if operation["overwrites"] else "kernel"
    if operation["name"].startswith("reduce_"):
        return "reduction kernel, fused with its operand"
    if operation["name"] == "dot":
        return "tiles, loops, or BLAS"
    if operation["name"] in ("loop", "switch", "checkpoint"):
        return "steps of its own, in the same program"
    if operation["transpose_only"]:
        return "never runs: transposed before"
    if operation["name"] in ("custom_jvp", "custom_vjp", "custom_end"):
        return "replaced by its body before it runs"
    return "nothing to do"


def one_line(text):
    return " ".join(text.split()).replace("|", "\\|")


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def matrix():
    heads = ("Operation", "", "Forward", "Reverse", "Batching", "CPU")
    return table(heads, [(f"`{o['name']}`", one_line(o["summary"]), *rules(o)) for o in _core.operations()])


def public_functions():
    """Functions of arrays, by name: what is callable and public in the core, but for constructors and types."""
    kind = type(_core.sin)
    functions = {name: value for name, value in vars(_core).items() if type(value) is kind}
    return functions | {f"linalg.{name}": function for name, function in _core.linalg_functions.items()}


def functions():
    rows = []
    for name, function in sorted(public_functions().items()):
        summary = function.__doc__.split("\n\n")[1]
        method = "yes" if hasattr(_core.Tensor, name) else ""
        rows.append((f"`{name}{inspect.signature(function)}`", method, one_line(summary)))
    return table(("Function", "Method", ""), rows)


# ---------------------------------------------------------------------------------- derivatives at special points

INF = math.inf


def broken_line(x):
    return qb.interp(x, qb.array([0.0, 1.0, 2.0], dtype=x.dtype), qb.array([0.0, 1.0, 5.0], dtype=x.dtype))


# (function, or several that agree; as it is written; point): of one number, or of a vector
SPECIAL_POINTS = [
    (qb.sqrt, "sqrt(x)", 0.0),
    (qb.cbrt, "cbrt(x)", 0.0),
    (qb.abs, "abs(x)", 0.0),
    (qb.sign, "sign(x)", 0.0),
    (qb.relu, "relu(x)", 0.0),
    ((qb.floor, qb.ceil, qb.round, qb.trunc), "floor(x), ceil, round, trunc", 1.0),
    (lambda x: qb.clip(x, 0.0, 1.0), "clip(x, 0, 1)", 0.0),
    (lambda x: qb.clip(x, 0.0, 1.0), "clip(x, 0, 1)", 1.0),
    (lambda x: qb.clip(x[0], x[1], x[2]), "clip(x, lo, hi)", [0.0, 0.0, 1.0]),
    (lambda x: qb.clip(x[0], x[1], x[2]), "clip(x, lo, hi)", [5.0, 3.0, 2.0]),
    (tuple(lambda x, f=f: f(x[0], x[1]) for f in (qb.maximum, qb.minimum)), "maximum(x, y), minimum", [2.0, 2.0]),
    (lambda x: qb.maximum(x, 1.0), "maximum(x, 1)", 1.0),
    (qb.max, "max(v)", [3.0, 3.0, 1.0]),
    (qb.min, "min(v)", [3.0, 1.0, 1.0]),
    (qb.norm, "norm(v)", [0.0, 0.0]),
    (lambda x: qb.norm(x) ** 2, "norm(v)**2", [0.0, 0.0]),
    (lambda x: qb.hypot(x[0], x[1]), "hypot(x, y)", [0.0, 0.0]),
    (lambda x: qb.hypot(x[0], x[1]) ** 2, "hypot(x, y)**2", [0.0, 0.0]),
    (qb.std, "std(v)", [3.0, 3.0]),
    (lambda x: qb.atan2(x[0], x[1]), "atan2(y, x)", [0.0, 0.0]),
    (lambda x: qb.atan2(x[0], x[1]), "atan2(y, x)", [INF, 1.0]),
    (lambda x: x**2, "x**2", 0.0),
    (lambda x: x**2.0, "x**2.0", 0.0),
    (lambda x: x**1.0, "x**1.0", 0.0),
    (lambda x: x**1.5, "x**1.5", 0.0),
    (lambda x: x**0.5, "x**0.5", 0.0),
    (lambda x: x**0.0, "x**0.0", 0.0),
    (lambda x: x**-1.0, "x**-1.0", 0.0),
    (lambda x: qb.power(x[0], x[1]), "power(x, p)", [0.0, 2.0]),
    (lambda x: qb.power(x[0], x[1]), "power(x, p)", [0.0, 0.0]),
    (lambda x: qb.power(x[0], x[1]), "power(x, p)", [-2.0, 3.0]),
    (lambda x: x**x, "x**x", 0.0),
    ((qb.log, qb.log2, qb.log10), "log(x), log2, log10", 0.0),
    (qb.log1p, "log1p(x)", -1.0),
    (lambda x: 1.0 / x, "1 / x", 0.0),
    (qb.arcsin, "arcsin(x)", 1.0),
    (qb.arcsin, "arcsin(x)", -1.0),
    (qb.arccos, "arccos(x)", 1.0),
    (qb.arccos, "arccos(x)", -1.0),
    (qb.arctanh, "arctanh(x)", 1.0),
    (qb.arccosh, "arccosh(x)", 1.0),
    (qb.prod, "prod(v)", [0.0, 2.0, 3.0]),
    (qb.prod, "prod(v)", [0.0, 0.0, 3.0]),
    (qb.logsumexp, "logsumexp(v)", [-INF, -INF]),
    (lambda x: qb.logaddexp(x[0], x[1]), "logaddexp(x, y)", [-INF, -INF]),
    ((qb.tanh, qb.sigmoid), "tanh(x), sigmoid", 1000.0),
    (lambda x: qb.fmod(x[0], x[1]), "fmod(x, y)", [-5.0, 2.0]),
    (lambda x: qb.mod(x[0], x[1]), "mod(x, y)", [-5.0, 2.0]),
    (broken_line, "interp(x, [0, 1, 2], [0, 1, 5])", 1.0),
    (broken_line, "interp(x, [0, 1, 2], [0, 1, 5])", 2.0),
    (lambda x: qb.where(x > 0.0, qb.log(x), 0.0), "where(x > 0, log(x), 0)", 0.0),
    (lambda x: qb.where(x > 0.0, 1.0 / x, 0.0), "where(x > 0, 1 / x, 0)", 0.0),
]


def shown(values):
    if isinstance(values, list):
        return "[" + ", ".join(map(shown, values)) + "]"
    return f"{values + 0.0:.4g}"  # no -0


def derivatives_at(function, point):
    """Value, gradient and Hessian, as nested lists."""
    x = qb.array(point)
    return [f(x).tolist() for f in (function, qb.grad(function), qb.hessian(function))]


def special_points():
    rows = []
    for function, text, point in SPECIAL_POINTS:
        first = function[0] if isinstance(function, tuple) else function
        rows.append((f"`{text}`", shown(point), *map(shown, derivatives_at(first, point))))
    return table(("Function", "At", "Value", "Derivative", "Second derivative"), rows)


TABLES = (("operations", matrix), ("functions", functions), ("special points", special_points))


def page(text):
    for name, make in TABLES:
        before, rest = text.split(BEGIN.format(name))
        after = rest.split(END, 1)[1]
        text = f"{before}{BEGIN.format(name)}\n\n{make()}\n\n{END}{after}"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the page is stale")
    text = PAGE.read_text()
    new = page(text)
    if parser.parse_args().check:
        sys.exit(0 if new == text else f"{PAGE} is stale: run tools/operations.py")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
