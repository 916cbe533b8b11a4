"""Fused ops of the mHC sites."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dsv41c.compiler.ops.constraints import four_streams, same_dtype, whole_groups
from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule


def _mhc_site(ops: Any, y: Tensor, streams: Tensor, beta: Tensor, gamma: Tensor, alpha: Tensor, norm: Tensor,
              fn: Tensor, scale: Tensor, base: Tensor, iters: int, eps: float, hc_eps: float,
              cast: bool) -> list[Tensor]:
    """H6 of the site before, then H1, H2 and the cast beside H3 to H5: [R', alpha', beta', gamma', x, x cast]."""
    trunk = ops.mhc_post(y, streams, beta, gamma)
    return [trunk, *_mhc_open(ops, trunk, alpha, norm, fn, scale, base, iters, eps, hc_eps, cast)]


def _mhc_open(ops: Any, streams: Tensor, alpha: Tensor, norm: Tensor, fn: Tensor, scale: Tensor, base: Tensor,
              iters: int, eps: float, hc_eps: float, cast: bool) -> list[Tensor]:
    """H1, H2 and the cast beside H3 to H5 of streams that another call made: [alpha', beta', gamma', x, x cast]."""
    x = ops.rms_norm(ops.mhc_collapse(streams, alpha), norm, eps)
    mixed = ops.mhc_mix(streams, fn, scale, base, iters, eps, hc_eps)
    return [*mixed, x, *([ops.quantize_fp8(x)] if cast else [])]


def _mhc_norm(ops: Any, streams: Tensor, alpha: Tensor, norm: Tensor, eps: float, cast: bool) -> Tensor:
    """H1 and H2 where nothing is mixed. With `cast` the normalised values themselves are not given back."""
    x = ops.rms_norm(ops.mhc_collapse(streams, alpha), norm, eps)
    return ops.quantize_fp8(x) if cast else x  # type: ignore[no-any-return]


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="mhc_site",
        schema="(Tensor y, Tensor streams, Tensor beta, Tensor gamma, Tensor alpha, Tensor norm, Tensor fn, "
               "Tensor scale, Tensor base, int iters, float eps, float hc_eps, bool cast) -> Tensor[]",
        pads=PadRule.ROW, composition=_mhc_site,
        constraints=(four_streams(1), same_dtype(0, 1, "y and streams"), whole_groups(1, 12)),
    ),
    fused_op(
        name="mhc_open",
        schema="(Tensor streams, Tensor alpha, Tensor norm, Tensor fn, Tensor scale, Tensor base, int iters, "
               "float eps, float hc_eps, bool cast) -> Tensor[]",
        pads=PadRule.ROW, composition=_mhc_open, constraints=(four_streams(0), whole_groups(0, 9)),
    ),
    fused_op(
        name="mhc_norm",
        schema="(Tensor streams, Tensor alpha, Tensor norm, float eps, bool cast) -> Tensor",
        pads=PadRule.ROW, composition=_mhc_norm, constraints=(four_streams(0), whole_groups(0, 4)),
    ),
)
