"""Compares tensors bit for bit, and names the first element that differs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Mismatch:
    """The values at the first differing element; `index` is empty when dtypes or shapes differ."""

    index: tuple[int, ...]
    found: str
    needed: str


def first_mismatch(found: torch.Tensor, needed: torch.Tensor) -> Mismatch | None:
    """None for equal bits; NaN of other bits differ, as do zeros of another sign."""
    kinds = [f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for t in (found, needed)]
    if kinds[0] != kinds[1]:
        return Mismatch((), *kinds)
    places = (_bits(found) != _bits(needed)).nonzero()
    if not len(places):
        return None
    index = tuple(int(i) for i in places[0])
    return Mismatch(index, *(repr(t[index].float().item() if t.is_floating_point() else t[index].item())
                             for t in (found, needed)))


def digest(value: Any) -> bytes:
    """Of a tensor, a number, or several of them."""
    if isinstance(value, tuple | list):
        return b"".join(map(digest, value))
    if not isinstance(value, torch.Tensor):
        return repr(value).encode()
    return hashlib.sha256(_bits(value).contiguous().numpy().tobytes()).digest()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_BITS[tensor.itemsize]) if tensor.dtype != torch.bool else tensor.view(torch.uint8)
