#!/usr/bin/env python3
"""Writes the tables of docs/operations.md from what the library says of itself.

    tools/operations.py            renew the page
    tools/operations.py --check    fail if it is not what would be written

Needs a finished build whose package Python imports (`make build`).
"""

import argparse
import inspect
import pathlib
import sys

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
        return "loops, or BLAS"
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
    return {name: value for name, value in vars(_core).items() if type(value) is kind}


def functions():
    rows = []
    for name, function in sorted(public_functions().items()):
        summary = function.__doc__.split("\n\n")[1]
        method = "yes" if hasattr(_core.Tensor, name) else ""
        rows.append((f"`{name}{inspect.signature(function)}`", method, one_line(summary)))
    return table(("Function", "Method", ""), rows)


def page(text):
    for name, make in (("operations", matrix), ("functions", functions)):
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
