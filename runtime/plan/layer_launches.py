"""Launches of one layer of each kind: the steady count, the layers that differ from it and by which ops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsv41c.runtime.plan.explain import launches_of, places
from dsv41c.runtime.plan.schema import Kernel, Launch, Method, Plan, ViewStorage, WeightStorage

_LAYER_WEIGHT = re.compile(r"layers\.(\d+)\.(.+)")
# What a layer is, from the weights that it reads in any method; the first that fits, then the additions.
_ROLES = (("kv source", "attn.compressor."), ("index source", "attn.indexer."))
_ATTENTION, _ENGRAM = "attn.attn_sink", "engram."


@dataclass(frozen=True)
class LayerLaunches:
    """The launches of one layer in one method, in order."""

    layer: int
    ops: tuple[str, ...]
    kernels: int

    @property
    def signature(self) -> tuple[int, tuple[tuple[str, int], ...]]:
        return len(self.ops), tuple(sorted(Counter(self.ops).items()))


def layer_launches(plan: Plan) -> dict[str, Any]:
    """Plain data for JSON. Per kind and method `launches`; a layer belongs to a method that has its attention.

    Kinds: `window` reads no compressed entries, `kv source` makes its own, `index source` selects anew from those of
    another layer, `reuse` takes over both; `+ engram` where the layer has a table. What lies outside of whole layers
    is under `extras`, by name.
    """
    kinds = layer_kinds(plan)
    result: dict[str, Any] = {"layer_kinds": {}, "total": {}, "kernels": {}, "extras": {}, "steady": {},
                              "different": [], "layers": {}}
    for kind in dict.fromkeys(kinds.values()):
        result["layers"][kind] = [layer for layer, k in kinds.items() if k == kind]
    for method in plan.methods:
        launches = [plan.kernels[launch.kernel] for launch in launches_of(method)]
        result["total"][method.name] = len(launches)
        result["kernels"][method.name] = sum(map(num_kernels, launches))
        layers, extras = _of_method(plan, method)
        result["extras"][method.name] = extras
        for kind in result["layers"]:
            members = [entry for entry in layers if kinds[entry.layer] == kind]
            if members:
                _add_kind(result, kind, method.name, members)
    return result


def layer_kinds(plan: Plan) -> dict[int, str]:
    """Layer number to kind, in order of layers."""
    read: dict[int, set[str]] = {}
    for weight in plan.weights:
        if found := _LAYER_WEIGHT.match(weight.name):
            read.setdefault(int(found.group(1)), set()).add(found.group(2))
    compressed = _reads_compressed(plan)
    kinds = {}
    for layer, weights in sorted(read.items()):
        role = next((name for name, prefix in _ROLES if any(w.startswith(prefix) for w in weights)),
                    "reuse" if layer in compressed else "window")
        has_table = any(w.startswith(_ENGRAM) for w in weights)
        kinds[layer] = f"{role} + engram" if has_table else role
    return kinds


def num_kernels(kernel: Kernel) -> int:
    """How many bodies one launch runs: the parts of a body that is a sequence, else one."""
    return len(getattr(kernel.body, "parts", ())) or 1


def _add_kind(result: dict[str, Any], kind: str, method: str, members: Sequence[LayerLaunches]) -> None:
    """The steady layer is the most frequent one, the smallest of equals."""
    counts = Counter(len(m.ops) for m in members)
    count = min(counts, key=lambda c: (-counts[c], c))
    signatures = Counter(m.signature for m in members if len(m.ops) == count)
    signature = min(signatures, key=lambda s: (-signatures[s], s))
    steady = next(m for m in members if m.signature == signature)
    result["layer_kinds"].setdefault(kind, {})[method] = count
    result["steady"].setdefault(kind, {})[method] = {"layer": steady.layer, "ops": list(steady.ops),
                                                     "kernels": steady.kernels}
    for other in members:
        if other.signature != signature:
            ops, usual = Counter(other.ops), Counter(steady.ops)
            result["different"].append({
                "kind": kind, "method": method, "layer": other.layer, "launches": len(other.ops), "steady": count,
                "more": dict(sorted((ops - usual).items())), "fewer": dict(sorted((usual - ops).items()))})


def _of_method(plan: Plan, method: Method) -> tuple[list[LayerLaunches], dict[str, int]]:
    """The whole layers of a method, and the number of launches of each other place."""
    by_place: dict[str, list[Launch]] = {}
    for place, launch in places(method):
        by_place.setdefault(place, []).append(launch)
    layers, extras = [], {}
    for place, launches in by_place.items():
        read = {name for launch in launches for name in _weights(plan, method, launch)}
        if place.isdecimal() and f"layers.{place}.{_ATTENTION}" in read:
            kernels = [plan.kernels[launch.kernel] for launch in launches]
            ops = tuple(kernel.op.removeprefix("dsv41c::") for kernel in kernels)
            layers.append(LayerLaunches(int(place), ops, sum(map(num_kernels, kernels))))
        elif place.isdecimal():
            extras[f"part of layer {place}"] = len(launches)
        else:
            extras["entry" if place == "embed" and "embed.weight" not in read else place] = len(launches)
    return layers, extras


def _reads_compressed(plan: Plan) -> set[int]:
    """Layers whose attention has a compress ratio: it reads compressed entries beside its window."""
    found = set()
    for method in plan.methods:
        for launch in launches_of(method):
            kernel = plan.kernels[launch.kernel]
            if "ratio" not in kernel.attributes:
                continue
            found |= {int(m.group(1)) for name in _weights(plan, method, launch)
                      if (m := _LAYER_WEIGHT.match(name)) and m.group(2) == _ATTENTION}
    return found


def _weights(plan: Plan, method: Method, launch: Launch) -> Iterator[str]:
    """Names of the weights that a launch reads."""
    for tensor in launch.tensors:
        index: int | None = getattr(tensor, "value", None)
        while index is not None and isinstance(storage := method.values[index].storage, ViewStorage):
            index = storage.of
        if index is not None and isinstance(storage, WeightStorage):
            yield plan.weights[storage.index].name


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The same as text."""
    for kind, by_method in facts["layer_kinds"].items():
        counts = ", ".join(f"{method} {count}" for method, count in by_method.items())
        yield f"{kind}: {counts} launches a layer; layers {' '.join(map(str, facts['layers'][kind]))}"
    for other in facts["different"]:
        changes = [f"{sign}{n} {op}" for sign, key in (("+", "more"), ("-", "fewer")) for op, n in other[key].items()]
        yield (f"  {other['kind']}, {other['method']}: layer {other['layer']} has {other['launches']}, not "
               f"{other['steady']}: {', '.join(changes)}")
    for method, count in facts["total"].items():
        extras = ", ".join(f"{name} {n}" for name, n in facts["extras"][method].items())
        yield f"{method}: {count} launches of {facts['kernels'][method]} kernels; outside of layers: {extras or 'none'}"
