"""Engram ops: hashes of a row's last tokens, the table rows that they name, and the gate into the streams."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.rows import Row, read_rows
from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule


def _raw_token(row: Row) -> int:
    return -1 if row.image else row.token


def _history(table: list[Row], row: Row, token_ring: Tensor, n: int, vocabulary: int) -> list[int]:
    """Raw ids of the row's position and the n-1 before it, newest first; -1 from the first image on.

    An id outside the vocabulary has no compressed id and counts as an image.
    """
    ring = token_ring.shape[1]
    seen: list[int] = []
    for position in range(row.position, row.position - n, -1):
        if position < 0 or -1 in seen:
            raw = -1
        elif position >= row.base:
            raw = _raw_token(table[row.first_row + position - row.base])
        else:
            raw = int(token_ring[row.slot, position % ring])
        seen.append(raw if 0 <= raw < vocabulary else -1)
    return seen


def _engram_hash(rows: Tensor, token_map: Tensor, multipliers: Tensor, moduli: Tensor, offsets: Tensor,
                 token_ring: Tensor, pad_token: int) -> Tensor:
    layers, n = multipliers.shape
    heads = moduli.shape[2]
    table = read_rows(rows)
    ids = rows.new_empty((rows.shape[0], layers, (n - 1) * heads))
    for i, row in enumerate(table):
        seen = _history(table, row, token_ring, n, token_map.shape[0])
        terms = token_map[[pad_token if raw < 0 else raw for raw in seen]].long() * multipliers
        hashes = terms[:, 0]
        for k in range(1, n):
            hashes = hashes ^ terms[:, k]
            columns = slice((k - 1) * heads, k * heads)
            ids[i, :, columns] = (hashes.unsqueeze(-1) % moduli[:, k - 1] + offsets[:, columns]).int()
    ring = token_ring.shape[1]
    for i, row in enumerate(table):
        if not row.pad and row.among_last(ring, i):
            token_ring[row.slot, row.position % ring] = _raw_token(row)
    return ids


def _engram_hash_fake(rows: Tensor, token_map: Tensor, multipliers: Tensor, moduli: Tensor, offsets: Tensor,
                      token_ring: Tensor, pad_token: int) -> Tensor:
    return rows.new_empty((rows.shape[0], offsets.shape[0], offsets.shape[1]))


def _engram_lookup(ids: Tensor, table: Tensor, scale: Tensor, layer: int, dtype: torch.dtype) -> Tensor:
    picked = ids[:, layer].long()
    inside = (picked >= 0) & (picked < table.shape[0])
    at = torch.where(inside, picked, 0)
    # float8 has no index_select on every device: pick bytes, then read them as numbers.
    values = table.view(torch.uint8)[at].view(table.dtype).float()
    factors = scale.view(torch.uint8)[at].view(scale.dtype).float()
    rows = values * factors.repeat_interleave(table.shape[1] // scale.shape[1], -1)
    return torch.where(inside.unsqueeze(-1), rows, 0.0).flatten(1).to(dtype)


def _engram_lookup_fake(ids: Tensor, table: Tensor, scale: Tensor, layer: int, dtype: torch.dtype) -> Tensor:
    return ids.new_empty((ids.shape[0], ids.shape[2] * table.shape[1]), dtype=dtype)


def _engram_gate(streams: Tensor, kv: Tensor, q_weight: Tensor, k_weight: Tensor, rows: Tensor,
                 eps: float) -> Tensor:
    count, width = streams.shape[1:]
    x = streams.float()
    parts = kv.float().view(-1, count + 1, width)
    keys, value = parts[:, :count], parts[:, count:]

    def rstd(t: Tensor) -> Tensor:
        return (t.square().mean(-1, keepdim=True) + eps).rsqrt()

    match = (x * q_weight.float() * k_weight.float() * keys).sum(-1, keepdim=True)
    d = width**-0.5 * rstd(x) * rstd(keys) * match
    gate = (d.sign() * d.abs().clamp_min(1e-6).sqrt()).sigmoid()
    image = torch.tensor([row.image for row in read_rows(rows)]).view(-1, 1, 1)
    return torch.where(image, x, x + gate * value).to(streams.dtype)


def _engram_gate_fake(streams: Tensor, kv: Tensor, q_weight: Tensor, k_weight: Tensor, rows: Tensor,
                      eps: float) -> Tensor:
    return streams.new_empty(streams.shape)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="engram_hash",
        schema="(Tensor rows, Tensor token_map, Tensor multipliers, Tensor moduli, Tensor offsets, "
               "Tensor(a!) token_ring, int pad_token) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.SKIP, tie_order=None,
        fake=_engram_hash_fake, reference=_engram_hash, native=NativeBody("engram_hash"),
    ),
    OpSpec(
        name="engram_lookup",
        schema="(Tensor ids, Tensor table, Tensor scale, int layer, ScalarType dtype) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_engram_lookup_fake, reference=_engram_lookup, native=NativeBody("engram_lookup"),
    ),
    OpSpec(
        name="engram_gate",
        schema="(Tensor streams, Tensor kv, Tensor q_weight, Tensor k_weight, Tensor rows, float eps) "
               "-> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_engram_gate_fake, reference=_engram_gate, native=NativeBody("engram_gate"),
    ),
)
