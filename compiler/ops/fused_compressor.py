"""Fused ops of the compressor: one for each cache that a KV source layer fills."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule


def _compress_store(ops: Any, x: Tensor, wkv: Tensor, norm: Tensor, rows: Tensor, table: Tensor, page_table: Tensor,
                    pool: Tensor, dtype: torch.dtype, eps: float, cast: bool) -> Any:
    """C1 to C5 of ratio 1; gives the latent before the rotary, which the index key starts from."""
    latent = ops.rms_norm(ops.linear(x, wkv, None, dtype), norm, eps)
    entry = ops.rotary(latent, rows, table, 1, False)
    ops.entry_store(ops.quantize_fp4_kv(entry) if cast else entry, rows, page_table, pool, 1)
    return latent


def _compress_pairs_store(ops: Any, x: Tensor, wkv: Tensor, wgate: Tensor, pair: Tensor, norm: Tensor, rows: Tensor,
                          table: Tensor, page_table: Tensor, pool: Tensor, dtype: torch.dtype, eps: float,
                          cast: bool) -> Any:
    """C1 to C6 of ratio 2: as above, the latent pooled from pairs of tokens whose older half may lie in the ring."""
    kv, gate = ops.linear(x, wkv, None, torch.float32), ops.linear(x, wgate, None, torch.float32)
    latent = ops.rms_norm(ops.compress_pairs(kv, gate, rows, pair, dtype), norm, eps)
    entry = ops.rotary(latent, rows, table, 2, False)
    ops.entry_store(ops.quantize_fp4_kv(entry) if cast else entry, rows, page_table, pool, 2)
    return latent


def _index_key_store(ops: Any, latent: Tensor, wk: Tensor, norm: Tensor, rows: Tensor, table: Tensor,
                     page_table: Tensor, pool: Tensor, dtype: torch.dtype, eps: float, ratio: int, cast: bool) -> None:
    """I1 to I4."""
    key = ops.rotary(ops.rms_norm(ops.linear(latent, wk, None, dtype), norm, eps), rows, table, ratio, False)
    ops.entry_store(ops.quantize_fp4_index(key) if cast else key, rows, page_table, pool, ratio)


_STORE = "Tensor rows, Tensor table, Tensor page_table, Tensor(a!) pool, ScalarType dtype, float eps"

SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="compress_store",
        schema=f"(Tensor x, Tensor wkv, Tensor norm, {_STORE}, bool cast) -> Tensor",
        pads=PadRule.SKIP, composition=_compress_store, tie_order=None,
    ),
    fused_op(
        name="compress_pairs_store",
        schema="(Tensor x, Tensor wkv, Tensor wgate, Tensor(b!) pair, Tensor norm, Tensor rows, Tensor table, "
               "Tensor page_table, Tensor(a!) pool, ScalarType dtype, float eps, bool cast) -> Tensor",
        pads=PadRule.SKIP, composition=_compress_pairs_store, tie_order=None,
    ),
    fused_op(
        name="index_key_store",
        schema=f"(Tensor latent, Tensor wk, Tensor norm, {_STORE}, int ratio, bool cast) -> ()",
        pads=PadRule.SKIP, composition=_index_key_store, tie_order=None,
    ),
)
