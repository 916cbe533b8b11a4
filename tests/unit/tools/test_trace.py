"""The trace: its lengths, its schedule, and what the default buckets do with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.compiler.bounds import method_bounds
from dsv41c.compiler.checkpoint.presets import flash
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.plan.costs import DEFAULT_COSTS
from dsv41c.runtime.requests import Request
from dsv41c.runtime.step_rows import ActiveRequest, choose_parts, step_rows
from dsv41c.tools.bench.trace import PROMPT_MOST, TraceRequest, draw_trace
from dsv41c.tools.bench.trace_report import KEEP, axis_figures, ladders, run_trace
from dsv41c.tools.bench.trace_schedule import Schedule, StepSizes, simulate, step_sizes
from tests.unit.tools.conftest import Command

MOST_PADS = {"encoder": 0.10, "decode": 0.10, "decoder": 0.15}


def test_default_buckets_pad_the_default_trace_little(command: Command) -> None:
    """The figures are printed; tools/docs/figures.md has them."""
    result = command("bench", "trace", "--simulate", "--json").json
    assert (result["seed"], result["requests"]) == (1, 1000)
    bounds = method_bounds(CompileOptions())
    assert (result["max_num_seqs"], result["max_num_batched_tokens"]) == (bounds["decode"], bounds["encoder"])
    published = CompileOptions(suffix_mode="compact").resolved(flash()).suffix_keep_tokens
    assert [run["keep"] for run in result["runs"]] == [None, KEEP] == [None, published]
    check_pads(result)


@pytest.mark.parametrize(("seed", "rate"), [(1, 1.0), (2, 3.0), (3, 7.0), (4, 7.0), (4, 12.0)])
def test_default_buckets_pad_little_at_other_rates(seed: int, rate: float) -> None:
    """From hardly any decodes beside a prompt to slots that are always full; at 7 a second their number varies most."""
    check_pads(run_trace(draw_trace(seed, 200, rate), 16, 512))


def check_pads(result: dict[str, Any]) -> None:
    for run in result["runs"]:
        assert run["graphs"] <= 48
        for axis, most in MOST_PADS.items():
            of_all, of_a_step = (run["axes"][axis][name] for name in ("pad_share", "step_pad_share"))
            print(f"keep {run['keep']}, {axis}: {of_all:.1%} pads, {of_a_step:.1%} a step")
            assert of_all <= most and of_a_step <= most


def test_lengths_are_what_they_claim() -> None:
    trace = draw_trace(requests=20_000)
    prompts, outputs = np.array([r.prompt for r in trace]), np.array([r.output for r in trace])
    assert abs(np.median(prompts) / 1800 - 1) < 0.05 and abs(np.median(outputs) / 250 - 1) < 0.05
    assert abs(np.log(prompts[prompts < 1800]).var() / (1.2**2 * (1 - 2 / math.pi)) - 1) < 0.1
    assert abs(np.log(outputs).std() / 0.8 - 1) < 0.05
    assert prompts.max() == PROMPT_MOST and prompts.min() >= 1 and outputs.min() >= 1
    gaps = np.diff([0, *(r.arrival_ns for r in trace)])
    assert abs(gaps.mean() / 0.25e9 - 1) < 0.05 and abs(gaps.std() / gaps.mean() - 1) < 0.05


def test_a_trace_depends_on_its_seed_and_grows_at_its_end() -> None:
    assert draw_trace(requests=50) == draw_trace(requests=80)[:50] != draw_trace(seed=2, requests=50)


@pytest.mark.parametrize("keep", [None, 5])
def test_every_token_is_scheduled_once(keep: int | None) -> None:
    trace = draw_trace(requests=40, rate=50.0)
    schedule = Schedule(4, 64, keep)
    steps = list(simulate(trace, schedule))
    rows = {name: sum(s.rows.get(name, 0) for s in steps) for name in ("decode", "encoder", "decoder", "head")}
    assert rows["decode"] + rows["encoder"] == sum(r.prompt + r.output - 1 for r in trace)
    assert rows["decode"] + rows["head"] == sum(r.output for r in trace)
    decodes = rows["encoder"] - sum(r.prompt for r in trace)  # of steps that hold a prompt's rows too
    assert rows["decoder"] == decodes + sum(r.prompt if keep is None else min(r.prompt, keep) for r in trace)
    chosen = ladders(schedule)
    for step in steps:
        assert ("decode" in step.rows) != ("encoder" in step.rows)
        assert step.rows.get("encoder", 0) <= 64 and step.rows.get("decode", 0) <= 4
        assert step.rows.get("decoder", 0) <= (64 if keep is None else min(64, 4 * keep))
    assert all(rung >= 1 for c in chosen.values() for rung in c.rungs)


def test_a_small_schedule_by_hand() -> None:
    """Two prompts of 9 and 3 tokens, three and one tokens each, four rows a step, the last two of a prompt kept."""
    trace = (TraceRequest(9, 3, 0), TraceRequest(3, 1, 0))
    steps = list(simulate(trace, Schedule(2, 4, 2)))
    prefills = [{"encoder": 4}, {"encoder": 4, "decoder": 1}, {"encoder": 4, "decoder": 3, "head": 2}]
    assert [s.rows for s in steps] == [*prefills, {"decode": 1}, {"decode": 1}]
    assert steps[0].duration_ns == (DEFAULT_COSTS.replay_ns + 4 * DEFAULT_COSTS.row_ns) // 2


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=6), st.integers(6, 40),
       st.none() | st.integers(1, 12))
def test_a_step_keeps_what_the_generation_loop_keeps(requests: list[tuple[int, int]], tokens: int,
                                                     keep: int | None) -> None:
    """Prompts of some length, of which some rows or all have run."""
    active = [ActiveRequest(Request(range(prompt), 5), slot, slot, min(done, prompt))
              for slot, (prompt, done) in enumerate(requests)]
    schedule = Schedule(len(active), tokens, keep)
    parts = choose_parts(active, tokens)
    upload, kept, outputs = step_rows(parts, schedule.limits)
    rows = step_sizes(parts, schedule, DEFAULT_COSTS).rows
    if "decode" in rows:
        assert len(upload) == len(kept) == len(outputs) == rows["decode"]
    else:
        names = ("encoder", "decoder", "head")
        assert [rows.get(name, 0) for name in names] == [len(upload), len(kept), len(outputs)]


def test_pads_eager_and_split_steps_are_counted() -> None:
    chosen = ladders(Schedule(4, 64, None))
    steps = [StepSizes({"encoder": rows, "decoder": rows}, 1) for rows in (3, 5, 64)]
    figures = axis_figures("encoder", steps, chosen)
    assert (figures["steps"], figures["mean_rows"]) == (3, 24.0)
    assert figures["pad_share"] == 3 / 75 and figures["step_pad_share"] == (3 / 8) / 3
    assert figures["eager_share"] == figures["split_share"] == 0
    short = {name: type(c)((1, 4), c.ladder) for name, c in chosen.items()}
    assert axis_figures("encoder", steps, short)["eager_share"] == 2 / 3
    split = axis_figures("decoder", steps, short)
    assert split["split_share"] == 2 / 3 and split["pad_share"] == 1 / (4 + 5 + 64)


def test_the_schedule_does_not_depend_on_ladders() -> None:
    step = next(simulate((TraceRequest(5, 1, 0),), Schedule(1, 8, None)))
    assert step.duration_ns == DEFAULT_COSTS.replay_ns + 5 * DEFAULT_COSTS.row_ns


def test_lengths_are_printed(command: Command) -> None:
    assert "prompt  quartiles" in command("bench", "trace", "--requests", 5).out
    assert len(command("bench", "trace", "--requests", 5, "--json").json["requests"]) == 5
    assert run_trace(draw_trace(requests=2), 4, 8)["max_num_seqs"] == 4


def test_kept_rows_are_asked_for(command: Command) -> None:
    asked = ("bench", "trace", "--simulate", "--requests", 20, "--suffix-keep-tokens", 200)
    everything, last = command(*asked, "--json").json["runs"]
    assert (everything["keep"], last["keep"]) == (None, 200)
    assert last["buckets"]["decoder"][-4:] == [200 + 8, 200 + 16, 400 + 16, 512]
    assert "decoder keeps the last 200 rows of a prompt" in command(*asked).out


@pytest.mark.parametrize("arguments", [("--rate", "nan"), ("--rate", 0), ("--max-num-seqs", 600),
                                       ("--suffix-keep-tokens", 0)])
def test_bad_trace_options_are_2(command: Command, arguments: tuple[object, ...]) -> None:
    assert command("bench", "trace", *arguments).code == 2
