"""The layout against the published totals of DeepSeek-V4.1-Flash, and its small relatives."""

import pytest

from dsv41c.compiler.checkpoint.layout import BLOCK, VISION_PREFIXES, expected_tensors
from dsv41c.compiler.checkpoint.presets import PRESETS
from dsv41c.compiler.checkpoint.vision import vision_tensors
from dsv41c.compiler.config import ModelConfig

PUBLISHED_TENSORS, PUBLISHED_BYTES = 96_085, 510_286_023_000
VISION_TENSORS, VISION_BYTES = 263, 970_506_240


@pytest.fixture(scope="module")
def flash() -> ModelConfig:
    # Also proves that the Engram rows are the sums of the primes of the rule.
    return ModelConfig.from_json(PRESETS["flash"]().to_json())


def test_published_totals(flash: ModelConfig) -> None:
    tensors = expected_tensors(flash)
    assert len(tensors) == PUBLISHED_TENSORS - VISION_TENSORS
    assert sum(spec.nbytes for spec in tensors.values()) == PUBLISHED_BYTES - VISION_BYTES
    vision = vision_tensors(flash.hidden_size)
    assert len(vision) == VISION_TENSORS
    assert sum(spec.nbytes for spec in vision.values()) == VISION_BYTES
    assert all(name.startswith(VISION_PREFIXES) for name in vision)


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("embed.weight", "BF16", (129280, 5120)),
        ("image_newline", "BF16", (5120,)),
        ("layers.0.attn.wq_b.weight", "F8_E4M3", (32768, 1280)),
        ("layers.0.attn.wq_b.scale", "F8_E8M0", (1024, 40)),
        ("layers.39.attn.wo_a.weight", "F8_E4M3", (8192, 4096)),
        ("layers.5.hc_ffn_fn", "F32", (24, 20480)),
        ("layers.7.ffn.experts.383.w2.weight", "I8", (5120, 1152)),
        ("layers.7.ffn.experts.383.w2.scale", "F8_E8M0", (5120, 72)),
        ("layers.2.attn.compressor.wgate.weight", "BF16", (512, 5120)),
        ("layers.36.attn.indexer.wq_b.weight", "F8_E4M3", (4096, 1280)),
        ("layers.14.engram.embed.weight", "F8_E4M3", (384_016_682, 256)),
        ("layers.14.engram.embed.scale", "F8_E8M0", (384_016_682, 8)),
        ("layers.14.engram.wkv.weight", "F8_E4M3", (25600, 6144)),
        ("mtp.0.main_proj.weight", "F8_E4M3", (5120, 15360)),
        ("mtp.2.markov_head.head.weight", "BF16", (129280, 256)),
        ("mtp.2.confidence_head.proj.weight", "BF16", (1, 5376)),
    ],
)
def test_published_shapes(flash: ModelConfig, name: str, dtype: str, shape: tuple[int, ...]) -> None:
    spec = expected_tensors(flash)[name]
    assert (spec.dtype, spec.shape) == (dtype, shape)


def test_tensors_that_only_some_layers_have(flash: ModelConfig) -> None:
    names = expected_tensors(flash).keys()

    def layers(suffix: str) -> list[int]:
        return sorted(int(n.split(".")[1]) for n in names if n.startswith("layers.") and n.endswith(suffix))

    assert layers("attn.compressor.wkv.weight") == [2, 8, 14, 20]
    assert layers("attn.compressor.wgate.weight") == [2, 8, 14]
    assert layers("attn.indexer.wk.weight") == [2, 8, 14, 20]
    assert layers("attn.indexer.weights_proj.weight") == [2, 8, 14, 20, 24, 28, 32, 36]
    assert layers("engram.q_weight") == [1, 14]
    assert [n for n in names if "main_proj" in n] == ["mtp.0.main_proj.weight", "mtp.0.main_proj.scale"]


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_scales_cover_their_weights(preset: str) -> None:
    tensors = expected_tensors(PRESETS[preset]())
    for name, spec in tensors.items():
        if spec.role == "fp8":
            scale = tensors[name.removesuffix("weight") + "scale"]
            assert scale.shape == tuple(-(-size // BLOCK) for size in spec.shape)
        if spec.role == "fp4":
            scale = tensors[name.removesuffix("weight") + "scale"]
            assert (scale.shape[0], scale.shape[1] * BLOCK) == (spec.shape[0], spec.shape[1] * 2)
