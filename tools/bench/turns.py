"""Times of functions that take turns, so that what else the machine does hits all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

MIN_BLOCK_SECONDS = 0.2


def medians(functions: Sequence[Callable[[], object]], repeat: int) -> list[float]:
    """Medians over `repeat` blocks of each function, in microseconds a call."""
    counts = []
    for function in functions:
        _block(function, 2)
        counts.append(max(1, int(MIN_BLOCK_SECONDS / _block(function, 1))))
    samples: list[list[float]] = [[] for _ in functions]
    for _ in range(repeat):
        for side, function, count in zip(samples, functions, counts, strict=True):
            side.append(_block(function, count) / count * 1e6)
    return [statistics.median(side) for side in samples]


def _block(function: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function()
    return time.perf_counter() - start
