"""grouped_out: the grouped product and the cast that alone reads it become one call."""

from __future__ import annotations

import pytest
import torch

from dsv41c.passes.fuse.grouped_out import GroupedOut
from tests.passes.programs import BF16, F32, OPS, Values, assert_fused, fp8, normal, refusal, small

STEP = GroupedOut()


def values(outputs: int = 64) -> Values:
    weight, scale = fp8(1, outputs, 64)
    return {"x": normal(1, 5, 2, 64), "weight": weight, "scale": scale}


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_product_and_cast_become_one_call(dtype: torch.dtype) -> None:
    given = small(lambda x, weight, scale: [OPS.quantize_fp8(OPS.grouped_linear(x, weight, scale, 2, dtype))],
                  {**values(), "x": values()["x"].to(dtype)})
    assert assert_fused(STEP, given, "grouped_out").ops() == ["grouped_out"]


def test_a_product_that_is_read_outside_stays() -> None:
    def body(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> list[torch.Tensor]:
        z = OPS.grouped_linear(x, weight, scale, 2, F32)
        return [z, OPS.quantize_fp8(z)]
    assert "%grouped_linear inside is read by %output outside" in refusal(STEP, small(body, values()))


def test_without_quantizers_there_is_nothing_to_fuse() -> None:
    given = small(lambda x, weight, scale: [OPS.grouped_linear(x, weight, scale, 2, F32)], values())
    assert "%grouped_linear has no reader that is a call of quantize_fp8" in refusal(STEP, given)


def test_a_scale_may_not_span_two_groups() -> None:
    """96 outputs are whole groups of 32, the 48 of each output group are not."""
    given = small(lambda x, weight, scale: [OPS.quantize_fp8(OPS.grouped_linear(x, weight, scale, 2, F32))],
                  values(96))
    assert "a cast of 48 columns" in refusal(STEP, given)
