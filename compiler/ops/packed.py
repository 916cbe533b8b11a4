"""Packed rows of state (uint8): codes, then scales, of numbers that a quantizer has left on its grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dsv41c.compiler.ops.quantize import E2M1_MAX, E4M3_MAX, power_of_two_at_least, round_e2m1

DTYPE = torch.uint8
_E4M3_LEAST = 2.0**-9
_E4M3_NAN, _E8M0_NAN = 0x7F, 0xFF
_E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


@dataclass(frozen=True)
class Format:
    """`pack`: float [..., width] to uint8 [..., row_bytes(width)]; `unpack` back to float32. What the quantizer of the
    same name gives comes back as it was; a group with a NaN comes back as NaN."""

    name: str
    group: int  # elements that share one scale
    code_bits: int
    pack: Callable[[Tensor], Tensor]
    unpack: Callable[[Tensor, int], Tensor]

    def row_bytes(self, width: int) -> int:
        return width * self.code_bits // 8 + width // self.group


def _grouped(x: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Groups in float32, the largest magnitude of each, and which hold a NaN; those count as zeros."""
    groups = x.to(torch.float32).view(*x.shape[:-1], x.shape[-1] // size, size)
    bad = groups.isnan().any(-1, keepdim=True)
    groups = torch.where(bad, 0.0, groups)
    return groups, groups.abs().amax(-1, keepdim=True), bad


def _row(codes: Tensor, scales: Tensor) -> Tensor:
    return torch.cat((codes.flatten(-2), scales.flatten(-2)), -1)


def _exponent(scale: Tensor, bad: Tensor) -> Tensor:
    """ue8m0 codes of powers of two."""
    return torch.where(bad, _E8M0_NAN, scale.view(torch.int32).bitwise_right_shift(23)).to(DTYPE)


def _power(code: Tensor) -> Tensor:
    """float32 of ue8m0 codes; 255 is NaN."""
    return code.contiguous().view(torch.float8_e8m0fnu).to(torch.float32)


def _nibbles(value: Tensor, sign: Tensor) -> Tensor:
    """Two e2m1 codes a byte, the lower column in the low half. `value`: magnitudes on the grid."""
    code = torch.bucketize(value, _E2M1.to(value.device)).to(DTYPE) | (torch.signbit(sign).to(DTYPE) << 3)
    return code[..., 0::2] | (code[..., 1::2] << 4)


def _from_nibbles(codes: Tensor) -> Tensor:
    both = torch.stack((codes & 15, codes >> 4), -1).flatten(-2).long()
    return torch.cat((_E2M1, -_E2M1)).to(codes.device)[both]


def _magnitudes(groups: Tensor, scale: Tensor) -> Tensor:
    """Nearest e2m1 values, ties to the even code; above 6 saturates."""
    return round_e2m1(groups.abs().div(scale).clamp_max(E2M1_MAX))


def _pack_fp8(x: Tensor) -> Tensor:
    groups, largest, bad = _grouped(x, 32)
    scale = power_of_two_at_least(largest.clamp_min(1e-4).div(E4M3_MAX))
    return _row(groups.div(scale).to(torch.float8_e4m3fn).view(DTYPE), _exponent(scale, bad))


def _unpack_fp8(row: Tensor, width: int) -> Tensor:
    codes = row[..., :width].contiguous().view(torch.float8_e4m3fn).to(torch.float32)
    return codes * _power(row[..., width:]).repeat_interleave(32, -1)


def _pack_fp4_index(x: Tensor) -> Tensor:
    groups, largest, bad = _grouped(x, 32)
    scale = power_of_two_at_least(largest.clamp_min(E2M1_MAX * 2.0**-126).div(E2M1_MAX))
    return _row(_nibbles(_magnitudes(groups, scale), groups), _exponent(scale, bad))


def _unpack_fp4_index(row: Tensor, width: int) -> Tensor:
    return _from_nibbles(row[..., : width // 2]) * _power(row[..., width // 2 :]).repeat_interleave(32, -1)


def _pack_fp4_kv(x: Tensor) -> Tensor:
    """The scale that makes the largest value 6 or, where some value is not on that grid, 4: e4m3 steps so coarsely
    below 2**-6 that the quantizer may have rounded the largest value down to 4."""
    groups, largest, bad = _grouped(x, 16)
    scale = _e4m3_scale(largest.div(E2M1_MAX))
    on_grid = (_magnitudes(groups, scale) * scale == groups.abs()).all(-1, keepdim=True)
    scale = torch.where(on_grid, scale, _e4m3_scale(largest.div(4.0)))
    codes = _nibbles(_magnitudes(groups, scale), groups)
    return _row(codes, torch.where(bad, _E4M3_NAN, scale.to(torch.float8_e4m3fn).view(DTYPE)))


def _e4m3_scale(wanted: Tensor) -> Tensor:
    return wanted.clamp(_E4M3_LEAST, E4M3_MAX).to(torch.float8_e4m3fn).to(torch.float32)


def _unpack_fp4_kv(row: Tensor, width: int) -> Tensor:
    scales = row[..., width // 2 :].contiguous().view(torch.float8_e4m3fn).to(torch.float32)
    return _from_nibbles(row[..., : width // 2]) * scales.repeat_interleave(16, -1)


FP8 = Format("fp8", 32, 8, _pack_fp8, _unpack_fp8)
FP4_KV = Format("fp4_kv", 16, 4, _pack_fp4_kv, _unpack_fp4_kv)
FP4_INDEX = Format("fp4_index", 32, 4, _pack_fp4_index, _unpack_fp4_index)
FORMATS = (FP8, FP4_KV, FP4_INDEX)


def format_of(row_bytes: int, width: int) -> Format:
    """The format whose rows of `width` numbers take so many bytes; ValueError when there is none."""
    for known in FORMATS:
        if width % 32 == 0 and known.row_bytes(width) == row_bytes:
            return known
    raise ValueError(f"no packed format holds {width} numbers in {row_bytes} bytes")


def stored(x: Tensor, state: Tensor) -> Tensor:
    """A row as `state` holds it."""
    return format_of(state.shape[-1], x.shape[-1]).pack(x) if state.dtype == DTYPE else x


def read(rows: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Rows of state [..., bytes] as numbers [..., width]; rows that are not packed as they are."""
    return format_of(rows.shape[-1], width).unpack(rows, width).to(dtype) if rows.dtype == DTYPE else rows
