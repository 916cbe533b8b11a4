"""What a further step may read of a slot's state, ordered by position: two runs that agree on it go on alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.options import CompileOptions

ReadState = Callable[[str], np.ndarray]


def live_caches(read: ReadState, names: Sequence[str], config: ModelConfig, options: CompileOptions, slot: int,
                length: int) -> dict[str, np.ndarray]:
    """By name, of a slot that has `length` tokens. Below its floor a decoder's window and a draft's are not read."""
    floor = int(read("window_floor")[slot]) if "window_floor" in names else 0
    pages, block = slot * options.pages_per_slot, options.block_size
    found: dict[str, np.ndarray] = {}
    for name in names:
        values = read(name)
        if name.startswith(("window_", "draft_window_")) and name != "window_floor":
            is_encoder = name.startswith("window_") and int(name.removeprefix("window_")) < config.decoder_start
            first = max(0 if is_encoder else floor, length - config.sliding_window)
            found[name] = values[slot][np.arange(first, length) % values.shape[1]].copy()
        elif name.startswith("pair") and length % 2:
            found[name] = values[slot][(length - 1) % values.shape[1]].copy()
        elif name.startswith(("compressed", "index_key")):
            pool = values[pages : pages + options.pages_per_slot].reshape(-1, values.shape[2])
            found[name] = pool[: length * values.shape[1] // block].copy()
        elif name == "token_ring":
            positions = np.arange(max(0, length - config.engram_max_ngram_size + 1), length)
            found[name] = values[slot][positions % values.shape[1]].copy()
        elif name in ("slot_position", "window_floor"):
            found[name] = values[slot : slot + 1].copy()
    return found
