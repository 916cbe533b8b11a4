"""`dsv41c bench`: measurements that are never part of a test run."""

from __future__ import annotations

from enum import StrEnum
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
    config: Annotated[list[BenchConfig] | None, typer.Option(help="Repeat for several. Default: all.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each case; medians are printed.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Time steps of the executor against the Python eager model, in one run."""
    from dsv41c.tools.bench.step import run_bench_step

    run_bench_step([c.value for c in config or BenchConfig], repeat=repeat, as_json=as_json)
