"""open_mhc: a site without a post becomes one call."""

from __future__ import annotations

import pytest
import torch

from dsv41c.passes.fuse.mega_mhc import MegaMhc
from dsv41c.passes.fuse.open_mhc import OpenMhc
from tests.passes.fuse.sites import mix, normed, site, site_values
from tests.passes.programs import NUMERICS, OPS, apply, assert_fused, refusal, small

STEP = OpenMhc()


@pytest.mark.parametrize("numerics", NUMERICS)
def test_a_site_without_a_post_becomes_one_call(numerics: str) -> None:
    dtype, cast = NUMERICS[numerics]

    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        x, mixed = normed(v["streams"], v), mix(v["streams"], v)
        return [*mixed, OPS.stream_mean(v["streams"]), OPS.quantize_fp8(x) if cast else x]
    assert sorted(assert_fused(STEP, small(body, site_values(dtype)), "mhc_open").ops()) == ["mhc_open", "stream_mean"]


def test_behind_mega_mhc_a_site_with_a_post_is_left_to_it() -> None:
    fused, _, _ = apply(MegaMhc(), small(site(True), site_values()))
    after, matches, refused = apply(STEP, fused)
    assert not matches and not refused and after.ops() == ["mhc_site"]


def test_a_mix_of_other_streams_is_not_this_sites() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        other = OPS.mhc_post(v["y"], v["streams"], v["beta"], v["gamma"])
        return [*mix(other, v), normed(v["streams"], v)]
    assert "%mhc_post has no reader that is a call of mhc_collapse" in refusal(STEP, small(body, site_values()))


def test_another_eps_is_refused() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        return [*mix(v["streams"], v, 1e-6), normed(v["streams"], v)]
    assert "is 1e-20, elsewhere eps is 1e-06" in refusal(STEP, small(body, site_values()))


def test_three_streams_are_refused() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        return [*mix(v["streams"], v), normed(v["streams"], v)]
    assert "3 streams, not 4" in refusal(STEP, small(body, site_values(streams=3)))


def test_a_cast_of_no_whole_groups_stays_outside() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        return [*mix(v["streams"], v), OPS.quantize_fp8(normed(v["streams"], v))]
    assert apply(STEP, small(body, site_values(width=48)))[0].ops() == ["mhc_open", "quantize_fp8"]
