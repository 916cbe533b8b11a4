"""`dsv41c bench`: measurements that are never part of a test run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

bench_app = typer.Typer(no_args_is_help=True, help="Measure steps on this machine.")


class BenchConfig(StrEnum):
    """Checkpoints that the benchmark makes for itself."""

    tiny = "tiny"
    demo = "demo"


@bench_app.callback()
def _group() -> None:
    """Keeps `step` a subcommand although it is the only one."""


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
