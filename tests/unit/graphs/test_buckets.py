"""Bucket policies: laws that the ladders of every policy hold."""

from __future__ import annotations

import bisect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.compiler.bounds import suffix_bound
from dsv41c.graphs.buckets import (
    MAX_GRAPHS,
    Buckets,
    DefaultPolicy,
    ExplicitPolicy,
    HistogramPolicy,
    MethodBound,
    Policy,
    PowersPolicy,
    StepPolicy,
    choose_buckets,
)
from dsv41c.graphs.ladders import thin
from dsv41c.runtime.plan.costs import Costs, cost_of, least_bucket, runs_of
from dsv41c.runtime.plan.errors import Dsv41cError

KEEPS = st.none() | st.integers(1, 400)


def bounds_of(tokens: int, seqs: int, kept: int | None = None) -> dict[str, MethodBound]:
    return {"decode": MethodBound("rows", seqs), "encoder": MethodBound("rows", tokens),
            "decoder": MethodBound("kept_rows", tokens if kept is None else kept),
            "head": MethodBound("output_rows", seqs)}


@st.composite
def bounds(draw: st.DrawFn) -> dict[str, MethodBound]:
    tokens = draw(st.integers(1, 65_536))
    return bounds_of(tokens, draw(st.integers(1, min(tokens, 4096))))


def ruled() -> st.SearchStrategy[Policy]:
    """Policies that follow a rule."""
    return st.one_of(st.builds(DefaultPolicy), st.builds(PowersPolicy, st.integers(64, 4096)),
                     st.builds(StepPolicy, st.integers(256, 4096)))


@settings(deadline=None, max_examples=60)
@given(ruled(), KEEPS, bounds(), st.integers(16, 96))
def test_ladders_by_rule(policy: Policy, keep: int | None, limits: dict[str, MethodBound], most: int) -> None:
    """Ascending without twins, sizes 1, 2, 3, the bound covered by the top or by a split, few enough in all."""
    chosen = choose_buckets(Buckets(policy, most, keep=keep), limits)
    assert sum(len(c.rungs) for c in chosen.values()) <= most
    for name, limit in limits.items():
        rungs, ladder = chosen[name].rungs, chosen[name].ladder
        assert list(rungs) == sorted(set(rungs))
        assert {1, 2, 3} & set(range(1, limit.rows + 1)) <= set(rungs)
        assert rungs[-1] == limit.rows or (ladder.above == "split" and rungs[-1] < limit.rows)
        assert (ladder.above == "split") == (name == "decoder")


@settings(deadline=None, max_examples=60)
@given(ruled(), KEEPS, bounds(), st.data())
def test_the_least_bucket_that_holds_a_size_is_taken(policy: Policy, keep: int | None, limits: dict[str, MethodBound],
                                                     data: st.DataObject) -> None:
    for name, chosen in choose_buckets(Buckets(policy, keep=keep), limits).items():
        rungs, above = chosen.rungs, chosen.ladder.above
        rows = data.draw(st.integers(1, limits[name].rows))
        runs = runs_of(rungs, above, rows)
        assert sum(run.rows for run in runs) == rows and not any(run.is_eager for run in runs)
        for run in runs:
            assert run.launched in rungs and run.launched >= run.rows
            assert not any(run.rows <= rung < run.launched for rung in rungs)
        assert all(run.rows == run.launched == rungs[-1] for run in runs[1:])
        assert len(runs) == -(-rows // rungs[-1])


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8192), st.integers(1, 1024), KEEPS)
def test_default_ladders_fit_without_thinning_up_to_moderate_bounds(tokens: int, seqs: int, keep: int | None) -> None:
    kept = suffix_bound(tokens, min(seqs, tokens), keep, 0)
    limits = bounds_of(tokens, min(seqs, tokens), kept)
    full = choose_buckets(Buckets(max_graphs=10_000, keep=keep), limits)
    if sum(len(c.rungs) for c in full.values()) <= MAX_GRAPHS:
        assert full == choose_buckets(Buckets(keep=keep), limits)


def test_default_ladders_of_the_default_options() -> None:
    """Of the published model too: ladders depend on the bounds only."""
    chosen = choose_buckets(Buckets(), bounds_of(512, 16))
    assert chosen["decode"].rungs == chosen["head"].rungs == (1, 2, 3, 4, 6, 8, 10, 12, 16)
    assert chosen["encoder"].rungs == chosen["decoder"].rungs == (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512)
    assert sum(len(c.rungs) for c in chosen.values()) <= MAX_GRAPHS


def test_a_kept_suffix_has_decodes_alone_and_ends_of_prompts_with_them() -> None:
    chosen = choose_buckets(Buckets(max_graphs=100, keep=140), bounds_of(8192, 64, 8192))
    rungs, decodes = chosen["decoder"].rungs, chosen["decode"].rungs
    assert rungs == (*decodes, 128, 172, *(140 * n + 64 for n in (1, 2, 3, 4, 6, 8, 12, 16)))
    assert chosen["decoder"].ladder.above == "split"
    default = choose_buckets(Buckets(keep=140), bounds_of(512, 16))
    assert default["decoder"].rungs == (*default["decode"].rungs, 32, 64, 128, 148, 156, 296, 436, 512)
    assert sum(len(c.rungs) for c in default.values()) <= MAX_GRAPHS


