"""head_sample: logits and greedy tokens, with the slot's token written once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dsv41c.passes.fuse.head_sample import HeadSample
from tests.passes.fuse.small_programs import OPS, SLOTS, Tensors, drawn, fused, refusals, row_table

WIDTH, VOCAB = 64, 97


def tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    head = drawn(VOCAB, WIDTH, dtype=torch.bfloat16)
    head[40:] = head[:57].clone()  # equal logits: the lower token wins
    return {"x": drawn(4, WIDTH, dtype=dtype), "head": head, "rows": row_table((1, 4, 2), (0, 9, 1), pads=1),
            "slot_token": torch.full((SLOTS + 1,), -7, dtype=torch.int32)}


def head_of(x: Tensor, head: Tensor, rows: Tensor, slot_token: Tensor) -> Any:
    logits = OPS.linear(x, head, None, torch.float32)
    return logits, OPS.greedy_token(logits, rows, slot_token)


def tokens_only(x: Tensor, head: Tensor, rows: Tensor, slot_token: Tensor) -> Any:
    return head_of(x, head, rows, slot_token)[1]


@pytest.mark.parametrize("body", [head_of, tokens_only])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_product_and_token_become_one_call(body: Any, dtype: torch.dtype) -> None:
    """Two steps; slots of the step get a token, another slot and the trash slot keep theirs."""
    def change(step: int, given: Tensors) -> Tensors:
        return {"x": drawn(4, WIDTH, dtype=dtype, seed=step)}

    given = tensors(dtype)
    fused(HeadSample(), body, given, ["head_sample"], change, 2)
    body(**given)
    assert (given["slot_token"][2:] == -7).all() and (given["slot_token"][:2] >= 0).all()


def test_logits_of_another_dtype_are_refused() -> None:
    def body(x: Tensor, head: Tensor, rows: Tensor, slot_token: Tensor) -> Any:
        return OPS.greedy_token(OPS.linear(x, head, None, torch.bfloat16), rows, slot_token)

    assert refusals(HeadSample(), body, tensors(torch.bfloat16)) == [
        "argument 3 of %linear is torch.bfloat16, not torch.float32"]


def test_logits_that_something_changes_are_refused() -> None:
    def body(x: Tensor, head: Tensor, rows: Tensor, slot_token: Tensor) -> Any:
        logits = OPS.linear(x, head, None, torch.float32)
        return OPS.greedy_token(OPS.combine_experts(logits, logits, torch.float32), rows, slot_token)

    assert refusals(HeadSample(), body, tensors(torch.float32)) == [
        "%combine_experts is a call of combine_experts, not a call of linear"]


def test_the_token_is_not_written_across_a_read_of_it() -> None:
    """The logits are read first, then the slot's old token, and only then it is replaced."""
    def body(x: Tensor, head: Tensor, rows: Tensor, slot_token: Tensor) -> Any:
        logits = OPS.linear(x, head, None, torch.float32)
        best = OPS.combine_experts(logits, logits, torch.float32)
        old = OPS.take_rows(slot_token, rows.view(-1), "logits")
        return best, old, OPS.greedy_token(logits, rows, slot_token)

    assert refusals(HeadSample(), body, tensors(torch.float32)) == [
        "%greedy_token cannot pass %take_rows: both use slot_token"]
