"""`dsv41c bench`: measurements that are never part of a test run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

bench_app = typer.Typer(no_args_is_help=True, help="Measure steps on this machine, or ladders on a trace.")


class BenchConfig(StrEnum):
    """Checkpoints that the benchmark makes for itself."""

    tiny = "tiny"
    demo = "demo"


@bench_app.command("step")
def bench_step(
    artifact: Annotated[Path | None, typer.Argument(help="Measure this one; none: made for --config.")] = None,
    weights: Annotated[Path | None, typer.Option(metavar="DIR", help="Checkpoint of an artifact that maps its "
                                                 "weights.")] = None,
    config: Annotated[list[BenchConfig] | None, typer.Option(help="Repeat for several. Default: all.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each case; medians are printed.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Time steps of the executor against the Python eager model, in one run."""
    from dsv41c.tools.bench.step import run_bench_artifact, run_bench_step

    if artifact is not None:
        run_bench_artifact(artifact, weights, repeat=repeat, as_json=as_json)
        return
    run_bench_step([c.value for c in config or BenchConfig], repeat=repeat, as_json=as_json)


@bench_app.command("trace")
def bench_trace_command(
    simulate: Annotated[bool, typer.Option("--simulate", help="Schedule the requests and count pads, eager and split "
                                           "steps of the default buckets. Else the lengths are summed up.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of lengths and arrivals.")] = 1,
    requests: Annotated[int, typer.Option(min=1, help="Number of requests.")] = 1_000,
    rate: Annotated[float, typer.Option(help="Requests a second.")] = 4.0,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="As of compile.")] = 16,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, help="As of compile.")] = 512,
    suffix_keep_tokens: Annotated[int, typer.Option(metavar="K", min=1, help="As of compile --suffix-mode compact; all "
                                                    "rows kept are simulated beside it.")] = 140,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Draw a trace of requests, and show what the default buckets do with its steps."""
    from dsv41c.tools.bench.trace import check_trace_options, draw_trace
    from dsv41c.tools.bench.trace_report import print_lengths, print_trace, run_trace

    check_trace_options(rate, max_num_seqs, max_num_batched_tokens)
    trace = draw_trace(seed, requests, rate)
    facts = {"seed": seed, "rate": rate}
    if simulate:
        print_trace(run_trace(trace, max_num_seqs, max_num_batched_tokens, suffix_keep_tokens) | facts, as_json)
    else:
        print_lengths(trace, facts, as_json)
