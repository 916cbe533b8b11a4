"""`dsv41c check`: weights that are no numbers, tokens that differ, and the first launch that differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dsv41c.compiler import stepwise
from tests.damage.command import Command, check_refusal
from tests.damage.conftest import SIZES
from tests.damage.seal import change_plan
from tests.damage.shard import header_of
from tests.damage.test_artifact_files import WEIGHTS

LINEAR = "layers.0.attn.wq_b/linear"


def plant(artifact: Path, name: str, offset: int, code: int) -> None:
    """One byte of a weight."""
    header, start = header_of(artifact / WEIGHTS)
    data = bytearray((artifact / WEIGHTS).read_bytes())
    data[start + header[name]["data_offsets"][0] + offset] = code
    (artifact / WEIGHTS).write_bytes(data)


def shorten(artifact: Path, command: Command, change: Callable[[Any], object] = lambda plan: None) -> None:
    """A self-test of three ids and two tokens, those that the changed artifact itself gives."""
    change_plan(artifact, change)
    ended = command("run", artifact, "--prompt-ids", "3,10,17", "--max-new-tokens", "2", "--ignore-eos", "--json")
    check = {"prompt": [3, 10, 17], "tokens": ended.json["requests"][0]["tokens"]}
    change_plan(artifact, lambda plan: plan.update(checks=[check]))


def test_a_sound_artifact(sound: Path, command: Command) -> None:
    ended = command("check", sound, "--json", "--verify", "full")
    assert (ended.code, ended.err) == (0, "")
    result = ended.json
    assert set(result) == {"schema_version", "path", "verify", "weights", "self_test", "reference", "seconds"}
    assert (result["schema_version"], result["verify"], result["reference"]) == (1, "full", None)
    assert result["self_test"] == {"prompts": 1, "tokens": 8}
    assert result["weights"]["bytes"] > 900_000


def test_with_the_reference(artifact: Path, command: Command) -> None:
    shorten(artifact, command)
    result = command("check", artifact, "--reference", "--json").json["reference"]
    launches = [sum(len(s["segment"]["launches"]) for s in m["steps"])
                for m in json.loads((artifact / "plan.json").read_text())["methods"]]
    assert (result["steps"], result["launches"]) == (2, sum(launches))
    assert 0 < result["distance"] < 2e-2


def test_weights_that_stay_in_the_checkpoint(compiled_artifact: Callable[..., Path], tiny_checkpoint: Path,
                                             sound: Path, command: Command) -> None:
    mapped = compiled_artifact("tiny", 0, **SIZES, weights="map")
    ended = command("check", mapped, "--weights", tiny_checkpoint, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["weights"] == command("check", sound, "--json").json["weights"]
    assert command("check", mapped).code == 2


@pytest.mark.parametrize(("name", "index", "code", "words"), [
    ("layers.0.attn.wq_b.weight", (33, 20), 0x7F, "first at [33, 20], block [1, 0]"),
    ("layers.0.attn.wq_a.weight", (0, 0), 0xFF, "first at [0, 0], block [0, 0]"),
    ("layers.0.attn.wq_b.scale", (1, 0), 0xFF, "first at [1, 0], block [1, 0]"),
    ("layers.2.ffn.experts.w1.scale", (1, 3, 1), 0xFF, "first at [1, 3, 1], block [1, 3, 1]"),
])
def test_a_nan_code_is_named(name: str, index: tuple[int, ...], code: int, words: str, artifact: Path,
                             command: Command) -> None:
    shape = header_of(artifact / WEIGHTS)[0][name]["shape"]
    offset = 0
    for position, size in zip(index, shape, strict=True):
        assert position < size
        offset = offset * size + position
    plant(artifact, name, offset, code)
    check_refusal(command("check", artifact), "E0607", f"{name}: 1 NaN, {words}", "1 weights")


def test_many_nan_codes_name_the_first_ten(artifact: Path, command: Command) -> None:
    header, _ = header_of(artifact / WEIGHTS)
    names = [n for n, e in header.items() if n != "__metadata__" and e["dtype"] == "F8_E8M0"]
    for name in names[:12]:
        plant(artifact, name, 0, 0xFF)
    ended = command("check", artifact)
    check_refusal(ended, "E0607", "12 weights", "(first 10 of 12)")
    assert ended.err.count("1 NaN") == 10


def test_a_token_that_differs(artifact: Path, command: Command) -> None:
    change_plan(artifact, lambda plan: plan["checks"][0]["tokens"].__setitem__(3, 1))
    check_refusal(command("check", artifact), "E0803", "self-test 0, token 3")


@pytest.mark.parametrize("check", [{"prompt": [], "tokens": [1]}, {"prompt": [96], "tokens": [1]},
                                   {"prompt": [1], "tokens": []}, {"prompt": [1] * 64, "tokens": [1]}])
def test_a_self_test_that_cannot_be(check: dict[str, list[int]], artifact: Path, command: Command) -> None:
    change_plan(artifact, lambda plan: plan.update(checks=[check]))
    check_refusal(command("check", artifact), "E0502", "$.checks[0]")


def test_a_kernel_body_that_is_not_its_op(artifact: Path, command: Command) -> None:
    """The body of a norm in the plan adds another epsilon than the op's attribute says: the executor's bits leave
    the references at the first state that depends on it."""
    def change(plan: Any) -> None:
        norm = next(k for k in plan["kernels"] if k["op"] == "dsv41c::rms_norm")
        eps = next(local for local in norm["body"]["locals"]
                   if local["kind"] == "constant" and local["value"] == norm["attributes"]["eps"])
        eps["value"] = {"f": (0.5).hex()}

    shorten(artifact, command, change)
    check_refusal(command("check", artifact, "--reference"), "E0804", "launch encoder: ", "window_0 after step 0")


def test_a_launch_that_is_not_its_reference(artifact: Path, command: Command,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of this machine computes something else."""
    right = stepwise.implementation

    def broken(spec: Any) -> Callable[..., Any]:
        call = right(spec)
        return call if spec.name != "linear" else lambda *a: torch.add(call(*a), 0.25)

    shorten(artifact, command)
    monkeypatch.setattr(stepwise, "implementation", broken)
    check_refusal(command("check", artifact, "--reference"), "E0804", f"launch encoder: {LINEAR}", "relative distance")
