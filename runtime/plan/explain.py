"""Counts what a plan does: launches by kernel, provider and kind of layer, segments and breaks, memory by class."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from dsv41c.runtime.plan.arena_lives import peak_bytes
from dsv41c.runtime.plan.format import DTYPES
from dsv41c.runtime.plan.memory_classes import memory_by_class
from dsv41c.runtime.plan.schema import Break, Kernel, Launch, Method, Plan, SequenceBody, StepsLife

# Body kind -> who runs it; the parts of a sequence may have several providers.
PROVIDERS = {"native": "cpu", "composite": "aten", "cuda": "cuda", "sequence": "sequence"}
_LAYER = re.compile(r"layers\.(\d+)(?:[./]|$)")
_OUTSIDE = ("embed", "head")  # before the first layer, behind the last one


def explain(plan: Plan) -> dict[str, Any]:
    """Plain data for JSON; the order of everything is the plan's."""
    bounds = {symbol.name: symbol.hi for symbol in plan.symbols}
    methods = [_method(plan, method, method.run_rows(bounds[method.symbol])) | {"max_rows": bounds[method.symbol]}
               for method in plan.methods]
    return {
        "target": plan.target,
        "required_features": list(plan.required_features),
        "flows": [{"name": f.name, "methods": list(f.methods), "requires": f.requires} for f in plan.flows],
        "methods": methods,
        "kernels": {
            "total": len(plan.kernels),
            "by_provider": dict(Counter(provider(kernel) for kernel in plan.kernels)),
            "by_op": _by_op(plan),
        },
        "memory": {**vars(plan.memory), "weight_bytes": weight_bytes(plan)},
        "classes": memory_by_class(plan),
        "state": {s.name: math.prod(s.sizes) * DTYPES[s.dtype].item_bytes for s in plan.state},
        "bridges": bridge_map(plan),
    }


def above_text(ladder: Mapping[str, Any]) -> str:
    """What happens above the largest bucket, in words, from a ladder as plain data."""
    rows = ladder["block_rows"]
    return f"eager in blocks of {rows:,} rows" if rows and ladder["above"] == "eager" else str(ladder["above"])


def bridge_map(plan: Plan) -> list[dict[str, Any]]:
    """Name, place in the bridges' region and life of each: "flow", or the steps of a method, both included."""
    return [{"name": b.name, "offset": b.offset, "bytes": math.prod(b.sizes) * DTYPES[b.dtype].item_bytes,
             "life": dict(vars(b.life)) if isinstance(b.life, StepsLife) else "flow"} for b in plan.bridges]


def provider(kernel: Kernel) -> str:
    return PROVIDERS[kernel.body.TAG.name]


def kernels_run(plan: Plan, launch: Launch) -> tuple[Kernel, ...]:
    """What a launch runs: its kernel, or the parts of its sequence."""
    kernel = plan.kernels[launch.kernel]
    if isinstance(kernel.body, SequenceBody):
        return tuple(plan.kernels[part.kernel] for part in kernel.body.parts)
    return (kernel,)


def weight_bytes(plan: Plan) -> int:
    return sum(math.prod(w.sizes) * DTYPES[w.dtype].item_bytes for w in plan.weights)


def launches_of(method: Method) -> Iterator[Launch]:
    for step in method.steps:
        yield from step.launches


def _method(plan: Plan, method: Method, run_rows: int) -> dict[str, Any]:
    kernels = [plan.kernels[launch.kernel] for launch in launches_of(method)]
    runs = [kernel for launch in launches_of(method) for kernel in kernels_run(plan, launch)]
    breaks = [step for step in method.steps if isinstance(step, Break)]
    return {
        "name": method.name,
        "axis": method.axis,
        "buckets": list(method.buckets),
        "ladder": vars(method.ladder),
        "segments": len(method.steps) - len(breaks),
        "breaks": [{"op": b.op, "reason": b.reason, "launches": len(b.launches)} for b in breaks],
        "launches": len(kernels),
        "by_provider": dict(Counter(provider(kernel) for kernel in kernels)),
        "kernel_runs": len(runs),
        "kernel_runs_by_provider": dict(Counter(provider(kernel) for kernel in runs)),
        "by_op": dict(Counter(kernel.op for kernel in kernels)),
        "by_layer_kind": _by_layer_kind(plan, method),
        "arena_bytes": method.arena_bytes,
        "run_rows": run_rows,
        "peak_bytes": peak_bytes(method, run_rows),
    }


def _by_op(plan: Plan) -> dict[str, dict[str, Any]]:
    ops: dict[str, dict[str, Any]] = {}
    for kernel in plan.kernels:
        entry = ops.setdefault(kernel.op, {"kernels": 0, "providers": {}})
        entry["kernels"] += 1
        entry["providers"][provider(kernel)] = entry["providers"].get(provider(kernel), 0) + 1
    return ops


def _by_layer_kind(plan: Plan, method: Method) -> dict[str, dict[str, int]]:
    """A kind is what a layer's attention reads: its window, or also entries compressed by a ratio."""
    placed = list(places(method))
    kinds: dict[str, str] = {}
    for place, launch in placed:
        for kernel in kernels_run(plan, launch):
            kind = _attention_kind(kernel.op, kernel.attributes)
            if kind is not None:
                kinds[place] = kind
    result: dict[str, dict[str, int]] = {}
    for place in dict.fromkeys(place for place, _ in placed):
        entry = result.setdefault(kinds.get(place, "no attention" if place.isdecimal() else place),
                                  {"layers": 0, "launches": 0})
        entry["layers"] += place.isdecimal()
        entry["launches"] += sum(p == place for p, _ in placed)
    return result


def _attention_kind(op: str, attributes: Mapping[str, object]) -> str | None:
    if not op.endswith("_attention"):
        return None
    return f"compressed by {attributes['ratio']}" if "ratio" in attributes else "window"


def places(method: Method) -> Iterator[tuple[str, Launch]]:
    """(layer number, or what lies outside of the layers) of each launch. A launch that reads no weight of its own
    has no layer in its name: it counts with the launch before it."""
    launches = list(launches_of(method))
    found = [_LAYER.match(launch.name) for launch in launches]
    numbers = [match.group(1) if match else None for match in found]
    first = next((i for i, number in enumerate(numbers) if number is not None), None)
    behind = next((i for i, launch in enumerate(launches) if launch.name.startswith(("norm/", "head/"))), len(launches))
    place = _OUTSIDE[0]
    for index, launch in enumerate(launches):
        if first is not None and index >= first:
            place = numbers[index] or place
        if index >= behind:
            place = _OUTSIDE[1]
        yield place, launch
