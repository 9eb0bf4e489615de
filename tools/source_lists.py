"""Compares the lists of source files in the meson.build files with the folders they describe.

Meson wants its sources listed, so that a build notices when one comes or goes. A forgotten file shows late and
obscurely, hence this check (`make lint`); with --write it renews the lists instead.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTS = {
    "src/base": "*.c",
    "src/graph": "*.c",
    "src/ops": "*.c",
    "src/functions": "*.c",
    "src/transforms": "*.c",
    "src/control": "*.c",
    "src/passes": "*.c",
    "src/program": "*.c",
    "src/codegen": "*.c",
    "src/cpu": "*.c",
    "python/ext": "*.c",
    "python/quabla": "*.py",
    "tests/c": "*.c",
    "examples/c": "*.c",
}
# Compiled once per instruction set, not as part of a list
SPECIAL = {"src/cpu/gemm.c", "src/cpu/lanes.c", "src/cpu/loops.c", "src/cpu/small.c", "src/cpu/sort_loops.c"}
LIST = re.compile(r"files\(\n(?:  '[^']*',\n)*\)")


def expected(folder: str, pattern: str) -> str:
    paths = sorted(path for path in (ROOT / folder).glob(pattern))
    names = [path.name for path in paths if path.relative_to(ROOT).as_posix() not in SPECIAL]
    return "files(\n" + "".join(f"  '{name}',\n" for name in names) + ")"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew the lists")
    write = parser.parse_args().write
    for path in [*(ROOT / "src").rglob("*.c"), *(ROOT / "python" / "quabla").rglob("*.py")]:
        folder = path.parent.relative_to(ROOT).as_posix()
        if folder not in LISTS:
            print(f"{folder} has sources but no list: add a meson.build there, and the folder to this tool's LISTS")
            return 1
    stale = []
    for folder, pattern in LISTS.items():
        build = ROOT / folder / "meson.build"
        text = build.read_text()
        wanted = LIST.sub(expected(folder, pattern), text, count=1)
        if wanted == text:
            continue
        stale.append(f"{folder}/meson.build")
        if write:
            build.write_text(wanted)
    if stale and not write:
        print("lists of sources out of date:", ", ".join(stale), "(run: python tools/source_lists.py --write)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
