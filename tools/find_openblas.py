"""Prints where the scipy-openblas32 package of this Python lies: include folder, library folder, link name.

The build asks through this file instead of importing the package, since the import loads the library itself.
"""

import importlib.util
import pathlib
import sys

PACKAGE = "scipy_openblas32"


def main() -> int:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        print(
            f"BLAS not found: {sys.executable} has no package scipy-openblas32. "
            "Install it there (pip install scipy-openblas32), or configure with -Dblas=system to use the system's.",
            file=sys.stderr,
        )
        return 1
    folder = pathlib.Path(spec.origin).resolve().parent
    libraries = sorted(path for path in (folder / "lib").iterdir() if path.name.startswith("libscipy_openblas"))
    if not libraries:
        print(f"BLAS not found: no libscipy_openblas in {folder / 'lib'}; reinstall scipy-openblas32.", file=sys.stderr)
        return 1
    print(folder / "include", folder / "lib", libraries[0].name.split(".")[0].removeprefix("lib"), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
