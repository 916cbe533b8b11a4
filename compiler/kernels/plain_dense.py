"""Plain CUDA kernels of the products and of the hyper-connections: linear, mhc_*, the gate and the experts."""

from __future__ import annotations

import torch

from dsv41c.compiler.affine import product
from dsv41c.compiler.kernels.signature import Bindings, CudaSource, Signature, Unsupported, by_element, by_row, ceil_div
from dsv41c.compiler.kernels.source import Int32, Int64, Scratch
from dsv41c.compiler.ops.native import DTYPE_CODES

_TILE_ROWS, _TILE_OUTPUTS, _LINEAR_THREADS = 32, 64, 128  # linear.cu
_ROW_THREADS = 256  # mhc_mix.cu, mega_gate.cu, moe_route.cu, moe_experts.h
_EXPERT_TILE = 32  # moe_experts.h
_MAX_STREAMS = 8  # mhc_mix.cu keeps all projections of a row in registers


def linear(s: Signature) -> CudaSource:
    return _linear(s, 1)


def grouped_linear(s: Signature) -> CudaSource:
    return _linear(s, s.integer("groups"))


def _linear(s: Signature, groups: int) -> CudaSource:
    fp8 = s.dtype("weight") == torch.float8_e4m3fn
    if fp8 != s.present("scale"):
        raise Unsupported("a scale goes with an e4m3 weight only")
    outputs = s.size("weight", 0) // groups
    constants = {"ACT": s.act("x"), "WEIGHT": DTYPE_CODES[torch.float8_e4m3fn] if fp8 else s.act("weight"),
                 "OUT": s.act_attribute("dtype"), "WIDTH": s.size("weight", 1), "OUTPUTS": outputs, "GROUPS": groups}
    # Without a scale the kernel gets the weight's address in its place and does not read it.
    bindings: Bindings = {**s.tensors("x", "weight"), "scale": s.tensor("scale" if fp8 else "weight"), "y": s.output(),
                "count": Int32(s.count("x"))}
    row_tiles = ceil_div(s.count("x"), _TILE_ROWS)
    return CudaSource((by_row("linear", constants, bindings, row_tiles, _LINEAR_THREADS,
                              y=-(-outputs // _TILE_OUTPUTS), z=groups),))


def mhc_collapse(s: Signature) -> CudaSource:
    return _streams(s, "mhc_collapse", "streams", "alpha")


def stream_mean(s: Signature) -> CudaSource:
    return _streams(s, "stream_mean", "streams")


def mhc_post(s: Signature) -> CudaSource:
    if s.dtype("y") != s.dtype("streams"):
        raise Unsupported("y and streams differ in dtype")
    return _streams(s, "mhc_post", "y", "streams", "beta", "gamma")


def _streams(s: Signature, symbol: str, *inputs: str) -> CudaSource:
    width = s.size("streams", 2)
    constants = {"ACT": s.act("streams"), "STREAMS": s.size("streams", 1), "WIDTH": width}
    bindings: Bindings = {**s.tensors(*inputs), "out": s.output(), "count": Int32(s.count("streams"))}
    return CudaSource((by_element(symbol, constants, bindings, product([width, s.count("streams")])),))


def mhc_mix(s: Signature) -> CudaSource:
    streams = s.size("streams", 1)
    if streams > _MAX_STREAMS:
        raise Unsupported(f"{streams} streams")
    constants = {"ACT": s.act("streams"), "STREAMS": streams, "WIDTH": s.size("streams", 2),
                 "ITERATIONS": s.integer("iterations")}
    bindings: Bindings = {**s.tensors("streams", "fn", "scale", "base"), "alpha": s.output(0), "beta": s.output(1),
                "gamma": s.output(2), "rms_eps": s.real("rms_eps"), "hc_eps": s.real("hc_eps")}
    return CudaSource((by_row("mhc_mix", constants, bindings, s.count("streams"), _ROW_THREADS),))


def mega_gate(s: Signature) -> CudaSource:
    topk, experts = s.integer("topk"), s.size("weight", 0)
    if topk > experts:
        raise Unsupported(f"topk {topk} of {experts} experts")
    constants = {"ACT": s.act("x"), "WEIGHT": s.act("weight"), "WIDTH": s.size("x", 1), "EXPERTS": experts,
                 "TOPK": topk}
    bindings: Bindings = {**s.tensors("x", "weight", "bias", "bias_vl", "rows"), "expert": s.output(0),
                "expert_weight": s.output(1), "routed_scale": s.real("routed_scale")}
    return CudaSource((by_row("mega_gate", constants, bindings, s.count("x"), _ROW_THREADS),))


def moe_route(s: Signature) -> CudaSource:
    topk, experts = s.integer("topk"), s.size("scores", 1)
    if topk > experts:
        raise Unsupported(f"topk {topk} of {experts} experts")
    bindings: Bindings = {**s.tensors("scores", "bias", "bias_vl", "rows"), "expert": s.output(0),
                "expert_weight": s.output(1), "routed_scale": s.real("routed_scale")}
    return CudaSource((by_row("moe_route", {"EXPERTS": experts, "TOPK": topk}, bindings, s.count("scores"),
                              _ROW_THREADS),))


def moe_experts(s: Signature) -> CudaSource:
    width, topk, experts, inner = s.size("x", 1), s.size("expert", 1), s.size("w1", 0), s.size("w1", 1)
    if width % _EXPERT_TILE or inner % _EXPERT_TILE:
        raise Unsupported(f"widths {width} and {inner}")
    shared = {"WIDTH": width, "INNER": inner, "TOPK": topk, "EXPERTS": experts}
    up = by_row("moe_experts_up", {"ACT": s.act("x"), "QUANTIZE": s.integer("quantize"), **shared},
                {**s.tensors("x", "expert", "weight", "w1", "w1_scale", "w3", "w3_scale"), "inner": Scratch(0),
                 "limit": s.real("limit")}, product([topk, s.count("x")]), _ROW_THREADS, y=inner // _EXPERT_TILE)
    down = by_row("moe_experts_down", shared,
                  {**s.tensors("expert", "w2", "w2_scale"), "inner": Scratch(0), "y": s.output()}, s.count("x"),
                  _ROW_THREADS, y=width // _EXPERT_TILE)
    return CudaSource((up, down), product([4 * topk * inner, s.count("x")]))


def swiglu(s: Signature) -> CudaSource:
    bindings: Bindings = {**s.tensors("gate", "up"), "out": s.output(), "limit": s.real("limit"),
                "count": Int64(s.elements("gate"))}
    return CudaSource((by_element("swiglu", {"OUT": s.act_attribute("dtype")}, bindings, s.elements("gate")),))


def combine_experts(s: Signature) -> CudaSource:
    if s.dtype("routed") != torch.float32:
        raise Unsupported(f"routed of {s.dtype('routed')}")
    constants = {"SHARED": s.act("shared"), "OUT": s.act_attribute("dtype")}
    bindings: Bindings = {**s.tensors("routed", "shared"), "out": s.output(), "count": Int64(s.elements("routed"))}
    return CudaSource((by_element("combine_experts", constants, bindings, s.elements("routed")),))
