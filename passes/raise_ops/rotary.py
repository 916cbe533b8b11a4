"""raise_rotary: the last dimensions turned in interleaved pairs by a table of (cos, sin), forwards or backwards.

The same products and sums in the same order: bits are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsv41c.passes.engine.raising import Raising
from dsv41c.passes.engine.spelling import Spelling
from dsv41c.passes.raise_ops.examples import FLOATS, rows, weight

_POSITION = 1
_HALF, _KEPT, _RATIO = 12, 10, 23


def _examples(ratio: int | None, inverse: bool) -> Callable[[], Iterator[tuple[Any, ...]]]:
    def examples() -> Iterator[tuple[Any, ...]]:
        for dtype in FLOATS:
            for heads in ((), (5,)):
                yield (rows(*heads, _KEPT + 2 * _HALF, dtype=dtype), rows(8, dtype=torch.int32), weight(97, _HALF, 2),
                       ratio, inverse)

    return examples


def _whole(position: Tensor, ratio: int) -> Tensor:
    return position


def _divided(position: Tensor, ratio: int) -> Tensor:
    return position // ratio * ratio


def _without_rest(position: Tensor, ratio: int) -> Tensor:
    return position - position % ratio


def _turned(first_position: Callable[[Tensor, int], Tensor], negate: bool) -> Callable[..., Tensor]:
    def spelled(x: Tensor, table_rows: Tensor, table: Tensor, ratio: int, inverse: bool) -> Tensor:
        angle = table[first_position(table_rows[:, _POSITION], ratio)]
        cos, sin = angle[..., 0], angle[..., 1]
        if x.dim() == 3:
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        kept = x.shape[-1] - 2 * table.shape[1]
        pairs = x[..., kept:].float().view(*x.shape[:-1], -1, 2)
        even, odd = pairs[..., 0], pairs[..., 1]
        if inverse and negate:
            sin = -sin
        if inverse and not negate:
            turned = torch.stack((even * cos + odd * sin, odd * cos - even * sin), -1)
        else:
            turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1)
        end = turned.flatten(-2).to(x.dtype)
        return torch.cat((x[..., :kept], end), -1) if kept else end

    return spelled


@dataclass(frozen=True)
class RaiseRotary(Raising):
    """Rotary embedding of interleaved pairs at the rows' positions, or at the first position of their groups."""

    name = "raise_rotary"
    op = "rotary"
    shapes = {"x": "...", "rows": "T C", "table": "P H two"}
    spellings = tuple(Spelling(_turned(first, negate), "aten.sub.Tensor", _examples(ratio, inverse))
                      for first, ratio, inverse, negate in (
                          (_divided, _RATIO, False, False), (_without_rest, _RATIO, False, False),
                          (_whole, None, False, False), (_whole, None, True, True), (_whole, None, True, False)))

    def solve(self, found: Any, anchor: Any) -> dict[str, Any]:
        """Without a division every position is the first of its group."""
        return {} if "ratio" in found else {"ratio": 1}
