"""Loads the compiled part, with OpenBLAS told to start no threads.

Quabla calls it from threads of its own. OpenBLAS's would be started as the library is loaded, and keep processors busy
for a tenth of a second, in which they look for work that never comes. Other copies of OpenBLAS are not concerned: those
that are loaded have read their environment, and those that will be find it as it was. Where a build shares the system's
copy (-Dblas=system), that has one thread for all.
"""

import os

NAME = "OPENBLAS_NUM_THREADS"

_before = os.environ.get(NAME)
os.environ[NAME] = "1"
try:
    from . import _core  # noqa: F401
finally:
    if _before is None:
        del os.environ[NAME]
    else:
        os.environ[NAME] = _before
