"""Plain CUDA kernels of the draft: its rows, joined columns, the chain of tokens and their confidence."""

from __future__ import annotations

from dsv41c.compiler.affine import product
from dsv41c.compiler.kernels.signature import Bindings, CudaSource, Signature, Unsupported, by_element, by_row, ceil_div
from dsv41c.compiler.kernels.source import Int32, Int64

_GREEDY_THREADS = 512  # greedy.h


def draft_row_table(s: Signature) -> CudaSource:
    count = product([s.integer("block"), s.count("upload")])
    bindings: Bindings = {**s.tensors("upload", "slot_token", "slot_position"), "table": s.output(),
                          "count": Int32(count)}
    constants = {"BLOCK": s.integer("block"), "NOISE_TOKEN": s.integer("noise_token")}
    return CudaSource((by_element("draft_row_table", constants, bindings, count),))


def golden_token(s: Signature) -> CudaSource:
    count = ceil_div(s.count("rows"), s.integer("block"))
    bindings: Bindings = {**s.tensors("rows"), "token": s.output(), "count": Int32(count)}
    return CudaSource((by_element("golden_token", {"BLOCK": s.integer("block")}, bindings, count),))


def embed_token(s: Signature) -> CudaSource:
    constants = {"WEIGHT": s.act("weight"), "VOCABULARY": s.size("weight", 0), "WIDTH": s.size("weight", 1)}
    bindings: Bindings = {**s.tensors("token", "weight"), "out": s.output(), "count": Int32(s.count("token"))}
    elements = product([constants["WIDTH"], s.count("token")])
    return CudaSource((by_element("embed_token", constants, bindings, elements),))


def markov_logits(s: Signature) -> CudaSource:
    constants = {"WIDTH": s.size("correction", 1), "BLOCK": s.integer("block"), "INDEX": s.integer("index")}
    bindings: Bindings = {**s.tensors("base", "correction"), "out": s.output(), "count": Int32(s.count("correction"))}
    return CudaSource((by_element("markov_logits", constants, bindings, s.elements("correction")),))


def greedy_draft(s: Signature) -> CudaSource:
    bindings: Bindings = {**s.tensors("logits"), "token": s.output()}
    return CudaSource((by_row("greedy_draft", {"WIDTH": s.size("logits", 1)}, bindings, s.count("logits"),
                              _GREEDY_THREADS),))


def confidence_input(s: Signature) -> CudaSource:
    hidden, bigram = s.size("hidden", 1), s.size("bigram", 1)
    constants = {"HIDDEN": s.act("hidden"), "HIDDEN_WIDTH": hidden, "BIGRAM": s.act("bigram"), "BIGRAM_WIDTH": bigram,
                 "BLOCK": s.integer("block"), "INDEX": s.integer("index")}
    bindings: Bindings = {**s.tensors("hidden", "bigram"), "out": s.output(), "count": Int32(s.count("bigram"))}
    elements = product([hidden + bigram, s.count("bigram")])
    return CudaSource((by_element("confidence_input", constants, bindings, elements),))


def sigmoid(s: Signature) -> CudaSource:
    bindings: Bindings = {"x": s.tensor("x"), "out": s.output(), "count": Int64(s.elements("x"))}
    return CudaSource((by_element("sigmoid", {}, bindings, s.elements("x")),))


def concat_columns(s: Signature) -> CudaSource:
    """One launch a part."""
    parts = s.shapes("parts")
    if any(part.dtype != s.value("dtype") for part in parts):
        raise Unsupported("parts of another dtype than the result")
    widths = [s.static(part, 1) for part in parts]
    launches = []
    for number, (part, width) in enumerate(zip(parts, widths, strict=True)):
        constants = {"UNIT_BYTES": part.dtype.itemsize, "WIDTH": width, "OFFSET": sum(widths[:number]),
                     "JOINED": sum(widths)}
        bindings: Bindings = {"part": s.tensor("parts", number), "out": s.output(), "count": Int32(part.sizes[0])}
        launches.append(by_element("concat_columns", constants, bindings, product([width, part.sizes[0]])))
    return CudaSource(tuple(launches))
