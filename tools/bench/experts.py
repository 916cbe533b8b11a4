"""Time of the routed experts at demo's sizes when their number doubles and the work stays the same."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from dsv41c.compiler.checkpoint.presets import PRESETS
from dsv41c.compiler.ops.catalog import OPS


@dataclass(frozen=True)
class ExpertsResult:
    rows: int
    base_experts: int
    base_us: float
    doubled_us: float
    ratio: float


def bench_experts(rows: int, repeat: int) -> ExpertsResult:
    """moe_experts with E and 2E experts, the same rows x top-k; medians, the two sizes taking turns."""
    base = PRESETS["demo"]().n_routed_experts
    samples: dict[int, list[float]] = {base: [], 2 * base: []}
    arguments = {experts: _arguments(rows, experts) for experts in samples}
    moe_experts = torch.ops.dsv41c.moe_experts
    with torch.inference_mode():
        for _ in range(repeat + 1):
            for experts, times in samples.items():
                start = time.perf_counter()
                for _ in range(20):
                    moe_experts(*arguments[experts])
                times.append((time.perf_counter() - start) / 20 * 1e6)
    base_us, doubled_us = (statistics.median(times[1:]) for times in samples.values())
    return ExpertsResult(rows, base, base_us, doubled_us, doubled_us / base_us)


def _arguments(rows: int, experts: int) -> tuple[object, ...]:
    assert "moe_experts" in OPS
    config = PRESETS["demo"]()
    hidden, inner, topk = config.hidden_size, config.moe_intermediate_size, config.num_experts_per_tok
    draw = torch.Generator().manual_seed(experts)
    x = torch.randn(rows, hidden, generator=draw).to(torch.bfloat16)
    chosen = torch.rand(rows, experts, generator=draw).argsort(dim=1)[:, :topk].to(torch.int32)
    weight = torch.rand(rows, topk, generator=draw)
    tensors: list[torch.Tensor] = []
    for out, into in ((inner, hidden), (inner, hidden), (hidden, inner)):
        tensors.append(torch.randint(-128, 128, (experts, out, into // 2), generator=draw, dtype=torch.int8))
        scale = torch.full((experts, out, into // 32), 122, dtype=torch.uint8)
        tensors.append(scale.view(torch.float8_e8m0fnu))
    return x, chosen.contiguous(), weight, *tensors, config.swiglu_limit, True
