"""`compile --break` and `explain --breaks`: refusals with the nearest name, what is stored, JSON and text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.options import CompileOptions
from tests.damage.command import Command, check_refusal
from tests.unit.tools.conftest import SMALL

BREAKS = ("linear", "mhc_site")


@pytest.fixture(scope="module")
def broken(tiny_checkpoint: Path, once_per_run: Callable[..., Path]) -> Path:
    """A plan-only artifact of tiny with two ops as breaks."""
    options = CompileOptions(**SMALL, plan_only=True, breaks=BREAKS)  # type: ignore[arg-type]
    return once_per_run("broken", {"breaks": BREAKS},
                        lambda path: compile_checkpoint(tiny_checkpoint, path, options, lambda _: None))


@pytest.mark.parametrize(("name", "nearest"), [("linaer", "linear"), ("mega_mo", "mega_moe"),
                                               ("dsv41c::row_table", "row_table")])
def test_an_unknown_op_is_answered_with_the_nearest(name: str, nearest: str, tiny_checkpoint: Path, command: Command,
                                                    tmp_path: Path) -> None:
    """Before the model is captured."""
    ended = command("compile", tiny_checkpoint, "-o", tmp_path / "art", "--break", "linear", "--break", name)
    check_refusal(ended, "E0901", "--break", f"did you mean {nearest}?")
    assert ended.code == 2 and not (tmp_path / "art").exists()


def test_an_op_that_was_fused_away_is_answered_with_one_of_the_plan(tiny_checkpoint: Path, command: Command,
                                                                    tmp_path: Path) -> None:
    ended = command("compile", tiny_checkpoint, "-o", tmp_path / "art", "--break", "index_topk_block",
                    "--max-model-len", "64", "--plan-only")
    check_refusal(ended, "E0901", "--break", "did you mean index_topk_blocks?")
    ended = command("compile", tiny_checkpoint, "-o", tmp_path / "art", "--break", "linear", "--break", "mhc_mix",
                    "--max-model-len", "64", "--plan-only")
    check_refusal(ended, "E0901", "--break", "no launch of this plan", "did you mean mhc_")
    assert not (tmp_path / "art").exists()


def test_breaks_are_stored_with_the_options(broken: Path) -> None:
    manifest = json.loads((broken / "dsv41c.json").read_text())
    assert manifest["options"]["breaks"] == "linear mhc_site"
    assert CompileOptions.from_json(manifest["options"]).breaks == BREAKS


def test_explain_breaks_json(broken: Path, command: Command) -> None:
    result = command("explain", broken, "--breaks", "--json").json
    assert set(result) == {"schema_version", "path", "methods", "memory"}
    plan = json.loads((broken / "plan.json").read_text())
    assert [m["name"] for m in result["methods"]] == [m["name"] for m in plan["methods"]]
    for told, method in zip(result["methods"], plan["methods"], strict=True):
        assert set(told) == {"name", "segments", "breaks"}
        assert all(set(x) == {"step", "launches"} for x in told["segments"])
        found: dict[int, Any] = {x["step"]: x["launches"] for x in told["segments"]}
        found |= {b["step"]: (b["op"], b["reason"], b["launches"]) for b in told["breaks"]}
        assert found == {i: len(step["segment"]["launches"]) if "segment" in step else
                         (step["break"]["op"], "forced by --break", [x["name"] for x in step["break"]["launches"]])
                         for i, step in enumerate(method["steps"])}
        assert {b["op"] for b in told["breaks"]} <= set(BREAKS)
    bridges = [{"name": b["name"], "offset": b["offset"], "life": b["life"]} for b in result["memory"]["bridges"]]
    assert bridges == [{"name": b["name"], "offset": b["offset"], "life": b["life"].get("steps", "flow")}
                       for b in plan["bridges"]]
    assert result["memory"]["bridge_bytes"] == plan["memory"]["bridge_bytes"]
    told = [(m["name"], b["step"], x) for m in result["methods"] for b in m["breaks"] for x in b["bridges"]]
    assert all(set(x) == {"name", "offset", "bytes", "first_step", "last_step"} for _, _, x in told)
    assert [(method, step, x["last_step"]) for method, step, x in told] == [
        (life["method"], life["first"], life["last"]) for b in plan["bridges"] if (life := b["life"].get("steps"))]


def test_explain_breaks_text(broken: Path, artifact: Path, command: Command) -> None:
    text = command("explain", broken, "--breaks").out
    assert "break linear (forced by --break): " in text and " bytes at " in text and ", steps 1 to " in text
    whole = command("explain", artifact, "--breaks").out.splitlines()
    assert whole[0].startswith("method    decode: 1 segments, 0 breaks, ") and "break " not in "".join(whole[1:])


def test_breaks_are_one_question_of_explain(broken: Path, command: Command) -> None:
    check_refusal(command("explain", broken, "--breaks", "--launches"), "E0901", "--breaks")
