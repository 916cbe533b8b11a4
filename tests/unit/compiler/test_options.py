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
                               "full_decoder_rows": 5, "bucket_policy": "step", "buckets": ("decode=1,2",),
                               "bucket_step": 64, "histogram": ("decode=1:10",), "max_graphs": 40, "draft_len": 2,
                               "max_eager_rows": 70, "kv_cache_dtype": "packed", "batch_invariant": "off"}
    assert set(changed) == {field.name for field in dataclasses.fields(base)}
    digests = {CompileOptions(**{name: value}).digest() for name, value in changed.items()}
    assert len(digests | {base.digest()}) == len(changed) + 1


@pytest.mark.parametrize(("values", "option"), [
    ({"dtype": "float16"}, "--dtype"), ({"quantizers": "on"}, "--quantizers"), ({"target": "sm_80"}, "--target"),
    ({"max_model_len": 5000}, "--max-model-len"), ({"max_model_len": -1}, "--max-model-len"),
    ({"max_num_seqs": 0}, "--max-num-seqs"), ({"max_num_batched_tokens": 3}, "--max-num-batched-tokens"),
    ({"max_num_batched_tokens": 70_000}, "--max-num-batched-tokens"), ({"block_size": 3}, "--block-size"),
    ({"block_size": 0}, "--block-size"), ({"fallback": ("rotary",)}, "--fallback"),
    ({"full_decoder_rows": -1}, "--full-decoder-rows"), ({"full_decoder_rows": 513}, "--full-decoder-rows"),
    ({"draft_len": 4}, "--draft-len"), ({"draft_len": -1}, "--draft-len"),
    ({"suffix_keep_tokens": 9}, "--suffix-keep-tokens"),
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


def test_a_draft_length_beyond_the_block_says_both_numbers() -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        CompileOptions(draft_len=4).resolved(tiny())
    assert (caught.value.found, caught.value.needed) == ("4", "0 to 3 (dspark_block_size)")


def test_a_model_without_draft_layers_has_no_drafts() -> None:
    plain = dataclasses.replace(tiny(), num_nextn_predict_layers=0)
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        CompileOptions(draft_len=1).resolved(plain)
    assert "no draft layers" in caught.value.needed


@pytest.mark.parametrize(("draft_len", "backtrack"), [(0, 0), (1, 2), (3, 4)])
def test_the_least_kept_rows_are_a_window_and_what_can_be_forgotten(draft_len: int, backtrack: int) -> None:
    least = tiny().sliding_window + backtrack
    options = CompileOptions(suffix_mode="compact", draft_len=draft_len)
    assert options.resolved(tiny()).suffix_keep_tokens == tiny().sliding_window + 12
    assert dataclasses.replace(options, suffix_keep_tokens=least).resolved(tiny()).backtrack == backtrack
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        dataclasses.replace(options, suffix_keep_tokens=least - 1).resolved(tiny())
    assert caught.value.needed.startswith(f"at least {least}: {tiny().sliding_window} rows of a window")
    assert f"{backtrack} of backtracking" in caught.value.needed


def test_the_default_of_kept_rows_grows_with_a_long_block() -> None:
    model = dataclasses.replace(tiny(), dspark_block_size=20)
    options = CompileOptions(suffix_mode="compact", draft_len=20).resolved(model)
    assert options.suffix_keep_tokens == model.sliding_window + 21


def test_a_packed_cache_needs_whole_groups() -> None:
    config = dataclasses.replace(tiny(), index_head_dim=48)
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        CompileOptions(kv_cache_dtype="packed").resolved(config)
    assert caught.value.needed == "heads of whole groups of 32 numbers; the model's have 32 and 48"
