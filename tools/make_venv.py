"""Makes (or brings up to date) a virtual environment with the packages of a requirements file, quietly.

usage: make_venv.py FOLDER REQUIREMENTS
"""

import subprocess
import sys

OLDEST = (3, 10)


def main() -> int:
    folder, requirements = sys.argv[1:]
    if sys.version_info < OLDEST:
        print(
            f"{sys.executable} is Python {sys.version_info.major}.{sys.version_info.minor}; Quabla needs "
            f"{OLDEST[0]}.{OLDEST[1]} or newer. Name another interpreter: make PYTHON=/path/to/python3",
            file=sys.stderr,
        )
        return 1
    try:
        import ensurepip  # noqa: F401  (absent where a distribution splits venv off)
        import venv
    except ImportError:
        print(
            f"{sys.executable} cannot make virtual environments; install its venv module (Debian: python3-venv).",
            file=sys.stderr,
        )
        return 1
    venv.create(folder, with_pip=True)
    install = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    return subprocess.run([*install, "-r", requirements], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
