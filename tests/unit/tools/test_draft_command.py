"""`--draft-len` of compile, plan and run: what is printed, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.tools.command_line import dsv41c

OPTIONS = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}
PROMPT = ("--prompt-ids", "5,6,7", "--max-new-tokens", "12", "--ignore-eos")


@pytest.fixture(scope="module")
def artifact(compiled_artifact: Callable[..., Path]) -> Path:
    """Counts upwards, and so do its drafts: all of them are right."""
    return compiled_artifact("tiny", 0, 1, **OPTIONS, draft_len=3)


@pytest.mark.parametrize("schedule", ["static", "confidence"])
def test_drafts_change_the_steps_and_no_token(artifact: Path, schedule: str) -> None:
    plain = dsv41c("run", artifact, *PROMPT, "--json")
    drafted = dsv41c("run", artifact, *PROMPT, "--json", "--draft-len", "3", "--draft-schedule", schedule)
    assert (plain.code, drafted.code) == (0, 0), drafted.err
    assert drafted.json["requests"] == plain.json["requests"]
    assert plain.json["speculation"] is None
    counts = drafted.json["speculation"]
    assert set(counts) == {"steps", "proposed", "accepted", "mean_accepted"}
    assert counts["accepted"] == counts["proposed"] and counts["steps"] + counts["accepted"] == 11
    assert counts["mean_accepted"] == pytest.approx(counts["accepted"] / counts["steps"])
    assert {"draft", "decode"} <= {step["method"] for step in drafted.json["steps"]}


def test_the_summary_says_how_many_were_accepted(artifact: Path) -> None:
    ended = dsv41c("run", artifact, *PROMPT, "--draft-len", "3")
    assert "drafts 8 of 8 accepted in 3 verifications, 2.67 on average" in ended.err
    assert "draft@1 x3" in ended.err


@pytest.mark.parametrize(("arguments", "words"), [
    (["--draft-len", "4"], ("4", "0 to 3, the --draft-len of the artifact")),
    (["--draft-len", "-1"], ("-1", "0 to 3")),
    (["--draft-len", "2", "--draft-schedule", "lucky"], ("lucky", "one of static, confidence")),
])
def test_bad_drafts_of_a_run(artifact: Path, arguments: list[str], words: tuple[str, str]) -> None:
    ended = dsv41c("run", artifact, *PROMPT, *arguments)
    assert ended.code == 2 and "DSV41C-E0901" in ended.err
    assert all(word in ended.err for word in words)


def test_an_artifact_without_drafts_verifies_none(compiled_artifact: Callable[..., Path]) -> None:
    ended = dsv41c("run", compiled_artifact("tiny", 0, 1, **OPTIONS), *PROMPT, "--draft-len", "1")
    assert ended.code == 2 and "0 to 0, the --draft-len of the artifact" in ended.err


@pytest.mark.parametrize("command", [["compile", "-o"], ["plan"]])
@pytest.mark.parametrize("length", ["4", "-1"])
def test_compile_and_plan_refuse_what_the_model_has_not(tiny_checkpoint: Path, tmp_path: Path, command: list[str],
                                                        length: str) -> None:
    output = [tmp_path / "art"] if command[0] == "compile" else []
    ended = dsv41c(command[0], tiny_checkpoint, *command[1:], *output, "--draft-len", length)
    assert ended.code == 2 and "DSV41C-E0901 option --draft-len" in ended.err
    assert "0 to 3 (dspark_block_size)" in ended.err


def test_plan_prints_the_command_of_a_plan_with_drafts(tiny_checkpoint: Path) -> None:
    ended = dsv41c("plan", tiny_checkpoint, "--draft-len", "2", "--json")
    arguments = ended.json["compile"]
    assert arguments[arguments.index("--draft-len") + 1] == "2"
    assert "draft" in {method["name"] for method in ended.json["methods"]}


def test_inspect_explain_and_check_know_the_draft(artifact: Path) -> None:
    assert "method    draft: groups <= 4" in dsv41c("inspect", artifact).out
    assert "flow      draft: draft" in dsv41c("explain", artifact).out
    checked = dsv41c("check", artifact, "--reference")
    assert checked.code == 0, checked.err
