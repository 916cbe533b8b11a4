"""Ladders from measured sizes: at most so many rungs, of the least expected cost, by dynamic programming."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from dsv41c.graphs.ladders import SMALL, Rungs
from dsv41c.runtime.plan.costs import Costs, Run, cost_of, least_bucket
from dsv41c.runtime.plan.errors import Dsv41cError

Counts = Mapping[int, int]  # rows of a step -> how often


def expected_cost(rungs: Sequence[int], counts: Counts, costs: Costs, above: str) -> int:
    """Nanoseconds of all steps together on a ladder. Above the top: an eager run, or a split priced as full tops."""
    total = 0
    for rows, count in counts.items():
        bucket = least_bucket(rungs, rows)
        total += count * (_above(rows, rungs[-1], costs, above) if bucket is None else _replay(bucket, costs))
    return total


def cheapest_rungs(counts: Counts, most: int, bound: int, costs: Costs, above: str) -> Rungs:
    """The ladder of at most `most` rungs with the least expected cost among those that have the small sizes. The last
    rung may be below the bound where what happens above it is cheaper. E0402 when `most` is below the small ones."""
    return ladders_by_size(counts, most, bound, costs, above)[-1][1]


def ladders_by_size(counts: Counts, most: int, bound: int, costs: Costs, above: str) -> list[tuple[int, Rungs]]:
    """(expected cost, ladder) with the small sizes and at most 0, 1, 2, ... rungs more. O(most * n log n) in the number
    of different sizes: a best ladder has its rungs on sizes that occur."""
    small = tuple(r for r in SMALL if r <= bound)
    if most < len(small):
        raise Dsv41cError("DSV41C-E0402", "bucket ladder", found=f"at most {most} rungs",
                          needed=f"at least {len(small)}: sizes {', '.join(map(str, small))}",
                          do=f"allow {len(small)} rungs or more")
    base = sum(count * _replay(least_bucket(small, rows) or 0, costs)
               for rows, count in counts.items() if rows <= small[-1])
    sizes = [0, *sorted(rows for rows, count in counts.items() if rows > small[-1] and count)]
    search = _Search(sizes, [0, *(counts[rows] for rows in sizes[1:])], costs)
    tails = _tails([small[-1], *sizes[1:]], counts, costs, above)
    best: list[tuple[int, Rungs]] = []
    for prefix, chosen in search.by_number(most - len(small)):
        cost, last = min((prefix[at] + tails[at], at) for at in range(len(sizes)))
        candidate = (base + cost, (*small, *(sizes[at] for at in chosen(last))))
        best.append(min(best[-1], candidate) if best else candidate)
    return best


def _tails(tops: Sequence[int], counts: Counts, costs: Costs, above: str) -> list[int]:
    """For each top, the cost of all sizes above it."""
    if above == "split":
        return [sum(counts[rows] * _above(rows, top, costs, above) for rows in tops[at + 1:])
                for at, top in enumerate(tops)]
    eager = [counts[rows] * _above(rows, 0, costs, above) for rows in tops[1:]]
    return [*list(accumulate(reversed(eager)))[::-1], 0]


class _Search:
    """prefix[j]: the least cost of all sizes up to sizes[j] with a rung on it. The cost of a stretch fulfils the
    quadrangle inequality, so the best predecessor never falls as j grows and each row is filled by bisection."""

    def __init__(self, sizes: Sequence[int], counts: Sequence[int], costs: Costs) -> None:
        self._sizes, self._costs = sizes, costs
        self._sums = list(accumulate(counts))

    def by_number(self, most: int) -> list[tuple[list[int], Callable[[int], list[int]]]]:
        """For 0, 1, ... rungs: the prefix costs, and the function that gives the rungs' indices up to one."""
        unreachable = 1 << 200
        prefix = [0] + [unreachable] * (len(self._sizes) - 1)
        before: list[list[int]] = []
        found: list[tuple[list[int], Callable[[int], list[int]]]] = [(prefix, lambda last: [])]
        for number in range(1, min(most, len(self._sizes) - 1) + 1):
            filled, origins = [unreachable] * len(self._sizes), [0] * len(self._sizes)
            self._fill(prefix, filled, origins, (number, len(self._sizes) - 1), (number - 1, len(self._sizes) - 1))
            before.append(origins)
            prefix = filled
            found.append((prefix, _walk(tuple(before))))
        return found

    def _fill(self, prefix: list[int], filled: list[int], origins: list[int], to: tuple[int, int],
              among: tuple[int, int]) -> None:
        if to[0] > to[1]:
            return
        middle = (to[0] + to[1]) // 2
        costs = ((prefix[i] + self._stretch(i, middle), i) for i in range(among[0], min(among[1], middle - 1) + 1))
        filled[middle], origins[middle] = min(costs)
        self._fill(prefix, filled, origins, (to[0], middle - 1), (among[0], origins[middle]))
        self._fill(prefix, filled, origins, (middle + 1, to[1]), (origins[middle], among[1]))

    def _stretch(self, i: int, j: int) -> int:
        return (self._sums[j] - self._sums[i]) * _replay(self._sizes[j], self._costs)


def _walk(before: tuple[list[int], ...]) -> Callable[[int], list[int]]:
    def rungs(last: int) -> list[int]:
        found = []
        for origins in reversed(before):
            found.append(last)
            last = origins[last]
        return found[::-1]

    return rungs


def _replay(rows: int, costs: Costs) -> int:
    return cost_of(Run(rows, rows), costs)


def _above(rows: int, top: int, costs: Costs, above: str) -> int:
    if above == "split":
        return -(-rows // top) * _replay(top, costs)
    return cost_of(Run(rows, rows, is_eager=True), costs)
