"""Measuring peers against each other in one process.

What is compared runs in turns, a block of calls of one and a block of the other, so that a busy machine disturbs both
alike; figures are medians over rounds. A first call traces and compiles, so each of its samples is taken with functions
that are made anew.
"""

import gc
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

BLOCK_SECONDS = 1e-4  # far shorter than a time slice of a busy machine: most blocks run without a break
ROW_SECONDS = 20.0  # a row whose calls take longer than a block gets fewer rounds
FEWEST_ROUNDS = 25


class Call:
    """A statement to time, and the names it uses: Call("f(x)", f=f, x=x).

    A statement and not a function, so that the call of a wrapper is not part of what is measured.
    """

    def __init__(self, statement: str, **names):
        self._code = compile(statement, "<benchmark>", "eval")
        self._names = names
        self._timer = timeit.Timer(statement, globals=names)

    def value(self):
        return eval(self._code, self._names)

    def seconds(self, count: int) -> float:
        """Seconds a call takes, over `count` of them."""
        return self._timer.timeit(count) / count


@dataclass(frozen=True)
class Sample:
    """The median of some samples, and the quartiles around it. Seconds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: list[float]) -> "Sample":
        low, median, high = np.percentile(samples, [25, 50, 75])
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Measured:
    """What one peer needs: the first call of fresh functions, a later call, and their difference."""

    first: Sample
    steady: Sample

    @property
    def staging(self) -> float:
        return max(self.first.median - self.steady.median, 0.0)


def leaves(result) -> list[np.ndarray]:
    """All arrays of a result of dicts, lists, tuples and arrays of any library, in order."""
    if isinstance(result, dict):
        result = [result[key] for key in sorted(result)]
    if isinstance(result, (list, tuple)):
        return [leaf for part in result for leaf in leaves(part)]
    return [np.asarray(result)]


def check_equal(name: str, results: dict[str, object], tolerance: float) -> None:
    """All peers have computed the same."""
    (reference, expected), *others = ((peer, leaves(result)) for peer, result in results.items())
    for peer, found in others:
        same = len(found) == len(expected) and all(
            a.shape == b.shape and np.allclose(a, b, rtol=tolerance, atol=tolerance)
            for a, b in zip(expected, found, strict=True)
        )
        if not same:
            raise AssertionError(f"{name}: {reference} gives {expected}, {peer} gives {found}")


def first_calls(make: dict[str, Callable[[], Call]], rounds: int) -> tuple[dict[str, list[float]], dict[str, Call]]:
    """Seconds of the first calls, and the last made call of each peer. One round before them warms the libraries up."""
    samples: dict[str, list[float]] = {peer: [] for peer in make}
    calls = {}
    for turn in range(rounds + 1):
        for peer, fresh in make.items():
            calls[peer] = fresh()
            gc.collect()
            seconds = calls[peer].seconds(1)
            if turn > 0:
                samples[peer].append(seconds)
    return samples, calls


def block_length(call: Call) -> int:
    """How many calls fill a block."""
    count = 1
    while True:
        seconds = call.seconds(count) * count
        if seconds > BLOCK_SECONDS / 4:
            return max(1, round(count * BLOCK_SECONDS / seconds))
        count *= 4


def steady_calls(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Seconds of a later call, one sample for each block."""
    lengths = {peer: block_length(call) for peer, call in calls.items()}
    a_round = sum(2 * call.seconds(1) * lengths[peer] for peer, call in calls.items())
    rounds = min(rounds, max(FEWEST_ROUNDS, int(ROW_SECONDS / a_round)))
    samples: dict[str, list[float]] = {peer: [] for peer in calls}
    for _ in range(rounds):
        for peer, call in calls.items():
            call.seconds(lengths[peer] // 4 + 1)  # back into the caches, after the others
            samples[peer].append(call.seconds(lengths[peer]))
    return samples


def compare(name: str, make: dict[str, Callable[[], Call]], first_rounds: int, rounds: int, tolerance: float):
    """Measures every peer, after checking that they compute the same: the first results, and three calls later."""
    fresh = {peer: make_call() for peer, make_call in make.items()}
    for _ in range(3):
        check_equal(name, {peer: call.value() for peer, call in fresh.items()}, tolerance)
    first, calls = first_calls(make, first_rounds)
    steady = steady_calls(calls, rounds)
    return {peer: Measured(Sample.of(first[peer]), Sample.of(steady[peer])) for peer in make}


def best_in_turns(measure: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The smallest samples of figures that a busy machine only makes larger, taken in turns."""
    samples: dict[str, list[float]] = {name: [] for name in measure}
    for _ in range(rounds):
        for name, take in measure.items():
            samples[name].append(take())
    return {name: min(taken) for name, taken in samples.items()}
