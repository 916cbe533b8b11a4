"""Drawn weights: own stream per tensor, finite codes, and a standard deviation of about 1 / sqrt(fan_in)."""

import numpy as np
import torch

from dsv41c.compiler.checkpoint.draw import E2M1, bf16_bits, draw_bytes, draw_tensor, e4m3_values
from dsv41c.compiler.checkpoint.layout import TensorSpec


def test_streams_are_keyed_by_seed_and_name() -> None:
    assert draw_bytes(0, "a", 8).tolist() == [20, 125, 87, 198, 28, 86, 141, 134]
    assert draw_bytes(0, "a", 5).tolist() == draw_bytes(0, "a", 8).tolist()[:5]
    assert not np.array_equal(draw_bytes(0, "a", 64), draw_bytes(1, "a", 64))
    assert not np.array_equal(draw_bytes(0, "a", 64), draw_bytes(0, "b", 64))


def test_bf16_rounds_to_nearest_even() -> None:
    values = np.array([1.0, -1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.14159, 0.0, 1e-30])
    expected = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16).view(torch.uint16).numpy()
    assert bf16_bits(values).tolist() == expected.tolist()


def test_e4m3_table_is_torchs() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    np.testing.assert_array_equal(e4m3_values(), codes.to(torch.float64).numpy())


def _fp8(rows: int, columns: int) -> np.ndarray:
    weight = draw_tensor(3, "x.weight", TensorSpec("F8_E4M3", (rows, columns), "fp8"))
    scale = draw_tensor(3, "x.scale", TensorSpec("F8_E8M0", (rows // 32, columns // 32), "fp8_scale"))
    factor = np.exp2(scale.astype(np.float64) - 127)
    return e4m3_values()[weight] * np.repeat(np.repeat(factor, 32, 0), 32, 1)


def _fp4(rows: int, columns: int) -> np.ndarray:
    packed = draw_tensor(3, "x.weight", TensorSpec("I8", (rows, columns // 2), "fp4")).view(np.uint8)
    scale = draw_tensor(3, "x.scale", TensorSpec("F8_E8M0", (rows, columns // 32), "fp4_scale"))
    grid = np.array([*E2M1, *(-value for value in E2M1)])
    values = np.stack([grid[packed & 15], grid[packed >> 4]], axis=-1).reshape(rows, columns)
    return values * np.repeat(np.exp2(scale.astype(np.float64) - 127), 32, 1)


def test_dequantised_weights_keep_activations_of_order_one() -> None:
    for fan_in in (64, 128, 1280):
        for values in (_fp8(1024, fan_in), _fp4(1024, fan_in)):
            assert np.isfinite(values).all()
            assert 0.65 < values.std() * fan_in**0.5 < 1.5
            assert abs(values.mean()) * fan_in**0.5 < 0.05


def test_scales_differ_between_blocks() -> None:
    scale = draw_tensor(0, "x.scale", TensorSpec("F8_E8M0", (8, 8), "fp8_scale"))
    assert len(np.unique(scale)) == 3


def test_plain_roles() -> None:
    norm = draw_tensor(0, "n", TensorSpec("BF16", (4096,), "norm"))
    values = (norm.astype(np.uint32) << 16).view(np.float32)
    assert 0.898 < values.min() < 0.91 and 1.09 < values.max() <= 1.1016
    sink = draw_tensor(0, "s", TensorSpec("F32", (4096,), "sink"))
    assert sink.dtype == np.float32 and -1 <= sink.min() < -0.99 and 0.99 < sink.max() <= 1
