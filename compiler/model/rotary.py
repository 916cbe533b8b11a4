"""Rotary tables: angles in float64, stored as float32 (cos, sin) pairs for every position."""

from __future__ import annotations

import numpy as np
import torch

from dsv41c.compiler.config import ModelConfig


def rotary_table(config: ModelConfig, compressed: bool, positions: int) -> torch.Tensor:
    """float32 `[positions, qk_rope_head_dim/2, 2]`. `compressed` layers use YaRN-interpolated frequencies."""
    angles = np.arange(positions, dtype=np.float64)[:, None] * config.rotary_frequencies(compressed)[None]
    table = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return torch.from_numpy(table.astype(np.float32))
