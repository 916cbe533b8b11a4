"""Artifacts that must not load: each kind of damage has its code, and says found and needed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from dsv41c.runtime.load import load
from dsv41c.runtime.plan.codec import encode
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.toy_artifact import toy_weights, write_artifact, write_manifest
from tests.unit.runtime.toy_plan import toy_plan

HEAD, INDEX = "model-00002-of-00002.safetensors", "model.safetensors.index.json"


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_artifact(tmp_path / "artifact")


def refused(artifact: Path, code: str, verify: str = "header") -> Dsv41cError:
    with pytest.raises(Dsv41cError) as failure:
        load(artifact, verify=verify)  # type: ignore[arg-type]
    assert failure.value.code == f"DSV41C-{code}", failure.value
    return failure.value


def flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_sound_artifact_passes_the_full_check(artifact: Path) -> None:
    load(artifact, verify="full").close()


def test_missing_directory(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing", "E0601").subject.endswith("dsv41c.json")


@pytest.mark.parametrize("name", ["dsv41c.json", "plan.json", INDEX, HEAD, "config.json"])
def test_missing_file(artifact: Path, name: str) -> None:
    (artifact / name).unlink()
    assert refused(artifact, "E0601").subject.endswith(name)


@pytest.mark.parametrize("name", ["plan.json", HEAD])
def test_truncated_file(artifact: Path, name: str) -> None:
    data = (artifact / name).read_bytes()
    (artifact / name).write_bytes(data[:-10])
    error = refused(artifact, "E0602")
    assert (error.found, error.needed) == (f"{len(data) - 10} bytes", f"{len(data)} bytes")


@pytest.mark.parametrize(("name", "verify"), [("plan.json", "header"), (HEAD, "full"), (INDEX, "full")])
def test_changed_byte(artifact: Path, name: str, verify: str) -> None:
    flip_last_byte(artifact / name)
    assert len(refused(artifact, "E0602", verify).found) == 64


def test_truncated_plan_with_a_fitting_manifest(artifact: Path) -> None:
    (artifact / "plan.json").write_bytes(encode(toy_plan())[:-10])
    write_manifest(artifact, toy_plan())
    refused(artifact, "E0501")


def test_unsafe_plan_with_a_fitting_manifest(artifact: Path) -> None:
    plan = toy_plan()
    memory = dataclasses.replace(plan.memory, state_bytes=128, total_bytes=plan.memory.total_bytes - 64)
    (artifact / "plan.json").write_bytes(encode(dataclasses.replace(plan, memory=memory)))
    write_manifest(artifact, plan)
    refused(artifact, "E0502")


@pytest.mark.parametrize(("changes", "code"), [
    ({"plan_only": True}, "E0603"),
    ({"format_version": 2}, "E0604"),
    ({"required_features": ["aten_composites", "teleport"]}, "E0503"),
    ({"model_digest": "1" * 64}, "E0602"),
    ({"plan_digest": "1" * 64}, "E0602"),
    ({"files": {}}, "E0703"),
    ({"files": {"../plan.json": {"bytes": 1, "sha256": ""}}}, "E0703"),
    ({"files": []}, "E0703"),
])
def test_manifest_that_does_not_fit(artifact: Path, changes: dict[str, object], code: str) -> None:
    write_manifest(artifact, toy_plan(), **changes)
    refused(artifact, code)


def test_plan_only_artifact_without_weights(artifact: Path) -> None:
    for path in artifact.glob("model*"):
        path.unlink()
    write_manifest(artifact, toy_plan(), plan_only=True)
    assert "--plan-only" in refused(artifact, "E0603").do


def test_unknown_feature_in_the_plan(artifact: Path) -> None:
    text = (artifact / "plan.json").read_text()
    (artifact / "plan.json").write_text(text.replace('"native_cpu"]', '"teleport"]'))
    write_manifest(artifact, toy_plan())
    assert "teleport" in refused(artifact, "E0503").found


def test_manifest_that_is_no_json(artifact: Path) -> None:
    (artifact / "dsv41c.json").write_text("{")
    refused(artifact, "E0703")


def replace_head(array: np.ndarray, name: str = "head") -> Callable[[Path], None]:
    return lambda artifact: save_file({name: array}, artifact / HEAD)


@pytest.mark.parametrize(("damage", "code"), [
    (replace_head(toy_weights()["head"], name="other"), "E0601"),
    (replace_head(toy_weights()["head"][:-1]), "E0703"),
    (replace_head(toy_weights()["head"].astype(np.float64)), "E0703"),
    (lambda artifact: (artifact / HEAD).write_bytes(b"\xff" * 64), "E0703"),
    (lambda artifact: (artifact / HEAD).write_bytes(b""), "E0703"),
])
def test_weights_that_do_not_fit(artifact: Path, damage: Callable[[Path], None], code: str) -> None:
    damage(artifact)
    write_manifest(artifact, toy_plan())
    error = refused(artifact, code)
    assert "head" in error.subject or HEAD in error.subject


# An integer in JSON is an int64 and nothing that could be turned into one.
FORMS = ("{}.0", "{}.5", "1.18e21", "-1e300", str(2**63), str(2**64), str(-(2**63) - 1), '"{}"', "null", "true", "[{}]")


def written_integers(text: str) -> list[re.Match[str]]:
    """Every integer of a JSON text that is not part of a string."""
    return [m for m in re.finditer(r'"(?:[^"\\\\]|\\\\.)*"|(-?\d+)', text) if m[1]]


def replaced(text: str, number: re.Match[str], form: str) -> str:
    return text[: number.start()] + form.format(number[1]) + text[number.end() :]


@pytest.mark.parametrize("form", FORMS)
def test_every_integer_of_the_manifest_is_strict(artifact: Path, form: str) -> None:
    path = artifact / "dsv41c.json"
    text = path.read_text()
    numbers = written_integers(text)
    assert len(numbers) > 5
    for number in numbers:
        path.write_text(replaced(text, number, form))
        refused(artifact, "E0703")


@pytest.mark.parametrize("form", FORMS)
def test_every_integer_of_a_header_is_strict(artifact: Path, form: str) -> None:
    data = (artifact / HEAD).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    text = data[8:end].decode()
    numbers = written_integers(text)
    assert len(numbers) >= 4
    for number in numbers:
        header = replaced(text, number, form).encode()
        (artifact / HEAD).write_bytes(len(header).to_bytes(8, "little") + header + data[end:])
        write_manifest(artifact, toy_plan())
        refused(artifact, "E0703")


def test_weight_that_the_index_does_not_name(artifact: Path) -> None:
    (artifact / INDEX).write_text(json.dumps({"weight_map": {}}))
    write_manifest(artifact, toy_plan())
    assert refused(artifact, "E0601").subject == "weight embed"


def test_unknown_verify_level(artifact: Path) -> None:
    refused(artifact, "E0901", verify="half")
