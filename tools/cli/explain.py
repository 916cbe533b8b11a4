"""`dsv41c explain`: what an artifact's plan does, counted; reads manifest and plan, loads nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer


def explain_command(
    artifact: Annotated[Path, typer.Argument(metavar="ART", help="Artifact directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Count launches, segments, breaks, kernels and memory of an artifact."""
    from dsv41c.runtime.manifest import Manifest
    from dsv41c.runtime.plan.explain import explain

    facts = explain(Manifest.read(artifact).read_plan())
    if as_json:
        print(json.dumps({"schema_version": 1, "path": str(artifact), **facts}, ensure_ascii=False))
    else:
        print("\n".join(_lines(facts)))


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"target    {facts['target']}, requires {' '.join(facts['required_features']) or 'nothing'}"
    yield "memory    " + ", ".join(f"{name.removesuffix('_bytes')} {value:,} bytes"
                                   for name, value in facts["memory"].items())
    kernels = facts["kernels"]
    yield f"kernels   {kernels['total']}: {_counts(kernels['by_provider'])}"
    for flow in facts["flows"]:
        yield f"flow      {flow['name']}: {' > '.join(flow['methods'])} (requires {flow['requires']})"
    for method in facts["methods"]:
        yield from _method_lines(method)


def _method_lines(method: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield (f"method    {method['name']}: {method['axis']} up to {method['max_rows']}, "
           f"arena {method['arena_bytes']:,} bytes")
    yield f"buckets   {' '.join(map(str, method['buckets']))}"
    yield (f"steps     {method['segments']} segments, {len(method['breaks'])} breaks, {method['launches']} launches "
           f"({_counts(method['by_provider'])})")
    if method["kernel_runs"] != method["launches"]:  # there are sequences
        yield f"kernels   {method['kernel_runs']} run by the launches ({_counts(method['kernel_runs_by_provider'])})"
    for point in method["breaks"]:
        yield f"break     {point['op']}: {point['reason']} ({point['launches']} launches)"
    for kind, entry in method["by_layer_kind"].items():
        where = f"{entry['layers']} layers, " if entry["layers"] else ""
        yield f"layers    {kind}: {where}{entry['launches']} launches"
    for op, count in sorted(method["by_op"].items(), key=lambda item: (-item[1], item[0])):
        yield f"  {count:5}  {op.removeprefix('dsv41c::')}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
