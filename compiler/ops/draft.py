"""Draft ops: rows of a draft block, joined columns, the bigram correction of the chain and its confidence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dsv41c.compiler.ops.rows import RowColumn, UploadColumn
from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule


def _concat_columns_fake(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    width = sum(p.shape[1] for p in parts)
    return parts[0].new_empty((parts[0].shape[0], width), dtype=dtype)


def _concat_columns(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.cat([p.to(dtype) for p in parts], dim=1)


def _draft_row_table_fake(upload: Tensor, slot_token: Tensor, slot_position: Tensor, block: int,
                          noise_token: int) -> Tensor:
    return upload.new_empty((upload.shape[0] * block, len(RowColumn)))


def _draft_row_table(upload: Tensor, slot_token: Tensor, slot_position: Tensor, block: int,
                     noise_token: int) -> Tensor:
    slot, sent = upload[:, UploadColumn.SLOT].long(), upload[:, UploadColumn.TOKEN]
    base, golden = slot_position[slot], torch.where(sent >= 0, sent, slot_token[slot])
    table = upload.new_zeros((upload.shape[0], block, len(RowColumn)))
    offset = torch.arange(block, dtype=torch.int32, device=upload.device)
    table[:, :, RowColumn.SLOT] = upload[:, UploadColumn.SLOT].unsqueeze(1)
    table[:, :, RowColumn.POSITION] = base.unsqueeze(1) + offset
    table[:, :, RowColumn.BASE] = base.unsqueeze(1)
    first = torch.arange(upload.shape[0], dtype=torch.int32, device=upload.device) * block
    table[:, :, RowColumn.FIRST_ROW] = first.unsqueeze(1)
    table[:, :, RowColumn.COUNT] = block
    table[:, :, RowColumn.TOKEN] = noise_token
    table[:, 0, RowColumn.TOKEN] = golden
    table[:, :, RowColumn.FLAGS] = upload[:, UploadColumn.FLAGS].unsqueeze(1)
    return table.view(-1, len(RowColumn))


def _golden_token_fake(rows: Tensor, block: int) -> Tensor:
    return rows.new_empty((rows.shape[0] // block, 1))


def _golden_token(rows: Tensor, block: int) -> Tensor:
    return rows[::block, RowColumn.TOKEN : RowColumn.TOKEN + 1].clone(memory_format=torch.contiguous_format)


def _embed_token_fake(token: Tensor, weight: Tensor) -> Tensor:
    return weight.new_empty((token.shape[0], weight.shape[1]))


def _embed_token(token: Tensor, weight: Tensor) -> Tensor:
    inside = token.clamp(0, weight.shape[0] - 1)
    return torch.where(inside == token, weight.index_select(0, inside[:, 0]), torch.zeros((), dtype=weight.dtype))


def _markov_logits_fake(base: Tensor, correction: Tensor, block: int, index: int) -> Tensor:
    return correction.new_empty(correction.shape)


def _markov_logits(base: Tensor, correction: Tensor, block: int, index: int) -> Tensor:
    return base[index::block] + correction


def _greedy_draft_fake(logits: Tensor) -> Tensor:
    return logits.new_empty((logits.shape[0], 1), dtype=torch.int32)


def _greedy_draft(logits: Tensor) -> Tensor:
    ranked = torch.where(logits.isnan(), float("-inf"), logits)
    # The first true value wins; a row of NaN alone has none and gives 0.
    best = (ranked == ranked.amax(-1, keepdim=True)) & ~logits.isnan()
    return best.to(torch.int32).argmax(-1, keepdim=True).to(torch.int32)


def _confidence_input_fake(hidden: Tensor, bigram: Tensor, block: int, index: int) -> Tensor:
    return bigram.new_empty((bigram.shape[0], hidden.shape[1] + bigram.shape[1]), dtype=torch.float32)


def _confidence_input(hidden: Tensor, bigram: Tensor, block: int, index: int) -> Tensor:
    return torch.cat([hidden[index::block].float(), bigram.float()], dim=1)


def _sigmoid_fake(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _sigmoid(x: Tensor) -> Tensor:
    """Row by row: torch takes another exponential for what is left over behind whole vectors."""
    return torch.stack([row.sigmoid() for row in x]) if x.shape[0] else torch.empty_like(x)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="concat_columns",
        schema="(Tensor[] parts, ScalarType dtype) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_concat_columns_fake, reference=_concat_columns,
    ),
    OpSpec(
        name="draft_row_table",
        schema="(Tensor upload, Tensor slot_token, Tensor slot_position, int block, int noise_token) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.TABLE, tie_order=None,
        fake=_draft_row_table_fake, reference=_draft_row_table, native=NativeBody("draft_row_table"),
    ),
    OpSpec(
        name="golden_token",
        schema="(Tensor rows, int block) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_golden_token_fake, reference=_golden_token,
    ),
    OpSpec(
        name="embed_token",
        schema="(Tensor token, Tensor weight) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_embed_token_fake, reference=_embed_token,
    ),
    OpSpec(
        name="markov_logits",
        schema="(Tensor base, Tensor correction, int block, int index) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_markov_logits_fake, reference=_markov_logits,
    ),
    OpSpec(
        name="greedy_draft",
        schema="(Tensor logits) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order="the lowest token id; NaN never wins",
        fake=_greedy_draft_fake, reference=_greedy_draft,
    ),
    OpSpec(
        name="confidence_input",
        schema="(Tensor hidden, Tensor bigram, int block, int index) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_confidence_input_fake, reference=_confidence_input,
    ),
    OpSpec(
        name="sigmoid",
        schema="(Tensor x) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_sigmoid_fake, reference=_sigmoid, native=NativeBody("sigmoid"),
    ),
)
