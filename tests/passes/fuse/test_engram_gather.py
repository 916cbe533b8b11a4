"""engram_gather: the table rows of an Engram layer, looked up and cast."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dsv41c.passes.fuse.engram_gather import EngramGather
from tests.passes.fuse.small_programs import OPS, drawn, fused, refusals


def tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    ids = torch.tensor([[[0, 5], [7, 39]], [[40, -1], [12, 3]]], dtype=torch.int32)  # some outside the table
    scale = (2.0 ** drawn(40, 2).round()).to(torch.float8_e8m0fnu)
    return {"ids": ids, "rows": drawn(40, 64).to(torch.float8_e4m3fn), "scale": scale,
            "x": drawn(2, 128, dtype=dtype)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layer", [0, 1])
def test_look_up_and_cast_become_one_call(layer: int, dtype: torch.dtype) -> None:
    def body(ids: Tensor, rows: Tensor, scale: Tensor) -> Any:
        return OPS.quantize_fp8(OPS.engram_lookup(ids, rows, scale, layer, dtype))

    fused(EngramGather(), body, tensors(dtype), ["engram_gather"])


def looked_up(ids: Tensor, rows: Tensor, scale: Tensor) -> Any:
    """Without casts there is nothing to fuse."""
    return OPS.engram_lookup(ids, rows, scale, 0, torch.float32)


def read_twice(ids: Tensor, rows: Tensor, scale: Tensor) -> Any:
    e = OPS.engram_lookup(ids, rows, scale, 0, torch.float32)
    return OPS.quantize_fp8(e), e


def other_cast(ids: Tensor, rows: Tensor, scale: Tensor) -> Any:
    return OPS.quantize_fp4_kv(OPS.engram_lookup(ids, rows, scale, 0, torch.float32))


@pytest.mark.parametrize(("body", "reason"), [
    (looked_up, "%engram_lookup has no reader that is a call of quantize_fp8"),
    (read_twice, "%engram_lookup inside is read by %output outside"),
    (other_cast, "%engram_lookup has no reader that is a call of quantize_fp8"),
])
def test_near_misses(body: Any, reason: str) -> None:
    assert refusals(EngramGather(), body, tensors(torch.float32)) == [reason]
