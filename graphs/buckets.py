"""Bucket policies: which row counts each method is bound for ahead of time, at most so many graphs in all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsv41c.graphs.histogram import Counts, ladders_by_size
from dsv41c.graphs.ladders import (
    SMALL,
    Rungs,
    decode_rungs,
    fewest,
    power_rungs,
    prefill_rungs,
    step_rungs,
    suffix_rungs,
    thin,
)
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.costs import DEFAULT_COSTS, Costs
from dsv41c.runtime.plan.errors import Dsv41cError

MAX_GRAPHS = 48  # of all methods together: a bucket is one graph where no break and no fallback cuts it
TURN = 256       # the last power of two of the policy `powers`


@dataclass(frozen=True)
class MethodBound:
    """The axis of a method and the most rows of a step on it."""

    axis: str
    rows: int

    @property
    def above(self) -> str:
        """Kept rows are split into several replays: their method hands rows on by number and returns nothing."""
        return "split" if self.axis == "kept_rows" else "eager"


@dataclass(frozen=True)
class DefaultPolicy:
    """Rungs by the kind of method."""


@dataclass(frozen=True)
class PowersPolicy:
    """Powers of two up to TURN, then every `step`."""

    step: int


@dataclass(frozen=True)
class StepPolicy:
    """The multiples of `step`."""

    step: int


@dataclass(frozen=True)
class ExplicitPolicy:
    """The given rungs by method; other methods have their default ones."""

    rungs: Mapping[str, Rungs]


@dataclass(frozen=True)
class HistogramPolicy:
    """The measured sizes by method; other methods have their default ladders."""

    counts: Mapping[str, Counts]


Policy = DefaultPolicy | PowersPolicy | StepPolicy | ExplicitPolicy | HistogramPolicy


@dataclass(frozen=True)
class Buckets:
    """What was asked for. `keep`: rows that a request keeps for the decoder, None: all."""

    policy: Policy = DefaultPolicy()
    max_graphs: int = MAX_GRAPHS
    costs: Costs = DEFAULT_COSTS
    keep: int | None = None


@dataclass(frozen=True)
class Chosen:
    """The buckets of one method and what the plan says of them."""

    rungs: Rungs
    ladder: schema.Ladder


def choose_buckets(asked: Buckets, bounds: Mapping[str, MethodBound]) -> dict[str, Chosen]:
    """Ladders of all methods. Rungs ascend; sizes 1, 2 and 3 exist but in explicit ladders; the last rung is the bound,
    or what is above it is split or, where an explicit or measured ladder ends below it, eager. E0402 where they are
    too many."""
    given, names = _of_policy(asked.policy, bounds)
    rungs = _within(asked, bounds, {name: given.get(name) or _default(name, bounds, asked.keep) for name in bounds})
    costs = asked.costs
    return {name: Chosen(rungs[name], schema.Ladder(names[name], bound.above, costs.replay_ns, costs.row_ns,
                                                    costs.eager_ns)) for name, bound in bounds.items()}


def _of_policy(policy: Policy, bounds: Mapping[str, MethodBound]) -> tuple[dict[str, Rungs], dict[str, str]]:
    """Rungs by method as far as a rule or the user says them, and the policy of each method."""
    match policy:
        case PowersPolicy(step):
            return {n: power_rungs(b.rows, TURN, step) for n, b in bounds.items()}, dict.fromkeys(bounds, "powers")
        case StepPolicy(step):
            return {n: step_rungs(b.rows, step) for n, b in bounds.items()}, dict.fromkeys(bounds, "step")
        case ExplicitPolicy(given):
            return dict(given), {n: "explicit" if n in given else "default" for n in bounds}
        case HistogramPolicy(counts):
            return {}, {n: "histogram" if n in counts else "default" for n in bounds}
    return {}, dict.fromkeys(bounds, "default")


def _default(name: str, bounds: Mapping[str, MethodBound], keep: int | None) -> Rungs:
    bound = bounds[name]
    if bound.axis == "kept_rows":
        return suffix_rungs(bound.rows, keep, bounds["decode"].rows if "decode" in bounds else 0)
    return prefill_rungs(bound.rows) if name == "encoder" else decode_rungs(bound.rows)


def _within(asked: Buckets, bounds: Mapping[str, MethodBound], rungs: Mapping[str, Rungs]) -> dict[str, Rungs]:
    """At most max_graphs rungs in all. What a user listed stays; measured ladders share what the others leave."""
    policy, most = asked.policy, asked.max_graphs
    if isinstance(policy, ExplicitPolicy):
        given = sum(map(len, policy.rungs.values()))
        others = {name: r for name, r in rungs.items() if name not in policy.rungs}
        least = given + sum(map(fewest, others.values()))
        if least > most:
            raise Dsv41cError("DSV41C-E0402", "explicit buckets", found=f"{given} of the {most} graphs",
                              needed=f"{least} graphs, with the least of the other methods",
                              do=f"list fewer buckets, or raise --max-graphs to {least}")
        return {**thin(others, most - given), **policy.rungs}
    if isinstance(policy, HistogramPolicy) and policy.counts:
        others = {name: r for name, r in rungs.items() if name not in policy.counts}
        others = thin(others, max(most * len(others) // len(rungs), sum(map(fewest, others.values()))))
        return {**others, **_measured(asked, bounds, policy.counts, most - sum(map(len, others.values())))}
    return thin(rungs, most)


def _measured(asked: Buckets, bounds: Mapping[str, MethodBound], counts: Mapping[str, Counts],
              most: int) -> dict[str, Rungs]:
    """Ladders of the measured methods with at most `most` rungs together and the least expected cost together."""
    least = {name: min(len(SMALL), bounds[name].rows) for name in counts}
    spare = most - sum(least.values())
    if spare < 0:
        raise Dsv41cError("DSV41C-E0402", "measured buckets", found=f"{most} graphs",
                          needed=f"{most - spare}: sizes 1, 2 and 3 of each method",
                          do=f"raise --max-graphs by {-spare}")
    best: list[tuple[int, dict[str, Rungs]]] = [(0, {})] * (spare + 1)  # by how many are spent at most
    for name, sizes in counts.items():
        options = ladders_by_size(sizes, least[name] + spare, bounds[name].rows, asked.costs, bounds[name].above)
        best = [min(((best[spent - more][0] + cost, {**best[spent - more][1], name: rungs})
                     for more, (cost, rungs) in enumerate(options[: spent + 1])), key=lambda entry: entry[0])
                for spent in range(spare + 1)]
    return _covered(best[spare][1], bounds, counts, most)


def _covered(rungs: Mapping[str, Rungs], bounds: Mapping[str, MethodBound], counts: Mapping[str, Counts],
             most: int) -> dict[str, Rungs]:
    """With what is left of `most`: the bound for each method that would else run sizes eagerly that nobody measured."""
    covered = dict(rungs)
    for name, bound in bounds.items():
        measured = [rows for rows, count in counts.get(name, {}).items() if count]
        ends_below = name in rungs and max(measured, default=0) <= rungs[name][-1] < bound.rows
        if ends_below and bound.above == "eager" and sum(map(len, covered.values())) < most:
            covered[name] = (*rungs[name], bound.rows)
    return covered
