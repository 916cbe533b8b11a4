"""Indexer ops: the best scored compressed entries of a row, over all entries or inside candidate blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.packed import DTYPE as PACKED
from dsv41c.compiler.ops.packed import read
from dsv41c.compiler.ops.rows import Row, read_rows
from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule


def _scores(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, row: Row, entries: Tensor,
            weight_scale: float) -> Tensor:
    """Scores f32 [n] of the listed entries for one row's q [Hi,Di] and weights [Hi]; NaN counts as -inf."""
    per_page = keys.shape[1]
    pages = page_table[row.slot, entries // per_page].long()
    match = q.float() @ read(keys[pages, entries % per_page], q.shape[-1], torch.float32).float().T
    scores = (weights * weight_scale) @ match.clamp_min(0)
    return torch.where(scores.isnan(), float("-inf"), scores)


def _visible(row: Row, ratio: int, keys: Tensor, page_table: Tensor) -> Tensor:
    """Ids of the complete groups up to the row's position."""
    return torch.arange(min((row.position + 1) // ratio, page_table.shape[1] * keys.shape[1]))


def _best(scores: Tensor, k: int) -> Tensor:
    """Ascending ranks of the min(k, n) best scores; among equal scores the lower rank wins."""
    return scores.sort(descending=True, stable=True).indices[:k].sort().values


def _fill(out: Tensor, chosen: Tensor) -> None:
    out.fill_(-1)
    out[: chosen.shape[0]] = chosen


def _index_topk(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, rows: Tensor, topk: int,
                ratio: int, weight_scale: float) -> Tensor:
    selected = rows.new_empty((q.shape[0], topk))
    for i, row in enumerate(read_rows(rows)):
        entries = _visible(row, ratio, keys, page_table)
        scores = _scores(q[i], weights[i], keys, page_table, row, entries, weight_scale)
        _fill(selected[i], _best(scores, topk))
    return selected


def _index_topk_blocks(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, rows: Tensor, topk: int,
                       ratio: int, weight_scale: float, block_size: int,
                       topk_blocks: int) -> tuple[Tensor, Tensor]:
    selected = rows.new_empty((q.shape[0], topk))
    blocks = rows.new_empty((q.shape[0], topk_blocks))
    for i, row in enumerate(read_rows(rows)):
        entries = _visible(row, ratio, keys, page_table)
        scores = _scores(q[i], weights[i], keys, page_table, row, entries, weight_scale)
        _fill(selected[i], _best(scores, topk))
        _fill(blocks[i], _best(_block_scores(scores, block_size), topk_blocks))
    return selected, blocks


def _block_scores(scores: Tensor, block_size: int) -> Tensor:
    """Best visible score of each block; the newest visible block always takes part."""
    short = -scores.shape[0] % block_size
    best = torch.nn.functional.pad(scores, (0, short), value=float("-inf")).view(-1, block_size).amax(-1)
    best[-1:] = float("inf")
    return best


def _index_topk_within(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, rows: Tensor,
                       blocks: Tensor, topk: int, ratio: int, weight_scale: float, block_size: int) -> Tensor:
    selected = rows.new_empty((q.shape[0], topk))
    for i, row in enumerate(read_rows(rows)):
        entries = _visible(row, ratio, keys, page_table)
        entries = entries[torch.isin(entries // block_size, blocks[i])]
        scores = _scores(q[i], weights[i], keys, page_table, row, entries, weight_scale)
        _fill(selected[i], entries[_best(scores, topk)])
    return selected


def _index_topk_fake(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, rows: Tensor, topk: int,
                     ratio: int, weight_scale: float) -> Tensor:
    return rows.new_empty((q.shape[0], topk))


def _index_topk_blocks_fake(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, rows: Tensor,
                            topk: int, ratio: int, weight_scale: float, block_size: int,
                            topk_blocks: int) -> tuple[Tensor, Tensor]:
    return rows.new_empty((q.shape[0], topk)), rows.new_empty((q.shape[0], topk_blocks))


def _index_topk_within_fake(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, rows: Tensor,
                            blocks: Tensor, topk: int, ratio: int, weight_scale: float,
                            block_size: int) -> Tensor:
    return rows.new_empty((q.shape[0], topk))


_CANDIDATE_BYTES = 8  # a float32 score and an int32 rank


def _unpacked(q: Tensor, keys: Tensor) -> int:
    """One key of packed ones."""
    return q.shape[2] * q.element_size() if keys.dtype == PACKED else 0


def _pool_scratch(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, *_: object) -> int:
    """Room for one row that sees every entry its page table can map."""
    return page_table.shape[1] * keys.shape[1] * _CANDIDATE_BYTES + _unpacked(q, keys)


def _within_scratch(q: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, rows: Tensor,
                    blocks: Tensor, topk: int, ratio: int, weight_scale: float, block_size: int) -> int:
    return blocks.shape[1] * block_size * _CANDIDATE_BYTES + _unpacked(q, keys)


_TIES = "the lower entry (or block) id; NaN counts as -inf"
_INPUTS = "Tensor q, Tensor weights, Tensor keys, Tensor page_table, Tensor rows"

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="index_topk",
        schema=f"({_INPUTS}, int topk, int ratio, float weight_scale) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=_TIES,
        fake=_index_topk_fake, reference=_index_topk, native=NativeBody("index_topk", _pool_scratch),
    ),
    OpSpec(
        name="index_topk_blocks",
        schema=f"({_INPUTS}, int topk, int ratio, float weight_scale, int block_size, int topk_blocks) "
               "-> (Tensor, Tensor)",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=_TIES,
        fake=_index_topk_blocks_fake, reference=_index_topk_blocks,
        native=NativeBody("index_topk_blocks", _pool_scratch),
    ),
    OpSpec(
        name="index_topk_within",
        schema=f"({_INPUTS}, Tensor blocks, int topk, int ratio, float weight_scale, int block_size) "
               "-> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=_TIES,
        fake=_index_topk_within_fake, reference=_index_topk_within,
        native=NativeBody("index_topk_within", _within_scratch),
    ),
)
