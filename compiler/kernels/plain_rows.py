"""Plain CUDA kernels of the row ops: tables, taking, embedding, norm, rotary, quantizers, greedy token."""

from __future__ import annotations

from dsv41c.compiler.affine import product
from dsv41c.compiler.kernels.signature import Bindings, CudaSource, Signature, by_element, by_row
from dsv41c.compiler.kernels.source import Copy, Int32, Int64

_SCAN_THREADS = 1024  # group_scan.h; one block looks at all rows
_GREEDY_THREADS = 512  # greedy_token.cu
_NORM_THREADS = 256  # rms_norm.cu
_UNITS = (16, 8, 4, 2, 1)  # bytes that take_rows.cu copies at once


def row_table(s: Signature) -> CudaSource:
    constants = {"PAGE_TOKENS": s.integer("block_size"), "PAGES_PER_SLOT": s.size("page_table", 1)}
    bindings: Bindings = {**s.tensors("upload", "slot_token", "slot_position", "page_table", "replay_floor"),
                          "table": s.output(), "count": Int32(s.count("upload"))}
    return CudaSource((by_row("row_table", constants, bindings, 1, _SCAN_THREADS),))


def take_row_table(s: Signature) -> CudaSource:
    bindings: Bindings = {**s.tensors("rows", "index"), "table": s.output(), "num_rows": Int32(s.count("rows")),
                "count": Int32(s.count("index"))}
    constants = {"NUM_SLOTS": s.integer("num_slots")}
    return CudaSource((by_row("take_row_table", constants, bindings, 1, _SCAN_THREADS),))


def window_floor(s: Signature) -> CudaSource:
    bindings: Bindings = {"rows": s.tensors("rows")["rows"], "floors": s.tensors("window_floor")["window_floor"],
                          "table": s.output(), "count": Int32(s.count("rows"))}
    return CudaSource((by_row("window_floor", {}, bindings, 1, _SCAN_THREADS),))


def take_rows(s: Signature) -> CudaSource:
    row_bytes = s.dtype("x").itemsize
    for dim in range(1, len(s.shape("x").sizes)):
        row_bytes *= s.size("x", dim)
    unit = next(n for n in _UNITS if row_bytes % n == 0)
    units = row_bytes // unit
    bindings: Bindings = {**s.tensors("x", "index"), "out": s.output(), "num_rows": Int32(s.count("x")),
                "count": Int32(s.count("index"))}
    constants = {"UNIT_BYTES": unit, "UNITS": units}
    return CudaSource((by_element("take_rows", constants, bindings, product([units, s.count("index")])),))


def greedy_token(s: Signature) -> CudaSource:
    bindings: Bindings = {**s.tensors("logits", "rows", "slot_token"), "token": s.output()}
    constants = {"WIDTH": s.size("logits", 1)}
    return CudaSource((by_row("greedy_token", constants, bindings, s.count("logits"), _GREEDY_THREADS),))


def embed_expand(s: Signature) -> CudaSource:
    width = s.size("weight", 1)
    constants = {"ACT": s.act_attribute("dtype"), "WEIGHT": s.act("weight"), "WIDTH": width,
                 "VOCABULARY": s.size("weight", 0), "STREAMS": s.integer("streams")}
    bindings: Bindings = {**s.tensors("rows", "weight"), "streams": s.output(0), "alpha": s.output(1),
                "count": Int32(s.count("rows"))}
    return CudaSource((by_element("embed_expand", constants, bindings, product([width, s.count("rows")])),))


def rms_norm(s: Signature) -> CudaSource:
    sizes = s.shape("x").sizes
    constants = {"ACT": s.act("x"), "WEIGHT": s.act("weight"), "WIDTH": s.size("x", len(sizes) - 1)}
    bindings: Bindings = {**s.tensors("x", "weight"), "out": s.output(), "eps": s.real("eps")}
    return CudaSource((by_row("rms_norm", constants, bindings, product(sizes[:-1]), _NORM_THREADS),))


def rotary(s: Signature) -> CudaSource:
    dims = len(s.shape("x").sizes)
    constants = {"ACT": s.act("x"), "HEADS": s.size("x", 1) if dims == 3 else 1, "WIDTH": s.size("x", dims - 1),
                 "TURNED": 2 * s.size("table", 1), "MAX_POSITIONS": s.size("table", 0), "RATIO": s.integer("ratio"),
                 "INVERSE": s.integer("inverse")}
    bindings: Bindings = {**s.tensors("x", "rows", "table"), "out": s.output(), "count": Int32(s.count("x"))}
    everything = Copy(s.output(), s.tensor("x"), product([s.dtype("x").itemsize, s.elements("x")]))
    turned = product([constants["HEADS"] * constants["TURNED"], s.count("x")])
    return CudaSource((everything, by_element("rotary", constants, bindings, turned)))


def quantize_fp8(s: Signature) -> CudaSource:
    return _quantize(s, "quantize_fp8")


def quantize_fp4_index(s: Signature) -> CudaSource:
    return _quantize(s, "quantize_fp4_index")


def quantize_fp4_kv(s: Signature) -> CudaSource:
    return _quantize(s, "quantize_fp4_kv")


def _quantize(s: Signature, symbol: str) -> CudaSource:
    bindings: Bindings = {"x": s.tensor("x"), "out": s.output(), "count": Int64(s.elements("x"))}
    return CudaSource((by_element(symbol, {"ACT": s.act("x")}, bindings, s.elements("x")),))
