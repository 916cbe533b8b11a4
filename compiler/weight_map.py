"""WeightMap: where each weight of a plan lies in the checkpoint's own shards, for artifacts that copy none of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.weights import Recipe
from dsv41c.runtime.plan.codec import canonical_json

MAPPING = "weights.json"
FEATURE = "mapped_weights"
_VERSION = 1


@dataclass(frozen=True)
class WeightMap:
    """`data` is weights.json. Weights without a source in the checkpoint are not named and must be packed."""

    names: frozenset[str]
    data: bytes


def map_weights(view: CheckpointView, recipes: Mapping[str, Recipe]) -> WeightMap:
    """Ranges and digests of all weights that are checkpoint bytes; reads every one of them."""
    mapped = {name: recipe for name, recipe in recipes.items() if recipe.sources}
    files = sorted({view.tensors[source].file for recipe in mapped.values() for source in recipe.sources})
    number = {file: index for index, file in enumerate(files)}
    with ThreadPoolExecutor(max_workers=min(len(os.sched_getaffinity(0)), 8)) as pool:
        entries = pool.map(lambda recipe: _entry(view, recipe.sources, number), mapped.values())
        weights = dict(zip(mapped, entries, strict=True))
    data = canonical_json({
        "version": _VERSION,
        "files": [{"name": file.name, "bytes": file.stat().st_size} for file in files],
        "weights": weights,
    })
    return WeightMap(frozenset(mapped), data)


def _entry(view: CheckpointView, sources: Sequence[str], number: Mapping[Path, int]) -> dict[str, Any]:
    """The parts follow each other in the weight; the digest is that of the whole weight."""
    digest = hashlib.sha256()
    parts = []
    for source in sources:
        header = view.tensors[source]
        parts.append([number[header.file], header.begin])
        digest.update(view.read(source).reshape(-1))
    first = view.tensors[sources[0]]
    return {"source": sources[0] if len(sources) == 1 else _pattern(sources[0]), "parts": parts,
            "part_bytes": first.end - first.begin, "sha256": digest.hexdigest()}


def _pattern(first_expert: str) -> str:
    before, after = first_expert.split(".experts.")
    return f"{before}.experts.*.{after.partition('.')[2]}"
