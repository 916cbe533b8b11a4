"""Chooses context tier, row bound and buckets under a memory budget: the cheapest choice that fits, exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dsv41c.graphs.workload import Histogram, workload_ns
from dsv41c.runtime.plan.costs import Costs
from dsv41c.runtime.plan.errors import Dsv41cError


@dataclass(frozen=True)
class MethodNeed:
    """One method at its bound. `bucket_bytes`: what each bucket costs in executable graphs, 0 without graphs. `costs`,
    `above`: of the plan's ladder."""

    name: str
    bound: int
    rungs: tuple[int, ...]
    bucket_bytes: int
    costs: Costs
    above: str

    def workload_ns(self, histogram: Histogram, kept: int) -> int:
        """Its part of a workload on the first `kept` rungs."""
        sizes = histogram.get(self.name, {})
        return workload_ns(sizes, self.bound, self.rungs[:kept], self.costs, self.above)


@dataclass(frozen=True)
class Candidate:
    """A plan at one context tier and row bound: bytes by class without graphs, and its methods."""

    classes: Mapping[str, int]
    methods: tuple[MethodNeed, ...]

    @property
    def fixed_bytes(self) -> int:
        return sum(self.classes.values())

    @property
    def least_bytes(self) -> int:
        """With one bucket for each method where buckets cost bytes."""
        return self.fixed_bytes + sum(m.bucket_bytes for m in self.methods)


@dataclass(frozen=True)
class Choice:
    max_model_len: int
    max_rows: int
    buckets: Mapping[str, tuple[int, ...]]
    cost_ns: int
    total_bytes: int


@dataclass(frozen=True)
class Space:
    """What may be chosen: tiers in tokens and row bounds, both ascending. `candidate(tier, rows)` is asked for few of
    them; `floor(tier)` is a quick lower bound of every total of that tier."""

    tiers: tuple[int, ...]
    row_bounds: tuple[int, ...]
    candidate: Callable[[int, int], Candidate]
    floor: Callable[[int], int]


def solve(space: Space, histogram: Histogram, budget: int | None) -> Choice:
    """The largest tier that fits at all, and in it the least expected cost; of equals the fewest bytes, then the
    smallest bound, then the fewest rungs in the order of methods. None is no limit: every rung stays. E0405 when
    nothing fits."""
    for tier in reversed(space.tiers):
        if budget is not None and space.floor(tier) > budget:
            continue
        found = [_cheapest(tier, rows, space.candidate(tier, rows), histogram, budget) for rows in space.row_bounds]
        fitting = [choice for choice in found if choice is not None]
        if fitting:
            return min(fitting, key=lambda c: (c.cost_ns, c.total_bytes, c.max_rows))
    assert budget is not None
    raise _nothing_fits(space, budget)


def _cheapest(tier: int, rows: int, candidate: Candidate, histogram: Histogram, budget: int | None) -> Choice | None:
    """Rungs fall from the top of each ladder, and only where they cost bytes that are limited."""
    room = None if budget is None else budget - candidate.fixed_bytes
    frontier: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]  # bytes, cost, rungs kept of each method
    for method in candidate.methods:
        options = _options(method, histogram, whole=room is None)
        frontier = _undominated([(b + bytes_, c + cost, (*kept, rungs)) for b, c, kept in frontier
                                 for bytes_, cost, rungs in options if room is None or b + bytes_ <= room])
    if not frontier or (room is not None and room < 0):
        return None
    graph_bytes, cost_ns, kept = min(frontier, key=lambda entry: (entry[1], entry[0], entry[2]))
    buckets = {m.name: m.rungs[:rungs] for m, rungs in zip(candidate.methods, kept, strict=True)}
    return Choice(tier, rows, buckets, cost_ns, candidate.fixed_bytes + graph_bytes)


def _options(method: MethodNeed, histogram: Histogram, whole: bool) -> list[tuple[int, int, int]]:
    """(bytes, cost, rungs) of each prefix of the ladder that may be kept."""
    least = 1 if method.bucket_bytes and not whole else len(method.rungs)
    return [(kept * method.bucket_bytes, method.workload_ns(histogram, kept), kept)
            for kept in range(least, len(method.rungs) + 1)]


def _undominated(entries: Sequence[tuple[int, int, tuple[int, ...]]]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Those that no other beats in bytes and cost: what is left is as good for every room and every rest."""
    kept: list[tuple[int, int, tuple[int, ...]]] = []
    for entry in sorted(entries):
        if not kept or entry[1] < kept[-1][1]:
            kept.append(entry)
    return kept


def _nothing_fits(space: Space, budget: int) -> Dsv41cError:
    """Names the candidate that needs least. A tier whose floor is above the least total so far cannot be it."""
    least: tuple[int, int, int] | None = None
    for tier in space.tiers:
        if least is None or space.floor(tier) < least[0]:
            totals = [(space.candidate(tier, rows).least_bytes, tier, rows) for rows in space.row_bounds]
            least = min(totals if least is None else [*totals, least])
    assert least is not None
    total, tier, rows = least
    return over_budget(space.candidate(tier, rows), total, budget,
                       f"--max-model-len {tier} --max-num-batched-tokens {rows}")


def over_budget(candidate: Candidate, total: int, budget: int, options: str) -> Dsv41cError:
    """E0405: the least total, how much is missing, and the class that takes most."""
    classes = {**candidate.classes, "graphs": total - candidate.fixed_bytes}
    name = max(classes, key=lambda c: classes[c])
    return Dsv41cError(
        "DSV41C-E0405", f"memory budget of {budget} bytes",
        found=f"at least {total} bytes with {options}, {total - budget} too many; "
              f"the largest class is {name}: {classes[name]} bytes",
        needed=f"a budget of at least {total} bytes",
        do="raise the budget, or lower " + _REMEDIES.get(name, "--max-num-batched-tokens"))


_REMEDIES = {"pages": "--max-model-len or --max-num-seqs", "page_table": "--max-model-len or --max-num-seqs",
             "rings": "--max-num-seqs", "pairs": "--max-num-seqs", "slots": "--max-num-seqs",
             "graphs": "the number of buckets"}


def check_tiers(tiers: Sequence[int], max_model_len: int | None, limit: int) -> None:
    """E0901 with the nearest legal value: tiers ascend, lie between 2 and the model's `limit` and cover the need."""
    for before, tier in zip((None, *tiers), tiers, strict=False):
        if not 2 <= tier <= limit:
            raise bad_tiers(str(tier), f"2 to {limit} (max_position_embeddings)", min(max(tier, 2), limit))
        if before is not None and tier <= before:
            raise bad_tiers(f"{tier} after {before}", "ascending tiers, each once", before + 1)
    if max_model_len is not None and tiers and tiers[-1] < max_model_len:
        raise bad_tiers(f"{tiers[-1]} as the largest tier", f"one of at least --max-model-len {max_model_len}",
                        max_model_len)


def bad_tiers(found: str, needed: str, nearest: int | str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0901", "option --context-tiers", found=found, needed=needed,
                       do=f"the nearest legal value is {nearest}")
