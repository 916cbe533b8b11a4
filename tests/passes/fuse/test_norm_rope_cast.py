"""norm_rope_cast: norm, rotary and cast of a window key become one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dsv41c.passes.fuse.norm_rope_cast import NormRopeCast
from tests.passes.programs import (
    F32,
    NUMERICS,
    OPS,
    Values,
    angles,
    assert_fused,
    normal,
    refusal,
    row_table,
    small,
)

STEP = NormRopeCast()


def values(dtype: torch.dtype = F32, width: int = 32) -> Values:
    return {"x": normal(1, 5, width, dtype=dtype), "weight": normal(2, width), "rows": row_table(),
            "table": angles(3, 8)}


def key(ratio: int = 1, inverse: bool = False, leak: bool = False,
        cast: Any = OPS.quantize_fp8) -> Callable[..., list[torch.Tensor]]:
    def body(x: torch.Tensor, weight: torch.Tensor, rows: torch.Tensor, table: torch.Tensor) -> list[torch.Tensor]:
        normed = OPS.rms_norm(x, weight, 1e-6)
        turned = OPS.rotary(normed, rows, table, ratio, inverse)
        return [cast(turned) if cast is not None else turned, *([normed] if leak else [])]
    return body


@pytest.mark.parametrize("numerics", NUMERICS)
def test_a_key_becomes_one_call(numerics: str) -> None:
    dtype, cast = NUMERICS[numerics]
    body = key(cast=OPS.quantize_fp8 if cast else None)
    assert assert_fused(STEP, small(body, values(dtype)), "norm_rope_cast").ops() == ["norm_rope_cast"]


@pytest.mark.parametrize(("change", "reason"), [
    ({"ratio": 2}, "argument 3 of %rotary is 2, not 1"),
    ({"inverse": True}, "argument 4 of %rotary is True, not False"),
    ({"leak": True}, "%rms_norm inside is read by %output outside"),
    ({"cast": OPS.quantize_fp4_index}, "%rotary is read by %quantize_fp4_index, another cast"),
])
def test_near_misses_stay(change: dict[str, Any], reason: str) -> None:
    assert reason in refusal(STEP, small(key(**change), values()))


def test_a_rotary_without_a_norm_stays() -> None:
    def body(x: torch.Tensor, weight: torch.Tensor, rows: torch.Tensor, table: torch.Tensor) -> list[torch.Tensor]:
        return [OPS.rotary(x, rows, table, 1, False)]
    assert "is the input x, not a call of rms_norm" in refusal(STEP, small(body, values()))


def test_keys_of_heads_stay() -> None:
    given = {**values(), "x": normal(1, 5, 2, 32)}
    assert "keys of 3 dimensions, not 2" in refusal(STEP, small(key(), given))


def test_a_cast_of_no_whole_groups_is_not_taken_in() -> None:
    assert "a cast of 48 columns" in refusal(STEP, small(key(), values(width=48)))
