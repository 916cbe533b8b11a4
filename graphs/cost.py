"""Expected cost of a workload: integer nanoseconds of its steps under a method's cost model and its buckets."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Rows of one step -> how often, by method. A prompt is one step of encoder and decoder: where it has more rows than the
# bound it is split. Nine decode steps for each prompt, mostly of few requests; prompts of a chat, some of them long.
Histogram = Mapping[str, Mapping[int, int]]
_PROMPTS = {16: 5, 64: 15, 128: 15, 256: 20, 512: 20, 1024: 10, 2048: 8, 4096: 5, 8192: 2}
DEFAULT_HISTOGRAM: Histogram = {
    "decode": {1: 300, 2: 120, 4: 120, 8: 120, 16: 120, 32: 80, 64: 40},
    "encoder": _PROMPTS, "decoder": _PROMPTS, "head": {1: 80, 2: 10, 4: 10},
}


@dataclass(frozen=True)
class CostModel:
    """Integer nanoseconds: of one replay, of each launched row, and how much more an eager run takes."""

    replay_ns: int
    row_ns: int
    eager_ns: int


# Of the synthetic 40-layer plan on one H200 (tools/docs/figures.md): 3.06 ms at 1 row, 5.86 ms at 352. How much more
# launches cost one by one was not measured there: about 3 us for each of 1,045.
DEFAULT_COST = CostModel(replay_ns=3_050_000, row_ns=8_000, eager_ns=3_000_000)


def step_ns(rows: int, buckets: Sequence[int], cost: CostModel) -> int:
    """One run: padded to the least bucket that holds the rows, eager at the exact size above all of them."""
    place = bisect.bisect_left(buckets, rows)
    if place == len(buckets):
        return cost.replay_ns + cost.eager_ns + cost.row_ns * rows
    return cost.replay_ns + cost.row_ns * buckets[place]


def workload_ns(sizes: Mapping[int, int], bound: int, buckets: Sequence[int], cost: CostModel) -> int:
    """All runs of one method: what has more rows than the bound runs as full steps and one for the rest."""
    total = 0
    for rows, count in sizes.items():
        full, rest = divmod(rows, bound)
        total += count * (full * step_ns(bound, buckets, cost) + (step_ns(rest, buckets, cost) if rest else 0))
    return total
