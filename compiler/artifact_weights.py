"""Reads the weights of an artifact, packed or mapped, by plan name, and finds values in them that are no numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from dsv41c.compiler.weight_map import MAPPING
from dsv41c.runtime.manifest import read_json
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.errors import Dsv41cError

INDEX = "model.safetensors.index.json"
_BLOCK = 32  # one scale holds for 32 x 32 FP8 values
_SHOWN = 10


@dataclass(frozen=True)
class NotANumber:
    """NaN codes of one weight: how many, and where the first one is."""

    name: str
    count: int
    index: tuple[int, ...]
    block: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.count} NaN, first at {list(self.index)}, block {list(self.block)}"


@dataclass(frozen=True)
class WeightSource:
    """An artifact, and the checkpoint of one that maps its weights. The executor has checked both at load."""

    artifact: Path
    checkpoint: Path | None = None

    def read(self, plan: schema.Plan) -> Iterator[tuple[str, torch.Tensor]]:
        """Every weight of the plan, one at a time."""
        mapping = read_json(self.artifact / MAPPING) if self.checkpoint else {"weights": {}}
        weight_map = read_json(self.artifact / INDEX).get("weight_map", {})
        for weight in plan.weights:
            try:
                if weight.name in mapping["weights"]:
                    yield weight.name, self._mapped(weight, mapping)
                    continue
                with safe_open(self.artifact / weight_map[weight.name], framework="pt") as file:
                    yield weight.name, file.get_tensor(weight.name)
            except (KeyError, OSError, SafetensorError) as error:
                raise Dsv41cError("DSV41C-E0703", f"weight {weight.name}", where=str(self.artifact), found=str(error),
                                  needed="the tensor where the artifact says it is",
                                  do="compile the artifact again") from error

    def _mapped(self, weight: schema.Weight, mapping: Mapping[str, Any]) -> torch.Tensor:
        """The parts follow each other in the weight."""
        assert self.checkpoint is not None
        entry = mapping["weights"][weight.name]
        data = bytearray()
        for number, begin in entry["parts"]:
            with (self.checkpoint / mapping["files"][number]["name"]).open("rb") as file:
                file.seek(begin)
                data += file.read(entry["part_bytes"])
        return torch.frombuffer(data, dtype=torch.uint8).view(getattr(torch, weight.dtype)).view(weight.sizes)


def check_numbers(source: WeightSource, plan: schema.Plan) -> int:
    """Bytes that were read; E0607 names the first weights that hold a NaN, with element and block."""
    found, read = [], 0
    for name, tensor in source.read(plan):
        read += tensor.nbytes
        bad = find_nan(name, tensor)
        if bad is not None:
            found.append(bad)
    if found:
        more = f" (first {_SHOWN} of {len(found)})" if len(found) > _SHOWN else ""
        raise Dsv41cError("DSV41C-E0607", f"{len(found)} weights hold NaN codes", where=str(source.artifact),
                          found="; ".join(map(str, found[:_SHOWN])) + more, needed="numbers",
                          do="fetch the checkpoint again and compile it again")
    return read


def find_nan(name: str, tensor: torch.Tensor) -> NotANumber | None:
    """`block` counts 32 x 32 blocks of a weight; the elements of a scale are its blocks."""
    mask = _nan_mask(tensor)
    if mask is None or not mask.any():
        return None
    first = tuple(int(i) for i in mask.nonzero()[0])
    is_scale = tensor.dtype == torch.float8_e8m0fnu
    block = first if is_scale else (*first[:-2], *(i // _BLOCK for i in first[-2:]))
    return NotANumber(name, int(mask.sum()), first, block)


def _nan_mask(tensor: torch.Tensor) -> torch.Tensor | None:
    """None for dtypes without a NaN code. FP8 by its bytes: torch has no arithmetic for it."""
    if tensor.dtype == torch.float8_e4m3fn:
        return (tensor.view(torch.uint8) & 0x7F) == 0x7F
    if tensor.dtype == torch.float8_e8m0fnu:
        return tensor.view(torch.uint8) == 0xFF
    return torch.isnan(tensor) if tensor.is_floating_point() else None
