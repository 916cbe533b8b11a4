"""Cuts a checkpoint into shards and writes them as the safetensors library would, a part of a tensor at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dsv41c.compiler.checkpoint.layout import TensorSpec
from dsv41c.compiler.checkpoint.safetensors_header import HEADERS_ONLY

# The library's order within a file: wide dtypes first, so that every tensor is aligned to its items.
_DTYPE_ORDER = ("F32", "BF16", "F8_E8M0", "F8_E4M3", "I8")
_ALIGNMENT = 8

Parts = Callable[[str], Iterable[NDArray[Any]]]


def plan_shards(tensors: Mapping[str, TensorSpec], weight_shards: int, *, split_tables: bool) -> dict[str, list[str]]:
    """Shard file -> tensor names: equal parts by bytes in layout order, then the Engram tables, each on its own
    with `split_tables`, else together."""
    tables = [name for name in tensors if ".engram.embed." in name]
    others = [name for name in tensors if name not in tables]
    total = sum(tensors[name].nbytes for name in others)
    parts: list[list[str]] = [[] for _ in range(weight_shards)]
    written = 0
    for name in others:
        parts[min(written * weight_shards // total, weight_shards - 1)].append(name)
        written += tensors[name].nbytes
    parts += _by_layer(tables) if split_tables else [tables]
    return {f"model-{i:05d}-of-{len(parts):05d}.safetensors": names for i, names in enumerate(parts, start=1)}


def _by_layer(tables: Iterable[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name in tables:
        groups.setdefault(name.partition(".engram.")[0], []).append(name)
    return list(groups.values())


def write_shard(path: Path, names: Iterable[str], tensors: Mapping[str, TensorSpec], parts: Parts) -> None:
    """`parts(name)` gives the elements of a tensor in storage form (see draw.py), in pieces."""
    ordered = _ordered(names, tensors)
    with path.open("wb") as file:
        file.write(_header(ordered, tensors, {"format": "pt"}))
        for name in ordered:
            for part in parts(name):
                file.write(memoryview(part).cast("B"))


def write_headers(path: Path, names: Iterable[str], tensors: Mapping[str, TensorSpec]) -> None:
    """A shard without its data. It says so itself: a real shard that lost its data is still refused."""
    path.write_bytes(_header(_ordered(names, tensors), tensors, {"format": "pt", **HEADERS_ONLY}))


def _ordered(names: Iterable[str], tensors: Mapping[str, TensorSpec]) -> list[str]:
    return sorted(names, key=lambda name: (_DTYPE_ORDER.index(tensors[name].dtype), name))


def _header(names: Iterable[str], tensors: Mapping[str, TensorSpec], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": metadata}
    position = 0
    for name in names:
        spec, begin = tensors[name], position
        position += spec.nbytes
        entries[name] = {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": [begin, position]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
