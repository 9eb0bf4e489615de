"""What `meson install` leaves is enough to compile and run a C program, wherever it is moved (docs/c.md)."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import quabla as qb

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(qb._core.__file__).resolve().parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH")}

pytestmark = [
    pytest.mark.skipif(not (BUILD / "build.ninja").exists(), reason="quabla is not imported from a build folder"),
    pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer's runtime would be loaded into the compiler"),
]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **{"env": ENVIRONMENT, **options})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_program_on_the_installed_library(tmp_path):
    tools = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = {"env": {**ENVIRONMENT, "PATH": tools, "DESTDIR": str(tmp_path / "staged")}}
    run("meson", "install", "-C", str(BUILD), "--no-rebuild", "--tags", "runtime,devel", **options)
    (header,) = (tmp_path / "staged").rglob("quabla.h")
    (package,) = (tmp_path / "staged").rglob("quabla.pc")
    moved = tmp_path / "moved"
    shutil.copytree(package.parents[1], moved, symlinks=True)

    text = package.read_text()
    assert re.search(r"^Libs: .*-lquabla$", text, re.MULTILINE), text
    program = tmp_path / "gradient"
    compiler = shutil.which("cc") or "gcc"
    source, include = str(ROOT / "examples/c/gradient.c"), str(header.parents[1])
    run(compiler, source, f"-I{include}", f"-L{moved}", "-lquabla", "-lm", f"-Wl,-rpath,{moved}", "-o", str(program))
    assert "w = (0.5000, -1.5000)" in run(str(program))

    paths = run("readelf", "-d", str(moved / "libquabla.so"))
    run_path = re.findall(r"RUNPATH.*\[(.*)\]", paths)
    assert all(path.startswith("$ORIGIN") for path in run_path), run_path
