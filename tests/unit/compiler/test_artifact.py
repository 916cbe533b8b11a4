"""The artifact directory: complete, digested, reproducible, and never half there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError

SMALL = {"max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 16}


def test_the_manifest_lists_every_file_with_its_digest(compiled_artifact: Callable[..., Path]) -> None:
    artifact = compiled_artifact("tiny", 0, **SMALL)
    manifest = json.loads((artifact / "dsv41c.json").read_text())
    found = {str(p.relative_to(artifact)) for p in artifact.rglob("*") if p.is_file()}
    assert set(manifest["files"]) | {"dsv41c.json"} == found
    for name, entry in manifest["files"].items():
        data = (artifact / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"])


def test_the_same_inputs_give_the_same_bytes_and_hold_no_path(tiny_checkpoint: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / "one", tmp_path / "elsewhere" / "two"]
    for output in outputs:
        compile_checkpoint(tiny_checkpoint, output, CompileOptions(**SMALL), lambda _: None)
    names = sorted(p.name for p in outputs[0].iterdir())
    assert names == sorted(p.name for p in outputs[1].iterdir())
    for name in names:
        first, second = ((output / name).read_bytes() for output in outputs)
        assert first == second, name
        assert str(tmp_path).encode() not in first and str(tiny_checkpoint).encode() not in first


def test_an_existing_output_is_refused_and_left_alone(tiny_checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "art"
    output.mkdir()
    (output / "mine").write_text("keep")
    with pytest.raises(Dsv41cError, match="DSV41C-E0605"):
        compile_checkpoint(tiny_checkpoint, output, CompileOptions(**SMALL), lambda _: None)
    assert [p.name for p in tmp_path.rglob("*")] == ["art", "mine"]


def test_a_compilation_that_fails_leaves_nothing(tiny_checkpoint: Path, tmp_path: Path) -> None:
    def stop(phase: str) -> None:
        if phase.startswith("writing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_checkpoint(tiny_checkpoint, tmp_path / "art", CompileOptions(**SMALL), stop)
    assert list(tmp_path.iterdir()) == []


def test_a_plan_only_artifact_has_no_weights_and_does_not_load(tiny_checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "art"
    compile_checkpoint(tiny_checkpoint, output, CompileOptions(**SMALL, plan_only=True), lambda _: None)
    manifest = json.loads((output / "dsv41c.json").read_text())
    assert manifest["plan_only"] and manifest["header_digest"] == manifest["model_digest"]
    assert not list(output.glob("*.safetensors"))
    with pytest.raises(Dsv41cError, match="DSV41C-E0603"):
        load(output)


def test_one_changed_weight_element_changes_the_model_digest(make_checkpoint: Callable[..., Path],
                                                             compiled_artifact: Callable[..., Path],
                                                             tmp_path: Path) -> None:
    import shutil

    changed = tmp_path / "ckpt"
    shutil.copytree(make_checkpoint("tiny", 0), changed)
    shard = changed / "model-00001-of-00003.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    compile_checkpoint(changed, tmp_path / "art", CompileOptions(**SMALL), lambda _: None)
    digests = [json.loads((a / "dsv41c.json").read_text())["model_digest"]
               for a in (compiled_artifact("tiny", 0, **SMALL), tmp_path / "art")]
    assert digests[0] != digests[1]
