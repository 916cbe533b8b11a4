"""Inventory of a checkpoint: totals by group, and every way in which it deviates from what its config implies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv41c.compiler.checkpoint.census import read_stored, same_storage
from dsv41c.compiler.checkpoint.layout import DRAFT_PREFIX, VISION_PREFIXES, TensorSpec, expected_tensors
from dsv41c.compiler.checkpoint.safetensors_header import TensorHeader
from dsv41c.compiler.checkpoint.vision import vision_tensors
from dsv41c.compiler.config import ModelConfig, read_json

# First match wins; names are without prefixes of layers.
_GROUPS: tuple[tuple[str, str], ...] = (
    ("vision", r"(vision|aligner)\."),
    ("draft experts", r"mtp\..*\.experts\."),
    ("draft", r"mtp\."),
    ("routed experts", r"layers\..*\.experts\."),
    ("shared experts", r"layers\..*\.shared_experts\."),
    ("gates", r"layers\..*\.gate\."),
    ("engram tables", r"layers\..*\.engram\.embed\."),
    ("engram", r"layers\..*\.engram\."),
    ("attention", r"layers\..*\.(attn|attn_norm)\."),
    ("streams", r"layers\.\d+\.hc_"),
    ("norms", r"(layers\..*_norm|norm)\."),
    ("embedding and head", r"(embed|head)\.|image_"),
)


@dataclass(frozen=True)
class Deviation:
    """`kind` is missing, different, surplus, stale copy or without data."""

    kind: str
    tensor: str
    found: str
    needed: str


@dataclass(frozen=True)
class Total:
    tensors: int
    bytes: int


@dataclass(frozen=True)
class Inventory:
    total: Total
    groups: dict[str, Total]
    deviations: tuple[Deviation, ...]
    shards: int
    headers_only: bool


def take_inventory(path: Path) -> Inventory:
    """Reads config, index and headers; structural faults of these files raise, all else is listed."""
    config, stored = ModelConfig.load(path), read_stored(path)
    expected = _expected(config, read_json(path / "config.json"), stored.tensors)
    deviations = [Deviation("missing", name, "named by the index, not in its shard", "the tensor")
                  for name in stored.absent]  # fmt: skip
    deviations += _compared(expected, stored.tensors, set(stored.absent))
    deviations += [Deviation("stale copy", copy.name, copy.file.name, "only the shard that the index names")
                   for copy in stored.stale]  # fmt: skip
    groups: dict[str, Total] = {}
    for header in stored.tensors.values():
        group = _group(header.name)
        before = groups.get(group, Total(0, 0))
        groups[group] = Total(before.tensors + 1, before.bytes + header.end - header.begin)
    total = Total(len(stored.tensors), sum(each.bytes for each in groups.values()))
    headers = stored.tensors.values()
    return Inventory(total, groups, tuple(deviations), len({h.file for h in headers}),
                     any(not h.has_data for h in headers))  # fmt: skip


def _expected(config: ModelConfig, raw: Any, found: Mapping[str, TensorHeader]) -> dict[str, TensorSpec]:
    """Text and draft always; the image tower where config.json or a tensor speaks of one."""
    expected = expected_tensors(config)
    if not any(name.startswith(DRAFT_PREFIX) for name in found):
        # A checkpoint may come without its draft as a whole.
        expected = {name: spec for name, spec in expected.items() if not name.startswith(DRAFT_PREFIX)}
    if "vision_config" in raw or any(name.startswith(VISION_PREFIXES) for name in found):
        expected |= vision_tensors(config.hidden_size)
    return expected


def _compared(
    expected: Mapping[str, TensorSpec], found: Mapping[str, TensorHeader], absent: set[str]
) -> list[Deviation]:
    result = [Deviation("missing", name, "no such tensor", _described(spec.dtype, spec.shape))
              for name, spec in expected.items() if name not in found and name not in absent]  # fmt: skip
    for name, header in sorted(found.items()):
        spec = expected.get(name)
        stored = _described(header.dtype, header.shape)
        if spec is None:
            result.append(Deviation("surplus", name, stored, "no tensor of this name"))
        elif not same_storage(header, spec):
            result.append(Deviation("different", name, stored, _described(spec.dtype, spec.shape)))
    return result


def _described(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {list(shape)}"


def _group(name: str) -> str:
    return next((group for group, pattern in _GROUPS if re.match(pattern, name)), "other")
