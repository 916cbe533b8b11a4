"""How often each pass must match in each method of a plan, from config.json and the quantizers alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Raise what a model in plain torch spells by hand: the model of the project calls the ops.
FOREIGN = ("normalize_aten", "raise_mhc_mix", "raise_moe_route", "raise_mhc_post", "raise_mhc_collapse",
           "raise_rms_norm", "raise_quantize_fp8", "raise_quantize_fp4_index", "raise_quantize_fp4_kv", "raise_rotary",
           "raise_embed_expand", "raise_linear", "raise_grouped_linear", "raise_swiglu", "raise_stream_mean",
           "raise_combine_experts")
Counts = dict[str, int]  # method -> matches; methods without any are left out


def expected_matches(checkpoint: Path, quantizers: str) -> dict[str, Counts]:
    """By name of the pass. Nothing of the product is asked: this is the model's layer pattern, counted by hand."""
    data = json.loads((checkpoint / "config.json").read_text())
    pattern = Pattern.of(data.get("text_config", data))
    layers = Counter(pattern.spread(range(pattern.layers)))
    cast = quantizers == "fake"
    tables, indexes = pattern.spread(pattern.tables), pattern.spread(pattern.indexes)
    opened = pattern.opened()
    # The encoder computes the hidden values of the boundary layer for its keys; decode finds them twice, and merges.
    boundary = {"decode": 2, "encoder": 0, "decoder": 0}
    counts = {
        **dict.fromkeys(FOREIGN, {}),
        "normalize_arguments": {}, "drop_no_op_views": {}, "drop_dead_calls": {},
        "merge_equal_calls": boundary,
        "drop_local_collectives": layers + layers,  # dispatch and combine
        "mega_mhc": layers + layers - Counter(opened),  # two sites a layer
        "open_mhc": opened,
        "mhc_norm": {"decode": 1, "encoder": 1, "decoder": 1},  # the head; the keys of the boundary layer
        "mega_gate": layers,
        "mega_moe": layers,
        "merge_projections": layers + Counter(indexes),  # wq_a with wkv; wq_b with the indexer's
        "compress_store": pattern.stores(),
        "index_query": indexes,
        "engram_gather": tables if cast else {},
        "tap_feature": {}, "project_features": {}, "feature_commit": {}, "markov_step": {},  # plans hold no draft
        "head_sample": {"decode": 1, "head": 1},
        "norm_cast": layers if cast else {},
        "norm_rope_cast": layers,
        "mega_attention": layers,
        "grouped_out": layers if cast else {},
    }
    return {name: {m: n for m, n in by_method.items() if n} for name, by_method in counts.items()}


@dataclass(frozen=True)
class Pattern:
    """What config.json says about the layers; `start` is the first one of the decoder."""

    layers: int
    start: int
    tables: tuple[int, ...]
    sources: tuple[int, ...]
    indexes: tuple[int, ...]

    @classmethod
    def of(cls, config: dict[str, Any]) -> Pattern:
        return cls(config["num_hidden_layers"], config["compress_ratios"].index(1), tuple(config["engram_layer_ids"]),
                   tuple(config["kv_source_layer_ids"]), tuple(config["index_source_layer_ids"]))

    def spread(self, layers: Collection[int]) -> Counts:
        """One for each of these layers: all in `decode`, each in the method that holds it."""
        return {"decode": len(layers), "encoder": sum(layer < self.start for layer in layers),
                "decoder": sum(layer >= self.start for layer in layers)}

    def opened(self) -> Counts:
        """Attention sites behind something else than a post: the first one of each method, and those with a table."""
        return {"decode": len({0, *self.tables}), "encoder": len({0, *(t for t in self.tables if t < self.start)}),
                "decoder": len({self.start, *(t for t in self.tables if t >= self.start)})}

    def stores(self) -> Counts:
        """An entry and an index key for each source; those of the boundary layer are written for every row."""
        early = sum(source <= self.start for source in self.sources)
        return {"decode": 2 * len(self.sources), "encoder": 2 * early, "decoder": 2 * (len(self.sources) - early)}
