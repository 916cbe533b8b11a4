"""Cases of the products and the hyper-connections: linear, mhc_*, the gate and the experts."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.quantize import quantize_fp8
from dsv41c.tools.bench.op_case import NUM_SLOTS, Case, e4m3, e8m0, integers, nan_pads, normal, row_table

F32, BF16 = torch.float32, torch.bfloat16
IMAGE = 2
LOOSE = 1e-3  # a rounding of an intermediate may fall the other way


def small() -> list[Case]:
    return [_fp8(37, 64, 96, F32, F32), _fp8(3, 96, 70, BF16, BF16), _fp8(1, 40, 33, BF16, F32),
            _linear(5, 64, 70, BF16, BF16, F32), _linear(5, 30, 9, F32, BF16, F32), _linear(2, 8, 96, F32, F32, BF16),
            _grouped(4, 2, 64, 40, BF16), _grouped(3, 3, 32, 64, F32), *_streams(4, 40), *_streams(2, 64),
            _mix(4, 64, F32), _mix(4, 100, BF16), _mix(2, 33, F32),
            *_gate(8, 2, 64, F32), *_gate(40, 6, 96, BF16), *_gate(16, 3, 64, F32, zeros=True),
            *(_experts(6, 8, 2, 64, 32, dtype, quantize) for dtype in (F32, BF16) for quantize in (False, True)),
            *_activations(96)]


def real() -> list[Case]:
    return [_fp8(5, 5120, 1280, BF16, BF16), _fp8(33, 1280, 4096, BF16, BF16), _fp8(3, 8192, 5120, F32, F32),
            _linear(3, 5120, 512, BF16, BF16, F32), _grouped(3, 8, 4096, 1024, BF16), *_streams(4, 5120),
            _mix(4, 5120, BF16), _mix(4, 5120, F32), *_gate(384, 6, 5120, BF16), *_gate(128, 3, 5120, BF16),
            *(_experts(5, 8, 6, 5120, 2304, dtype, quantize) for dtype, quantize in ((F32, False), (BF16, True)))]


def _fp8(rows: int, width: int, outputs: int, x: torch.dtype, out: torch.dtype) -> Case:
    scale = e8m0(2, 118, 124, -(-outputs // 32), -(-width // 32))
    args = (normal(1, rows, width, dtype=x), e4m3(3, outputs, width), scale, out)
    return Case("linear", f"e4m3 {rows}x{width}x{outputs} {x}", args, ("x",))


def _linear(rows: int, width: int, outputs: int, x: torch.dtype, weight: torch.dtype, out: torch.dtype) -> Case:
    args = (normal(1, rows, width, dtype=x), normal(2, outputs, width, dtype=weight), None, out)
    return Case("linear", f"{weight} {rows}x{width}x{outputs} {x}", args, ("x",))


def _grouped(rows: int, groups: int, width: int, outputs: int, dtype: torch.dtype) -> Case:
    scale = e8m0(2, 118, 124, -(-groups * outputs // 32), width // 32)
    args = (normal(1, rows, groups, width, dtype=dtype), e4m3(3, groups * outputs, width), scale, groups, dtype)
    return Case("grouped_linear", f"{rows}x{groups}x{width}x{outputs} {dtype}", args, ("x",))


def _streams(streams: int, width: int) -> list[Case]:
    cases = []
    for dtype in (F32, BF16):
        trunk, name = normal(1, 5, streams, width, dtype=dtype), f"{streams}x{width} {dtype}"
        post = (normal(3, 5, width, dtype=dtype), trunk, normal(4, 5, streams), normal(5, 5, streams, streams))
        cases += [Case("mhc_collapse", name, (trunk, normal(2, 5, streams)), ("streams", "alpha"), True),
                  Case("stream_mean", name, (trunk,), ("streams",), True),
                  Case("mhc_post", name, post, ("y", "streams", "beta", "gamma"), True)]
    return cases


def _mix(streams: int, width: int, dtype: torch.dtype) -> Case:
    outputs, inner = streams * (streams + 2), streams * width
    args = (normal(1, 3, streams, width, dtype=dtype), normal(2, outputs, inner) / inner**0.5, normal(3, 3).mul(0.3),
            normal(4, outputs).mul(0.5), 20, 1e-20, 1e-6)
    return Case("mhc_mix", f"{streams}x{width} {dtype}", args, ("streams",))


def _gate(experts: int, topk: int, width: int, dtype: torch.dtype, zeros: bool = False) -> list[Case]:
    """With zeros, every score is equal and the biases alone decide: half of them are equal too."""
    rows = row_table((0, 3, 2), (NUM_SLOTS, 0, 0), (1, 0, 3), flags=(0, IMAGE))
    x = torch.zeros(len(rows), width) if zeros else normal(1, len(rows), width, dtype=dtype)
    bias = integers(3, 0, 3, experts).float() if zeros else normal(3, experts).mul(0.1)
    weight, route = normal(2, experts, width, dtype=BF16) / width**0.5, (bias, bias.flip(0), rows, topk, 1.5)
    name = f"{experts} top {topk} {dtype}{' ties' if zeros else ''}"
    scores = x.float() @ weight.float().T
    return [Case("mega_gate", name, (nan_pads(x, rows), weight, *route), ("x", "rows")),
            Case("moe_route", name, (nan_pads(scores, rows), *route), ("scores", "rows"))]


def _fp4(seed: int, experts: int, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    codes = integers(seed, -128, 128, experts, rows, columns // 2, dtype=torch.int8)
    return codes, e8m0(seed + 10, 119, 123, experts, rows, columns // 32)


def _experts(rows: int, experts: int, topk: int, width: int, inner: int, dtype: torch.dtype, quantize: bool) -> Case:
    x = quantize_fp8(normal(1, rows, width)).mul(0.25).to(dtype)
    generator = torch.Generator().manual_seed(2)
    expert = torch.stack([torch.randperm(experts, generator=generator)[:topk] for _ in range(rows)]).int()
    expert[1, 0] = -1
    weights = (*_fp4(4, experts, inner, width), *_fp4(5, experts, inner, width), *_fp4(6, experts, width, inner))
    args = (x, expert, normal(3, rows, topk).abs(), *weights, 10.0, quantize)
    rounds = quantize or dtype == BF16
    return Case("moe_experts", f"{experts} top {topk} {width}x{inner} {dtype}{' Q8' if quantize else ''}", args,
                ("x", "expert", "weight"), bound=LOOSE if rounds else 2e-6)


def _activations(width: int) -> list[Case]:
    gate, up = normal(1, 4, width).mul(8), normal(2, 4, width).mul(8)
    return [Case("swiglu", f"{dtype}", (gate, up, 10.0, dtype), ("gate", "up")) for dtype in (F32, BF16)] + [
            Case("combine_experts", f"{dtype}", (gate, up.to(shared), dtype), ("routed", "shared"), True)
            for dtype, shared in ((F32, F32), (BF16, F32), (BF16, BF16))]
