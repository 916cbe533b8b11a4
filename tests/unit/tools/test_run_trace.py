"""`dsv41c run --trace`: one event a method run, also of a run that fails; the same numbers as in --json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsv41c.runtime.engine import Engine
from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.damage.command import Command, check_refusal

RUN = ("--prompt-ids", "5,6,7", "--max-new-tokens", "4", "--ignore-eos")


def events(path: Path) -> list[dict[str, Any]]:
    return [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]


def test_events_are_the_steps_of_the_json(artifact: Path, tmp_path: Path, command: Command) -> None:
    ended = command("run", artifact, *RUN, "--trace", tmp_path / "trace.json", "--json")
    steps = ended.json["steps"]
    assert [s["step"] for s in steps] == [0, 0, 0, 1, 2, 3]
    found = events(tmp_path / "trace.json")
    assert [e["args"] for e in found] == [{k: v for k, v in step.items() if k != "us"} for step in steps]
    assert [e["dur"] for e in found] == [pytest.approx(step["us"], abs=1e-3) for step in steps]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in zip(found, found[1:], strict=False))
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]


def test_counters_are_in_the_json_and_in_the_summary(artifact: Path, command: Command) -> None:
    counted = command("run", artifact, *RUN, "--json").json["counters"]
    assert counted == [{"method": name, "mode": "bucketed", "reason": "bucket", "runs": runs, "rows": rows,
                        "pad_rows": 0} for name, runs, rows in (("encoder", 1, 3), ("decoder", 1, 3), ("head", 1, 1),
                                                                ("decode", 3, 3))]
    assert "decode bucketed (bucket) 3 runs, 3 rows, 0 pads" in command("run", artifact, *RUN).err
    assert "decode eager (requested) 3 runs, 3 rows, 0 pads" in command("run", artifact, *RUN, "--eager").err


FAILURE = Dsv41cError("DSV41C-E0802", "a launch failed", found="a test", needed="no failure", do="nothing")


def test_a_loop_that_fails_in_the_middle_leaves_its_trace(artifact: Path, tmp_path: Path, command: Command,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = Runtime.step, []

    def step(self: Runtime, *arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 3:
            raise FAILURE
        whole(self, *arguments)

    monkeypatch.setattr(Runtime, "step", step)
    ended = command("run", artifact, *RUN, "--eager", "--trace", tmp_path / "trace.json")
    check_refusal(ended, "E0802", "a launch failed")
    assert [(e["args"]["step"], e["args"]["method"]) for e in events(tmp_path / "trace.json")] == [
        (0, "encoder"), (0, "decoder"), (0, "head"), (1, "decode")]


def test_an_engine_that_fails_leaves_its_trace(artifact: Path, tmp_path: Path, command: Command,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Engine.generate

    def generate(self: Engine, *arguments: Any) -> None:
        whole(self, *arguments)
        raise FAILURE

    monkeypatch.setattr(Engine, "generate", generate)
    ended = command("run", artifact, *RUN, "--trace", tmp_path / "trace.json")
    check_refusal(ended, "E0802", "a launch failed")
    assert {e["args"]["step"] for e in events(tmp_path / "trace.json")} == {0, 1, 2, 3}


@pytest.mark.parametrize(("path", "found"), [("none/trace.json", "no directory"), (".", "a directory")])
def test_a_file_that_cannot_be_written_is_refused_before_the_run(artifact: Path, tmp_path: Path, command: Command,
                                                                 monkeypatch: pytest.MonkeyPatch, path: str,
                                                                 found: str) -> None:
    monkeypatch.setattr(Runtime, "engine", lambda *_, **__: pytest.fail("an engine ran"))
    ended = command("run", artifact, *RUN, "--trace", tmp_path / path)
    check_refusal(ended, "E0606", "the trace cannot be written", found)
    assert not list(tmp_path.iterdir())
