"""tap_feature: the mean of a tap's streams and its cast."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dsv41c.passes.fuse.tap_feature import TapFeature
from tests.passes.fuse.small_programs import OPS, drawn, fused, refusals


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mean_and_cast_of_every_tap(dtype: torch.dtype) -> None:
    def body(first: Tensor, second: Tensor) -> Any:
        return OPS.concat_columns([OPS.quantize_fp8(OPS.stream_mean(s)) for s in (first, second)], dtype)

    given = {"first": drawn(3, 4, 64, dtype=dtype), "second": drawn(3, 4, 64, dtype=dtype, seed=1)}
    fused(TapFeature(), body, given, ["tap_feature", "tap_feature", "concat_columns"])


def uncast(streams: Tensor) -> Any:
    """Without casts there is nothing to fuse."""
    return OPS.stream_mean(streams)


def read_twice(streams: Tensor) -> Any:
    mean = OPS.stream_mean(streams)
    return OPS.quantize_fp8(mean), mean


@pytest.mark.parametrize(("body", "reason"), [
    (uncast, "%stream_mean has no reader that is a call of quantize_fp8"),
    (read_twice, "%stream_mean inside is read by %output outside"),
])
def test_near_misses(body: Any, reason: str) -> None:
    assert refusals(TapFeature(), body, {"streams": drawn(3, 4, 64)}) == [reason]
