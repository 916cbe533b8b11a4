"""Artifacts that leave their weights in the checkpoint: same answers as packed ones, and no other checkpoint."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.requests import Request
from tests.unit.tools.command_line import dsv41c

OPTIONS: dict[str, Any] = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}
FIRST = "model-00001-of-00003.safetensors"


@pytest.fixture(scope="module")
def mapped(compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact("tiny", 0, **OPTIONS, weights="map")


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "ckpt"))


def edit_map(artifact: Path, target: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy with another weights.json, under the digests that belong to it."""
    copy = Path(shutil.copytree(artifact, target))
    root = json.loads((copy / "weights.json").read_text())
    change(root)
    data = json.dumps(root).encode()
    (copy / "weights.json").write_bytes(data)
    manifest = json.loads((copy / "dsv41c.json").read_text())
    manifest["files"]["weights.json"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (copy / "dsv41c.json").write_text(json.dumps(manifest))
    return copy


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def test_same_logits_as_packed(mapped: Path, tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> None:
    packed = compiled_artifact("tiny", 0, **OPTIONS)
    requests = [Request((5, 6, 7), 6, ignore_eos=True), Request(tuple(range(20)), 6, ignore_eos=True)]
    results = []
    for artifact, weights in ((packed, None), (mapped, tiny_checkpoint)):
        with load(artifact, weights=weights) as runtime:
            results.append(generate(runtime, Limits.read(artifact), requests, keep_logits=True))
    for one, other in zip(*results, strict=True):
        assert one.tokens == other.tokens
        assert one.logits is not None and other.logits is not None
        assert one.logits.tobytes() == other.logits.tobytes()


def test_only_experts_are_copied(mapped: Path, tiny_checkpoint: Path) -> None:
    tensors = CheckpointView.open(tiny_checkpoint).tensors
    experts = sum(h.end - h.begin for n, h in tensors.items() if ".experts." in n and not n.startswith("mtp."))
    with load(mapped, weights=tiny_checkpoint) as runtime:
        report = runtime.report()
    assert report["gathered_weight_bytes"] == experts
    assert report["weight_bytes"] > experts


def test_the_artifact_holds_constants_and_digests_of_the_same_model(
        mapped: Path, compiled_artifact: Callable[..., Path]) -> None:
    index = json.loads((mapped / "model.safetensors.index.json").read_text())
    assert all(name.startswith("constants.") for name in index["weight_map"])
    artifacts = mapped, compiled_artifact("tiny", 0, **OPTIONS)
    one, other = (json.loads((artifact / "dsv41c.json").read_text()) for artifact in artifacts)
    assert one["model_digest"] == other["model_digest"]
    assert set(one["required_features"]) - set(other["required_features"]) == {"mapped_weights"}


def test_parts_that_follow_each_other_are_not_copied(mapped: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """A weight cut into parts that lie together is used in place."""
    def cut(root: dict[str, Any]) -> None:
        entry = root["weights"]["head.weight"]
        (file, begin), half = entry["parts"][0], entry["part_bytes"] // 2
        entry.update(parts=[[file, begin], [file, begin + half]], part_bytes=half)

    with load(mapped, weights=tiny_checkpoint) as runtime:
        expected = runtime.report()["gathered_weight_bytes"]
    with load(edit_map(mapped, tmp_path / "art", cut), weights=tiny_checkpoint) as runtime:
        assert runtime.report()["gathered_weight_bytes"] == expected


@pytest.mark.parametrize("name", ["layers.0.attn.wq_a.weight", "layers.7.ffn.experts.7.w2.scale", "head.weight"])
def test_one_changed_byte_is_refused_by_name(name: str, mapped: Path, copy: Path) -> None:
    header = CheckpointView.open(copy).tensors[name]
    flip(header.file, header.end - 1)
    with pytest.raises(Dsv41cError) as caught:
        load(mapped, weights=copy)
    assert caught.value.code == "DSV41C-E0602"
    before, _, after = name.partition(".experts.7.")
    assert (f"{before}.experts.{after}" if after else name) in caught.value.subject


def test_a_shard_that_is_missing_or_cut(mapped: Path, copy: Path) -> None:
    data = (copy / FIRST).read_bytes()
    (copy / FIRST).write_bytes(data[:-1])
    with pytest.raises(Dsv41cError, match=f"E0602 .*{FIRST}"):
        load(mapped, weights=copy)
    (copy / FIRST).unlink()
    with pytest.raises(Dsv41cError, match=f"E0601 .*{FIRST}"):
        load(mapped, weights=copy)
    with pytest.raises(Dsv41cError, match="E0601"):
        load(mapped, weights=copy / "nowhere")


def test_the_directory_is_asked_for_where_it_is_needed(
        mapped: Path, tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> None:
    with pytest.raises(Dsv41cError, match="E0901") as caught:
        load(mapped)
    assert "--weights DIR" in caught.value.do
    with pytest.raises(Dsv41cError, match="E0901"):
        load(compiled_artifact("tiny", 0, **OPTIONS), weights=tiny_checkpoint)


@pytest.mark.parametrize("change", [
    lambda root: root["weights"]["head.weight"]["parts"][0].__setitem__(0, 3),
    lambda root: root["weights"]["head.weight"]["parts"][0].__setitem__(1, -1),
    lambda root: root["weights"]["head.weight"]["parts"][0].__setitem__(1, 2**62),
    lambda root: root["weights"]["head.weight"].update(part_bytes=2**62),
    lambda root: root["weights"]["head.weight"].update(part_bytes=-1),
    lambda root: root["weights"]["head.weight"].update(part_bytes=64),
    lambda root: root["weights"]["head.weight"].update(parts=[]),
    lambda root: root["weights"]["head.weight"].update(part_bytes=1e300),
    lambda root: root["weights"]["head.weight"]["parts"][0].__setitem__(0, 0.5),
    lambda root: root["weights"]["head.weight"]["parts"][0].__setitem__(1, 2**64),
    lambda root: root["files"][0].update(bytes=float(root["files"][0]["bytes"])),
    lambda root: root["weights"]["head.weight"].pop("sha256"),
    lambda root: root["files"][0].update(name="../ckpt"),
    lambda root: root["files"][0].update(name=""),
    lambda root: root.update(version=2),
    lambda root: root.update(version=1.0),
    lambda root: root.pop("files"),
])
def test_a_malformed_map_is_refused(change: Callable[[dict[str, Any]], object], mapped: Path, tiny_checkpoint: Path,
                                    tmp_path: Path) -> None:
    with pytest.raises(Dsv41cError, match="E0703"):
        load(edit_map(mapped, tmp_path / "art", change), weights=tiny_checkpoint)


def test_a_changed_map_is_noticed(mapped: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(mapped, tmp_path / "art"))
    flip(copy / "weights.json", 100)
    with pytest.raises(Dsv41cError, match="E0602"):
        load(copy, weights=tiny_checkpoint)


def test_commands(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Compiled, moved, and run with a linked checkpoint."""
    ended = dsv41c("compile", tiny_checkpoint, "-o", tmp_path / "art", "--weights", "map", "--max-model-len", "64")
    assert ended.code == 0, ended.err
    (tmp_path / "art").rename(tmp_path / "moved")
    (tmp_path / "link").symlink_to(tiny_checkpoint)
    run = ["run", tmp_path / "moved", "--prompt-ids", "5,6", "--max-new-tokens", "3", "--ignore-eos"]
    assert len(dsv41c(*run, "--weights", tmp_path / "link").out.split(",")) == 3
    refused = dsv41c(*run)
    assert refused.code == 2
    assert refused.err.startswith("DSV41C-E0901 weights of")
    assert dsv41c("compile", tiny_checkpoint, "-o", tmp_path / "x", "--weights", "elsewhere").code == 2
