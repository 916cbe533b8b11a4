"""drop_local_collectives: exchanges among one rank vanish, unless the copy is needed."""

from __future__ import annotations

import pytest
import torch

from dsv41c.compiler.ops.catalog import OPS as SPECS
from dsv41c.passes.canonicalize.drop_local_collectives import DropLocalCollectives
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.passes.programs import I32, OPS, Values, apply, assert_same_run, normal, row_table, run, small

STEP = DropLocalCollectives()


def values() -> Values:
    return {"x": normal(1, 5, 32), "expert": torch.arange(10, dtype=I32).view(5, 2) % 5, "weight": normal(2, 5, 2),
            "norm": normal(3, 32)}


def test_both_exchanges_vanish_and_no_bit_changes() -> None:
    def body(x: torch.Tensor, expert: torch.Tensor, weight: torch.Tensor, norm: torch.Tensor) -> list[torch.Tensor]:
        sent, chosen, share = OPS.expert_dispatch(OPS.rms_norm(x, norm, 1e-6), expert, weight, 1)
        back = OPS.expert_combine(OPS.quantize_fp8(sent), 1)
        return [OPS.rms_norm(back, norm, 1e-6), OPS.take_rows(share, chosen.view(-1), "suffix")]
    given = small(body, values())
    after, matches, refused = apply(STEP, given)
    assert len(matches) == 2 and not refused
    assert after.ops() == ["rms_norm", "quantize_fp8", "rms_norm", "take_rows"]
    assert_same_run(run(given.graph, given.values), run(after.graph, given.values))
    assert not apply(STEP, after)[1]


def test_a_copy_of_state_that_is_written_later_stays() -> None:
    def body(x: torch.Tensor, ring: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        before = OPS.expert_combine(ring, 1)
        OPS.window_commit(x, rows, ring)
        return [OPS.quantize_fp8(before)]
    given = small(body, {"x": normal(1, 5, 32), "ring": normal(2, 3, 12, 32), "rows": row_table()}, ("ring",))
    after, matches, (refused,) = apply(STEP, given)
    assert not matches and "is written to" in refused.reason and after.ops() == given.ops()


def test_several_ranks_are_a_typed_error_today() -> None:
    v = values()
    for call in (SPECS["expert_dispatch"].reference, SPECS["expert_dispatch"].fake):
        with pytest.raises(Dsv41cError, match="world size 2"):
            call(v["x"], v["expert"], v["weight"], 2)
    for call in (SPECS["expert_combine"].reference, SPECS["expert_combine"].fake):
        with pytest.raises(Dsv41cError, match="world size 2"):
            call(v["x"], 2)


def test_a_call_for_several_ranks_is_refused() -> None:
    given = small(lambda x: [OPS.expert_combine(x, 1)], {"x": normal(1, 5, 32)})
    (call,) = (n for n in given.graph.nodes if n.op == "call_function")
    call.args = (call.args[0], 4)
    result = STEP.apply(given.program)
    assert result.num_matches == 0 and [n.reason for n in result.notes] == ["4 ranks"]  # type: ignore[union-attr]
