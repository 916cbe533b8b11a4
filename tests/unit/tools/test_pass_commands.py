"""`passes`, `explain` about passes, `compile --dump-dir`, `bisect` and `diff --structure` as commands."""

from __future__ import annotations

import html.parser
import io
import json
import shutil
from pathlib import Path

import pytest

from dsv41c.compiler.pipeline import PIPELINE
from dsv41c.passes.base import Stage
from tests.damage.command import Command, check_refusal
from tests.damage.seal import change_plan, seal

SMALL = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}
OPTIONS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
TEXT = """method decode rows D in 1..16 {
  weight %w : bfloat16 [64] = "norm.weight"
  input %x : bfloat16 [D, 64] = "x"
  %a = rms_norm(%x, %w, 1e-06)
  %b = rms_norm(%x, %w, 1e-06)
  %c = quantize_fp8(%b)
  return a=%a, c=%c
}
"""


def piped_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


# --- passes -----------------------------------------------


def test_list_names_the_pipeline_in_order(command: Command) -> None:
    result = command("passes", "list", "--json").json
    assert [p["name"] for p in result["passes"]] == [p.name for p in PIPELINE]
    assert set(result) == {"schema_version", "passes"}
    assert all(set(p) == {"name", "stage", "requires", "commutes", "summary"} for p in result["passes"])
    lines = command("passes", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == [p.name for p in PIPELINE]


def test_show_tells_a_pass_in_full(command: Command) -> None:
    for step in PIPELINE:
        result = command("passes", "show", step.name, "--json").json
        assert set(result) == {"schema_version", "name", "stage", "requires", "commutes", "summary", "module",
                               "docstring", "arguments", "anchor", "ops", "guards"}
        text = command("passes", "show", step.name).out
        assert step.name in text and result["docstring"] in text
        assert all(op["schema"] in text for op in result["ops"])


def test_run_rewrites_text(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout is the new text alone, which the same pass takes again and leaves as it is."""
    piped_in(monkeypatch, TEXT)
    ended = command("passes", "run", "merge_equal_calls")
    assert ended.code == 0 and "%c = quantize_fp8(%a)" in ended.out and "%b" not in ended.out
    assert ended.err == "merge_equal_calls: 1 matches, 0 refusals\n  decode %a replaces %b\n"
    piped_in(monkeypatch, ended.out)
    again = command("passes", "run", "merge_equal_calls", "--json")
    assert again.json == {"schema_version": 1, "program": ended.out, "passes": [
        {"name": "merge_equal_calls", "stage": "canonicalize", "arguments": {}, "num_matches": 0, "matches": [],
         "refusals": [], "source": again.json["passes"][0]["source"]}]}
    assert again.err == ""


def test_run_refuses_bad_text_unknown_names_and_wrong_order(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    piped_in(monkeypatch, TEXT.replace("quantize_fp8", "quantise_fp8"))
    check_refusal(command("passes", "run", "merge_equal_calls"), "E0306", "line 6, column 8", "quantize_fp8")
    check_refusal(command("passes", "run", "merge_equal_cals"), "E0901", "did you mean merge_equal_calls?")
    check_refusal(command("passes", "show", "merge"), "E0901", "did you mean")
    piped_in(monkeypatch, TEXT)
    check_refusal(command("passes", "run", "merge_equal_calls", "merge_equal_calls"), "E0304", "two passes called")
    piped_in(monkeypatch, TEXT)
    check_refusal(command("passes", "run", "merge_equal_calls", "--done", "merge_equal_calls"), "E0304")


def test_run_refuses_a_pass_without_what_it_requires(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--done` says that the text has been through that pass already."""
    from dataclasses import dataclass

    from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls

    @dataclass(frozen=True)
    class Later(MergeEqualCalls):
        """Merges once more."""

        name = "later"
        requires = ("merge_equal_calls",)

    monkeypatch.setattr("dsv41c.compiler.pipeline.PIPELINE", (MergeEqualCalls(), Later()))
    monkeypatch.setattr("dsv41c.compiler.pass_driver.source_digest", lambda step: "0" * 64)
    piped_in(monkeypatch, TEXT)
    check_refusal(command("passes", "run", "later"), "E0304", "before pass merge_equal_calls, which it requires")
    piped_in(monkeypatch, TEXT)
    check_refusal(command("passes", "run", "later", "merge_equal_calls"), "E0304")
    piped_in(monkeypatch, TEXT)
    assert command("passes", "run", "later", "--done", "merge_equal_calls").code == 0
    piped_in(monkeypatch, TEXT)
    both = command("passes", "run", "merge_equal_calls", "later", "--json").json
    assert [p["num_matches"] for p in both["passes"]] == [1, 0]


# --- explain ----------------------------------------------

NOTES = {"schema_version": 1, "passes": [{
    "name": "fuse", "stage": "fuse", "arguments": {}, "source": "0" * 64, "num_matches": 1,
    "matches": [{"method": "decode", "site": "old", "made": "row_table", "replaced": ["old", "older"]}],
    "refusals": [{"method": "decode", "site": f"linear_{i}", "reason": f"%mix_{i} has no reader"} for i in (1, 2)]}]}


@pytest.fixture
def noted(artifact: Path, tmp_path: Path) -> Path:
    """A copy with other notes: one pass that made the row table."""
    copy = Path(shutil.copytree(artifact, tmp_path / "noted"))
    (copy / "passes.json").unlink()
    (copy / "passes.json").write_text(json.dumps(NOTES))
    seal(copy)
    return copy


def test_explain_passes(noted: Path, command: Command) -> None:
    assert command("explain", noted, "--passes", "--json").json == {
        "schema_version": 1, "path": str(noted), "passes": [
            {"name": "fuse", "stage": "fuse", "num_matches": 1, "num_refusals": 2,
             "matches_by_method": {"decode": 1}, "refusals_by_method": {"decode": 2}}]}
    assert " ".join(command("explain", noted, "--passes").out.split()) == "fuse 1 matches (decode 1), 2 refusals"


def test_explain_one_pass(noted: Path, command: Command) -> None:
    assert command("explain", noted, "--pass", "fuse", "--json").json == {
        "schema_version": 1, "path": str(noted), "pass": "fuse", "num_matches": 1,
        "matches": NOTES["passes"][0]["matches"]}  # type: ignore[index]
    assert "decode %row_table replaces %old, %older" in command("explain", noted, "--pass", "fuse").out
    check_refusal(command("explain", noted, "--pass", "fus"), "E0901", "did you mean fuse?")


def test_explain_why_not(noted: Path, command: Command) -> None:
    result = command("explain", noted, "--why-not", "fuse", "--json").json
    assert (result["pass"], result["num_refusals"]) == ("fuse", 2)
    (group,) = result["reasons"]
    assert (group["reason"], group["count"]) == ("%mix has no reader", 2)
    assert group["sites"][0] == {"method": "decode", "site": "linear_1", "reason": "%mix_1 has no reader"}
    assert "decode %linear_2: %mix_2 has no reader" in command("explain", noted, "--why-not", "fuse").out


def test_explain_node(noted: Path, command: Command) -> None:
    """By the name of what was captured, of what was made and of the launch."""
    older = command("explain", noted, "--node", "older", "--json").json
    assert older == {"schema_version": 1, "path": str(noted), "node": "older", "methods": [
        {"method": "decode", "node": "older", "made": None, "became": [{"pass": "fuse", "into": "row_table"}],
         "launch": "row_table", "refused": []}]}
    made = command("explain", noted, "--node", "row_table", "--json").json["methods"]
    assert [m["method"] for m in made] == ["decode", "encoder"]
    assert made[0]["made"]["pass"] == "fuse" and made[1]["made"] is None
    text = command("explain", noted, "--node", "row_table").out
    assert "made by fuse from %old, %older" in text and "as captured" in text
    check_refusal(command("explain", noted, "--node", "no_such"), "E0901", "did you mean")


def test_explain_launches(artifact: Path, command: Command) -> None:
    result = command("explain", artifact, "--launches", "--json").json
    assert set(result) == {"schema_version", "path", "layer_kinds", "total", "kernels", "extras", "steady", "different",
                           "layers"}
    assert set(result["layer_kinds"]["reuse"]) == {"decode", "encoder", "decoder"}
    assert set(result["total"]) == {"decode", "encoder", "decoder", "head"}
    text = command("explain", artifact, "--launches").out
    assert f"reuse: decode {result['layer_kinds']['reuse']['decode']}, " in text


def test_explain_answers_one_question(artifact: Path, command: Command) -> None:
    check_refusal(command("explain", artifact, "--passes", "--launches"), "E0901", "2 questions")


@pytest.mark.parametrize("option", ["--passes", "--pass", "--why-not", "--node"])
def test_damaged_notes_are_refused(noted: Path, command: Command, option: str) -> None:
    (noted / "passes.json").write_text('{"schema_version": 1}')
    arguments = [option] if option == "--passes" else [option, "fuse"]
    check_refusal(command("explain", noted, *arguments), "E0602")
    seal(noted)
    check_refusal(command("explain", noted, *arguments), "E0703", "keys")


def test_explain_needs_no_torch(noted: Path) -> None:
    import subprocess
    import sys

    code = ("import sys\nfrom dsv41c.tools.cli.main import run\n"
            "questions = ['--passes'], ['--node', 'old'], ['--launches']\n"
            f"codes = [run(['explain', {str(noted)!r}, *question]) for question in questions]\n"
            "sys.exit(codes != [0, 0, 0] or 'torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


# --- compile --dump-dir -----------------------------------


class Outside(html.parser.HTMLParser):
    """Collects tags that are not closed, and whatever a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "data", "action")]
        self.fetched += [tag] if tag in ("script", "link", "iframe", "img") else []
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_dump_has_text_behind_each_pass_and_a_page(tiny_checkpoint: Path, command: Command, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of one stage, run through the next pass by hand, is the text of the next stage."""
    dump = tmp_path / "dump"
    dump.mkdir()  # empty: taken
    ended = command("compile", tiny_checkpoint, "-o", tmp_path / "art", "--plan-only", "--dump-dir", dump, *OPTIONS)
    assert ended.code == 0, ended.err
    names = [f"{i:02d}-{name}.txt" for i, name in enumerate(["captured", *(p.name for p in PIPELINE)])]
    assert sorted(p.name for p in dump.iterdir()) == [*names, "index.html"]
    piped_in(monkeypatch, (dump / names[0]).read_text())
    assert command("passes", "run", PIPELINE[0].name).out == (dump / names[1]).read_text()
    text = (dump / "index.html").read_text()
    page = Outside()
    page.feed(text)
    assert (page.open, page.fetched) == ([], [])
    assert "url(" not in text and "@import" not in text
    assert all(f"{i:02d} {step.name}" in text for i, step in enumerate(PIPELINE, start=1))
    check_refusal(command("compile", tiny_checkpoint, "-o", tmp_path / "art2", "--plan-only", "--dump-dir", dump,
                          *OPTIONS), "E0605", str(dump))
    assert not (tmp_path / "art2").exists()


def test_a_failing_pass_leaves_the_dump_until_then(tiny_checkpoint: Path, command: Command, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("on purpose")

    monkeypatch.setattr(type(PIPELINE[-1]), "apply", fails)
    dump = tmp_path / "dump"
    check_refusal(command("compile", tiny_checkpoint, "-o", tmp_path / "art", "--plan-only", "--dump-dir", dump,
                          *OPTIONS), "E0305", PIPELINE[-1].name)
    assert (dump / "00-captured.txt").read_text().startswith("method decode")
    assert not (dump / f"{len(PIPELINE):02d}-{PIPELINE[-1].name}.txt").exists()
    assert not (tmp_path / "art").exists()


# --- bisect -----------------------------------------------


def test_bisect_of_a_good_pipeline(artifact: Path, command: Command) -> None:
    ended = command("bisect", artifact, "--json")
    result = ended.json
    assert ended.code == 0
    assert set(result) == {"schema_version", "path", "equal", "first", "passes", "seconds"}
    assert (result["equal"], result["first"]) == (True, None)
    assert [(p["name"], p["is_equal"]) for p in result["passes"]] == [(p.name, True) for p in PIPELINE]


def test_bisect_names_a_wrong_pass(artifact: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.compiler.test_bisect import ChangeArgument

    fused = next(i for i, step in enumerate(PIPELINE) if step.stage is Stage.FUSE)  # behind them no rms_norm is left
    wrong = (*PIPELINE[:fused], ChangeArgument("decoder", "rms_norm", 3, 2, 0.5), *PIPELINE[fused:])
    monkeypatch.setattr("dsv41c.compiler.pipeline.PIPELINE", wrong)
    ended = command("bisect", artifact, "--json")
    first = ended.json["first"]
    assert ended.code == 4
    assert set(first) == {"pass", "step", "what", "index", "found", "needed", "method", "node", "match"}
    assert (first["pass"], first["step"], first["method"]) == ("change_argument", 0, "decoder")
    assert first["match"]["made"] == first["node"]
    text = command("bisect", artifact).out
    assert "DIFFERS  change_argument: 1 matches" in text and "first    change_argument: " in text


def test_bisect_needs_weights(tiny_checkpoint: Path, command: Command, tmp_path: Path) -> None:
    assert command("compile", tiny_checkpoint, "-o", tmp_path / "plan", "--plan-only", *OPTIONS).code == 0
    check_refusal(command("bisect", tmp_path / "plan"), "E0603")
    assert command("compile", tiny_checkpoint, "-o", tmp_path / "map", "--weights", "map", *OPTIONS).code == 0
    check_refusal(command("bisect", tmp_path / "map"), "E0901", "--weights DIR")
    assert command("bisect", tmp_path / "map", "--checkpoint", tiny_checkpoint).code == 0


# --- diff --structure -------------------------------------


def test_structure_of_one_program_is_equal_whatever_its_bodies(artifact: Path, command: Command,
                                                               tmp_path: Path) -> None:
    copy = Path(shutil.copytree(artifact, tmp_path / "copy"))
    change_plan(copy, lambda plan: [kernel.update(scratch_bytes=64) for kernel in plan["kernels"]])
    assert command("diff", artifact, copy).code == 1
    assert command("diff", artifact, copy, "--structure", "--json").json == {
        "schema_version": 1, "a": str(artifact), "b": str(copy), "same": True, "differences": []}


def test_structure_tells_another_launch(artifact: Path, command: Command, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(artifact, tmp_path / "copy"))
    change_plan(copy, lambda plan: plan["methods"][0]["steps"][0]["segment"]["launches"].pop())
    ended = command("diff", artifact, copy, "--structure")
    assert ended.code == 1
    assert ended.out.startswith("structure methods[decode].steps[0].launches[")
    result = command("diff", artifact, copy, "--structure", "--json")
    assert (result.code, {d["part"] for d in result.json["differences"]}) == (1, {"structure"})
