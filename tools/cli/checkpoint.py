"""`dsv41c checkpoint`: makes small checkpoints in the published layout."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

checkpoint_app = typer.Typer(no_args_is_help=True, help="Make checkpoints for tests and demonstrations.")


class Preset(StrEnum):
    """Configs that `make` knows."""

    tiny = "tiny"
    demo = "demo"


@checkpoint_app.callback()
def _group() -> None:
    """Keeps `make` a subcommand although it is the only one."""


@checkpoint_app.command()
def make(
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory to write; it must not exist.")],
    config: Annotated[Preset, typer.Option(help="Model size; demo has the real tokenizer.")] = Preset.tiny,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights.")] = 0,
    counter: Annotated[
        int | None,
        typer.Option(min=1, max=2, help="Greedy output counts up; drafts always right (1) or wrong (2)."),
    ] = None,
    recite: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Greedy output after a newline is TEXT, then EOS.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Write a checkpoint with random weights: same seed, same bytes."""
    from dsv41c.compiler.checkpoint.make import make_checkpoint

    start = time.perf_counter()
    made = make_checkpoint(config.value, output, seed=seed, counter=counter, recite=recite)
    seconds = time.perf_counter() - start
    if as_json:
        result = {
            "schema_version": 1,
            "path": str(made.path),
            "config": config.value,
            "seed": seed,
            "counter": counter,
            "recite": recite,
            "tensors": made.tensors,
            "bytes": made.data_bytes,
            "shards": list(made.shards),
            "seconds": round(seconds, 3),
        }
        print(json.dumps(result, ensure_ascii=False))
        return
    print(
        f"checkpoint {made.path}: {made.tensors} tensors, {made.data_bytes} bytes, "
        f"{len(made.shards)} shards, {seconds:.1f} s",
        file=sys.stderr,
    )
