"""Plain CUDA kernels: a correct general body for every op that is not itself a fused kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dsv41c.compiler.kernels import plain_attention, plain_dense, plain_draft, plain_engram, plain_rows
from dsv41c.compiler.kernels.signature import CudaSource, Signature, Unsupported
from dsv41c.compiler.ops.spec import OpSpec

_FAMILIES: Sequence[tuple[Any, Sequence[str]]] = (
    (plain_rows, ("row_table", "take_row_table", "window_floor", "take_rows", "greedy_token", "embed_expand",
                  "rms_norm", "rotary", "quantize_fp8", "quantize_fp4_index", "quantize_fp4_kv")),
    (plain_dense, ("linear", "grouped_linear", "mhc_collapse", "stream_mean", "mhc_post", "mhc_mix", "mega_gate",
                   "moe_route", "moe_experts", "swiglu", "combine_experts")),
    (plain_attention, ("window_attention", "draft_attention", "sparse_attention", "window_commit", "entry_store",
                       "compress_pairs", "index_topk", "index_topk_blocks", "index_topk_within")),
    (plain_engram, ("engram_hash", "engram_lookup", "engram_gate")),
    (plain_draft, ("draft_row_table", "golden_token", "embed_token", "markov_logits", "greedy_draft",
                   "confidence_input", "sigmoid", "concat_columns")),
)

SOURCES: Mapping[str, Callable[[Signature], CudaSource]] = MappingProxyType(
    {name: getattr(family, name) for family, names in _FAMILIES for name in names})


def cuda_source(spec: OpSpec, args: Sequence[Any]) -> CudaSource | None:
    """The plain kernel of one call, or None when there is none for these arguments.

    args as KernelTable takes them: TensorShape, a list of them, None or a plain attribute each, in schema order.
    """
    make = SOURCES.get(spec.name)
    if make is None:
        return None
    try:
        return make(Signature(spec, args))
    except Unsupported:
        return None
