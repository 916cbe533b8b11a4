"""raise_rms_norm: x * rsqrt(mean(x * x) + eps) * w in float32, or torch's rms_norm, becomes the op.

Bits may differ: torch orders the sum of the mean by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dsv41c.passes.engine.raising import Raising
from dsv41c.passes.engine.spelling import Spelling
from dsv41c.passes.raise_ops.examples import FLOATS, rows, weight


def _examples() -> Iterator[tuple[Any, ...]]:
    for dtype in FLOATS:
        for weight_dtype in FLOATS:
            for sizes in ((37,), (5, 37)):
                yield rows(*sizes, dtype=dtype), weight(37, dtype=weight_dtype), 0.0173


def _by_hand(x: Tensor, w: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


def _root(x: Tensor, w: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


def _functional(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], w, eps)


def _functional_wide(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x.float(), x.shape[-1:], w.float(), eps).to(x.dtype)


@dataclass(frozen=True)
class RaiseRmsNorm(Raising):
    """RMS norm by hand or by torch.nn.functional."""

    name = "raise_rms_norm"
    op = "rms_norm"
    shapes = {"x": "... H", "weight": "H"}
    spellings = (*(Spelling(f, "aten.rsqrt.default", _examples) for f in (_by_hand, _functional, _functional_wide)),
                 Spelling(_root, "aten.sqrt.default", _examples))
