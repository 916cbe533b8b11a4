"""`dsv41c checkpoint`: makes checkpoints in the published layout, and takes the inventory of one."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsv41c.compiler.checkpoint.inventory import Inventory

checkpoint_app = typer.Typer(no_args_is_help=True, help="Make checkpoints for tests, and look into any.")
_SHOWN = 20


class Preset(StrEnum):
    """Configs that `make` knows."""

    tiny = "tiny"
    demo = "demo"
    small = "small"
    flash = "flash"


@checkpoint_app.command("make")
def make_command(
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory to write; it must not exist.")],
    config: Annotated[
        Preset, typer.Option(help="Model: tiny and demo for tests (demo with the real tokenizer), "
                                           "small with the published head and window sizes, flash as published.")
    ] = Preset.tiny,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights.")] = 0,
    counter: Annotated[
        int | None,
        typer.Option(min=1, max=2, help="Greedy output counts up; drafts always right (1) or wrong (2)."),
    ] = None,
    recite: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Greedy output after a newline is TEXT, then EOS.")
    ] = None,
    headers_only: Annotated[
        bool, typer.Option("--headers-only", help="Headers without data: to inspect, and for compile --plan-only.")
    ] = False,
    max_position_embeddings: Annotated[
        int | None,
        typer.Option(metavar="N", min=2, help="Longest request that the config allows; default: the model's."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Write a checkpoint with random weights: same seed, same bytes."""
    from dsv41c.compiler.checkpoint.make import make_checkpoint

    start = time.perf_counter()
    made = make_checkpoint(
        config.value, output, seed=seed, counter=counter, recite=recite, headers_only=headers_only,
        max_position_embeddings=max_position_embeddings
    )
    seconds = time.perf_counter() - start
    if as_json:
        result = {
            "schema_version": 1,
            "path": str(made.path),
            "config": config.value,
            "seed": seed,
            "counter": counter,
            "recite": recite,
            "headers_only": headers_only,
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


@checkpoint_app.command("inspect")
def inspect_command(
    checkpoint: Annotated[Path, typer.Argument(metavar="DIR", help="Checkpoint in Hugging Face layout.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Show totals by group of tensors, and every deviation from what config.json implies. Reads headers only."""
    from dsv41c.compiler.checkpoint.inventory import take_inventory

    summary = _summary(checkpoint, take_inventory(checkpoint))
    print(json.dumps(summary, ensure_ascii=False) if as_json else _text(summary))


def _summary(path: Path, inventory: Inventory) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "path": str(path),
        "tensors": inventory.total.tensors,
        "bytes": inventory.total.bytes,
        "shards": inventory.shards,
        "headers_only": inventory.headers_only,
        "groups": {name: vars(total) for name, total in inventory.groups.items()},
        "deviations": [vars(deviation) for deviation in inventory.deviations],
    }


def _text(summary: dict[str, Any]) -> str:
    note = " (headers only)" if summary["headers_only"] else ""
    lines = [f"checkpoint {summary['path']}: {summary['shards']} shards{note}"]
    totals = {**summary["groups"], "total": summary}
    for name, total in totals.items():
        lines.append(f"  {name:<20}{total['tensors']:>9,} tensors{total['bytes']:>19,} bytes")
    deviations = summary["deviations"]
    lines.append(f"{len(deviations) or 'no'} deviations from config.json")
    for each in deviations[:_SHOWN]:
        lines.append(f"  {each['kind']}: {each['tensor']}: found {each['found']}, needed {each['needed']}")
    if len(deviations) > _SHOWN:
        lines.append(f"  and {len(deviations) - _SHOWN} more: --json lists all")
    return "\n".join(lines)
