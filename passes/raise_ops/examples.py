"""Example tensors on which spellings are traced."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dsv41c.passes.engine.spelling import ROWS

F32, BF16, FP8, E8 = torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e8m0fnu
FLOATS = (BF16, F32)
BLOCK = 32


def rows(*sizes: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """A value of each row."""
    return torch.empty((ROWS, *sizes), dtype=dtype, device="meta")


def weight(*sizes: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def scaled_weights() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """An FP8 weight with its block scales, with and without a part of a block at each edge; `[out, in]`."""
    for out in (448, 441):
        for inner in (160, 151):
            yield weight(out, inner, dtype=FP8), weight(-(-out // BLOCK), -(-inner // BLOCK), dtype=E8)


def repeated(w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The weight as float32, block scales repeated."""
    blocks = scale.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return w.float() * blocks[:w.shape[0], :w.shape[1]]


def broadcast(w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The weight as float32, block scales broadcast and flattened."""
    blocks = scale.float()[:, None, :, None].expand(-1, BLOCK, -1, BLOCK).reshape(BLOCK * scale.shape[0], -1)
    return w.float() * blocks[:w.shape[0], :w.shape[1]]


def tiled(w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The weight as float32, cut into blocks; for whole blocks."""
    rows, columns = scale.shape
    return (w.float().view(rows, BLOCK, columns, BLOCK) * scale.float()[:, None, :, None]).view(w.shape)
