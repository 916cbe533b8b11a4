"""Device state of the model: what outlives a step, with names, sizes and start values.

S = number of slots, P = number of pages; index S and page P are the trash slot and page that pad rows name.
All rings are addressed by `position % ring`; validity comes from positions alone, never from content.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.ops import packed
from dsv41c.compiler.options import CompileOptions


@dataclass(frozen=True)
class StateSpec:
    name: str
    dtype: torch.dtype
    sizes: tuple[int, ...]
    fill: int = 0


def state_specs(config: ModelConfig, options: CompileOptions) -> tuple[StateSpec, ...]:
    """Every state tensor. `options.backtrack` rows stay readable behind the window after a rollback."""
    backtrack = options.backtrack
    slots, pages = options.max_num_seqs + 1, options.max_num_seqs * options.pages_per_slot + 1
    window = config.sliding_window + backtrack

    def rows(name: str, sizes: tuple[int, int], width: int, form: packed.Format) -> StateSpec:
        if options.kv_cache_dtype == "packed":
            return StateSpec(name, packed.DTYPE, (*sizes, form.row_bytes(width)))
        return StateSpec(name, options.torch_dtype, (*sizes, width))

    specs = [
        StateSpec("slot_position", torch.int32, (slots,)),
        StateSpec("slot_token", torch.int32, (slots,)),
        StateSpec("page_table", torch.int32, (slots, options.pages_per_slot), fill=pages - 1),
        StateSpec("replay_floor", torch.int32, (slots,)),
        StateSpec("token_ring", torch.int32, (slots, max(config.engram_max_ngram_size - 1, 1) + backtrack)),
    ]
    if options.suffix_mode != "off":
        specs.append(StateSpec("window_floor", torch.int32, (slots,)))
    for layer in range(config.num_hidden_layers):
        specs.append(rows(f"window_{layer}", (slots, window), config.head_dim, packed.FP8))
        if layer in config.kv_source_layer_ids:
            ratio = config.ratio(layer)
            entries = options.block_size // ratio
            if ratio > 1:
                pair = (slots, ratio - 1 + backtrack, 2, config.head_dim)
                specs.append(StateSpec(f"pair_{layer}", torch.float32, pair))
            specs.append(rows(f"compressed_{layer}", (pages, entries), config.head_dim, packed.FP4_KV))
            specs.append(rows(f"index_key_{layer}", (pages, entries), config.index_head_dim, packed.FP4_INDEX))
    for layer in range(config.num_nextn_predict_layers if options.draft_len else 0):
        specs.append(rows(f"draft_window_{layer}", (slots, window), config.head_dim, packed.FP8))
    return tuple(specs)


def make_state(specs: tuple[StateSpec, ...], device: str) -> dict[str, torch.Tensor]:
    return {s.name: torch.full(s.sizes, s.fill, dtype=s.dtype, device=device) for s in specs}
