"""Quabla: differentiable scientific computing.

A plain function over arrays is traced once, differentiated (any order, any mode), batched, compiled, and run:

    import quabla as qb

    step = qb.jit(qb.value_and_grad(loss))

Arrays are immutable, float64 unless asked otherwise, and follow NumPy's names and rules.
"""

from . import loading  # noqa: F401, I001 (before whatever else needs _core)
from . import _core, errors, linalg, numpy_calls, optim, tree  # noqa: F401
from ._core import *  # noqa: F403
from .arrays import *  # noqa: F403
from .control import *  # noqa: F403
from .custom import *  # noqa: F403
from .debug import *  # noqa: F403
from .errors import *  # noqa: F403
from .sparse import *  # noqa: F403
from .taylor import *  # noqa: F403
from .transforms import *  # noqa: F403

__version__ = _core.version
