"""What a step of some rows costs on a ladder: what measured ladders and budgets minimise and traces simulate with."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from dsv41c.runtime.plan.schema import Ladder


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


def costs_of(ladder: Ladder) -> Costs:
    """The cost model behind a plan's ladder."""
    return Costs(ladder.replay_ns, ladder.row_ns, ladder.eager_ns)


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
    first, full = _first_and_full(rungs, above, rows)
    return [first, *[Run(rungs[-1], rungs[-1])] * full] if full else [first]


def step_ns(rungs: Sequence[int], above: str, rows: int, costs: Costs) -> int:
    """Nanoseconds of `runs_of`, together."""
    first, full = _first_and_full(rungs, above, rows)
    return cost_of(first, costs) + (full * cost_of(Run(rungs[-1], rungs[-1]), costs) if full else 0)


def cost_of(run: Run, costs: Costs) -> int:
    """Nanoseconds of one run."""
    return costs.replay_ns + costs.row_ns * run.launched + (costs.eager_ns if run.is_eager else 0)


def _first_and_full(rungs: Sequence[int], above: str, rows: int) -> tuple[Run, int]:
    """The first run, and how many of the full top rung follow it."""
    bucket = least_bucket(rungs, rows)
    if bucket is not None:
        return Run(rows, bucket), 0
    if above == "eager" or not rungs:
        return Run(rows, rows, is_eager=True), 0
    top = rungs[-1]
    full = -(-rows // top) - 1
    first = rows - full * top
    return Run(first, least_bucket(rungs, first) or first), full
