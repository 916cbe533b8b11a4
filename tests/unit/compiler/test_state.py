"""State of the model: names, dtypes and bytes, packed and not."""

from __future__ import annotations

import math

import pytest
import torch

from dsv41c.compiler.checkpoint.presets import flash
from dsv41c.compiler.model.state import StateSpec, state_specs
from dsv41c.compiler.options import CompileOptions

DRAFT_LEN = 5  # the block of the published draft: rings hold 6 rows beside a window


def specs(kv_cache_dtype: str) -> dict[str, StateSpec]:
    options = CompileOptions(kv_cache_dtype=kv_cache_dtype, draft_len=DRAFT_LEN).resolved(flash())
    return {s.name: s for s in state_specs(flash(), options)}


def row_bytes(spec: StateSpec) -> int:
    return spec.sizes[-1] * spec.dtype.itemsize


@pytest.mark.parametrize(("kv_cache_dtype", "token", "request_"),
                         [("packed", 890, 3_042_336), ("auto", 3200, 5_900_288)])
def test_bytes_of_a_token_and_of_the_windows_of_a_request(kv_cache_dtype: str, token: int, request_: int) -> None:
    """The published sizes: compressed entries and index keys of all sources, 43 windows of 134 keys."""
    found = specs(kv_cache_dtype)
    config = flash()
    per_token = sum(row_bytes(found[f"{kind}_{layer}"]) / config.ratio(layer)
                    for layer in config.kv_source_layer_ids for kind in ("compressed", "index_key"))
    windows = [s for name, s in found.items() if "window_" in name]
    assert (per_token, len(windows)) == (token, 43)
    assert sum(math.prod(s.sizes[1:]) * s.dtype.itemsize for s in windows) == request_


def test_packing_changes_rows_of_keys_only() -> None:
    plain, packed = specs("auto"), specs("packed")
    assert list(plain) == list(packed)
    changed = {name for name in plain if plain[name] != packed[name]}
    assert {name.rstrip("0123456789") for name in changed} == {"window_", "draft_window_", "compressed_", "index_key_"}
    for name in changed:
        assert packed[name].dtype == torch.uint8 and packed[name].sizes[:-1] == plain[name].sizes[:-1]
