"""Makes an importable `quabla` of a build folder: links to the Python sources beside the extension built there.

BUILD/python is then what to put on the module path. Edits of Python files show without a build; each build folder
(plain, sanitizers) has its own package. With --activate, the Python that runs this imports from there from now on.
"""

import argparse
import pathlib
import sys
import sysconfig

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "python" / "quabla"
PACKAGED = {".py", ".pyi", ".typed"}


def link(at: pathlib.Path, target: pathlib.Path) -> None:
    if at.is_symlink() and at.readlink() == target:
        return
    at.unlink(missing_ok=True)
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--activate", action="store_true")
    arguments = parser.parse_args()

    site = arguments.build.resolve() / "python"
    package = site / "quabla"
    if not any(package.glob("_core.*.so")):
        print(f"{package} holds no extension module: build first", file=sys.stderr)
        return 1
    wanted = {package / path.relative_to(SOURCES): path for path in SOURCES.rglob("*") if path.suffix in PACKAGED}
    for path in package.rglob("*"):
        if path.is_symlink() and path not in wanted:
            path.unlink()
    for at, target in wanted.items():
        link(at, target)
    if arguments.activate:
        pathlib.Path(sysconfig.get_path("purelib"), "quabla-build.pth").write_text(f"{site}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
