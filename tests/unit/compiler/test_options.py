"""CompileOptions: cross-field checks, JSON form, digest."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dsv41c.compiler.checkpoint.presets import tiny
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.plan.errors import Dsv41cError


@pytest.mark.parametrize("values", [{}, {"max_model_len": 77, "dtype": "float32"},
                                    {"target": "sm_90a", "fallback": ("rms_norm", "rotary"), "without": ("a", "b"),
                                     "breaks": ("linear", "mega_mhc")},
                                    {"suffix_mode": "mask", "suffix_keep_tokens": 20},
                                    {"bucket_policy": "explicit", "buckets": ("decode=1,2", "head=4")}])
def test_json_form_gives_the_same_options_back(values: dict[str, Any]) -> None:
    options = CompileOptions(**values)
    assert CompileOptions.from_json(options.to_json()) == options


def test_the_digest_sees_every_field() -> None:
    base = CompileOptions()
    changed: dict[str, Any] = {"max_model_len": 9, "max_num_seqs": 2, "max_num_batched_tokens": 99, "block_size": 4,
                               "dtype": "float32", "quantizers": "off", "target": "sm_100a", "fallback": ("rotary",),
                               "without": ("merge_equal_calls",), "breaks": ("linear",), "plan_only": True,
                               "weights": "map", "suffix_mode": "mask", "suffix_keep_tokens": 9,
                               "bucket_policy": "step", "buckets": ("decode=1,2",), "bucket_step": 64,
                               "histogram": ("decode=1:10",), "max_graphs": 40, "kv_cache_dtype": "packed",
                               "batch_invariant": "off"}
    assert set(changed) == {field.name for field in dataclasses.fields(base)}
    digests = {CompileOptions(**{name: value}).digest() for name, value in changed.items()}
    assert len(digests | {base.digest()}) == len(changed) + 1


@pytest.mark.parametrize(("values", "option"), [
    ({"dtype": "float16"}, "--dtype"), ({"quantizers": "on"}, "--quantizers"), ({"target": "sm_80"}, "--target"),
    ({"max_model_len": 5000}, "--max-model-len"), ({"max_model_len": -1}, "--max-model-len"),
    ({"max_num_seqs": 0}, "--max-num-seqs"), ({"max_num_batched_tokens": 3}, "--max-num-batched-tokens"),
    ({"max_num_batched_tokens": 70_000}, "--max-num-batched-tokens"), ({"block_size": 3}, "--block-size"),
    ({"block_size": 0}, "--block-size"), ({"fallback": ("rotary",)}, "--fallback"),
    ({"batch_invariant": "off"}, "--batch-invariant"),
    ({"batch_invariant": "maybe", "target": "sm_90a"}, "--batch-invariant"),
    ({"kv_cache_dtype": "fp8"}, "--kv-cache-dtype"),
    ({"kv_cache_dtype": "packed", "quantizers": "off"}, "--kv-cache-dtype"),
])
def test_bad_values_name_the_option_and_what_is_legal(values: dict[str, Any], option: str) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        CompileOptions(**values).resolved(tiny())
    assert option in caught.value.subject and caught.value.needed


def test_defaults_are_resolved_against_the_model() -> None:
    assert CompileOptions().resolved(tiny()).max_model_len == 4096


def test_a_packed_cache_needs_whole_groups() -> None:
    config = dataclasses.replace(tiny(), index_head_dim=48)
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        CompileOptions(kv_cache_dtype="packed").resolved(config)
    assert caught.value.needed == "heads of whole groups of 32 numbers; the model's have 32 and 48"
