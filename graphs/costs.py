"""What a step of some rows costs on a ladder: what measured ladders minimise and the trace simulates with."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Integer nanoseconds: of one replay, of each launched row, and how much more an eager run takes.

    The defaults are the 40-layer decode graph on one H200 of tools/docs/figures.md (3,058 µs at 1 row, 5,855 µs at
    352); an eager run launches its 1,045 kernels one by one, at about 3 µs each.
    """

    replay_ns: int = 3_050_000
    row_ns: int = 8_000
    eager_ns: int = 3_000_000


DEFAULT_COSTS = Costs()


@dataclass(frozen=True)
class Run:
    """One run of a method: `launched` rows, `rows` of them real."""

    rows: int
    launched: int
    is_eager: bool = False


def least_bucket(rungs: Sequence[int], rows: int) -> int | None:
    """The least rung that holds the rows; rungs ascend."""
    at = bisect.bisect_left(rungs, rows)
    return rungs[at] if at < len(rungs) else None


def runs_of(rungs: Sequence[int], above: str, rows: int) -> list[Run]:
    """What the executor runs for a step of so many rows: one replay, or above the top rung one eager run or (`above`
    is "split") the rows left over and then full top rungs."""
    bucket = least_bucket(rungs, rows)
    if bucket is not None:
        return [Run(rows, bucket)]
    if above == "eager" or not rungs:
        return [Run(rows, rows, is_eager=True)]
    top = rungs[-1]
    full = -(-rows // top) - 1
    first = rows - full * top
    return [Run(first, least_bucket(rungs, first) or first), *[Run(top, top)] * full]


def cost_of(run: Run, costs: Costs) -> int:
    """Nanoseconds of one run."""
    return costs.replay_ns + costs.row_ns * run.launched + (costs.eager_ns if run.is_eager else 0)
