"""Cuts a checkpoint into shards and writes one with the safetensors library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dsv41c.compiler.checkpoint.layout import TensorSpec

_WEIGHT_SHARDS = 2


def plan_shards(tensors: Mapping[str, TensorSpec]) -> dict[str, list[str]]:
    """Shard file -> tensor names: equal parts by bytes in layout order, Engram tables in a last shard."""
    tables = [name for name in tensors if ".engram.embed." in name]
    others = [name for name in tensors if name not in tables]
    total = sum(tensors[name].nbytes for name in others)
    parts: list[list[str]] = [[] for _ in range(_WEIGHT_SHARDS)]
    written = 0
    for name in others:
        parts[min(written * _WEIGHT_SHARDS // total, _WEIGHT_SHARDS - 1)].append(name)
        written += tensors[name].nbytes
    parts.append(tables)
    return {f"model-{i:05d}-of-{len(parts):05d}.safetensors": names for i, names in enumerate(parts, start=1)}


def write_shard(path: Path, arrays: Mapping[str, NDArray[Any]], tensors: Mapping[str, TensorSpec]) -> None:
    """Writes arrays in storage form (see draw.py) under the dtypes of their specs."""
    # Imported here: `dsv41c --help` must not load torch.
    import torch
    from safetensors.torch import save_file

    types = {
        "BF16": torch.bfloat16,
        "F32": torch.float32,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E8M0": torch.float8_e8m0fnu,
        "I8": torch.int8,
    }
    stored = {
        name: torch.from_numpy(array).view(types[tensors[name].dtype]) for name, array in arrays.items()
    }
    path.touch()
    mode = path.stat().st_mode
    save_file(stored, path, metadata={"format": "pt"})
    path.chmod(mode)  # the library leaves a file that only its owner may read
