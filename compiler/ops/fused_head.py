"""Fused op of the head: logits and the greedy token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule


def _head_sample(ops: Any, x: Tensor, weight: Tensor, rows: Tensor, slot_token: Tensor) -> Any:
    """F3 and the token: each tile of the vocabulary knows its best logit, so the logits are not read again."""
    logits = ops.linear(x, weight, None, torch.float32)
    return logits, ops.greedy_token(logits, rows, slot_token)


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="head_sample",
        schema="(Tensor x, Tensor weight, Tensor rows, Tensor(a!) slot_token) -> (Tensor, Tensor)",
        pads=PadRule.SKIP, composition=_head_sample, tie_order="the lowest token id; NaN never wins",
    ),
)
