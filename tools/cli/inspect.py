"""`dsv41c inspect`: what an artifact holds, read from its manifest and plan without loading it."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsv41c.runtime.manifest import Manifest
    from dsv41c.runtime.plan.schema import Method, Plan


def inspect_command(
    artifact: Annotated[Path, typer.Argument(metavar="ART", help="Artifact directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Show the manifest, methods, buckets, launches and memory of an artifact."""
    from dsv41c.runtime.manifest import Manifest

    manifest = Manifest.read(artifact)
    summary = _summary(manifest, manifest.read_plan())
    print(json.dumps(summary, ensure_ascii=False) if as_json else _text(summary))


def _summary(manifest: Manifest, plan: Plan) -> dict[str, Any]:
    symbols = {symbol.name: symbol for symbol in plan.symbols}
    return {
        "schema_version": 1,
        "path": str(manifest.path),
        "manifest": {k: v for k, v in manifest.fields.items() if k != "files"},
        "files": manifest.fields.get("files", {}),
        "flows": [{"name": f.name, "methods": list(f.methods), "requires": f.requires} for f in plan.flows],
        "methods": [_method(m, plan) | {"max_rows": symbols[m.symbol].hi} for m in plan.methods],
        "kernels": dict(Counter(kernel.body.TAG.name for kernel in plan.kernels)),
        "memory": vars(plan.memory),
        "weights": {"tensors": len(plan.weights), "bytes": _weight_bytes(plan)},
        "checks": len(plan.checks),
    }


def _method(method: Method, plan: Plan) -> dict[str, Any]:
    from dsv41c.runtime.plan.explain import kernels_run

    launches = [launch for step in method.steps for launch in step.launches]
    runs = [kernel for launch in launches for kernel in kernels_run(plan, launch)]
    return {
        "name": method.name,
        "axis": method.axis,
        "buckets": list(method.buckets),
        "ladder": vars(method.ladder),
        "steps": len(method.steps),
        "launches": dict(Counter(plan.kernels[launch.kernel].body.TAG.name for launch in launches)),
        "kernel_runs": dict(Counter(kernel.body.TAG.name for kernel in runs)),
        "arena_bytes": method.arena_bytes,
    }


def _weight_bytes(plan: Plan) -> int:
    from dsv41c.runtime.plan.format import DTYPES

    return sum(math.prod(w.sizes) * DTYPES[w.dtype].item_bytes for w in plan.weights)


def _text(summary: dict[str, Any]) -> str:
    from dsv41c.runtime.plan.explain import above_text

    manifest, memory = summary["manifest"], summary["memory"]
    options = " ".join(f"{name}={value}" for name, value in manifest.get("options", {}).items())
    lines = [
        f"artifact  {summary['path']}{' (plan only)' if manifest.get('plan_only') else ''}",
        f"producer  {manifest.get('producer')} for {manifest.get('target')}, format {manifest.get('format_version')}",
        f"requires  {' '.join(manifest.get('required_features', []))}",
        f"model     {manifest.get('model_digest')}",
        f"options   {options}",
        f"weights   {summary['weights']['tensors']} tensors, {summary['weights']['bytes']} bytes",
        "memory    " + " ".join(f"{name.removesuffix('_bytes')}={value}" for name, value in memory.items()) + " bytes",
        "kernels   " + _counts(summary["kernels"]),
        f"checks    {summary['checks']}",
    ]
    for flow in summary["flows"]:
        lines.append(f"flow      {flow['name']}: {' > '.join(flow['methods'])} (requires {flow['requires']})")
    for method in summary["methods"]:
        runs = f" that run {_counts(method['kernel_runs'])}" if "sequence" in method["launches"] else ""
        lines.append(f"method    {method['name']}: {method['axis']} <= {method['max_rows']}, "
                     f"launches {_counts(method['launches'])}{runs}, arena {method['arena_bytes']} bytes, "
                     f"buckets {' '.join(str(b) for b in method['buckets'])} "
                     f"({method['ladder']['policy']}), above them {above_text(method['ladder'])}")
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return " ".join(f"{name}={count}" for name, count in sorted(counts.items()))
