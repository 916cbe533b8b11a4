"""project_features: the product over joined taps, for any number of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dsv41c.passes.fuse.project_features import ProjectFeatures
from tests.passes.fuse.small_programs import OPS, drawn, fused, quantised, refusals


def tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    weight, scale = quantised(64, 96)
    return {"a": drawn(3, 32, dtype=dtype), "b": drawn(3, 32, dtype=dtype, seed=1),
            "c": drawn(3, 32, dtype=dtype, seed=2), "weight": weight, "scale": scale}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_three_taps_are_read_in_place(dtype: torch.dtype) -> None:
    def body(a: Tensor, b: Tensor, c: Tensor, weight: Tensor, scale: Tensor) -> Any:
        return OPS.linear(OPS.concat_columns([a, b, c], dtype), weight, scale, dtype)

    fused(ProjectFeatures(), body, tensors(dtype), ["project_features"])


def test_one_tap_is_a_list_of_one() -> None:
    def body(a: Tensor, weight: Tensor, scale: Tensor) -> Any:
        return OPS.linear(OPS.concat_columns([a], torch.float32), weight, scale, torch.float32)

    weight, scale = quantised(64, 32)
    fused(ProjectFeatures(), body, tensors(torch.float32) | {"weight": weight, "scale": scale}, ["project_features"])


def plain_weight(a: Tensor, b: Tensor, c: Tensor, weight: Tensor, scale: Tensor) -> Any:
    return OPS.linear(OPS.concat_columns([a, b, c], torch.float32), weight, None, torch.float32)


def joined_twice(a: Tensor, b: Tensor, c: Tensor, weight: Tensor, scale: Tensor) -> Any:
    joined = OPS.concat_columns([a, b, c], torch.float32)
    return OPS.linear(joined, weight, scale, torch.float32), joined


def other_dtype(a: Tensor, b: Tensor, c: Tensor, weight: Tensor, scale: Tensor) -> Any:
    return OPS.linear(OPS.concat_columns([a, b, c], torch.bfloat16), weight, scale, torch.float32)


@pytest.mark.parametrize(("body", "reason"), [
    (plain_weight, "the fused op takes no such arguments: scale is None"),
    (joined_twice, "%concat_columns inside is read by %output outside"),
    (other_dtype, "argument 3 of %linear is torch.float32, elsewhere dtype is torch.bfloat16"),
])
def test_near_misses(body: Any, reason: str) -> None:
    assert refusals(ProjectFeatures(), body, tensors(torch.float32)) == [reason]
