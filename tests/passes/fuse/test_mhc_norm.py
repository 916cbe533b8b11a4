"""mhc_norm: collapse and norm without a mix become one call, with the cast when only the cast reads the norm."""

from __future__ import annotations

import pytest
import torch

from dsv41c.passes.fuse.mhc_norm import MhcNorm
from tests.passes.fuse.sites import normed, post, site_values
from tests.passes.programs import NUMERICS, OPS, apply, assert_fused, refusal, small

STEP = MhcNorm()


@pytest.mark.parametrize("numerics", NUMERICS)
def test_collapse_norm_and_cast_become_one_call(numerics: str) -> None:
    dtype, cast = NUMERICS[numerics]

    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        x = normed(v["streams"], v)
        return [OPS.quantize_fp8(x) if cast else x]
    assert assert_fused(STEP, small(body, site_values(dtype)), "mhc_norm").ops() == ["mhc_norm"]


def test_a_norm_that_others_read_too_leaves_the_cast_outside() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        x = normed(v["streams"], v)
        return [x, OPS.quantize_fp8(x)]
    assert assert_fused(STEP, small(body, site_values()), "mhc_norm").ops() == ["mhc_norm", "quantize_fp8"]


def test_the_post_before_it_stays_a_call() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        return [normed(post(v), v)]
    assert assert_fused(STEP, small(body, site_values()), "mhc_norm").ops() == ["mhc_post", "mhc_norm"]


def test_a_collapse_that_is_read_outside_stays() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        hidden = OPS.mhc_collapse(v["streams"], v["alpha"])
        return [hidden, OPS.rms_norm(hidden, v["norm"], 1e-20)]
    assert "%mhc_collapse inside is read by %output outside" in refusal(STEP, small(body, site_values()))


def test_a_collapse_without_a_norm_stays() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        return [OPS.quantize_fp8(OPS.mhc_collapse(v["streams"], v["alpha"]))]
    assert "has no reader that is a call of rms_norm" in refusal(STEP, small(body, site_values()))


def test_three_streams_are_refused() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        return [normed(v["streams"], v)]
    assert "3 streams, not 4" in refusal(STEP, small(body, site_values(streams=3)))


def test_a_cast_of_no_whole_groups_stays_outside() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        return [OPS.quantize_fp8(normed(v["streams"], v))]
    assert apply(STEP, small(body, site_values(width=48)))[0].ops() == ["mhc_norm", "quantize_fp8"]
