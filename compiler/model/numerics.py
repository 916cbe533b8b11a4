"""Numerics of one compiled model: the activation dtype and whether the explicit quantizers are in the program."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv41c.compiler.ops import catalog as _catalog  # noqa: F401  registers torch.ops.dsv41c

OPS = torch.ops.dsv41c


@dataclass(frozen=True)
class Numerics:
    """With `fake`, every cast of the checkpoint's semantics is an op of its own; with `off` there is none."""

    dtype: torch.dtype
    fake: bool

    def fp8(self, x: torch.Tensor) -> torch.Tensor:
        """Q8 of the model specification: groups of 32 along the last dim, ue8m0 scale."""
        return OPS.quantize_fp8(x) if self.fake else x

    def fp4_index(self, x: torch.Tensor) -> torch.Tensor:
        """Q4i: index queries and keys, groups of 32, ue8m0 scale."""
        return OPS.quantize_fp4_index(x) if self.fake else x

    def fp4_kv(self, x: torch.Tensor) -> torch.Tensor:
        """Q4k: compressed KV, groups of 16, e4m3 scale."""
        return OPS.quantize_fp4_kv(x) if self.fake else x

    def linear(self, x: torch.Tensor, weight: tuple[torch.Tensor, torch.Tensor],
               dtype: torch.dtype | None = None) -> torch.Tensor:
        """Product with a checkpoint FP8 weight `[out, in]`; x is already cast by `fp8`."""
        return OPS.linear(x, weight[0], weight[1], dtype or self.dtype)
