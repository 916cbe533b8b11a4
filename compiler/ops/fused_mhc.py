"""Fused ops of the mHC sites."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule


def _mhc_site(ops: Any, y: Tensor, streams: Tensor, beta: Tensor, gamma: Tensor, alpha: Tensor, norm: Tensor,
              fn: Tensor, scale: Tensor, base: Tensor, iters: int, eps: float, hc_eps: float,
              cast: bool) -> list[Tensor]:
    """H6 of the site before, then H1, H2 and the cast beside H3 to H5: [R', alpha', beta', gamma', x, x cast]."""
    trunk = ops.mhc_post(y, streams, beta, gamma)
    x = ops.rms_norm(ops.mhc_collapse(trunk, alpha), norm, eps)
    mixed = ops.mhc_mix(trunk, fn, scale, base, iters, eps, hc_eps)
    return [trunk, *mixed, x, *([ops.quantize_fp8(x)] if cast else [])]


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="mhc_site",
        schema="(Tensor y, Tensor streams, Tensor beta, Tensor gamma, Tensor alpha, Tensor norm, Tensor fn, "
               "Tensor scale, Tensor base, int iters, float eps, float hc_eps, bool cast) -> Tensor[]",
        pads=PadRule.ROW, composition=_mhc_site,
    ),
)
