"""Ops that write what outlives a step: window rings, compressor pairs, compressed entries and index keys."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.packed import stored
from dsv41c.compiler.ops.rows import read_rows
from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule


def _nothing(*_: object) -> None:
    return None


def _window_commit(window_kv: Tensor, rows: Tensor, window: Tensor) -> None:
    ring = window.shape[1]
    for i, row in enumerate(read_rows(rows)):
        if not row.pad and row.among_last(ring, i):
            window[row.slot, row.position % ring] = stored(window_kv[i], window)


def _compress_pairs_fake(kv: Tensor, gate: Tensor, rows: Tensor, pair: Tensor, dtype: torch.dtype) -> Tensor:
    return kv.new_empty(kv.shape, dtype=dtype)


def _compress_pairs(kv: Tensor, gate: Tensor, rows: Tensor, pair: Tensor, dtype: torch.dtype) -> Tensor:
    ring = pair.shape[1]
    table = read_rows(rows)
    latent = torch.zeros_like(kv)
    for i, row in enumerate(table):  # all partners are read before the first of them is replaced below
        if row.position % 2 == 0 or row.replayed:
            continue
        in_step = row.position - 1 >= row.base
        kv0, gate0 = (kv[i - 1], gate[i - 1]) if in_step else pair[row.slot, (row.position - 1) % ring]
        weights = torch.stack((gate0, gate[i])).softmax(0)
        latent[i] = weights[0] * kv0 + weights[1] * kv[i]
    for i, row in enumerate(table):
        if not row.pad and not row.replayed and row.among_last(ring, i):
            pair[row.slot, row.position % ring] = torch.stack((kv[i], gate[i]))
    return latent.to(dtype)


def _entry_store(entry: Tensor, rows: Tensor, page_table: Tensor, pool: Tensor, ratio: int) -> None:
    per_page = pool.shape[1]
    for i, row in enumerate(read_rows(rows)):
        if row.pad or row.replayed or (row.position + 1) % ratio != 0:
            continue
        j = row.position // ratio
        page = int(page_table[row.slot, j // per_page])
        if page != pool.shape[0] - 1:  # an unmapped page: the trash page is never written
            pool[page, j % per_page] = stored(entry[i], pool)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="window_commit",
        schema="(Tensor window_kv, Tensor rows, Tensor(a!) window) -> ()",
        capture=CaptureClass.CAPTURE, pads=PadRule.SKIP, tie_order=None,
        fake=_nothing, reference=_window_commit, native=NativeBody("window_commit"),
    ),
    OpSpec(
        name="compress_pairs",
        schema="(Tensor kv, Tensor gate, Tensor rows, Tensor(a!) pair, ScalarType dtype) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.SKIP, tie_order=None,
        fake=_compress_pairs_fake, reference=_compress_pairs, native=NativeBody("compress_pairs"),
    ),
    OpSpec(
        name="entry_store",
        schema="(Tensor entry, Tensor rows, Tensor page_table, Tensor(a!) pool, int ratio) -> ()",
        capture=CaptureClass.CAPTURE, pads=PadRule.SKIP, tie_order=None,
        fake=_nothing, reference=_entry_store, native=NativeBody("entry_store"),
    ),
)
