"""The code of the README and of the documents, and the examples, run, and print what they promise.

A comment behind a `print` in a code block says how its output begins; these are checked in order.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import quabla as qb

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROMISE = re.compile(r"^\s*print\(.*\)\s+# (.*)$", re.MULTILINE)


def run(arguments, cwd):
    """Standard output of Python in a fresh process that imports what this one does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def blocks():
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        for match in BLOCK.finditer(text):
            line = text[: match.start()].count("\n") + 2
            found.append(pytest.param(match.group(1), id=f"{path.name}, line {line}"))
    return found


@pytest.mark.parametrize("code", blocks())
def test_block_of_a_document(code, tmp_path):
    lines = iter(run(["-c", code], tmp_path).splitlines())
    for promise in PROMISE.findall(code):
        assert any(line.startswith(promise) for line in lines), f"nothing printed begins with {promise!r}"


def test_the_readme_has_its_two_examples():
    codes = [parameter.values[0] for parameter in blocks()]
    assert sum("# w = 3.141593" in code for code in codes) == 1
    assert sum("qb.devices()" in code for code in codes) == 1


def test_the_readme_says_what_is_missing():
    (missing,) = re.findall(r"^Not there yet: (.*?)\n\n", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    names = re.findall(r"`qb\.(\w+)`", missing)
    assert names
    assert [name for name in names if hasattr(qb, name)] == []


def test_poisson1d(tmp_path):
    output = run([ROOT / "examples" / "poisson1d.py"], tmp_path)
    w, loss = re.fullmatch(r"w = (\S+), loss = (\S+)\n", output).groups()
    assert w == "3.141593"
    assert float(loss) <= 1e-12


def test_devices(tmp_path):
    first, *others = run([ROOT / "examples" / "devices.py"], tmp_path).splitlines()
    dtype, value, *gradient = re.sub(r"[\[\],]", "", first).split()
    assert dtype == "float32"
    assert float(value) == pytest.approx(0.46081224, rel=1e-6)
    assert [float(g) for g in gradient] == pytest.approx([0.0, -0.09867793, 0.19735585, 1.4849328], rel=1e-6)
    assert others[0].split()[0] == "cpu"
    assert float(others[0].split()[1]) == float(value)


def test_poisson2d_mlp(tmp_path):
    """A few steps of it: the error is reported, and the picture drawn where matplotlib is there."""
    output = run([ROOT / "examples" / "poisson2d_mlp.py", "40"], tmp_path)
    error = re.search(r"relative L2 error (\S+) after 40 steps", output)
    assert error, output
    assert 0.0 < float(error.group(1)) < 2.0
    assert ("picture: " in output) == (tmp_path / "poisson2d_mlp.png").exists()


def test_lynx_hare(tmp_path):
    """The whole fit: its rates are those of the literature (0.545, 0.028, 0.80, 0.024 in Carpenter's study)."""
    output = run([ROOT / "examples" / "lynx_hare.py"], tmp_path)
    found = {name.strip(): float(value) for name, value in re.findall(r"^(.{15}) +(\S+) \+- ", output, re.MULTILINE)}
    assert found["growth"] == pytest.approx(0.545, abs=0.03)
    assert found["predation"] == pytest.approx(0.028, abs=0.002)
    assert found["death"] == pytest.approx(0.80, abs=0.03)
    assert found["gain"] == pytest.approx(0.024, abs=0.002)
    assert ("picture: " in output) == (tmp_path / "lynx_hare.png").exists()
