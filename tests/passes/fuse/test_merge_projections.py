"""merge_projections: two scaled products of one value become one call, and exactly two."""

from __future__ import annotations

import pytest
import torch

from dsv41c.passes.fuse.merge_projections import MergeProjections
from tests.passes.programs import BF16, F32, NUMERICS, OPS, Values, assert_fused, fp8, normal, refusal, small

STEP = MergeProjections()


def values(dtype: torch.dtype = F32) -> Values:
    found = {"x": normal(1, 5, 64, dtype=dtype), "plain": normal(2, 8, 64)}
    for seed, (name, rows) in enumerate({"a": 32, "b": 96, "c": 32}.items()):
        found[name], found[f"{name}_scale"] = fp8(seed, rows, 64)
    return found


def product(v: dict[str, torch.Tensor], name: str, dtype: torch.dtype = F32) -> torch.Tensor:
    return OPS.linear(v["x"], v[name], v.get(f"{name}_scale"), dtype)


@pytest.mark.parametrize("numerics", NUMERICS)
def test_two_products_become_one_call(numerics: str) -> None:
    dtype, _ = NUMERICS[numerics]
    given = small(lambda **v: [product(v, "a", dtype), product(v, "b", dtype)], values(dtype))
    assert assert_fused(STEP, given, "linear_pair").ops() == ["linear_pair"]


def test_a_product_without_a_scale_between_them_is_no_third() -> None:
    """In float32 it has the pair's dtype: the search goes on behind it."""
    given = small(lambda **v: [product(v, "a"), product(v, "plain"), product(v, "b")], values())
    assert assert_fused(STEP, given, "linear_pair").ops() == ["linear", "linear_pair"]


def test_of_three_readers_none_are_paired() -> None:
    given = small(lambda **v: [product(v, n) for n in "abc"], values())
    assert "%x has a third such reader, %linear_2" in refusal(STEP, given)


def test_another_dtype_is_another_product() -> None:
    given = small(lambda **v: [product(v, "a"), product(v, "b", BF16)], values())
    assert "is torch.bfloat16, elsewhere dtype is torch.float32" in refusal(STEP, given)


def test_two_products_without_scales_stay() -> None:
    given = small(lambda **v: [product(v, "plain"), OPS.linear(v["x"], v["other"], None, F32)],
                  {**values(), "other": normal(5, 8, 64)})
    assert "scale1 is None" in refusal(STEP, given)


def test_products_of_different_values_stay() -> None:
    given = small(lambda **v: [product(v, "a"), product({**v, "x": OPS.quantize_fp8(v["x"])}, "b")], values())
    assert "has no reader that is a call of linear" in refusal(STEP, given)


def test_a_scaled_weight_of_another_type_stays() -> None:
    given = small(lambda **v: [product(v, "a"), product(v, "b")], {**values(), "b": normal(9, 96, 64)})
    assert "w1 and w2 are float8_e4m3fn and float32" in refusal(STEP, given)


def test_an_input_made_behind_the_first_products_reader_comes_too_late() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        first = product(v, "a")
        scale = OPS.quantize_fp8(first)
        return [scale, OPS.linear(v["x"], v["b"], scale, F32)]
    assert "%quantize_fp8 is made behind %quantize_fp8, which reads a result" in refusal(STEP, small(body, values()))
