"""markov_step: a position of the draft chain, token and confidence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dsv41c.passes.base import Match, Refusal
from dsv41c.passes.fuse.markov_step import MarkovStep
from tests.passes.fuse.small_programs import OPS, drawn, fused, rewritten, traced

GROUPS, BLOCK, WIDTH, RANK, VOCAB = 3, 4, 32, 8, 50


def tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    bf16 = torch.bfloat16
    return {"golden": torch.tensor([[3], [49], [11]], dtype=torch.int32), "embed": drawn(VOCAB, RANK, dtype=bf16),
            "head": drawn(VOCAB, RANK, dtype=bf16, seed=1), "proj": drawn(1, WIDTH + RANK, dtype=bf16),
            "base": drawn(GROUPS * BLOCK, VOCAB), "hidden": drawn(GROUPS * BLOCK, WIDTH, dtype=dtype)}


def chain(golden: Tensor, embed: Tensor, head: Tensor, proj: Tensor, base: Tensor, hidden: Tensor,
          other_row: bool = False, other_token: bool = False, escape: bool = False) -> Any:
    previous, tokens, confidence, kept = golden, [], [], []
    for j in range(BLOCK):
        bigram = OPS.embed_token(previous, embed)
        joined = OPS.confidence_input(hidden, OPS.embed_token(golden, embed) if other_token else bigram, BLOCK,
                                      0 if other_row else j)
        confidence.append(OPS.sigmoid(OPS.linear(joined, proj, None, torch.float32)))
        logits = OPS.markov_logits(base, OPS.linear(bigram, head, None, torch.float32), BLOCK, j)
        previous = OPS.greedy_draft(logits)
        tokens.append(previous)
        kept.append(logits)
    return (OPS.concat_columns(tokens, torch.int32), OPS.concat_columns(confidence, torch.float32),
            kept if escape else None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_position_becomes_one_call(dtype: torch.dtype) -> None:
    def body(golden: Tensor, embed: Tensor, head: Tensor, proj: Tensor, base: Tensor, hidden: Tensor) -> Any:
        return chain(golden, embed, head, proj, base, hidden)

    fused(MarkovStep(), body, tensors(dtype), ["markov_step"] * BLOCK + ["concat_columns"] * 2)


@pytest.mark.parametrize(("option", "reason"), [
    ("other_row", "elsewhere index is"), ("other_token", "has no reader that is a call of confidence_input"),
    ("escape", "inside is read by %output outside"),
])
def test_near_misses(option: str, reason: str) -> None:
    """Confidence of another row, of another token; logits that sampling needs."""
    def body(golden: Tensor, embed: Tensor, head: Tensor, proj: Tensor, base: Tensor, hidden: Tensor) -> Any:
        return chain(golden, embed, head, proj, base, hidden, **{option: True})

    first, *later = rewritten(MarkovStep(), traced(body, tensors(torch.float32))).records[0].notes
    assert isinstance(first, Match) == (option == "other_row")  # position 0 does take row 0
    assert all(isinstance(n, Refusal) and reason in n.reason for n in later), later
