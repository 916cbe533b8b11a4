"""passes.json is read strictly, and the histories that it tells are right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv41c.compiler.pass_driver import PassRecord
from dsv41c.compiler.pass_records import encode_records
from dsv41c.compiler.pipeline import PIPELINE
from dsv41c.passes.base import Match, Refusal
from dsv41c.runtime import pass_history
from dsv41c.runtime.pass_notes import decode_pass_notes, read_pass_notes
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.plan.plan_strategies import example_plan

METHOD = example_plan().methods[0].name
LAUNCH = example_plan().methods[0].steps[0].launches[0].name

RECORDS = (
    PassRecord("merge", "canonicalize", {}, "0" * 64, 1, (Match(METHOD, "norm_1", "norm", ("norm_1",)),)),
    PassRecord("small", "fuse", {"width": 2}, "1" * 64, 2, (
        Match(METHOD, "mix", "pair", ("mix", "norm")), Match("other", "mix", "pair", ("mix", "norm")),
        Refusal(METHOD, "mix_1", "%norm_3 inside is read by %linear_4 outside"),
        Refusal(METHOD, "mix_2", "%norm_5 inside is read by %linear_6 outside"),
        Refusal(METHOD, "mix_3", "%post is a call of b, not a call of c"))),
    PassRecord("large", "fuse", {}, "2" * 64, 1, (Match(METHOD, "pair", LAUNCH, ("pair", "linear")),)),
)


def fields() -> Any:
    return json.loads(encode_records(RECORDS))


def decoded(changed: Any) -> object:
    return decode_pass_notes(json.dumps(changed).encode(), "passes.json")


NOTES = decode_pass_notes(encode_records(RECORDS), "passes.json")


# --- reading ----------------------------------------------


def test_what_was_written_is_read() -> None:
    assert [(p.name, p.stage, p.arguments, p.source, p.num_matches) for p in NOTES] == [
        (r.name, r.stage, r.arguments, r.source, r.num_matches) for r in RECORDS]
    assert NOTES[0].matches == (Match(METHOD, "norm_1", "norm", ("norm_1",)),)
    assert NOTES[1].refusals[2] == Refusal(METHOD, "mix_3", "%post is a call of b, not a call of c")


def change(path: tuple[Any, ...], value: Any) -> Any:
    """The fields with one of them replaced, added, or (for `KeyError`) removed."""
    changed = target = fields()
    for key in path[:-1]:
        target = target[key]
    if value is KeyError:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return changed


@pytest.mark.parametrize(("path", "value"), [
    (("more",), 1), (("passes",), KeyError), (("passes",), {}), (("passes", 0), 3),
    (("passes", 0, "more"), 1), (("passes", 0, "name"), KeyError), (("passes", 0, "name"), 3),
    (("passes", 0, "arguments"), []), (("passes", 0, "num_matches"), True), (("passes", 0, "num_matches"), 2),
    (("passes", 0, "matches"), {}), (("passes", 0, "matches", 0), None),
    (("passes", 0, "matches", 0, "made"), KeyError),
    (("passes", 0, "matches", 0, "made"), 1), (("passes", 0, "matches", 0, "more"), 1),
    (("passes", 0, "matches", 0, "replaced"), "norm_1"), (("passes", 0, "matches", 0, "replaced", 0), 1),
    (("passes", 1, "refusals", 0, "reason"), None), (("passes", 1, "refusals", 0, "site"), KeyError),
], ids=lambda value: str(value))
def test_every_damage_is_refused(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(Dsv41cError) as caught:
        decoded(change(path, value))
    assert caught.value.code == "DSV41C-E0703"
    if len(path) > 1:
        assert f"$.passes[{path[1]}]" in caught.value.found


@pytest.mark.parametrize("version", [0, 2, None, "1"])
def test_another_version_is_refused_by_number(version: object) -> None:
    with pytest.raises(Dsv41cError) as caught:
        decoded(change(("schema_version",), version))
    assert caught.value.code == "DSV41C-E0604" and repr(version) in caught.value.found


@pytest.mark.parametrize("data", [b"", b"[]", b"nonsense", b"\xff", b"[" * 100_000], ids=lambda d: repr(d[:10]))
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(Dsv41cError) as caught:
        decode_pass_notes(data, "passes.json")
    assert caught.value.code == "DSV41C-E0703"


def test_the_file_must_be_the_one_of_the_manifest(compiled_artifact: Callable[..., Path], tmp_path: Path) -> None:
    """A missing file and changed bytes have their own codes."""
    import shutil

    artifact = compiled_artifact("tiny", 0, max_model_len=64, block_size=16, max_num_seqs=4, max_num_batched_tokens=24)
    assert [p.name for p in read_pass_notes(artifact)] == [p.name for p in PIPELINE]
    copy = Path(shutil.copytree(artifact, tmp_path / "copy"))
    (copy / "passes.json").write_bytes((copy / "passes.json").read_bytes() + b" ")
    with pytest.raises(Dsv41cError) as changed:
        read_pass_notes(copy)
    (copy / "passes.json").unlink()
    with pytest.raises(Dsv41cError) as missing:
        read_pass_notes(copy)
    assert (changed.value.code, missing.value.code) == ("DSV41C-E0602", "DSV41C-E0601")


# --- histories --------------------------------------------


def test_overview_counts_by_method() -> None:
    small = pass_history.overview(NOTES)[1]
    assert small == {"name": "small", "stage": "fuse", "num_matches": 2, "num_refusals": 3,
                     "matches_by_method": {METHOD: 1, "other": 1}, "refusals_by_method": {METHOD: 3}}


def test_refusals_are_grouped_by_reason() -> None:
    """Numbers of nodes do not make another reason; each site keeps its own words."""
    groups = pass_history.refusals(NOTES[1])
    assert [(g["reason"], g["count"]) for g in groups] == [
        ("%norm inside is read by %linear outside", 2), ("%post is a call of b, not a call of c", 1)]
    assert groups[0]["sites"][1] == {"method": METHOD, "site": "mix_2",
                                     "reason": "%norm_5 inside is read by %linear_6 outside"}


def test_a_node_is_followed_into_what_took_it() -> None:
    """norm_1 was merged into norm, norm went into pair, pair into the launch."""
    (found,) = pass_history.node_history(NOTES, example_plan(), "%norm_1")
    became = [(step["pass"], step["into"]) for step in found["became"]]
    assert became == [("merge", "norm"), ("small", "pair"), ("large", LAUNCH)]
    assert (found["method"], found["made"], found["launch"]) == (METHOD, None, LAUNCH)


def test_a_launch_is_traced_back_to_what_was_captured() -> None:
    (found,) = pass_history.node_history(NOTES, example_plan(), LAUNCH)
    made = found["made"]
    assert (made["pass"], [part["node"] for part in made["replaced"]]) == ("large", ["pair", "linear"])
    pair = made["replaced"][0]["made"]
    assert (pair["pass"], [part["node"] for part in pair["replaced"]]) == ("small", ["mix", "norm"])
    assert made["replaced"][1]["made"] is None
    assert pair["replaced"][1]["made"]["pass"] == "merge"  # norm took norm_1 in before
    assert found["became"] == [] and found["launch"] == LAUNCH


def test_a_refused_site_says_why() -> None:
    (found,) = pass_history.node_history(NOTES, example_plan(), "mix_3")
    assert found["refused"] == [{"pass": "small", "reason": "%post is a call of b, not a call of c"}]
    assert found["made"] is None and found["launch"] is None


def test_an_unknown_name_proposes_the_nearest() -> None:
    with pytest.raises(Dsv41cError) as node:
        pass_history.node_history(NOTES, example_plan(), "linaer")
    with pytest.raises(Dsv41cError) as step:
        pass_history.pass_named(NOTES, "smal", "--pass")
    assert (node.value.code, node.value.do) == ("DSV41C-E0901", "did you mean linear?")
    assert (step.value.code, step.value.do) == ("DSV41C-E0901", "did you mean small?")
