"""raise_linear, raise_grouped_linear: products with a weight that is widened, and scaled in blocks of 32x32, before.

Bits may differ: the ops sum over the inner dimension in lanes, torch in an order of its own.
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
from dsv41c.passes.raise_ops.examples import FLOATS, broadcast, repeated, rows, scaled_weights, tiled, weight

_GROUPS = 7
Expand = Callable[[Tensor, Tensor], Tensor]


def _scaled_examples(whole: bool = False) -> Iterator[tuple[Any, ...]]:
    for w, scale in list(scaled_weights())[:1 if whole else None]:
        for dtype in FLOATS:
            for out in FLOATS:
                yield rows(w.shape[1], dtype=dtype), w, scale, out


def _plain_examples() -> Iterator[tuple[Any, ...]]:
    for dtype in FLOATS:
        for weight_dtype in FLOATS:
            for out in FLOATS:
                yield rows(151, dtype=dtype), weight(448, 151, dtype=weight_dtype), None, out


def _narrow_examples() -> Iterator[tuple[Any, ...]]:
    for out in FLOATS:
        yield rows(151, dtype=torch.bfloat16), weight(448, 151, dtype=torch.bfloat16), None, out


def _grouped_examples(whole: bool = False) -> Iterator[tuple[Any, ...]]:
    for w, scale in list(scaled_weights())[:1 if whole else 2]:
        for dtype in FLOATS:
            for out in FLOATS:
                yield rows(_GROUPS, w.shape[1], dtype=dtype), w, scale, _GROUPS, out


def _scaled(expand: Expand) -> Callable[..., Tensor]:
    return lambda x, w, scale, dtype: F.linear(x.float(), expand(w, scale)).to(dtype)


def _plain(x: Tensor, w: Tensor, scale: None, dtype: torch.dtype) -> Tensor:
    return F.linear(x.float(), w.float()).to(dtype)


def _narrow(x: Tensor, w: Tensor, scale: None, dtype: torch.dtype) -> Tensor:
    return F.linear(x, w).to(dtype)


def _grouped(expand: Expand) -> Callable[..., Tensor]:
    def spelled(x: Tensor, w: Tensor, scale: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
        wide = expand(w, scale).view(groups, -1, w.shape[1])
        return torch.einsum("tgk,gnk->tgn", x.float(), wide).reshape(x.shape[0], -1).to(dtype)

    return spelled


def _grouped_product(expand: Expand) -> Callable[..., Tensor]:
    def spelled(x: Tensor, w: Tensor, scale: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
        wide = expand(w, scale).view(groups, -1, w.shape[1])
        product = torch.bmm(x.float().transpose(0, 1), wide.transpose(1, 2))
        return product.transpose(0, 1).reshape(x.shape[0], -1).to(dtype)

    return spelled


def _whole() -> Iterator[tuple[Any, ...]]:
    return _scaled_examples(whole=True)


def _grouped_whole() -> Iterator[tuple[Any, ...]]:
    return _grouped_examples(whole=True)


@dataclass(frozen=True)
class RaiseLinear(Raising):
    """Products with a plain or a block-scaled weight."""

    name = "raise_linear"
    op = "linear"
    shapes = {"x": "T K", "weight": "N K"}
    spellings = (*(Spelling(_scaled(e), "aten.mm.default", _scaled_examples) for e in (repeated, broadcast)),
                 Spelling(_scaled(tiled), "aten.mm.default", _whole),
                 Spelling(_plain, "aten.mm.default", _plain_examples),
                 Spelling(_narrow, "aten.mm.default", _narrow_examples))


@dataclass(frozen=True)
class RaiseGroupedLinear(Raising):
    """Products of groups with their own part of a block-scaled weight."""

    name = "raise_grouped_linear"
    op = "grouped_linear"
    shapes = {"x": "T G K", "weight": "N K"}
    spellings = (
        *(Spelling(f(e), "aten.bmm.default", _grouped_examples) for f in (_grouped, _grouped_product)
          for e in (repeated, broadcast)),
        *(Spelling(f(tiled), "aten.bmm.default", _grouped_whole) for f in (_grouped, _grouped_product)))
