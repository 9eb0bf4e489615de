"""DLPack with other libraries, where one is installed: here, or in the environment of the benchmarks."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
import quabla as qb

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python_with(module):
    """An interpreter that has the module and can import this package, or None."""
    if importlib.util.find_spec(module):
        return sys.executable
    other = ROOT / ".venv-bench/bin/python"
    find = f"import importlib.util, sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]} or not importlib.util.find_spec({module!r}))"
    if other.exists() and subprocess.run([other, "-c", find], check=False).returncode == 0:
        return other
    return None


@pytest.mark.parametrize("module", ["jax", "torch"])
def test_arrays_go_both_ways(module):
    if "LD_PRELOAD" in os.environ:
        pytest.skip("a sanitizer's library is loaded into every process")
    python = python_with(module)
    if python is None:
        pytest.skip(f"{module} is not installed")
    package = str(pathlib.Path(qb.__file__).parents[1])
    run = subprocess.run(
        [python, pathlib.Path(__file__).with_name("dlpack_peers.py"), module],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": package},
    )
    assert run.returncode == 0, run.stderr
