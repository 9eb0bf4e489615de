"""The rows, a family a module. Importing one enters its rows; the order here is the order of the tables."""

from . import readme, pinn, chain, arrays, linalg, hessian, loops, calls, staging, varied, figures  # noqa: F401, I001
