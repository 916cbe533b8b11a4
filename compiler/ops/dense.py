"""Ops that treat each row alone: embedding, norm, linear layers, rotary, the sum of expert outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule

POSITION, TOKEN = 1, 5  # columns of the row table
LANES = 16  # the native kernels sum over K in this many lanes
PANEL = 4  # weight rows that the native kernels expand together
BLOCK = 32  # rows and columns of a weight that share one scale


def padded(size: int) -> int:
    """`size` rounded up to whole lanes, as the native kernels lay float32 rows out in scratch."""
    return (size + LANES - 1) // LANES * LANES


def _embed_expand_fake(
    rows: Tensor, weight: Tensor, streams: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    count = rows.shape[0]
    return (weight.new_empty((count, streams, weight.shape[1]), dtype=dtype),
            weight.new_empty((count, streams), dtype=torch.float32))


def _embed_expand(rows: Tensor, weight: Tensor, streams: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    token = rows.select(1, TOKEN)
    inside = token.clamp(0, weight.shape[0] - 1)
    vector = weight.index_select(0, inside).to(dtype)
    zero = torch.zeros((1,), dtype=dtype, device=weight.device)
    vector = torch.where((inside == token).unsqueeze(1), vector, zero)  # ids outside the table give zeros
    shape = (rows.shape[0], streams, weight.shape[1])
    expanded = torch.empty(shape, dtype=dtype, device=weight.device)
    expanded.copy_(vector.unsqueeze(1))
    alpha = torch.zeros(shape[:2], dtype=torch.float32, device=weight.device)
    alpha.select(1, 0).copy_(torch.full((1,), 1.0, dtype=torch.float32, device=weight.device))
    return expanded, alpha


def _like_first(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.to(torch.float32)
    scale = (wide * wide).mean(-1, keepdim=True).add(eps).rsqrt()
    return (wide * scale * weight.to(torch.float32)).to(x.dtype)


def expand_weight(weight: Tensor, scale: Tensor | None) -> Tensor:
    """The stored weight as float32; each scale covers a block of 32x32."""
    wide = weight.to(torch.float32)
    if scale is None:
        return wide
    rows, columns = weight.shape
    blocks = scale.to(torch.float32).repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return wide * blocks[:rows, :columns]


def _linear_fake(x: Tensor, weight: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]), dtype=dtype)


def _linear(x: Tensor, weight: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
    return (x.to(torch.float32) @ expand_weight(weight, scale).T).to(dtype)


def _linear_scratch(x: Tensor, weight: Tensor, *_: object) -> int:
    return 4 * padded(weight.shape[1]) * (x.shape[0] + PANEL)


def _grouped_linear_fake(x: Tensor, weight: Tensor, scale: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]), dtype=dtype)


def _grouped_linear(x: Tensor, weight: Tensor, scale: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    wide = expand_weight(weight, scale).view(groups, -1, weight.shape[1])
    return torch.einsum("tgk,gnk->tgn", x.to(torch.float32), wide).reshape(x.shape[0], -1).to(dtype)


def _rotary(x: Tensor, rows: Tensor, table: Tensor, ratio: int, inverse: bool) -> Tensor:
    if ratio & (ratio - 1) or ratio < 1:
        raise ValueError(f"ratio {ratio} is no power of two")
    position = rows.select(1, POSITION).bitwise_and(-ratio)  # first position of the row's group
    angle = table.index_select(0, position)
    if x.dim() == 3:
        angle = angle.unsqueeze(1)
    cos, sin = angle.select(-1, 0).unsqueeze(-1), angle.select(-1, 1).unsqueeze(-1)
    kept, turned = x.shape[-1] - 2 * table.shape[1], 2 * table.shape[1]
    pairs = x.narrow(-1, kept, turned).to(torch.float32).view(*x.shape[:-1], table.shape[1], 2)
    by_cos, by_sin = pairs * cos, pairs * sin
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out.narrow(-1, 0, kept).copy_(x.narrow(-1, 0, kept))
    target = out.narrow(-1, kept, turned).view(*x.shape[:-1], table.shape[1], 2)
    real, imaginary = by_sin.select(-1, 1), by_sin.select(-1, 0)
    if inverse:
        target.select(-1, 0).copy_(by_cos.select(-1, 0) + real)
        target.select(-1, 1).copy_(by_cos.select(-1, 1) - imaginary)
    else:
        target.select(-1, 0).copy_(by_cos.select(-1, 0) - real)
        target.select(-1, 1).copy_(by_cos.select(-1, 1) + imaginary)
    return out


def _combine_experts_fake(routed: Tensor, shared: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty_like(routed, dtype=dtype)


def _combine_experts(routed: Tensor, shared: Tensor, dtype: torch.dtype) -> Tensor:
    return (routed + shared.to(torch.float32)).to(dtype)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="embed_expand",
        schema="(Tensor rows, Tensor weight, int streams, ScalarType dtype) -> (Tensor, Tensor)",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_embed_expand_fake, reference=_embed_expand,
    ),
    OpSpec(
        name="rms_norm",
        schema="(Tensor x, Tensor weight, float eps) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_like_first, reference=_rms_norm,
    ),
    OpSpec(
        name="linear",
        schema="(Tensor x, Tensor weight, Tensor? scale, ScalarType dtype) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_linear_fake, reference=_linear, native=NativeBody("linear", _linear_scratch),
    ),
    OpSpec(
        name="grouped_linear",
        schema="(Tensor x, Tensor weight, Tensor scale, int groups, ScalarType dtype) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_grouped_linear_fake, reference=_grouped_linear,
        native=NativeBody("grouped_linear", _linear_scratch),
    ),
    OpSpec(
        name="rotary",
        schema="(Tensor x, Tensor rows, Tensor table, int ratio, bool inverse) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_like_first, reference=_rotary,
    ),
    OpSpec(
        name="combine_experts",
        schema="(Tensor routed, Tensor shared, ScalarType dtype) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_combine_experts_fake, reference=_combine_experts,
    ),
)
