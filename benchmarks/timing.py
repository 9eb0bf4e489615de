"""What is timed and how samples are summed up. How peers take turns is in workers.py."""

import gc
import timeit
from dataclasses import dataclass

import numpy as np

BLOCK_SECONDS = 5e-4  # far shorter than a time slice of a busy machine: most blocks run without a break
WARM_SECONDS = 2e-3  # waking a virtual processor that halts takes up to half a millisecond
LONG_SECONDS = 3e-2  # a block that an interruption does not change much
LARGE = 10_000  # results with more elements are compared by samples


class Call:
    """A statement to time, and the names it uses: Call("f(x)", f=f, x=x).

    A statement and not a function, so that the call of a wrapper is not part of what is measured. What a peer must do
    before its first call, and counts as part of it (build a symbolic graph), is `build`, which returns further names;
    `result` reads the result where the statement does not return it.
    """

    def __init__(self, statement: str, build=None, result=None, **names):
        self.statement, self.names, self.build, self.result = statement, names, build, result
        self._timer = None

    def _ready(self) -> None:
        if self._timer is None:
            if self.build:
                self.names.update(self.build())
            self._timer = timeit.Timer(self.statement, globals=self.names)

    def value(self):
        self._ready()
        value = eval(self.statement, self.names)
        return self.result() if self.result else value

    def first(self) -> float:
        """Seconds of the first call."""
        start = timeit.default_timer()
        self._ready()
        prepared = timeit.default_timer() - start if self.build else 0.0
        return prepared + self.seconds(1)

    def seconds(self, count: int) -> float:
        """Seconds a call takes, over `count` of them."""
        self._ready()
        return self._timer.timeit(count) / count

    def block_length(self) -> int:
        """How many calls fill a block: from the best of several tries, since an interruption makes a call look long."""
        count = 1
        while True:
            seconds = self.seconds(count) * count
            if seconds < LONG_SECONDS:
                seconds = min(seconds, *(self.seconds(count) * count for _ in range(2)))
            if seconds > BLOCK_SECONDS / 4:
                return max(1, round(count * BLOCK_SECONDS / seconds))
            count *= 4

    def warm_up(self, count: int = 1) -> None:
        """Calls for some time, `count` at once: they wake the processor, the caches and the threads."""
        passed = 0.0
        while passed < WARM_SECONDS:
            passed += self.seconds(count) * count

    def block(self, count: int) -> float:
        """Seconds a call takes, over a block, after others that warm up."""
        self.warm_up(count // 4 + 1)
        return self.seconds(count)


@dataclass(frozen=True)
class Sample:
    """The median of some samples, the quartiles around it, and the smallest. Seconds."""

    median: float
    low: float
    high: float
    best: float

    @classmethod
    def of(cls, samples: list[float]) -> "Sample":
        low, median, high = np.percentile(samples, [25, 50, 75])
        return cls(float(median), float(low), float(high), min(samples))


@dataclass(frozen=True)
class Measured:
    """What one peer needs: the first call of fresh functions, a later call, their difference, and memory in bytes; and
    the floating-point operations of a call where they are known."""

    first: Sample
    steady: Sample
    peak: int | None
    flops: float | None = None

    @property
    def staging(self) -> float:
        return max(self.first.median - self.steady.median, 0.0)


def leaves(result) -> list[np.ndarray]:
    """All arrays of a result of dicts, lists, tuples and arrays of any library, in order."""
    if isinstance(result, dict):
        result = [result[key] for key in sorted(result)]
    if isinstance(result, (list, tuple)):
        return [leaf for part in result for leaf in leaves(part)]
    if hasattr(result, "detach"):
        result = result.detach()
    return [np.asarray(result)]


def digest(result) -> list[tuple[tuple, np.ndarray]]:
    """The shapes and values of a result; of a large array its magnitude and a thousand of its elements."""
    found = []
    for leaf in leaves(result):
        values = leaf.ravel().astype(np.float64)
        if values.size > LARGE:
            values = np.concatenate([[np.abs(values).sum()], values[:: values.size // 1000]])
        found.append((leaf.shape, values))
    return found


def same(a, b, tolerance: float) -> bool:
    """Whether two digests agree, relative to the largest value of each array."""
    return len(a) == len(b) and all(
        shape == other and np.allclose(x, y, rtol=tolerance, atol=tolerance * np.max(np.abs(x), initial=0.0))
        for (shape, x), (other, y) in zip(a, b)
    )


def best_in_turns(measure: dict, rounds: int) -> dict[str, float]:
    """The smallest samples of figures that a busy machine only makes larger, taken in turns."""
    samples = {name: [] for name in measure}
    for _ in range(rounds):
        for name, take in measure.items():
            gc.collect()
            samples[name].append(take())
    return {name: min(taken) for name, taken in samples.items()}
