"""norm_cast: a norm that only a cast reads becomes one call with it."""

from __future__ import annotations

import pytest

from dsv41c.passes.fuse.norm_cast import NormCast
from tests.passes.programs import BF16, F32, OPS, Values, assert_fused, normal, refusal, small

STEP = NormCast()


def values(width: int = 64) -> Values:
    return {"x": normal(1, 5, width), "weight": normal(2, width)}


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_norm_and_cast_become_one_call(dtype: object) -> None:
    given = small(lambda x, weight: [OPS.quantize_fp8(OPS.rms_norm(x, weight, 1e-6))],
                  {**values(), "x": values()["x"].to(dtype)})  # type: ignore[call-overload]
    assert assert_fused(STEP, given, "norm_cast").ops() == ["norm_cast"]


def test_a_norm_that_is_read_outside_stays() -> None:
    def body(x: object, weight: object) -> list[object]:
        normed = OPS.rms_norm(x, weight, 1e-6)
        return [normed, OPS.quantize_fp8(normed)]
    assert "%rms_norm inside is read by %output outside" in refusal(STEP, small(body, values()))


def test_another_cast_is_another_thing() -> None:
    given = small(lambda x, weight: [OPS.quantize_fp4_kv(OPS.rms_norm(x, weight, 1e-6))], values())
    assert "%rms_norm has no reader that is a call of quantize_fp8" in refusal(STEP, given)


def test_without_quantizers_there_is_nothing_to_fuse() -> None:
    given = small(lambda x, weight: [OPS.rms_norm(x, weight, 1e-6)], values())
    assert "has no reader that is a call of quantize_fp8" in refusal(STEP, given)


def test_a_cast_of_no_whole_groups_is_refused() -> None:
    given = small(lambda x, weight: [OPS.quantize_fp8(OPS.rms_norm(x, weight, 1e-6))], values(48))
    assert "a cast of 48 columns" in refusal(STEP, given)
