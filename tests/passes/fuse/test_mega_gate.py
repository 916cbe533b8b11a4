"""mega_gate: the gate's product and the routing become one call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dsv41c.passes.fuse.mega_gate import MegaGate
from tests.passes.programs import BF16, F32, OPS, Values, assert_fused, fp8, normal, refusal, row_table, small

STEP = MegaGate()


def values(dtype: torch.dtype = F32) -> Values:
    return {"x": normal(1, 5, 32, dtype=dtype), "weight": normal(2, 8, 32), "bias": normal(3, 8),
            "bias_vl": normal(4, 8), "rows": row_table()}


def route(v: dict[str, torch.Tensor], scores: torch.Tensor) -> Any:
    return OPS.moe_route(scores, v["bias"], v["bias_vl"], v["rows"], 3, 1.5)


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_product_and_routing_become_one_call(dtype: torch.dtype) -> None:
    given = small(lambda **v: [*route(v, OPS.linear(v["x"], v["weight"], None, F32))], values(dtype))
    assert assert_fused(STEP, given, "mega_gate").ops() == ["mega_gate"]


def test_scores_that_are_read_outside_stay() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        scores = OPS.linear(v["x"], v["weight"], None, F32)
        return [scores, *route(v, scores)]
    assert "%linear inside is read by %output outside" in refusal(STEP, small(body, values()))


def test_a_gate_with_a_scale_is_another_product() -> None:
    weight, scale = fp8(1, 8, 32)
    given = small(lambda **v: [*route(v, OPS.linear(v["x"], v["weight"], v["scale"], F32))],
                  {**values(), "weight": weight, "scale": scale})
    assert "argument 2 of %linear is %scale, not None" in refusal(STEP, given)


def test_scores_that_no_product_made_stay() -> None:
    given = small(lambda **v: [*route(v, v["scores"])], {**values(), "scores": normal(6, 5, 8)})
    assert "%scores is the input scores, not a call of linear" in refusal(STEP, given)


def test_more_choices_than_experts_are_refused() -> None:
    """The program cannot run; the fused op does not hide that."""
    given = small(lambda **v: [*OPS.moe_route(OPS.linear(v["x"], v["weight"], None, F32), v["bias"], v["bias_vl"],
                                              v["rows"], 9, 1.5)], values())
    assert "9 of 8 experts" in refusal(STEP, given)
