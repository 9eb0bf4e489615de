"""The pages that are written by tools are what the tools would write."""

import importlib.util
import pathlib

import quabla as qb

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_operations_are_fresh():
    operations = tool("operations")
    text = operations.PAGE.read_text()
    assert operations.page(text) == text, "run tools/operations.py"
    assert operations.page(text.replace("| Sine, radians |", "| stale |")) == text


def test_every_operation_has_its_rules():
    """No operation is without a derivative (unless it is zero), a batching rule, or a way to run."""
    for operation in qb._core.operations():
        cells = tool("operations").rules(operation)
        assert not any(cell.startswith("refused") for cell in cells), operation["name"]
