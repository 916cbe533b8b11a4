"""A trace that really runs: an artifact serves its requests, and the records say what every step did."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.options import CompileOptions
from dsv41c.graphs.buckets import Chosen
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import DecisionRecord, load
from dsv41c.runtime.plan.codec import decode
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.requests import Request
from dsv41c.runtime.step_log import StepLog, counters
from dsv41c.tools.bench.trace import TraceRequest
from dsv41c.tools.bench.trace_report import AXES, axis_figures
from dsv41c.tools.bench.trace_schedule import Schedule, arrival_steps, simulate


@contextlib.contextmanager
def made_artifact(config: str, trace: Sequence[TraceRequest], schedule: Schedule) -> Iterator[Path]:
    """A checkpoint of this preset with room for the longest request, compiled with the schedule's limits."""
    longest = max(one.prompt + one.output for one in trace)
    suffix = {} if schedule.keep is None else {"suffix_mode": "compact", "suffix_keep_tokens": schedule.keep}
    options = CompileOptions(max_model_len=longest, max_num_seqs=schedule.max_num_seqs,
                             max_num_batched_tokens=schedule.max_num_batched_tokens, **suffix)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, artifact = Path(folder) / "checkpoint", Path(folder) / "artifact"
        make_checkpoint(config, checkpoint, max_position_embeddings=longest)
        compile_checkpoint(checkpoint, artifact, options, lambda _: None)
        yield artifact


def run_trace_on(artifact: Path, trace: Sequence[TraceRequest], weights: Path | None = None) -> dict[str, Any]:
    """Greedy tokens of every request; ids are drawn, and an end of sequence ends nothing. Requests arrive at the steps
    at which the simulation of the cost model sees them. E0901 when a request is too long for the artifact."""
    limits = Limits.read(artifact)
    _check_fits(trace, limits)
    keep = None if limits.runs_all_rows else limits.suffix_keep_tokens
    schedule = Schedule(limits.max_num_seqs, limits.max_num_batched_tokens, keep)
    steps = list(simulate(trace, schedule))
    ids = np.random.default_rng(0)
    requests = [Request(ids.integers(0, limits.vocab_size, one.prompt).tolist(), one.output, ignore_eos=True,
                        arrival_step=step) for one, step in zip(trace, arrival_steps(trace, steps), strict=True)]
    with load(artifact, weights=weights) as runtime:
        log, start = StepLog(runtime), time.perf_counter()
        generate(log, limits, requests)
        seconds = time.perf_counter() - start
    plan = decode((artifact / "plan.json").read_bytes())
    chosen = {m.name: Chosen(m.buckets, m.ladder) for m in plan.methods}
    return {"schema_version": 1, "requests": len(trace), "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens, "keep": keep,
            "longest_prompt": max(one.prompt for one in trace),
            "seconds": round(seconds, 3), "prompt_tokens": sum(one.prompt for one in trace),
            "output_tokens": sum(one.output for one in trace),
            "tokens_per_s": round(sum(one.output for one in trace) / seconds, 1),
            **step_figures(log.records), "counters": counters(log.records),
            "axes": {axis: run_figures(log.records, axis) for axis in AXES},
            "simulated": {axis: axis_figures(axis, steps, chosen) for axis in AXES}}


def _check_fits(trace: Sequence[TraceRequest], limits: Limits) -> None:
    longest = max(trace, key=lambda one: one.prompt + one.output)
    if longest.prompt + longest.output > limits.max_model_len:
        raise Dsv41cError("DSV41C-E0901", "bench trace", needed=f"at most {limits.max_model_len} (max_model_len)",
                          found=f"a request of {longest.prompt} + {longest.output} tokens",
                          do="cut lengths with --max-prompt and --max-output, or compile with a larger --max-model-len")


def step_figures(records: Sequence[DecisionRecord]) -> dict[str, Any]:
    """Shares of steps: of those in which no method ran eagerly, and the eager ones by cause."""
    steps = {r.step for r in records}
    causes = {(r.step, r.cause) for r in records if r.eager}
    eager = {step for step, _ in causes}
    return {"steps": len(steps), "steps_without_eager": len(steps) - len(eager),
            "without_eager_share": (len(steps) - len(eager)) / max(len(steps), 1),
            "eager_steps_by_reason": dict(Counter(cause for _, cause in sorted(causes)))}


def run_figures(of_all: Sequence[DecisionRecord], axis: str) -> dict[str, Any]:
    """The figures of `axis_figures`, from what ran. `us_per_step`: mean host microseconds."""
    by_step: dict[int, list[DecisionRecord]] = {}
    for record in of_all:
        if record.method == axis:
            by_step.setdefault(record.step, []).append(record)
    records = list(by_step.values())
    replayed = [each for each in records if not each[0].eager]
    launched = [sum(r.bucket for r in each) for each in replayed]
    pads = [sum(r.pad_rows for r in each) for each in replayed]
    count = max(len(records), 1)
    return {"steps": len(records), "mean_rows": sum(r.rows for each in records for r in each) / count,
            "pad_share": sum(pads) / max(sum(launched), 1),
            "step_pad_share": sum(p / n for p, n in zip(pads, launched, strict=True)) / max(len(replayed), 1),
            "eager_share": (len(records) - len(replayed)) / count,
            "split_share": sum(len(each) > 1 and not each[0].eager for each in records) / count,
            "us_per_step": sum(r.us for each in records for r in each) / count}


def print_run(result: Mapping[str, Any], as_json: bool) -> None:
    """One JSON object, or a few lines and a table."""
    if as_json:
        print(json.dumps(result))
        return
    keep = "all rows" if result["keep"] is None else f"the last {result['keep']} rows of a prompt"
    print(f"{result['requests']} requests, {result['prompt_tokens']:,} prompt tokens (longest "
          f"{result['longest_prompt']:,}) and {result['output_tokens']:,} new ones in {result['seconds']:.1f} s: "
          f"{result['tokens_per_s']:.0f} tokens/s")
    print(f"{result['steps']} steps, {result['without_eager_share']:.2%} without an eager run; "
          f"decoder keeps {keep}")
    for cause, count in result["eager_steps_by_reason"].items():
        print(f"eager: {count} steps, {cause}")
    print(f"{'axis':<9}{'steps':>8}{'mean rows':>11}{'pad share':>11}{'simulated':>11}{'eager':>8}{'split':>8}"
          f"{'us':>9}")
    for axis, f in result["axes"].items():
        print(f"{axis:<9}{f['steps']:>8}{f['mean_rows']:>11.1f}{f['pad_share']:>11.1%}"
              f"{result['simulated'][axis]['pad_share']:>11.1%}{f['eager_share']:>8.1%}{f['split_share']:>8.1%}"
              f"{f['us_per_step']:>9.0f}")
