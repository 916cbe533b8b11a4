"""`dsv41c bench`: measurements that are never part of a test run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsv41c.tools.bench.trace import TraceRequest
    from dsv41c.tools.bench.trace_schedule import Schedule

bench_app = typer.Typer(no_args_is_help=True, help="Measure steps on this machine, or ladders on a trace.")


class BenchConfig(StrEnum):
    """Checkpoints that the benchmark makes for itself."""

    tiny = "tiny"
    demo = "demo"


@bench_app.command("step")
def bench_step_command(
    artifact: Annotated[Path | None, typer.Argument(help="Measure this one; none: made for --config.")] = None,
    weights: Annotated[Path | None, typer.Option(metavar="DIR", help="Checkpoint of an artifact that maps its "
                                                 "weights.")] = None,
    config: Annotated[list[BenchConfig] | None, typer.Option(help="Repeat for several. Default: all.")] = None,
    rows: Annotated[list[int] | None, typer.Option(min=1, help="Repeat for several. Up to 64 are decode rows of as "
                                                   "many slots, more are a prompt. Default: 1, 8, 64, 512.")] = None,
    prompt_rows: Annotated[int, typer.Option(metavar="N", min=1, help="Of the prompt that runs with --suffix-mode "
                                             "compact and off.")] = 2048,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each case; medians are printed.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Time frozen steps against steps that are bound for the call and against the Python eager model, in one run."""
    from dsv41c.tools.bench.step import run_bench_artifact, run_bench_step

    if artifact is not None:
        run_bench_artifact(artifact, weights, repeat=repeat, as_json=as_json)
        return
    run_bench_step([c.value for c in config or BenchConfig], rows or (1, 8, 64, 512), prompt_rows, repeat=repeat,
                   as_json=as_json)


@bench_app.command("trace")
def bench_trace_command(
    artifact: Annotated[Path | None, typer.Argument(metavar="ART", help="Serve the trace with this one, whose limits "
                                                    "count; none: made for --config.")] = None,
    weights: Annotated[Path | None, typer.Option(metavar="DIR", help="Checkpoint of an artifact that maps its "
                                                 "weights.")] = None,
    config: Annotated[BenchConfig, typer.Option(help="Checkpoint to make, with room for the longest "
                                                "request.")] = BenchConfig.tiny,
    simulate: Annotated[bool, typer.Option("--simulate", help="Run nothing: schedule the requests and count pads, "
                                           "eager and split steps of the default buckets.")] = False,
    lengths: Annotated[bool, typer.Option("--lengths", help="Run nothing: sum the lengths up; with --json the "
                                          "requests.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of lengths and arrivals.")] = 1,
    requests: Annotated[int | None, typer.Option(min=1, help="Number of requests. Default: 50 to run, else "
                                                 "1000.")] = None,
    rate: Annotated[float, typer.Option(help="Requests a second, on the clock of the cost model.")] = 4.0,
    max_prompt: Annotated[int, typer.Option(metavar="N", min=1, help="Cut prompts to N tokens: the median stays, the "
                                            "tail goes. The published cap is the default.")] = 32_768,
    max_output: Annotated[int | None, typer.Option(metavar="N", min=1, help="Cut outputs to N tokens.")] = None,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="As of compile.")] = 16,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, help="As of compile.")] = 512,
    suffix_keep_tokens: Annotated[int, typer.Option(metavar="K", min=1, help="As of compile --suffix-mode compact; "
                                                    "--simulate shows all rows kept beside it.")] = 140,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Draw a trace of requests and serve it: what share of steps runs from graphs, and what is padded."""
    from dsv41c.tools.bench.trace import REQUESTS, RUN_REQUESTS, check_trace_options, draw_trace
    from dsv41c.tools.bench.trace_report import print_lengths, print_trace, run_trace
    from dsv41c.tools.bench.trace_run import print_run
    from dsv41c.tools.bench.trace_schedule import Schedule

    check_trace_options(rate, max_num_seqs, max_num_batched_tokens)
    _check_trace_kind(artifact, simulate, lengths)
    count = requests or (REQUESTS if simulate or lengths else RUN_REQUESTS)
    trace = draw_trace(seed, count, rate, max_prompt, max_output)
    facts = {"seed": seed, "rate": rate}
    if lengths:
        print_lengths(trace, facts, as_json)
    elif simulate:
        print_trace(run_trace(trace, max_num_seqs, max_num_batched_tokens, suffix_keep_tokens) | facts, as_json)
    else:
        schedule = Schedule(max_num_seqs, max_num_batched_tokens, suffix_keep_tokens)
        print_run(_serve(trace, artifact, weights, config, schedule) | facts, as_json)


def _check_trace_kind(artifact: Path | None, simulate: bool, lengths: bool) -> None:
    from dsv41c.runtime.plan.errors import Dsv41cError

    given = [name for name, is_given in (("ART", artifact is not None), ("--simulate", simulate),
                                         ("--lengths", lengths)) if is_given]
    if len(given) > 1:
        raise Dsv41cError("DSV41C-E0901", "bench trace", found=" with ".join(given), needed="one of them",
                          do="leave the others out")


def _serve(trace: Sequence[TraceRequest], artifact: Path | None, weights: Path | None, config: BenchConfig,
           schedule: Schedule) -> dict[str, Any]:
    from dsv41c.tools.bench.trace_run import made_artifact, run_trace_on

    if artifact is not None:
        return run_trace_on(artifact, trace, weights)
    with made_artifact(config.value, trace, schedule) as made:
        return run_trace_on(made, trace) | {"config": config.value}
