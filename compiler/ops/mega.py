"""Ops that a plan for a GPU launches in place of several: each reference is the composition that the op replaces."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.dense import SPECS as DENSE
from dsv41c.compiler.ops.hyper_connection import SPECS as HYPER_CONNECTION
from dsv41c.compiler.ops.quantize import E4M3_MAX, power_of_two_at_least
from dsv41c.compiler.ops.rows import read_rows
from dsv41c.compiler.ops.spec import CaptureClass, OpSpec, PadRule

GROUP = 32  # elements that share one scale
STREAMS = 4
MIX = STREAMS * (STREAMS + 2)  # mix rows of a site: alpha, beta, gamma
COLUMNS = 64  # of one block of arranged mix weights
_PARTS = {spec.name: spec.reference for spec in (*DENSE, *HYPER_CONNECTION)}

Row = tuple[Tensor, Tensor, Tensor]


def mxfp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """The e4m3 codes and ue8m0 scales of the last dimension's groups: `quantize_fp8` before it multiplies back."""
    groups = x.to(torch.float32).view(*x.shape[:-1], x.shape[-1] // GROUP, GROUP)
    scale = power_of_two_at_least(groups.abs().amax(-1, keepdim=True).clamp_min(1e-4).div(E4M3_MAX))
    codes = groups.div(scale).to(torch.float8_e4m3fn).view(x.shape)
    exponent = scale.squeeze(-1).view(torch.int32).bitwise_right_shift(23).to(torch.uint8)
    return codes, exponent.view(torch.float8_e8m0fnu)


def arrange_mix(fn: Tensor) -> Tensor:
    """Mix weights f32 [24, 4 * hidden] as bf16 [hidden / 64, 48, 256]: 24 rows of high parts, then 24 of low parts.

    A block holds 64 columns of each stream. High and low part keep 16 bits of the mantissa, which is finer than a TF32
    product, and R' is bf16, so the products are exact in float32.
    """
    hidden = fn.shape[1] // STREAMS
    blocks = fn.view(MIX, STREAMS, hidden // COLUMNS, COLUMNS).permute(2, 0, 1, 3).reshape(-1, MIX, STREAMS * COLUMNS)
    high = blocks.to(torch.bfloat16)
    low = (blocks - high.to(torch.float32)).to(torch.bfloat16)
    return torch.cat((high, low), 1).contiguous()


def restore_mix(arranged: Tensor) -> Tensor:
    """The float32 weights [24, 4 * hidden] that arranged ones stand for."""
    blocks = arranged.shape[0]
    wide = arranged.to(torch.float32)
    total = (wide[:, :MIX] + wide[:, MIX:]).view(blocks, MIX, STREAMS, COLUMNS)
    return total.permute(1, 2, 0, 3).reshape(MIX, STREAMS * blocks * COLUMNS)


def _mxfp8_fake(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x.new_empty(x.shape, dtype=torch.float8_e4m3fn),
            x.new_empty((*x.shape[:-1], x.shape[-1] // GROUP), dtype=torch.float8_e8m0fnu))


def _rmsnorm_mxfp8_fake(x: Tensor, weight: Tensor, eps: float) -> Row:
    return (x.new_empty(x.shape), *_mxfp8_fake(x))


def _rmsnorm_mxfp8(x: Tensor, weight: Tensor, eps: float) -> Row:
    y = _PARTS["rms_norm"](x, weight, eps)
    return (y, *mxfp8(y))


def _mega_mhc_fake(
    y: Tensor, streams: Tensor, alpha: Tensor, beta: Tensor, gamma: Tensor, fn: Tensor, scale: Tensor, base: Tensor,
    weight: Tensor, iterations: int, rms_eps: float, hc_eps: float,
) -> tuple[Tensor, ...]:
    mixes = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (streams, alpha, beta, gamma))
    return (*mixes, y.new_empty(y.shape), *_mxfp8_fake(y))


def _mega_mhc(
    y: Tensor, streams: Tensor, alpha: Tensor, beta: Tensor, gamma: Tensor, fn: Tensor, scale: Tensor, base: Tensor,
    weight: Tensor, iterations: int, rms_eps: float, hc_eps: float,
) -> tuple[Tensor, ...]:
    after = _PARTS["mhc_post"](y, streams, beta, gamma)
    collapsed = _PARTS["mhc_collapse"](after, alpha)  # alpha comes from the previous site
    mixes = _PARTS["mhc_mix"](after, restore_mix(fn), scale, base, iterations, rms_eps, hc_eps)
    return (after, *mixes, *_rmsnorm_mxfp8(collapsed, weight, rms_eps))


def _norm_rope_store_fake(kv: Tensor, weight: Tensor, rows: Tensor, table: Tensor, ring: Tensor, eps: float) -> None:
    return None


def _norm_rope_store(kv: Tensor, weight: Tensor, rows: Tensor, table: Tensor, ring: Tensor, eps: float) -> None:
    key = _PARTS["rotary"](_PARTS["rms_norm"](kv, weight, eps), rows, table, 1, False)
    codes, scales = mxfp8(key)
    entries = torch.cat((codes.view(torch.uint8), scales.view(torch.uint8)), -1)
    size = ring.shape[1]
    for i, row in enumerate(read_rows(rows)):
        if not row.pad and row.among_last(size, i):
            ring[row.slot, row.position % size] = entries[i]


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="mega_mhc",
        schema="(Tensor y, Tensor streams, Tensor alpha, Tensor beta, Tensor gamma, Tensor fn, Tensor scale, "
               "Tensor base, Tensor weight, int iterations, float rms_eps, float hc_eps) "
               "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_mega_mhc_fake, reference=_mega_mhc,
    ),
    OpSpec(
        name="rmsnorm_mxfp8",
        schema="(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor, Tensor)",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_rmsnorm_mxfp8_fake, reference=_rmsnorm_mxfp8,
    ),
    OpSpec(
        name="norm_rope_store",
        schema="(Tensor kv, Tensor weight, Tensor rows, Tensor table, Tensor(a!) ring, float eps) -> ()",
        capture=CaptureClass.CAPTURE, pads=PadRule.SKIP, tie_order=None,
        fake=_norm_rope_store_fake, reference=_norm_rope_store,
    ),
)
