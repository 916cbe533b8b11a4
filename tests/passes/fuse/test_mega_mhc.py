"""mega_mhc: a site with its post becomes one call; a site whose streams others made stays."""

from __future__ import annotations

import pytest
import torch

from dsv41c.passes.fuse.mega_mhc import MegaMhc
from tests.passes.fuse.sites import mix, normed, post, site, site_values
from tests.passes.programs import NUMERICS, OPS, apply, assert_fused, normal, refusal, small

STEP = MegaMhc()


@pytest.mark.parametrize("numerics", NUMERICS)
def test_a_site_becomes_one_call(numerics: str) -> None:
    dtype, cast = NUMERICS[numerics]
    after = assert_fused(STEP, small(site(cast), site_values(dtype)), "mhc_site")
    assert after.ops() == ["mhc_site"]


def test_members_that_nothing_reads_do_not_stand_in_the_way() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        trunk = post(v)
        return [normed(trunk, v), mix(trunk, v)[0]]
    assert_fused(STEP, small(body, site_values()), "mhc_site")


def test_streams_that_another_call_made_are_no_site() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        return [*mix(v["streams"], v), normed(v["streams"], v)]
    assert "is the input streams, not a call of mhc_post" in refusal(STEP, small(body, site_values()))


def test_another_eps_is_another_site() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        trunk = post(v)
        return [*mix(trunk, v, 1e-6), normed(trunk, v)]
    assert "is 1e-20, elsewhere eps is 1e-06" in refusal(STEP, small(body, site_values()))


def test_a_collapse_that_is_read_outside_stays() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        trunk = post(v)
        collapsed = OPS.mhc_collapse(trunk, v["alpha"])
        return [collapsed, *mix(trunk, v), OPS.rms_norm(collapsed, v["norm"], 1e-20)]
    assert "%mhc_collapse inside is read by %output outside" in refusal(STEP, small(body, site_values()))


def test_a_norm_weight_made_behind_the_first_reader_of_the_trunk_comes_too_late() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        trunk = post(v)
        mean = OPS.stream_mean(trunk)
        x = OPS.rms_norm(OPS.mhc_collapse(trunk, mean.view(5, 4)), v["norm"], 1e-20)
        return [trunk, *mix(trunk, v), x]
    values = {**site_values(width=4), "norm": normal(1, 4)}
    assert "is made behind %stream_mean, which reads a result" in refusal(STEP, small(body, values))


@pytest.mark.parametrize(("values", "reason"), [
    (site_values(streams=3), "3 streams, not 4"),
    ({**site_values(), "y": normal(1, 5, 64, dtype=torch.bfloat16)}, "y and streams are bfloat16 and float32"),
])
def test_what_the_op_does_not_take_is_refused(values: dict[str, torch.Tensor], reason: str) -> None:
    assert reason in refusal(STEP, small(site(False), values))


def test_a_cast_of_no_whole_groups_stays_outside() -> None:
    """The site is fused without it."""
    after, matches, _ = apply(STEP, small(site(True), site_values(width=48)))
    assert len(matches) == 1 and after.ops() == ["mhc_site", "quantize_fp8"]
