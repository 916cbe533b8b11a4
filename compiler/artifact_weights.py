"""Reads the weights that an artifact packs, by plan name, and finds values in them that are no numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

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


def read_weights(artifact: Path, plan: schema.Plan) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight of the plan, one at a time. The executor has checked shapes and dtypes at load."""
    weight_map = read_json(artifact / INDEX).get("weight_map", {})
    for weight in plan.weights:
        try:
            with safe_open(artifact / weight_map[weight.name], framework="pt") as file:
                yield weight.name, file.get_tensor(weight.name)
        except (KeyError, OSError, SafetensorError) as error:
            raise Dsv41cError("DSV41C-E0703", f"weight {weight.name}", where=str(artifact), found=str(error),
                              needed="the tensor in the file that the index names",
                              do="compile the artifact again") from error


def check_numbers(artifact: Path, plan: schema.Plan) -> int:
    """Bytes that were read; E0607 names the first weights that hold a NaN, with element and block."""
    found, read = [], 0
    for name, tensor in read_weights(artifact, plan):
        read += tensor.nbytes
        bad = find_nan(name, tensor)
        if bad is not None:
            found.append(bad)
    if found:
        more = f" (first {_SHOWN} of {len(found)})" if len(found) > _SHOWN else ""
        raise Dsv41cError("DSV41C-E0607", f"{len(found)} weights hold NaN codes", where=str(artifact),
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
