"""config.json: round trip, refusals that name the key, and the derived numbers."""

import copy
import json

import numpy as np
import pytest

from dsv41c.compiler.checkpoint.presets import PRESETS, tiny
from dsv41c.compiler.config import ModelConfig
from dsv41c.runtime.plan.errors import Dsv41cError


def _refused(data: object) -> Dsv41cError:
    with pytest.raises(Dsv41cError) as caught:
        ModelConfig.from_json(data, "dir/config.json")
    return caught.value


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_round_trip_through_json(preset: str) -> None:
    config = PRESETS[preset]()
    data = json.loads(json.dumps(config.to_json()))
    assert ModelConfig.from_json(data) == config
    assert data["text_config"]["rope_scaling"]["type"] == "yarn"
    assert data["architectures"] == ["DeepseekV41ForCausalLM"]


def test_what_hugging_face_tools_add_is_tolerated() -> None:
    data = tiny().to_json()
    data.update(transformers_version="5.0", torch_dtype="bfloat16", image_token_id=90, vision_config={})
    data["text_config"].update(model_type="x", use_cache=True, bos_token_id=0, attention_dropout=0)
    data["text_config"]["index_k_source_layer_ids"] = [1, 3, 4]
    assert ModelConfig.from_json(data) == tiny()


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("text_config", "hidden_act", "gelu"),
        ("text_config", "scoring_func", "sigmoid"),
        ("text_config", "a_new_switch", True),
        ("text_config", "eos_token_id", 5),
        ("text_config", "vocab_size", "96"),
        ("text_config", "vocab_size", True),
        ("text_config", "rms_norm_eps", -1.0),
        ("text_config", "hidden_size", 48),
        ("text_config", "sliding_window", 0),
        ("text_config", "num_experts_per_tok", 9),
        ("text_config", "compress_ratios", [0, 2, 2, 1, 2, 1, 1, 1, 0, 0]),
        ("text_config", "compress_ratios", [0, 2, 2, 4, 1, 1, 1, 1, 0, 0]),
        ("text_config", "compress_ratios", [0, 2, 2, 2, 1, 1, 1, 1, 0]),
        ("text_config", "kv_source_layer_ids", [1, 3]),
        ("text_config", "index_source_layer_ids", [1, 4, 6]),
        ("text_config", "index_k_source_layer_ids", [1, 3]),
        ("text_config", "candidate_source_layer_id", 3),
        ("text_config", "engram_layer_ids", [1, 5]),
        ("text_config", "engram_num_embeddings", [243, 400]),
        ("text_config", "engram_vocab_size", 1 << 40),
        ("text_config", "dspark_target_layer_ids", []),
        ("text_config", "dspark_noise_token_id", 96),
        ("quantization_config", "weight_block_size", [128, 128]),
        ("quantization_config", "surprise", 1),
    ],
)
def test_unsupported_values_are_refused_by_name(section: str, key: str, value: object) -> None:
    data = tiny().to_json()
    data[section][key] = value
    error = _refused(data)
    assert error.code == "DSV41C-E0104"
    assert key in error.subject
    assert error.where == "dir/config.json"


def test_rope_scaling_other_than_yarn_is_refused() -> None:
    for key, value in (("type", "linear"), ("mscale", 1.0)):
        data = copy.deepcopy(tiny().to_json())
        data["text_config"]["rope_scaling"][key] = value
        assert f"rope_scaling.{key}" in _refused(data).subject


def test_absent_keys_are_named() -> None:
    data = tiny().to_json()
    del data["text_config"]["hc_mult"]
    error = _refused(data)
    assert "hc_mult" in error.subject and "absent" in error.found


def test_shape_of_the_document_is_checked() -> None:
    assert _refused([]).code == "DSV41C-E0109"
    assert _refused({"model_type": "deepseek_v41"}).code == "DSV41C-E0109"


def test_load_names_missing_and_broken_files(tmp_path) -> None:
    with pytest.raises(Dsv41cError, match="E0101"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Dsv41cError, match="E0109"):
        ModelConfig.load(tmp_path)


def test_layer_roles() -> None:
    config = tiny()
    assert config.decoder_start == 4
    assert [config.kv_source(layer) for layer in range(1, 8)] == [1, 1, 3, 4, 4, 4, 4]
    assert [config.index_source(layer) for layer in range(1, 8)] == [1, 1, 3, 4, 4, 6, 6]
    assert [config.ratio(layer) for layer in (0, 1, 4, 8, 9)] == [0, 2, 1, 0, 0]
    with pytest.raises(ValueError, match="layer 0"):
        config.kv_source(0)


def test_engram_numbers_of_tiny() -> None:
    config = tiny()
    assert config.engram_primes() == (((53, 59), (61, 67)), ((71, 73), (79, 83)))
    assert config.engram_num_embeddings == (240, 306)
    multipliers = config.engram_multipliers()
    assert multipliers.shape == (2, 3) and multipliers.dtype == np.int64
    assert (multipliers % 2 == 1).all()
    # Products of any compressed id stay below 2^63.
    assert int(multipliers.max()) * (config.engram_compressed_vocab_size - 1) < 2**63


def test_rotary_frequencies() -> None:
    config = tiny()
    plain = config.rotary_frequencies(compressed=False)
    np.testing.assert_allclose(plain, [10000.0 ** (-2 * i / 16) for i in range(8)], rtol=1e-14)
    scaled = config.rotary_frequencies(compressed=True)
    base = np.array([160000.0 ** (-2 * i / 16) for i in range(8)])
    # Fast pairs keep their angle, slow ones are divided by the factor; the ramp spans pairs 0 to 2 here.
    np.testing.assert_allclose(scaled, base * [1, (1 + 1 / 16) / 2, *[1 / 16] * 6], rtol=1e-14)
