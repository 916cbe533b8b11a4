"""config.json <-> ModelConfig fields: key names, value types, and the values the architecture fixes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from dsv41c.runtime.plan.errors import Dsv41cError

_TOKEN_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
_ROPE_KEYS = ("factor", "beta_fast", "beta_slow", "original_max_position_embeddings")

# A key may be absent: then the architecture's value below holds.
_FIXED_TOP: dict[str, Any] = {
    "architectures": ["DeepseekV41ForCausalLM"],
    "model_type": "deepseek_v41",
    "dtype": "bfloat16",
}
_FIXED_TEXT: dict[str, Any] = {
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "attention_dropout": 0.0,
}
_FIXED_QUANTIZATION: dict[str, Any] = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "scale_fmt": "ue8m0",
    "weight_block_size": [32, 32],
    "expert_dtype": "fp4",
}
# Written by Hugging Face tools beside the model's own keys; none of them changes the forward pass.
_TOLERATED_TEXT = {"architectures", "dtype", "initializer_range", "model_type", "torch_dtype",
                   "transformers_version", "use_cache"}  # fmt: skip


def refuse(key: str, found: object, needed: str, where: str | None) -> NoReturn:
    """Raises the error for one config value that this compiler does not implement."""
    raise Dsv41cError(
        "DSV41C-E0104",
        f"unsupported config value: {key}",
        where=where,
        found=repr(found),
        needed=needed,
        do="use a DeepSeek-V4.1-Flash checkpoint, or correct the key in config.json",
    )


def fields_from_json(cls: type, data: object, where: str | None) -> dict[str, Any]:
    """Constructor arguments of ModelConfig, every value typed and every fixed key checked."""
    top = _mapping(data, "top level", where)
    text = dict(_mapping(top.get("text_config"), "text_config", where))
    rope = _rope_scaling(text.pop("rope_scaling", None), where)
    _check_fixed(top, _FIXED_TOP, "", where)
    _check_fixed(text, _FIXED_TEXT, "text_config.", where)
    _check_quantization(top, where)
    _check_repeats(top, text, where)
    values = {**text, **rope, **{key: top[key] for key in _TOKEN_KEYS if key in top}}
    fields = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    known = fields.keys() | _FIXED_TEXT.keys() | _TOLERATED_TEXT | {"index_k_source_layer_ids"}
    for key in text:
        if key not in known:
            refuse(f"text_config.{key}", text[key], "no such key: its meaning is not implemented", where)
    return {name: _typed(name, kind, values, where) for name, kind in fields.items()}


def fields_to_json(config: Any) -> dict[str, Any]:
    """The nested form; keys keep the order of the dataclass, fixed keys come last."""
    text: dict[str, Any] = {}
    for name, value in dataclasses.asdict(config).items():
        text[name] = list(value) if isinstance(value, tuple) else value
    tokens = {key: text.pop(key) for key in _TOKEN_KEYS}
    rope = {key: text.pop(f"rope_{key}") for key in _ROPE_KEYS}
    text = {**text, "rope_scaling": {"type": "yarn", **rope}, **_FIXED_TEXT}
    return {**_FIXED_TOP, **tokens, "text_config": text, "quantization_config": dict(_FIXED_QUANTIZATION)}


def _mapping(value: object, name: str, where: str | None) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise Dsv41cError(
        "DSV41C-E0109",
        f"config.json: {name} is not an object",
        where=where,
        found="absent" if value is None else type(value).__name__,
        needed="a nested config.json with text_config and quantization_config",
        do="use the config.json published with the checkpoint",
    )


def _rope_scaling(value: object, where: str | None) -> dict[str, Any]:
    rope = dict(_mapping(value, "text_config.rope_scaling", where))
    for key in ("type", "rope_type"):
        if (kind := rope.pop(key, "yarn")) != "yarn":
            refuse(f"text_config.rope_scaling.{key}", kind, "'yarn'", where)
    for key in rope:
        if key not in _ROPE_KEYS:
            refuse(f"text_config.rope_scaling.{key}", rope[key], f"only {', '.join(_ROPE_KEYS)}", where)
    return {f"rope_{key}": value for key, value in rope.items()}


def _check_fixed(data: Mapping[str, Any], fixed: Mapping[str, Any], prefix: str, where: str | None) -> None:
    for key, needed in fixed.items():
        if key in data and data[key] != needed:
            refuse(prefix + key, data[key], repr(needed), where)


def _check_quantization(top: Mapping[str, Any], where: str | None) -> None:
    quantization = _mapping(top.get("quantization_config"), "quantization_config", where)
    _check_fixed(quantization, _FIXED_QUANTIZATION, "quantization_config.", where)
    for key in quantization:
        if key not in _FIXED_QUANTIZATION:
            known = ", ".join(_FIXED_QUANTIZATION)
            refuse(f"quantization_config.{key}", quantization[key], f"only {known}", where)


def _check_repeats(top: Mapping[str, Any], text: dict[str, Any], where: str | None) -> None:
    """Token ids may be repeated inside text_config and index keys may name their sources: both must agree."""
    for key in _TOKEN_KEYS:
        if key in text and text.pop(key) != top.get(key):
            refuse(f"text_config.{key}", "another id", f"the top level's {top.get(key)!r}", where)
    sources = text.get("kv_source_layer_ids")
    if text.get("index_k_source_layer_ids", sources) != sources:
        refuse("text_config.index_k_source_layer_ids", text["index_k_source_layer_ids"], repr(sources), where)


def _typed(name: str, kind: str, values: Mapping[str, Any], where: str | None) -> Any:
    if name not in values:
        refuse(name, "absent", f"a value of type {kind}", where)
    value = values[name]
    if kind == "int" and type(value) is int and value >= 0:
        return value
    if kind == "float" and type(value) in (int, float) and math.isfinite(value) and value >= 0:
        return float(value)
    if kind.startswith("tuple") and isinstance(value, list) and all(type(v) is int and v >= 0 for v in value):
        return tuple(value)
    refuse(name, value, f"{kind}, not negative", where)
