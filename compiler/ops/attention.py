"""Attention over window keys and selected compressed entries; one vector is key and value for all heads."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.packed import DTYPE as PACKED
from dsv41c.compiler.ops.packed import read
from dsv41c.compiler.ops.rows import Row, read_rows
from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule


def _attend(q: Tensor, keys: list[Tensor], sink: Tensor, scale: float) -> Tensor:
    """q [N,D] against the listed keys [D]; the sink [N] joins the denominator only; no keys give zeros."""
    if not keys:
        return torch.zeros_like(q)
    key = torch.stack(keys).float()
    scores = q.float() @ key.T * scale
    weights = torch.cat((scores, sink.unsqueeze(-1)), -1).softmax(-1)[:, :-1]
    return (weights @ key).to(q.dtype)


def _window_keys(window_kv: Tensor, window: Tensor, row: Row, first: int, last: int) -> list[Tensor]:
    """Keys of positions first..last: rows of this step from BASE on, the slot's ring before."""
    ring, width, dtype = window.shape[1], window_kv.shape[1], window_kv.dtype
    return [
        window_kv[row.first_row + u - row.base] if u >= row.base else read(window[row.slot, u % ring], width, dtype)
        for u in range(max(first, row.floor, 0), last + 1)
    ]


def _entries(pool: Tensor, page_table: Tensor, row: Row, selected: list[int], q: Tensor) -> list[Tensor]:
    """The selected compressed entries, found through the slot's page table; -1 selects nothing."""
    per_page = pool.shape[1]
    return [read(pool[page_table[row.slot, j // per_page], j % per_page], q.shape[-1], q.dtype)
            for j in selected if j >= 0]


def _window_attention(q: Tensor, window_kv: Tensor, window: Tensor, sink: Tensor, rows: Tensor,
                      window_size: int, scale: float) -> Tensor:
    out = torch.empty_like(q)
    for i, row in enumerate(read_rows(rows)):
        keys = _window_keys(window_kv, window, row, row.position - window_size + 1, row.position)
        out[i] = _attend(q[i], keys, sink, scale)
    return out


def _draft_attention(q: Tensor, window_kv: Tensor, window: Tensor, sink: Tensor, rows: Tensor,
                     window_size: int, scale: float) -> Tensor:
    out = torch.empty_like(q)
    for i, row in enumerate(read_rows(rows)):
        keys = _window_keys(window_kv, window, row, row.base - window_size, row.base + row.group_size - 1)
        out[i] = _attend(q[i], keys, sink, scale)
    return out


def _sparse_attention(q: Tensor, window_kv: Tensor, window: Tensor, compressed: Tensor, page_table: Tensor,
                      selected: Tensor, sink: Tensor, rows: Tensor, window_size: int, ratio: int,
                      scale: float) -> Tensor:
    out = torch.empty_like(q)
    for i, row in enumerate(read_rows(rows)):
        keys = _window_keys(window_kv, window, row, row.position - window_size + 1, row.position)
        keys += _entries(compressed, page_table, row, selected[i].tolist(), q)
        out[i] = _attend(q[i], keys, sink, scale)
    return out


def _like_q(q: Tensor, *_: object) -> Tensor:
    return q.new_empty(q.shape)


def _scratch(keys: int, q: Tensor, *states: Tensor) -> int:
    """Address and score of each key of one row, the sum of one head and, where state is packed, the keys unpacked."""
    width = q.shape[2]
    unpacked = keys * width * q.element_size() if any(s.dtype == PACKED for s in states) else 0
    return keys * 12 + width * 4 + unpacked


def _window_scratch(q: Tensor, window_kv: Tensor, window: Tensor, sink: Tensor, rows: Tensor,
                    window_size: int, scale: float) -> int:
    return _scratch(window_size, q, window)


def _draft_scratch(q: Tensor, window_kv: Tensor, window: Tensor, sink: Tensor, rows: Tensor, window_size: int,
                   scale: float) -> int:
    return _scratch(window_size + q.shape[0], q, window)


def _sparse_scratch(q: Tensor, window_kv: Tensor, window: Tensor, compressed: Tensor, page_table: Tensor,
                    selected: Tensor, sink: Tensor, rows: Tensor, window_size: int, ratio: int,
                    scale: float) -> int:
    return _scratch(window_size + selected.shape[1], q, window, compressed)


_WINDOW_SCHEMA = ("(Tensor q, Tensor window_kv, Tensor window, Tensor sink, Tensor rows, int window_size, "
                  "float scale) -> Tensor")

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="window_attention", schema=_WINDOW_SCHEMA,
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_like_q, reference=_window_attention, native=NativeBody("window_attention", _window_scratch),
    ),
    OpSpec(
        name="draft_attention", schema=_WINDOW_SCHEMA,
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_like_q, reference=_draft_attention, native=NativeBody("draft_attention", _draft_scratch),
    ),
    OpSpec(
        name="sparse_attention",
        schema="(Tensor q, Tensor window_kv, Tensor window, Tensor compressed, Tensor page_table, "
               "Tensor selected, Tensor sink, Tensor rows, int window_size, int ratio, float scale) "
               "-> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_like_q, reference=_sparse_attention, native=NativeBody("sparse_attention", _sparse_scratch),
    ),
)
