"""Linear algebra: of the matrices in the last two axes; all other axes are batch axes, which broadcast.

The functions are rows of functions.def. Those that give several results give a named tuple, whose type is here, too.
"""

from . import _core

globals().update(_core.linalg_functions)
__all__ = list(_core.linalg_functions)
for _function in _core.linalg_functions.values():
    if _function.result_type:
        globals()[_function.result_type.__name__] = _function.result_type
del _function
