"""Fake quantizers: round to the stored grid and back, in float32. Scales come from bits, not logarithms."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.spec import CaptureClass, OpSpec, PadRule

_EXPONENT = 0x7F800000
_MANTISSA = 0x007FFFFF
_SIGN = -0x80000000
E4M3_MAX = 448.0
E2M1_MAX = 6.0
# (1.5 * 2**23) / 2: adding and subtracting it times the value's power of two leaves one mantissa bit.
_ONE_BIT = 6291456.0


def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _groups(x: Tensor, size: int) -> Tensor:
    return x.to(torch.float32).view(*x.shape[:-1], x.shape[-1] // size, size)


def power_of_two_at_least(x: Tensor) -> Tensor:
    """2**ceil(log2(x)) of positive normal float32: one exponent up if any mantissa bit is set."""
    return x.view(torch.int32).add(_MANTISSA).bitwise_and(_EXPONENT).view(torch.float32)


def round_e2m1(magnitude: Tensor) -> Tensor:
    """Nearest of 0 .5 1 1.5 2 3 4 6, ties to the even code, for magnitudes >= 0."""
    step = magnitude.view(torch.int32).bitwise_and(_EXPONENT).view(torch.float32).clamp_min(1.0).mul(_ONE_BIT)
    return magnitude.add(step).sub(step)


def _with_sign(magnitude: Tensor, x: Tensor) -> Tensor:
    """Small negative values become -0, as a stored sign bit gives."""
    sign = x.view(torch.int32).bitwise_and(_SIGN)
    return magnitude.view(torch.int32).bitwise_or(sign).view(torch.float32)


def quantize_fp8(x: Tensor) -> Tensor:
    """Groups of 32, power-of-two scale of max(amax, 1e-4)/448, e4m3 values."""
    groups = _groups(x, 32)
    largest = groups.abs().amax(-1, keepdim=True).clamp_min(1e-4)
    scale = power_of_two_at_least(largest.div(E4M3_MAX))
    # The scale is at least amax/448, so no quotient leaves the range and no clip is needed.
    value = groups.div(scale).to(torch.float8_e4m3fn).to(torch.float32)
    return value.mul(scale).view(x.shape).to(x.dtype)


def quantize_fp4_index(x: Tensor) -> Tensor:
    """Groups of 32, power-of-two scale of max(amax, 6*2**-126)/6, e2m1 values."""
    groups = _groups(x, 32)
    magnitude = groups.abs()
    largest = magnitude.amax(-1, keepdim=True).clamp_min(E2M1_MAX * 2.0**-126)
    scale = power_of_two_at_least(largest.div(E2M1_MAX))
    value = round_e2m1(magnitude.div(scale)).mul(scale)
    return _with_sign(value, groups).view(x.shape).to(x.dtype)


def quantize_fp4_kv(x: Tensor) -> Tensor:
    """Groups of 16, an e4m3 scale of clip(amax/6, 2**-9, 448), e2m1 values."""
    groups = _groups(x, 16)
    magnitude = groups.abs()
    scale = magnitude.amax(-1, keepdim=True).div(E2M1_MAX).clamp(2.0**-9, E4M3_MAX)
    scale = scale.to(torch.float8_e4m3fn).to(torch.float32)
    # A scale rounded down leaves quotients above 6: they saturate.
    value = round_e2m1(magnitude.div(scale).clamp_max(E2M1_MAX)).mul(scale)
    return _with_sign(value, groups).view(x.shape).to(x.dtype)


SPECS: tuple[OpSpec, ...] = tuple(
    OpSpec(
        name=reference.__name__,
        schema="(Tensor x) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_like, reference=reference,
    )
    for reference in (quantize_fp8, quantize_fp4_index, quantize_fp4_kv)
)
