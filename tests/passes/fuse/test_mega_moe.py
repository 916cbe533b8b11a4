"""mega_moe: routed and shared experts become one call, with the exchange or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dsv41c.passes.fuse.mega_moe import MegaMoe
from tests.passes.programs import BF16, F32, I32, NUMERICS, OPS, Values, assert_fused, fp4, fp8, normal, refusal, small

STEP = MegaMoe()
Body = Callable[..., list[torch.Tensor]]


def values(dtype: torch.dtype = F32, inner: int = 32, width: int = 64) -> Values:
    generator = torch.Generator().manual_seed(1)
    found = {"x": normal(1, 5, width, dtype=dtype), "routing": normal(2, 5, 2),
             "expert": torch.randint(0, 4, (5, 2), dtype=I32, generator=generator)}
    for name, (rows, columns) in {"w1": (32, width), "w3": (32, width), "w2": (width, 32)}.items():
        found[name], found[f"{name}_scale"] = fp4(len(found), 4, rows, columns)
    for name, (rows, columns) in {"s1": (inner, width), "s3": (inner, width), "s2": (width, inner)}.items():
        found[name], found[f"{name}_scale"] = fp8(len(found), rows, columns)
    return found


def experts(dtype: torch.dtype = F32, cast: bool = True, exchange: bool = False, shared_limit: float = 10.0,
            sum_dtype: torch.dtype | None = None, leak: str = "", quantize: bool | None = None) -> Body:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        x, chosen, share = v["x"], v["expert"], v["routing"]
        if exchange:
            x, chosen, share = OPS.expert_dispatch(x, chosen, share, 1)
        weights: Any = [v[n] for w in ("w1", "w3", "w2") for n in (w, f"{w}_scale")]
        routed = OPS.moe_experts(x, chosen, share, *weights, 10.0, cast if quantize is None else quantize)
        routed = OPS.expert_combine(routed, 1) if exchange else routed
        gate = OPS.linear(v["x"], v["s1"], v["s1_scale"], F32)
        up = OPS.linear(v["x"], v["s3"], v["s3_scale"], F32)
        a = OPS.swiglu(gate, up, shared_limit, dtype)
        a = OPS.quantize_fp8(a) if cast else a
        down = OPS.linear(a, v["s2"], v["s2_scale"], F32)
        inner = {"gate": gate, "routed": routed, "down": down}
        return [OPS.combine_experts(routed, down, sum_dtype or dtype), *([inner[leak]] if leak else [])]
    return body


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("exchange", [False, True])
def test_the_sublayer_becomes_one_call(numerics: str, exchange: bool) -> None:
    dtype, cast = NUMERICS[numerics]
    wanted = "mega_moe_exchange" if exchange else "mega_moe"
    assert assert_fused(STEP, small(experts(dtype, cast, exchange), values(dtype)), wanted).ops() == [wanted]


@pytest.mark.parametrize(("change", "reason"), [
    ({"leak": "gate"}, "%linear inside is read by %output outside"),
    ({"leak": "routed"}, "%moe_experts inside is read by %output outside"),
    ({"shared_limit": 7.0}, "elsewhere limit is"),
    ({"sum_dtype": BF16}, "elsewhere dtype is"),
    ({"cast": True, "quantize": False}, "%swiglu has no reader that is a call of linear"),
])
def test_near_misses_stay(change: dict[str, Any], reason: str) -> None:
    assert reason in refusal(STEP, small(experts(**change), values()))


def test_experts_of_other_rows_than_the_shared_expert_stay() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        other = OPS.rms_norm(v["x"], v["norm"], 1e-6)
        weights: Any = [v[n] for w in ("w1", "w3", "w2") for n in (w, f"{w}_scale")]
        routed = OPS.moe_experts(other, v["expert"], v["routing"], *weights, 10.0, True)
        a = OPS.swiglu(*(OPS.linear(v["x"], v[w], v[f"{w}_scale"], F32) for w in ("s1", "s3")), 10.0, F32)
        a = OPS.quantize_fp8(a)
        return [OPS.combine_experts(routed, OPS.linear(a, v["s2"], v["s2_scale"], F32), F32)]
    given = small(body, {**values(), "norm": normal(3, 64)})
    assert "%rms_norm has no reader that is a call of linear" in refusal(STEP, given)


def test_a_cast_of_no_whole_groups_is_refused() -> None:
    assert "a cast of 48 columns" in refusal(STEP, small(experts(), values(inner=48)))


def test_a_shared_weight_without_a_scale_is_refused() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        return experts()(**{**v, "s1_scale": None})
    plain = {**values(), "s1": normal(7, 32, 64)}
    assert "shared1_scale is None" in refusal(STEP, small(body, plain))
