"""`dsv41c compile` with options about buckets, from the command line to the plan."""

from __future__ import annotations

from pathlib import Path

from tests.unit.tools.command_line import dsv41c


def test_measured_sizes_become_the_buckets_of_the_plan(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Sizes 7 and 11 of a histogram get rungs of their own; the plan keeps policy and options."""
    sizes = tmp_path / "sizes.json"
    sizes.write_text('{"decode": {"1": 90, "7": 500, "11": 400}}')
    ended = dsv41c("compile", tiny_checkpoint, "-o", tmp_path / "art", "--plan-only", "--bucket-policy", "histogram",
                   "--histogram", sizes, "--max-graphs", "30", "--json")
    assert ended.code == 0, ended.err
    decode, encoder, decoder, _ = ended.json["methods"]
    assert decode["buckets"] == [1, 2, 3, 7, 11, 16] and decode["ladder"]["policy"] == "histogram"
    assert (encoder["ladder"]["policy"], encoder["ladder"]["above"]) == ("default", "eager")
    assert decoder["ladder"]["above"] == "split" and sum(len(m["buckets"]) for m in ended.json["methods"]) <= 30
    assert ended.json["options"]["histogram"] == "decode=1:90,7:500,11:400"
    assert "(histogram), above them eager; model: " in dsv41c("explain", tmp_path / "art").out
    assert "buckets 1 2 3 7 11 16 (histogram), above them eager" in dsv41c("inspect", tmp_path / "art").out


def test_a_bucket_above_the_bound_is_2_and_names_the_nearest(tiny_checkpoint: Path, tmp_path: Path) -> None:
    ended = dsv41c("compile", tiny_checkpoint, "-o", tmp_path / "art", "--bucket-policy", "explicit", "--buckets",
                   "decode=1,2,40")
    assert ended.code == 2 and "nearest: 16" in ended.err and not (tmp_path / "art").exists()
