"""raise_moe_route, raise_swiglu, raise_combine_experts: the parts of a mixture of experts that have an ATen spelling.

Bits may differ: the op multiplies the routed scale before it divides, and sums scores in lanes. Among equal keys torch
promises no order, the op takes the lower expert; keys that are no numbers come last in the op. The gate's product is
`linear`, a pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dsv41c.passes.engine.raising import Raising
from dsv41c.passes.engine.spelling import Spelling
from dsv41c.passes.raise_ops.examples import FLOATS, rows, weight

_FLAGS, _IMAGE = 7, 2


def _route_examples() -> Iterator[tuple[Any, ...]]:
    yield rows(53), weight(53), weight(53), rows(8, dtype=torch.int32), 11, 1.7391


def _swiglu_examples() -> Iterator[tuple[Any, ...]]:
    for dtype in FLOATS:
        yield rows(37), rows(37), 7.3917, dtype


def _combine_examples() -> Iterator[tuple[Any, ...]]:
    for shared in FLOATS:
        for dtype in FLOATS:
            yield rows(37), rows(37, dtype=shared), dtype


def _route(by_sort: bool, after: bool) -> Callable[..., Any]:
    def spelled(scores: Tensor, bias: Tensor, bias_vl: Tensor, table_rows: Tensor, topk: int,
                scale: float) -> tuple[Tensor, Tensor]:
        score = F.softplus(scores).sqrt()
        image = (table_rows[:, _FLAGS] & _IMAGE) != 0
        key = score + torch.where(image.unsqueeze(1), bias_vl, bias)
        if by_sort:
            expert = key.sort(dim=-1, descending=True, stable=True).indices[:, :topk]
        else:
            expert = key.topk(topk, -1).indices
        chosen = score.gather(1, expert)
        if after:
            return expert.to(torch.int32), chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * scale
        return expert.to(torch.int32), chosen * scale / (chosen.sum(-1, keepdim=True) + 1e-20)

    return spelled


def _swiglu(gate: Tensor, up: Tensor, limit: float, dtype: torch.dtype) -> Tensor:
    return (F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)).to(dtype)


def _combine(routed: Tensor, shared: Tensor, dtype: torch.dtype) -> Tensor:
    return (routed + shared.float()).to(dtype)


@dataclass(frozen=True)
class RaiseMoeRoute(Raising):
    """Scores by softplus and root, keys with a bias by the row's kind, the best experts and their weights."""

    name = "raise_moe_route"
    op = "moe_route"
    shapes = {"scores": "T E", "bias": "E", "bias_vl": "E", "rows": "T C"}
    spellings = tuple(Spelling(_route(by_sort, after), "aten.gather.default", _route_examples)
                      for by_sort in (False, True) for after in (True, False))


@dataclass(frozen=True)
class RaiseSwiglu(Raising):
    """SwiGLU of clamped gate and up projections."""

    name = "raise_swiglu"
    op = "swiglu"
    shapes = {"gate": "T I", "up": "T I"}
    spellings = (Spelling(_swiglu, "aten.sigmoid.default", _swiglu_examples),)


@dataclass(frozen=True)
class RaiseCombineExperts(Raising):
    """The sum of routed and shared experts, the last of the passes: it takes what is left of sums of two matrices."""

    name = "raise_combine_experts"
    op = "combine_experts"
    shapes = {"routed": "T H", "shared": "T H"}
    spellings = (Spelling(_combine, "aten.add.Tensor", _combine_examples),)
