"""`dsv41c diff`: where two artifacts differ: manifest, plan, files. Exit 0 the same, 1 different."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsv41c.runtime.manifest import Manifest

DIFFERENT = 1
_SHOWN = 100
# Digests follow from what is compared line by line.
_DERIVED = ("files", "plan_digest", "options_digest")


@dataclass(frozen=True)
class Difference:
    part: str  # manifest, plan, files or structure
    text: str


def diff_command(
    first: Annotated[Path, typer.Argument(metavar="A", help="Artifact directory.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Artifact directory.")],
    structure: Annotated[bool, typer.Option("--structure", help="Compare launches, segments, breaks and classes of "
                                            "memory only, whatever the target.")] = False,
    everything: Annotated[bool, typer.Option("--all", help=f"Print more than {_SHOWN} lines.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Compare two artifacts: exit code 0 when they are the same, 1 when they differ."""
    found = list(structural(first, second) if structure else differences(first, second))
    if as_json:
        result = {"schema_version": 1, "a": str(first), "b": str(second), "same": not found,
                  "differences": [vars(d) for d in found]}
        print(json.dumps(result, ensure_ascii=False))
    else:
        _print(found, everything)
    raise typer.Exit(DIFFERENT if found else 0)


def structural(first: Path, second: Path) -> Iterator[Difference]:
    """What differs between two plans however their kernels are made."""
    from dsv41c.runtime.manifest import Manifest
    from dsv41c.runtime.plan.structure import structure_differences

    plans = Manifest.read(first).read_plan(), Manifest.read(second).read_plan()
    return (Difference("structure", text) for text in structure_differences(*plans))


def differences(first: Path, second: Path) -> Iterator[Difference]:
    """Manifests, then plans, then the other files by the digests that the manifests list."""
    from dsv41c.runtime.manifest import Manifest
    from dsv41c.runtime.plan.diff import diff

    a, b = Manifest.read(first), Manifest.read(second)
    fields = [{k: v for k, v in m.fields.items() if k not in _DERIVED} for m in (a, b)]
    yield from (Difference("manifest", text) for text in _compare(*fields, path=""))
    plans = a.read_plan(), b.read_plan()
    yield from (Difference("plan", text) for text in diff(*plans))
    yield from (Difference("files", text) for text in _compare(_listed(a), _listed(b), path=""))


def _listed(manifest: Manifest) -> Mapping[str, Any]:
    """Every listed file except the plan, which is compared by its content."""
    files = manifest.fields.get("files")
    return {k: v for k, v in files.items() if k != "plan.json"} if isinstance(files, dict) else {}


def _compare(a: Mapping[str, Any], b: Mapping[str, Any], path: str) -> Iterator[str]:
    for key in [*a, *(key for key in b if key not in a)]:
        place = f"{path}.{key}" if path else key
        if key not in b:
            yield f"{place}: removed {json.dumps(a[key])}"
        elif key not in a:
            yield f"{place}: added {json.dumps(b[key])}"
        elif isinstance(a[key], dict) and isinstance(b[key], dict):
            yield from _compare(a[key], b[key], place)
        elif a[key] != b[key]:
            yield f"{place}: {json.dumps(a[key])} -> {json.dumps(b[key])}"


def _print(found: list[Difference], everything: bool) -> None:
    if not found:
        print("same")
    shown = found if everything else found[:_SHOWN]
    for difference in shown:
        print(f"{difference.part:<9} {difference.text}")
    if len(shown) < len(found):
        print(f"... and {len(found) - len(shown)} more; --all prints them")
