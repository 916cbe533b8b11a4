"""Fused ops of the draft: taps of the trunk, their projection, keys of the draft windows, a step of the chain."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule


def _tap_feature(ops: Any, streams: Tensor) -> Any:
    """The mean of a tap's streams and its cast."""
    return ops.quantize_fp8(ops.stream_mean(streams))


def _project_features(ops: Any, parts: Any, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Any:
    """D1's product: K runs through the taps where they lie, so they are never copied side by side."""
    return ops.linear(ops.concat_columns(parts, dtype), weight, scale, dtype)


def _feature_commit(ops: Any, target: Tensor, weight: Tensor, scale: Tensor, norm: Tensor, rows: Tensor, table: Tensor,
                    window: Tensor, dtype: torch.dtype, eps: float, cast: bool) -> None:
    """D2 of one draft layer."""
    key = ops.rotary(ops.rms_norm(ops.linear(target, weight, scale, dtype), norm, eps), rows, table, 1, False)
    ops.window_commit(ops.quantize_fp8(key) if cast else key, rows, window)


def _markov_step(ops: Any, previous: Tensor, embed: Tensor, head: Tensor, proj: Tensor, base: Tensor, hidden: Tensor,
                 block: int, index: int) -> Any:
    """D6 and D7 of one position of the block: the next token, and how likely it is to be accepted."""
    bigram = ops.embed_token(previous, embed)
    joined = ops.confidence_input(hidden, bigram, block, index)
    confidence = ops.sigmoid(ops.linear(joined, proj, None, torch.float32))
    correction = ops.linear(bigram, head, None, torch.float32)
    return ops.greedy_draft(ops.markov_logits(base, correction, block, index)), confidence


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="tap_feature",
        schema="(Tensor streams) -> Tensor",
        pads=PadRule.ROW, composition=_tap_feature, tie_order=None,
    ),
    fused_op(
        name="project_features",
        schema="(Tensor[] parts, Tensor weight, Tensor scale, ScalarType dtype) -> Tensor",
        pads=PadRule.ROW, composition=_project_features, tie_order=None,
    ),
    fused_op(
        name="feature_commit",
        schema="(Tensor target, Tensor weight, Tensor scale, Tensor norm, Tensor rows, Tensor table, "
               "Tensor(a!) window, ScalarType dtype, float eps, bool cast) -> ()",
        pads=PadRule.SKIP, composition=_feature_commit, tie_order=None,
    ),
    fused_op(
        name="markov_step",
        schema="(Tensor previous, Tensor embed, Tensor head, Tensor proj, Tensor base, Tensor hidden, int block, "
               "int index) -> (Tensor, Tensor)",
        pads=PadRule.ROW, composition=_markov_step, tie_order="the lowest token id; NaN never wins",
    ),
)
