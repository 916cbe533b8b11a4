"""Plain CUDA kernels of attention, of the stores and of the index selection."""

from __future__ import annotations

import torch

from dsv41c.compiler.affine import product
from dsv41c.compiler.kernels.signature import (
    MAX_SHARED_BYTES,
    Bindings,
    Constants,
    CudaSource,
    Signature,
    Unsupported,
    by_element,
    by_row,
)
from dsv41c.compiler.kernels.source import Int32, Memset
from dsv41c.compiler.ops import packed
from dsv41c.compiler.ops.native import DTYPE_CODES

_MAX_WARPS = 8  # heads of one block of attention
_MAX_WIDTH = 1024  # a head's query and sum live in registers
_INDEX_THREADS = 256  # index.h
_INDEX_UNIT = 8  # heads that index.h sums together


def window_attention(s: Signature) -> CudaSource:
    return _attention(s, "window_attention", {}, "q", "window_kv", "window", "sink", "rows")


def draft_attention(s: Signature) -> CudaSource:
    return _attention(s, "draft_attention", {}, "q", "window_kv", "window", "sink", "rows")


def sparse_attention(s: Signature) -> CudaSource:
    constants = {"SELECTED": s.size("selected", 1), **_pool(s, "compressed")}
    return _attention(s, "sparse_attention", constants, "q", "window_kv", "window", "compressed", "page_table",
                      "selected", "sink", "rows")


def _attention(s: Signature, symbol: str, more: Constants, *inputs: str) -> CudaSource:
    heads, width = s.size("q", 1), s.size("q", 2)
    if width > _MAX_WIDTH:
        raise Unsupported(f"head width {width}")
    warps = min(_MAX_WARPS, heads)
    constants = {"ACT": s.act("q"), "HEADS": heads, "WIDTH": width, "RING": s.size("window", 1), "WARPS": warps,
                 "WINDOW": s.integer("window_size"), **_packing(s, "window", width), **more}
    bindings: Bindings = {**s.tensors(*inputs), "out": s.output(), "scale": s.real("scale")}
    return CudaSource((by_row(symbol, constants, bindings, s.count("q"), warps * 32, y=-(-heads // warps)),))


def _packing(s: Signature, state: str, width: int) -> dict[str, int]:
    """The element of a state tensor, and how its rows are packed: PACKING of packed.h."""
    if s.dtype(state) != packed.DTYPE:
        return {"STATE": s.act(state), "PACKING": 0}
    form = packed.format_of(s.size(state, 2), width)
    return {"STATE": DTYPE_CODES[torch.float8_e4m3fn], "PACKING": 1 + packed.FORMATS.index(form)}


def _pool(s: Signature, name: str) -> dict[str, int]:
    return {"POOL_PAGES": s.size(name, 0), "PAGE_ROWS": s.size(name, 1), "PAGES_PER_SLOT": s.size("page_table", 1)}


# --- stores ----------------------------------------------


def window_commit(s: Signature) -> CudaSource:
    width = s.size("window_kv", 1)
    constants = {"ACT": s.act("window_kv"), "WIDTH": width, "RING": s.size("window", 1), **_packing(s, "window", width)}
    bindings: Bindings = {**s.tensors("window_kv", "rows", "window"), "count": Int32(s.count("window_kv"))}
    return CudaSource((by_element("window_commit", constants, bindings, s.elements("window_kv")),))


def entry_store(s: Signature) -> CudaSource:
    width = s.size("entry", 1)
    constants = {"ACT": s.act("entry"), "WIDTH": width, "RATIO": s.integer("ratio"), **_pool(s, "pool"),
                 **_packing(s, "pool", width)}
    bindings: Bindings = {**s.tensors("entry", "rows", "page_table", "pool"), "count": Int32(s.count("entry"))}
    return CudaSource((by_element("entry_store", constants, bindings, s.elements("entry")),))


def compress_pairs(s: Signature) -> CudaSource:
    constants = {"WIDTH": s.size("kv", 1), "RING": s.size("pair", 1)}
    bindings: Bindings = {**s.tensors("kv", "gate", "rows", "pair"), "count": Int32(s.count("kv"))}
    out = s.act_attribute("dtype")
    # Rows at even positions complete no pair and have zeros.
    clear = Memset(s.output(), 0, product([s.item_bytes("dtype"), s.elements("kv")]))
    combine = by_element("compress_pairs_combine", {"OUT": out, **constants}, {**bindings, "latent": s.output()},
                         s.elements("kv"))
    return CudaSource((clear, combine, by_element("compress_pairs_commit", constants, bindings, s.elements("kv"))))


# --- index selection -------------------------------------


def index_topk(s: Signature) -> CudaSource:
    return _index(s, "index_topk", {}, {"selected": s.output()}, 0)


def index_topk_blocks(s: Signature) -> CudaSource:
    block, topk_blocks = s.integer("block_size"), s.integer("topk_blocks")
    if block < 1 or _INDEX_THREADS % block:
        raise Unsupported(f"blocks of {block} entries")
    return _index(s, "index_topk_blocks", {"BLOCK_ENTRIES": block, "TOPK_BLOCKS": topk_blocks},
                  {"selected": s.output(0), "blocks": s.output(1)}, _best_bytes(topk_blocks, _INDEX_THREADS // block))


def index_topk_within(s: Signature) -> CudaSource:
    return _index(s, "index_topk_within", {"BLOCK_ENTRIES": s.integer("block_size"), "NUM_BLOCKS": s.size("blocks", 1)},
                  {"blocks": s.tensor("blocks"), "selected": s.output()}, 0)


def _index(s: Signature, symbol: str, more: Constants, bound: Bindings, more_bytes: int) -> CudaSource:
    topk = s.integer("topk")
    shared_bytes = _scorer_bytes(s) + _best_bytes(topk, _INDEX_THREADS) + more_bytes
    if shared_bytes > MAX_SHARED_BYTES:
        raise Unsupported(f"{shared_bytes} bytes of shared memory")
    constants = {"ACT": s.act("q"), "HEADS": s.size("q", 1), "WIDTH": s.size("q", 2), "RATIO": s.integer("ratio"),
                 "TOPK": topk, **_pool(s, "keys"), **_packing(s, "keys", s.size("q", 2)), **more}
    bindings: Bindings = {**s.tensors("q", "weights", "keys", "page_table", "rows"), **bound,
                "weight_scale": s.real("weight_scale")}
    return CudaSource((by_row(symbol, constants, bindings, s.count("q"), _INDEX_THREADS, shared_bytes=shared_bytes),))


def _scorer_bytes(s: Signature) -> int:
    """Scorer of index.h: the query transposed, with padded heads, and the weights."""
    return (s.size("q", 2) + 1) * -(-s.size("q", 1) // _INDEX_UNIT) * _INDEX_UNIT * 4


def _best_bytes(k: int, step: int) -> int:
    """BestOf of best_of.h: two halves of 8-byte keys."""
    return 16 * (1 << (max(k, step) - 1).bit_length())
