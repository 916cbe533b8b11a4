"""The budget solver: equal to brute force on small instances, and errors that say what is missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.graphs.budget import Candidate, Choice, MethodNeed, Space, check_tiers, solve
from dsv41c.graphs.workload import Histogram
from dsv41c.runtime.plan.costs import Costs, cost_of, runs_of
from dsv41c.runtime.plan.errors import Dsv41cError

METHODS = ("decode", "encoder", "head")
costs = st.builds(Costs, replay_ns=st.integers(0, 9), row_ns=st.integers(0, 3), eager_ns=st.integers(0, 30))
aboves = st.sampled_from(["eager", "split"])


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Space, Histogram]:
    tiers = tuple(sorted(draw(st.sets(st.integers(2, 50), min_size=1, max_size=3))))
    bounds = tuple(sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=3))))
    names = METHODS[: draw(st.integers(1, 3))]
    with_graphs = draw(st.booleans())
    found = {}
    for tier, bound in itertools.product(tiers, bounds):
        methods = tuple(
            MethodNeed(name, bound, tuple(sorted(draw(st.sets(st.integers(1, bound), min_size=1, max_size=4)))),
                       draw(st.integers(1, 9)) if with_graphs else 0, draw(costs), draw(aboves)) for name in names)
        classes = {"pages": draw(st.integers(0, 30)), "arena": draw(st.integers(0, 30))}
        found[tier, bound] = Candidate(classes, methods)
    floors = {tier: min(found[tier, b].fixed_bytes for b in bounds) - draw(st.integers(0, 3)) for tier in tiers}
    histogram = {name: draw(st.dictionaries(st.integers(1, 20), st.integers(0, 5), max_size=4)) for name in names}
    return Space(tiers, bounds, lambda t, b: found[t, b], floors.__getitem__), histogram


def run_by_run(method: MethodNeed, rungs: tuple[int, ...], sizes: Mapping[int, int]) -> int:
    """Nanoseconds of what the executor runs: full steps of the bound and the rest, each as its replays or eagerly."""
    steps = [(min(method.bound, rows - begin), count) for rows, count in sizes.items()
             for begin in range(0, rows, method.bound)]
    return sum(count * cost_of(run, method.costs) for rows, count in steps
               for run in runs_of(rungs, method.above, rows))


def every_choice(space: Space, histogram: Histogram, limited: bool = True) -> Iterator[Choice]:
    """All tiers, bounds and prefixes of ladders; whole ladders where buckets cost nothing or nothing is limited."""
    for tier, bound in itertools.product(space.tiers, space.row_bounds):
        candidate = space.candidate(tier, bound)
        prefixes = [[m.rungs[:n] for n in range(1 if limited and m.bucket_bytes else len(m.rungs),
                                                len(m.rungs) + 1)]
                    for m in candidate.methods]
        for ladders in itertools.product(*prefixes):
            pairs = list(zip(candidate.methods, ladders, strict=True))
            cost = sum(run_by_run(m, rungs, histogram.get(m.name, {})) for m, rungs in pairs)
            total = candidate.fixed_bytes + sum(m.bucket_bytes * len(rungs) for m, rungs in pairs)
            yield Choice(tier, bound, {m.name: rungs for m, rungs in pairs}, cost, total)


def rank(choice: Choice) -> tuple[int, int, int, int]:
    return -choice.max_model_len, choice.cost_ns, choice.total_bytes, choice.max_rows


@given(spaces(), st.none() | st.integers(0, 120))
def test_the_solver_is_brute_force(made: tuple[Space, Histogram], budget: int | None) -> None:
    space, histogram = made
    fitting = [c for c in every_choice(space, histogram, limited=budget is not None)
               if budget is None or c.total_bytes <= budget]
    if not fitting:
        least = min(c.total_bytes for c in every_choice(space, histogram))
        with pytest.raises(Dsv41cError, match="DSV41C-E0405") as caught:
            solve(space, histogram, budget)
        assert caught.value.needed == f"a budget of at least {least} bytes" and caught.value.exit_code == 6
        return
    found = solve(space, histogram, budget)
    assert rank(found) == min(map(rank, fitting))
    assert found in fitting and found == solve(space, histogram, budget)


def test_what_is_missing_is_named() -> None:
    method = MethodNeed("decode", 4, (1, 2, 4), 10, Costs(1, 1, 2), "eager")
    space = Space((8, 16), (4,), lambda t, _: Candidate({"pages": 100 * t, "arena": 50}, (method,)), lambda t: 100 * t)
    with pytest.raises(Dsv41cError) as caught:
        solve(space, {}, 859)
    assert caught.value.found == ("at least 860 bytes with --max-model-len 8 --max-num-batched-tokens 4, 1 too many; "
                                  "the largest class is pages: 800 bytes")
    assert "--max-model-len" in caught.value.do
    assert solve(space, {}, 860).buckets == {"decode": (1,)}


def test_rungs_fall_from_the_top_until_the_graphs_fit() -> None:
    method = MethodNeed("decode", 8, (1, 4, 8), 10, Costs(5, 1, 50), "eager")
    space = Space((8,), (8,), lambda *_: Candidate({"arena": 0}, (method,)), lambda _: 0)
    sizes = {"decode": {1: 1, 4: 1, 8: 1}}
    kept = {budget: solve(space, sizes, budget).buckets["decode"] for budget in (10, 20, 29, 30)}
    assert kept == {10: (1,), 20: (1, 4), 29: (1, 4), 30: (1, 4, 8)}


def test_a_method_that_splits_gives_up_a_rung_before_one_that_runs_eagerly() -> None:
    """Above 4 rows one pays a second replay, the other one the eager penalty: with room for three rungs of four."""
    methods = tuple(MethodNeed(name, 8, (4, 8), 10, Costs(5, 1, 50), above)
                    for name, above in (("decoder", "split"), ("encoder", "eager")))
    space = Space((8,), (8,), lambda *_: Candidate({"arena": 0}, methods), lambda _: 0)
    found = solve(space, {"decoder": {8: 1}, "encoder": {8: 1}}, 30)
    assert found.buckets == {"decoder": (4,), "encoder": (4, 8)}
    assert found.cost_ns == 2 * (5 + 4) + (5 + 8)


def test_a_larger_tier_wins_over_a_cheaper_step() -> None:
    slow, fast = Costs(9, 0, 9), Costs(1, 0, 1)
    def candidate(tier: int, rows: int) -> Candidate:
        method = MethodNeed("decode", rows, (rows,), 0, slow if tier == 9 else fast, "eager")
        return Candidate({"pages": tier * rows}, (method,))
    found = solve(Space((5, 9), (1, 2), candidate, lambda t: t), {"decode": {2: 1}}, 9)
    assert (found.max_model_len, found.max_rows) == (9, 1)


@pytest.mark.parametrize(("tiers", "need", "nearest"), [
    ((1, 8), None, "2"), ((8, 200), None, "100"), ((-5,), None, "2"), ((8, 8), None, "9"), ((16, 8), None, "17"),
    ((8, 16), 17, "17"),
])
def test_bad_tiers_name_the_nearest_legal_value(tiers: tuple[int, ...], need: int | None, nearest: str) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        check_tiers(tiers, need, 100)
    assert caught.value.do == f"the nearest legal value is {nearest}"


def test_good_tiers_are_accepted() -> None:
    check_tiers((2, 50, 100), 100, 100)
    check_tiers((7,), 7, 7)
