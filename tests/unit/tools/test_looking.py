"""`explain`, `diff` and `doctor`: the shape of their JSON, their texts and their exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.explain import explain
from dsv41c.tools.cli import doctor
from tests.damage.command import Command
from tests.damage.seal import change_plan
from tests.unit.runtime.plan.plan_strategies import example_plan

SMALL = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}


# --- explain ----------------------------------------------


def test_explain_json(artifact: Path, command: Command) -> None:
    result = command("explain", artifact, "--json").json
    assert set(result) == {"schema_version", "path", "target", "required_features", "flows", "methods", "kernels",
                           "memory", "classes", "state", "bridges"}
    plan = json.loads((artifact / "plan.json").read_text())
    kernels = result["kernels"]
    assert kernels["total"] == len(plan["kernels"]) == sum(kernels["by_provider"].values())
    assert set(kernels["by_provider"]) == {"aten", "cpu", "sequence"}
    assert sum(entry["kernels"] for entry in kernels["by_op"].values()) == kernels["total"]
    memory = dict(result["memory"])
    assert memory.pop("weight_bytes") > 900_000
    assert memory == plan["memory"]
    assert [(b["name"], b["offset"], b["life"]) for b in result["bridges"]] == [
        (b["name"], b["offset"], "flow") for b in plan["bridges"]]
    assert max(b["offset"] + b["bytes"] for b in result["bridges"]) <= memory["bridge_bytes"]


def test_explain_counts_every_launch_once(artifact: Path, command: Command) -> None:
    decode = next(m for m in command("explain", artifact, "--json").json["methods"] if m["name"] == "decode")
    assert (decode["segments"], decode["breaks"], decode["buckets"], decode["max_rows"]) == (1, [], [1, 2, 3, 4], 4)
    for counts in (decode["by_provider"], decode["by_op"]):
        assert sum(counts.values()) == decode["launches"]
    kinds = decode["by_layer_kind"]
    assert sum(entry["launches"] for entry in kinds.values()) == decode["launches"]
    assert {kind: entry["layers"] for kind, entry in kinds.items()} == {
        "embed": 0, "window": 1, "compressed by 2": 3, "compressed by 1": 4, "head": 0}


def test_explain_text(artifact: Path, command: Command) -> None:
    text = command("explain", artifact).out
    assert all(f"method    {name}:" in text for name in ("decode", "encoder", "decoder", "head"))
    assert "layers    compressed by 2: 3 layers, " in text


def test_explain_names_breaks() -> None:
    """With their reason; the launches of a break count like any other."""
    plan = example_plan()
    breaks = [(m.name, s.op, s.reason) for m in plan.methods for s in m.steps if isinstance(s, schema.Break)]
    facts = explain(plan)
    found = [(m["name"], b["op"], b["reason"]) for m in facts["methods"] for b in m["breaks"]]
    assert found == breaks
    assert [m["segments"] + len(m["breaks"]) for m in facts["methods"]] == [len(m.steps) for m in plan.methods]


# --- diff -------------------------------------------------


def test_an_artifact_is_the_same_as_its_copy(artifact: Path, command: Command, tmp_path: Path) -> None:
    copy = shutil.copytree(artifact, tmp_path / "copy")
    ended = command("diff", artifact, copy)
    assert (ended.code, ended.out) == (0, "same\n")
    assert command("diff", artifact, copy, "--json").json == {
        "schema_version": 1, "a": str(artifact), "b": str(copy), "same": True, "differences": []}


def test_a_changed_plan_is_told_by_its_place(artifact: Path, command: Command, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(artifact, tmp_path / "copy"))
    change_plan(copy, lambda plan: plan["methods"][0]["buckets"].pop())
    (copy / "config.json").write_text("{}")
    change_plan(copy, lambda plan: None)
    ended = command("diff", artifact, copy)
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert "plan      plan.methods[decode].buckets[3]: removed 4" in lines
    assert any(line.startswith("files     config.json.sha256: ") for line in lines)
    result = command("diff", artifact, copy, "--json")
    assert (result.code, result.json["same"]) == (1, False)
    assert {d["part"] for d in result.json["differences"]} == {"plan", "files"}


def test_other_options_are_told_and_long_lists_cut(artifact: Path, command: Command,
                                                   compiled_artifact: Callable[..., Path]) -> None:
    other = compiled_artifact("tiny", 0, **SMALL | {"max_num_batched_tokens": 16})
    ended = command("diff", artifact, other)
    assert "manifest  options.max_num_batched_tokens: 24 -> 16" in ended.out
    lines = ended.out.splitlines()
    assert len(lines) <= 101
    everything = command("diff", artifact, other, "--all").out.splitlines()
    assert len(everything) >= len(lines) - 1


# --- doctor -----------------------------------------------


def test_doctor_json(command: Command) -> None:
    ended = command("doctor", "--json")
    assert ended.code == 0
    result = ended.json
    assert set(result) == {"schema_version", "healthy", "versions", "executor", "c_api", "aten", "cpu", "cuda",
                           "nvcc", "cache"}
    assert result["healthy"] is True
    assert {"dsv41c", "python", "torch"} <= set(result["versions"]["found"])
    assert result["aten"]["matches_torch"] is True
    assert result["cpu"]["features"] == {"avx2": True, "fma": True}
    assert all(result[part]["state"] in ("ok", "absent") for part in set(result) - {"schema_version", "healthy"})


def test_doctor_says_what_is_missing(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> int:
        raise Dsv41cError("DSV41C-E0702", "libdsv41c_aten.so", found="built against torch 1.0", needed="torch 2",
                          do="run `make install`")

    monkeypatch.setattr("dsv41c.runtime.aten.aten_provider", missing)
    ended = command("doctor")
    assert ended.code == 1
    assert "aten      problem  built against torch 1.0, needed torch 2; run `make install`" in ended.out
    assert command("doctor", "--json").json["healthy"] is False


def test_doctor_follows_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Looking does not make it; a user without a home has none."""
    monkeypatch.setenv("DSV41C_CACHE_DIR", str(tmp_path / "cache"))
    finding = doctor._cache()
    assert (finding.state, finding.facts) == ("ok", {"path": str(tmp_path / "cache"), "writable": True})
    assert not (tmp_path / "cache").exists()
    monkeypatch.delenv("DSV41C_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert doctor._cache().state == "absent"
