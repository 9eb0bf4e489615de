"""Rows and figures: what is measured, and what is wanted of it.

A row gives, for each peer, a function make(lib) that prepares its data and returns fresh(), which makes every function
anew and returns the call to time. A figure is a function that returns named numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """Calls to compare, with the factors over the fastest of the peers, and the seconds, that should be reached."""

    family: str
    name: str
    make: dict[str, Callable]
    staging: float | None = None  # over JAX
    call: float | None = None
    over: str | None = None  # the peer that `call` is a factor over; None: the fastest
    seconds: float | None = None
    tolerance: float = 1e-9
    checked_calls: int = 3


@dataclass(frozen=True)
class Figure:
    """One number, and the bound that it should stay under (None: no bound)."""

    name: str
    value: float
    unit: str
    bound: float | None = None

    @property
    def met(self) -> bool:
        return self.bound is None or self.value < self.bound


@dataclass
class Registry:
    rows: list[Row] = field(default_factory=list)
    figures: list[tuple[str, Callable[[], list[Figure]]]] = field(default_factory=list)


REGISTRY = Registry()


def row(family: str, name: str, make: dict[str, Callable], **targets) -> None:
    REGISTRY.rows.append(Row(family, name, make, **targets))


def figures(family: str):
    def register(measure):
        REGISTRY.figures.append((family, measure))
        return measure

    return register


def every_row() -> list[Row]:
    import rows  # noqa: F401  (its modules enter their rows)

    return REGISTRY.rows


def find(name: str) -> Row:
    return next(row for row in every_row() if row.name == name)
