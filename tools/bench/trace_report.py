"""What ladders do with a trace: pads, eager and split steps of every axis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dsv41c.compiler.bounds import suffix_bound
from dsv41c.graphs.buckets import Buckets, Chosen, MethodBound, choose_buckets
from dsv41c.runtime.plan.costs import runs_of
from dsv41c.tools.bench.trace import TraceRequest
from dsv41c.tools.bench.trace_schedule import Schedule, StepSizes, simulate

AXES = ("encoder", "decode", "decoder")
KEEP = 140  # a window of 128 and room to go 12 back: what compile keeps of the published model


def run_trace(trace: Sequence[TraceRequest], max_num_seqs: int, max_num_batched_tokens: int,
              keep: int = KEEP) -> dict[str, Any]:
    """The default ladders on the trace, once with all rows kept and once with the last `keep` of each prompt."""
    return {"schema_version": 1, "requests": len(trace), "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "runs": [_run(trace, Schedule(max_num_seqs, max_num_batched_tokens, k)) for k in (None, keep)]}


def ladders(schedule: Schedule) -> dict[str, Chosen]:
    """The default ladders at the schedule's bounds."""
    seqs, tokens = schedule.max_num_seqs, schedule.max_num_batched_tokens
    kept = suffix_bound(tokens, seqs, schedule.keep, 0)
    return choose_buckets(Buckets(keep=schedule.keep), {
        "decode": MethodBound("rows", seqs), "encoder": MethodBound("rows", tokens),
        "decoder": MethodBound("kept_rows", kept), "head": MethodBound("output_rows", seqs)})


def _run(trace: Sequence[TraceRequest], schedule: Schedule) -> dict[str, Any]:
    chosen = ladders(schedule)
    steps = list(simulate(trace, schedule))
    busy = sum(step.duration_ns for step in steps)
    return {"keep": schedule.keep, "steps": len(steps), "busy_s": round(busy / 1e9, 3),
            "graphs": sum(len(c.rungs) for c in chosen.values()),
            "buckets": {name: list(c.rungs) for name, c in chosen.items()},
            "axes": {axis: axis_figures(axis, steps, chosen) for axis in AXES}}


def axis_figures(axis: str, steps: Sequence[StepSizes], chosen: Mapping[str, Chosen]) -> dict[str, Any]:
    """`pad_share`: pads of all replays over rows that all replays launched. `step_pad_share`: the mean over steps of
    the same share of one step. Eager runs have no pads and are in neither."""
    rungs, above = chosen[axis].rungs, chosen[axis].ladder.above
    sizes = [step.rows[axis] for step in steps if step.rows.get(axis)]
    runs = [runs_of(rungs, above, rows) for rows in sizes]
    replayed = [each for each in runs if not each[0].is_eager]
    launched = [sum(run.launched for run in each) for each in replayed]
    pads = [total - sum(run.rows for run in each) for total, each in zip(launched, replayed, strict=True)]
    shares = [pad / total for pad, total in zip(pads, launched, strict=True)]
    count = max(len(sizes), 1)
    return {"steps": len(sizes), "mean_rows": sum(sizes) / count,
            "pad_share": sum(pads) / max(sum(launched), 1), "step_pad_share": sum(shares) / max(len(shares), 1),
            "eager_share": (len(runs) - len(replayed)) / count,
            "split_share": sum(len(each) > 1 for each in runs) / count}


def print_trace(result: Mapping[str, Any], as_json: bool) -> None:
    """One JSON object, or a table for each run."""
    if as_json:
        print(json.dumps(result))
        return
    for run in result["runs"]:
        keep = "all rows" if run["keep"] is None else f"the last {run['keep']} rows of a prompt"
        print(f"decoder keeps {keep}: {run['steps']} steps, {run['busy_s']:.0f} s busy, {run['graphs']} graphs")
        print(f"{'axis':<9}{'steps':>8}{'mean rows':>11}{'pad share':>11}{'of a step':>11}{'eager':>8}{'split':>8}")
        for axis, f in run["axes"].items():
            print(f"{axis:<9}{f['steps']:>8}{f['mean_rows']:>11.1f}{f['pad_share']:>11.1%}{f['step_pad_share']:>11.1%}"
                  f"{f['eager_share']:>8.1%}{f['split_share']:>8.1%}")


def print_lengths(trace: Sequence[TraceRequest], facts: Mapping[str, Any], as_json: bool) -> None:
    """Quartiles, mean and largest of prompts and outputs; as JSON the requests themselves."""
    if as_json:
        print(json.dumps({"schema_version": 1, **facts, "requests": [vars(one) for one in trace]}))
        return
    for name, lengths in (("prompt", sorted(r.prompt for r in trace)), ("output", sorted(r.output for r in trace))):
        low, middle, high = (lengths[len(lengths) * part // 4] for part in (1, 2, 3))
        print(f"{name:<7} quartiles {low} {middle} {high}, mean {sum(lengths) / len(lengths):.0f}, "
              f"largest {lengths[-1]} tokens")
    print(f"{len(trace)} requests in {trace[-1].arrival_ns / 1e9:.0f} s")
