"""raise_quantize_*: rounding of groups to FP8 or FP4 and back, with scales from logarithms or from bits.

Bits differ from the spelling by logarithms only where a quotient of a group's largest value lies within the rounding of
log2 at a power of two. The spellings end before the groups are flattened again. Saturation of the FP8
quotient may be there: no quotient leaves the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsv41c.passes.engine.raising import Raising
from dsv41c.passes.engine.spelling import Spelling
from dsv41c.passes.raise_ops.examples import FLOATS, FP8, rows

_EXPONENT, _MANTISSA, _SIGN = 0x7F800000, 0x007FFFFF, -0x80000000
_ONE_BIT = 6291456.0
Scale = Callable[[Tensor], Tensor]


def _examples() -> Iterator[tuple[Any, ...]]:
    for dtype in FLOATS:
        for sizes in ((96,), (5, 96)):
            yield (rows(*sizes, dtype=dtype),)


def _by_log(x: Tensor) -> Tensor:
    return torch.exp2(torch.ceil(torch.log2(x)))


def _by_power(x: Tensor) -> Tensor:
    return torch.pow(2.0, torch.log2(x).ceil())


def _by_bits(x: Tensor) -> Tensor:
    return ((x.view(torch.int32) + _MANTISSA) & _EXPONENT).view(torch.float32)


def _e2m1_by_log(magnitude: Tensor) -> Tensor:
    step = torch.exp2(torch.floor(torch.log2(magnitude.clamp(min=1.0)))) * 0.5
    return torch.round(magnitude / step) * step


def _e2m1_by_bits(magnitude: Tensor) -> Tensor:
    step = (magnitude.view(torch.int32) & _EXPONENT).view(torch.float32).clamp(min=1.0) * _ONE_BIT
    return magnitude + step - step


def _sign_by_copy(value: Tensor, x: Tensor) -> Tensor:
    return torch.copysign(value, x)


def _sign_by_bits(value: Tensor, x: Tensor) -> Tensor:
    return (value.view(torch.int32) | (x.view(torch.int32) & _SIGN)).view(torch.float32)


def _fp8(scale_of: Scale, saturates: bool) -> Callable[[Tensor], Tensor]:
    def spelled(x: Tensor) -> Tensor:
        groups = x.float().view(*x.shape[:-1], -1, 32)
        scale = scale_of(groups.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0)
        value = groups / scale
        value = value.clamp(-448.0, 448.0) if saturates else value
        return (value.to(FP8).float() * scale).to(x.dtype)

    return spelled


def _fp4_index(scale_of: Scale, rounded: Scale, signed: Callable[..., Tensor],
               saturates: bool) -> Callable[[Tensor], Tensor]:
    def spelled(x: Tensor) -> Tensor:
        groups = x.float().view(*x.shape[:-1], -1, 32)
        magnitude = groups.abs()
        scale = scale_of(magnitude.amax(-1, keepdim=True).clamp(min=6.0 * 2.0**-126) / 6.0)
        value = magnitude / scale
        value = value.clamp(max=6.0) if saturates else value
        return signed(rounded(value) * scale, groups).to(x.dtype)

    return spelled


def _fp4_kv(rounded: Scale, signed: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    def spelled(x: Tensor) -> Tensor:
        groups = x.float().view(*x.shape[:-1], -1, 16)
        magnitude = groups.abs()
        scale = (magnitude.amax(-1, keepdim=True) / 6.0).clamp(2.0**-9, 448.0).to(FP8).float()
        return signed(rounded((magnitude / scale).clamp(max=6.0)) * scale, groups).to(x.dtype)

    return spelled


def _spelling(function: Callable[[Tensor], Tensor]) -> Spelling:
    return Spelling(function, "aten.amax.default", _examples)


_ROUNDINGS = ((_e2m1_by_log, _sign_by_copy), (_e2m1_by_bits, _sign_by_bits))


@dataclass(frozen=True)
class RaiseQuantizeFp8(Raising):
    """FP8 rounding of groups of 32 under a power-of-two scale."""

    name = "raise_quantize_fp8"
    op = "quantize_fp8"
    regrouped = "x"
    spellings = tuple(_spelling(_fp8(scale, saturates)) for scale in (_by_log, _by_power, _by_bits)
                      for saturates in (True, False))


@dataclass(frozen=True)
class RaiseQuantizeFp4Index(Raising):
    """FP4 rounding of groups of 32 under a power-of-two scale."""

    name = "raise_quantize_fp4_index"
    op = "quantize_fp4_index"
    regrouped = "x"
    spellings = tuple(_spelling(_fp4_index(scale, *rounding, saturates)) for scale, rounding in (
        (_by_log, _ROUNDINGS[0]), (_by_power, _ROUNDINGS[0]), (_by_bits, _ROUNDINGS[1])) for saturates in (True, False))


@dataclass(frozen=True)
class RaiseQuantizeFp4Kv(Raising):
    """FP4 rounding of groups of 16 under an FP8 scale."""

    name = "raise_quantize_fp4_kv"
    op = "quantize_fp4_kv"
    regrouped = "x"
    spellings = tuple(_spelling(_fp4_kv(*rounding)) for rounding in _ROUNDINGS)
