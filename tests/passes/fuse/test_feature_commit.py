"""feature_commit: keys of a draft layer's window, from the target features that all draft layers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsv41c.passes.fuse.feature_commit import FeatureCommit
from tests.passes.fuse.small_programs import (
    NUMERICS,
    OPS,
    SLOTS,
    Tensors,
    drawn,
    fused,
    quantised,
    refusals,
    rotary_table,
    row_table,
)

WIDTH, DIM, RING, EPS = 64, 64, 4, 1e-6
STEPS = [row_table((0, 0, 3), (1, 0, 2)), row_table((1, 2, 1), (0, 3, 3), pads=1), row_table((0, 6, 5))]


def tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    (w0, s0), (w1, s1) = quantised(DIM, WIDTH), quantised(DIM, WIDTH, seed=1)
    return {"target": drawn(5, WIDTH, dtype=dtype), "rows": STEPS[0], "table": rotary_table(16),
            "w0": w0, "s0": s0, "w1": w1, "s1": s1, "norm": drawn(DIM, dtype=torch.bfloat16),
            "ring0": torch.zeros(SLOTS + 1, RING, DIM, dtype=dtype),
            "ring1": torch.zeros(SLOTS + 1, RING, DIM, dtype=dtype)}


def commit(dtype: torch.dtype, cast: bool, escape: bool = False, inverse: bool = False,
           plain: bool = False) -> Callable[..., Any]:
    def body(target: Tensor, rows: Tensor, table: Tensor, w0: Tensor, s0: Tensor, w1: Tensor, s1: Tensor, norm: Tensor,
             ring0: Tensor, ring1: Tensor) -> Any:
        kept = []
        for weight, scale, ring in ((w0, s0, ring0), (w1, s1, ring1)):
            key = OPS.rms_norm(OPS.linear(target, weight, None if plain else scale, dtype), norm, EPS)
            key = OPS.rotary(key, rows, table, 1, inverse)
            key = OPS.quantize_fp8(key) if cast else key
            OPS.window_commit(key, rows, ring)
            kept.append(key)
        return kept if escape else None

    return body


@pytest.mark.parametrize(("dtype", "cast"), NUMERICS)
def test_each_layer_becomes_one_call(dtype: torch.dtype, cast: bool) -> None:
    """Three steps over rings that wrap; both layers read one target."""
    def change(step: int, given: Tensors) -> Tensors:
        return {"target": drawn(5, WIDTH, dtype=dtype, seed=step), "rows": STEPS[step]}

    fused(FeatureCommit(), commit(dtype, cast), tensors(dtype), ["feature_commit"] * 2, change, len(STEPS))


@pytest.mark.parametrize(("options", "reason"), [
    ({"escape": True}, "%quantize_fp8 inside is read by %output outside"),
    ({"inverse": True}, "argument 4 of %rotary is True, not False"),
    ({"plain": True}, "the fused op takes no such arguments: scale is None"),
])
def test_near_misses(options: dict[str, Any], reason: str) -> None:
    """The key of a layer of the backbone, which attention reads too; an inverse rotary; a weight without scales."""
    assert refusals(FeatureCommit(), commit(torch.float32, True, **options), tensors(torch.float32))[0] == reason
