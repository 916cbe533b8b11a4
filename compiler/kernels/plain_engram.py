"""Plain CUDA kernels of the Engram ops."""

from __future__ import annotations

from dsv41c.compiler.affine import product
from dsv41c.compiler.kernels.signature import Bindings, CudaSource, Signature, Unsupported, by_element, by_row
from dsv41c.compiler.kernels.source import Int32

_GATE_THREADS = 256  # engram_gate.cu


def engram_hash(s: Signature) -> CudaSource:
    layers, ngram, heads = s.size("multipliers", 0), s.size("multipliers", 1), s.size("moduli", 2)
    ring, count = {"RING": s.size("token_ring", 1)}, {"count": Int32(s.count("rows"))}
    constants = {"LAYERS": layers, "NGRAM": ngram, "HEADS": heads, "VOCABULARY": s.size("token_map", 0),
                 "PAD_TOKEN": s.integer("pad_token"), **ring}
    inputs = s.tensors("rows", "token_map", "multipliers", "moduli", "offsets", "token_ring")
    ids = product([layers * (ngram - 1) * heads, s.count("rows")])
    return CudaSource((
        by_element("engram_hash", constants, {**inputs, "ids": s.output(), **count}, ids),
        by_element("engram_hash_commit", ring, {**s.tensors("rows", "token_ring"), **count}, s.count("rows"))))


def engram_lookup(s: Signature) -> CudaSource:
    picks, width = s.size("ids", 2), s.size("table", 1)
    constants = {"OUT": s.act_attribute("dtype"), "LAYERS": s.size("ids", 1), "PICKS": picks,
                 "LAYER": s.integer("layer"), "TABLE_ROWS": s.size("table", 0), "WIDTH": width,
                 "SCALES": s.size("scale", 1)}
    bindings: Bindings = {**s.tensors("ids", "table", "scale"), "out": s.output(), "count": Int32(s.count("ids"))}
    elements = product([picks * width, s.count("ids")])
    return CudaSource((by_element("engram_lookup", constants, bindings, elements),))


def engram_gate(s: Signature) -> CudaSource:
    if s.dtype("q_weight") != s.dtype("k_weight") or s.dtype("kv") != s.dtype("streams"):
        raise Unsupported("mixed dtypes")
    streams = s.size("streams", 1)
    constants = {"ACT": s.act("streams"), "WEIGHT": s.act("q_weight"), "STREAMS": streams,
                 "WIDTH": s.size("streams", 2)}
    bindings: Bindings = {**s.tensors("streams", "kv", "q_weight", "k_weight", "rows"), "out": s.output(),
                          "eps": s.real("eps")}
    blocks = product([streams, s.count("streams")])
    return CudaSource((by_row("engram_gate", constants, bindings, blocks, _GATE_THREADS),))