@given(st.integers(1, 400), st.integers(1, 100))
def test_a_kept_suffix_pads_mixed_steps_without_an_end_as_decode_does(keep: int, seqs: int) -> None:
    """Most steps of a prompt keep the rows of decodes only."""
    limits = bounds_of(8192, seqs, suffix_bound(8192, seqs, keep, 0))
    chosen = choose_buckets(Buckets(max_graphs=1000, keep=keep), limits)
    for rows in range(1, seqs + 1):
        launched = [runs_of(chosen[name].rungs, "split", rows)[0].launched for name in ("decoder", "decode")]
        assert launched[0] <= launched[1]


@given(st.integers(1, 4096), st.integers(1, 512))
def test_steps_are_multiples(bound: int, step: int) -> None:
    rungs = choose_buckets(Buckets(StepPolicy(step), 10_000), {"decode": MethodBound("rows", bound)})["decode"].rungs
    assert all(rung % step == 0 for rung in rungs[:-1] if rung > 3)
    assert set(range(step, bound + 1, step)) <= set(rungs)


@given(st.integers(1, 4096), st.integers(1, 512))
def test_powers_turn_into_steps(bound: int, step: int) -> None:
    rungs = choose_buckets(Buckets(PowersPolicy(step), 10_000), {"decode": MethodBound("rows", bound)})["decode"].rungs
    assert {1 << e for e in range(9) if 1 << e <= bound} <= set(rungs)
    assert all((rung - 256) % step == 0 for rung in rungs[:-1] if rung > 256)


def test_explicit_buckets_stay_as_they_are_listed() -> None:
    given_ = {"encoder": (2, 5, 9), "decoder": (4,)}
    chosen = choose_buckets(Buckets(ExplicitPolicy(given_), 20), bounds_of(512, 16))
    assert {name: chosen[name].rungs for name in given_} == given_
    assert [chosen[n].ladder.policy for n in ("decode", "encoder")] == ["default", "explicit"]
    with pytest.raises(Dsv41cError, match="raise --max-graphs to 12"):
        choose_buckets(Buckets(ExplicitPolicy(given_), 11), bounds_of(512, 16))


@given(st.dictionaries(st.sampled_from(["decode", "encoder", "decoder"]),
                       st.dictionaries(st.integers(1, 16), st.integers(0, 9), min_size=1)), st.integers(16, 48))
def test_measured_ladders_share_the_graphs(counts: dict[str, dict[int, int]], most: int) -> None:
    chosen = choose_buckets(Buckets(HistogramPolicy(counts), most), bounds_of(16, 16))
    assert sum(len(c.rungs) for c in chosen.values()) <= most
    for name, each in chosen.items():
        assert list(each.rungs) == sorted(set(each.rungs)) and {1, 2, 3} <= set(each.rungs)
        assert each.ladder.policy == ("histogram" if name in counts else "default")


def test_sizes_that_nobody_measured_have_a_bucket_while_graphs_are_left() -> None:
    policy = HistogramPolicy({"decode": {1: 90, 7: 500, 11: 400}})
    for most, rungs in ((6, (1, 2, 3, 7, 11, 16)), (5, (1, 2, 3, 7, 11))):
        assert choose_buckets(Buckets(policy, most), {"decode": MethodBound("rows", 16)})["decode"].rungs == rungs


@given(st.lists(st.integers(4, 500), min_size=1, max_size=30, unique=True), st.data())
def test_thinning_drops_what_pads_least(sizes: list[int], data: st.DataObject) -> None:
    rungs = tuple(sorted({1, 2, 3, *sizes}))
    most = data.draw(st.integers(4, len(rungs) - 1)) if len(rungs) > 4 else 4
    thinned = thin({"one": rungs}, most)["one"]
    assert set(thinned) <= set(rungs) and {1, 2, 3, rungs[-1]} <= set(thinned) and len(thinned) == min(most, len(rungs))
    once = thin({"one": rungs}, len(rungs) - 1)["one"] if len(rungs) > 4 else rungs

    def worst(ladder: tuple[int, ...], gone: int) -> float:
        at = bisect.bisect_left(ladder, gone)
        return (ladder[at] - ladder[at - 1] - 1) / ladder[at]

    for gone in set(rungs) - set(once):
        others = [worst(tuple(r for r in rungs if r != other), other) for other in rungs[3:-1]]
        assert worst(once, gone) == min(others)


def test_too_few_graphs_are_an_error() -> None:
    with pytest.raises(Dsv41cError, match="allow 16 graphs or more"):
        choose_buckets(Buckets(max_graphs=15), bounds_of(512, 16))


def test_no_rows_is_an_error() -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0402"):
        choose_buckets(Buckets(), {"decode": MethodBound("rows", 0)})


def test_costs_of_runs() -> None:
    costs = Costs(100, 3, 50)
    assert [cost_of(run, costs) for run in runs_of((1, 4), "eager", 3)] == [112]
    assert [cost_of(run, costs) for run in runs_of((1, 4), "eager", 5)] == [165]
    assert [cost_of(run, costs) for run in runs_of((1, 4), "split", 9)] == [103, 112, 112]
    assert least_bucket((2, 4), 5) is None


@pytest.mark.parametrize("policy", [ExplicitPolicy({"decode": (1, 2, 16)}), HistogramPolicy({"decode": {1: 5, 9: 2}})])
def test_methods_that_are_not_named_have_their_default_ladders(policy: Policy) -> None:
    """Also where the decoder keeps the ends of prompts only."""
    limits = bounds_of(2048, 16)
    default = choose_buckets(Buckets(max_graphs=200, keep=140), limits)
    chosen = choose_buckets(Buckets(policy, 200, keep=140), limits)
    assert {n: c for n, c in chosen.items() if n != "decode"} == {n: c for n, c in default.items() if n != "decode"}
