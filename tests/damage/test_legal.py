"""What looks odd and is right: other spellings of a checkpoint, links, odd paths, moved artifacts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dsv41c.compiler.checkpoint.view import CheckpointView
from tests.damage.command import Command, tree
from tests.damage.conftest import OPTIONS
from tests.damage.shard import Tensor, change_shard
from tests.damage.test_checkpoint_files import INDEX, NORM, SHARDS, change_json, change_tensor, shard_with

ODD = "模型 v4.1 'x' \"y\" $HOME"


def add_prefix(checkpoint: Path) -> None:
    """`model.` in front of every name, as Hugging Face tools write it."""
    for shard in SHARDS:
        change_shard(checkpoint / shard, lambda tensors: [tensors.update({f"model.{n}": tensors.pop(n)})
                                                          for n in list(tensors)])
    change_json(checkpoint / INDEX, lambda index: index.update(
        weight_map={f"model.{n}": file for n, file in index["weight_map"].items()}))


def unsigned_experts(checkpoint: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        for tensor in tensors.values():
            tensor.dtype = "U8" if tensor.dtype == "I8" else tensor.dtype

    for shard in SHARDS:
        change_shard(checkpoint / shard, change)


def into_links(checkpoint: Path) -> None:
    """As in the Hugging Face cache: every file is a relative link into `blobs`."""
    blobs = checkpoint.parent / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(checkpoint.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(Path("..") / "blobs" / str(number))


@pytest.mark.parametrize("change", [add_prefix, unsigned_experts, into_links], ids=["prefix", "U8", "links"])
def test_another_spelling_has_the_same_weights(change: Callable[[Path], None], checkpoint: Path,
                                               tiny_checkpoint: Path) -> None:
    change(checkpoint)
    changed, plain = CheckpointView.open(checkpoint), CheckpointView.open(tiny_checkpoint)
    assert set(changed.tensors) == set(plain.tensors)
    for name in plain.tensors:
        assert np.array_equal(changed.read(name), plain.read(name)), name
        assert changed.read_torch(name).dtype == plain.read_torch(name).dtype


def tokens_of(command: Command, artifact: Path | str) -> list[int]:
    ended = command("run", artifact, "--prompt-ids", "5,6,7", "--max-new-tokens", "6", "--ignore-eos", "--json")
    assert ended.code == 0, ended.err
    tokens: list[int] = ended.json["requests"][0]["tokens"]
    return tokens


def test_everything_odd_at_once(checkpoint: Path, sound: Path, command: Command, tmp_path: Path,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled for real, from a relative path with blanks and quotes through a link; then moved and run."""
    add_prefix(checkpoint)
    unsigned_experts(checkpoint)
    folder = tmp_path / ODD
    folder.mkdir()
    into_links(checkpoint.rename(folder / "ckpt"))
    (tmp_path / "link").symlink_to(ODD)
    monkeypatch.chdir(tmp_path)
    ended = command("compile", "link/ckpt/", "-o", f"link/{ODD}", *OPTIONS)
    assert ended.code == 0, ended.err
    assert (folder / ODD / WEIGHTS).read_bytes() == (sound / WEIGHTS).read_bytes()
    expected = tokens_of(command, sound)
    assert tokens_of(command, f"link/{ODD}") == expected
    (folder / ODD).rename(tmp_path / "moved")
    shutil.rmtree(folder)
    assert tokens_of(command, "moved/") == expected
    assert command("check", tmp_path / "moved").code == 0
    for name, data in tree(tmp_path / "moved").items():
        assert data is not None and str(tmp_path).encode() not in data and ODD.encode() not in data, name


WEIGHTS = "model-00001-of-00001.safetensors"


def test_another_epsilon_changes_the_answer(checkpoint: Path, sound: Path, command: Command, tmp_path: Path) -> None:
    change_json(checkpoint / "config.json", lambda config: config["text_config"].update(rms_norm_eps=0.5))
    assert command("compile", checkpoint, "-o", tmp_path / "art", *OPTIONS).code == 0
    assert tokens_of(command, tmp_path / "art") != tokens_of(command, sound)
    assert command("check", tmp_path / "art").code == 0
    found = command("diff", sound, tmp_path / "art", "--json").json["differences"]
    assert any(d["part"] == "plan" and "eps" in d["text"] for d in found)


def test_a_stale_copy_is_reported_and_not_used(checkpoint: Path, quick_compile: None, sound: Path, command: Command,
                                               tmp_path: Path) -> None:
    """The index decides."""
    other = next(s for s in SHARDS if s != shard_with(checkpoint, NORM).name)
    change_shard(checkpoint / other, lambda tensors: tensors.update({NORM: Tensor("F32", [1], b"\0" * 4)}))
    ended = command("compile", checkpoint, "-o", tmp_path / "art", *OPTIONS)
    assert ended.code == 0, ended.err
    assert f"1 copies in shards that the index does not choose: {NORM} in {other}" in ended.err
    assert (tmp_path / "art" / WEIGHTS).read_bytes() == (sound / WEIGHTS).read_bytes()


def test_surplus_tensors_are_reported(checkpoint: Path, quick_compile: None, command: Command, tmp_path: Path) -> None:
    """The first ten of them by name, in whatever dtype."""
    for number in range(12):
        name = f"layers.0.lora.{number:02}"
        change_tensor(checkpoint, NORM, lambda tensors, n=name: tensors.update({n: Tensor("I64", [1], b"\0" * 8)}))
    ended = command("compile", checkpoint, "-o", tmp_path / "art", *OPTIONS, "--json")
    assert ended.json["surplus"] == {"count": 12, "first": [f"layers.0.lora.{i:02}" for i in range(10)]}
    shutil.rmtree(tmp_path / "art")
    ended = command("compile", checkpoint, "-o", tmp_path / "art", *OPTIONS)
    assert "note: 12 tensors that the model does not read: layers.0.lora.00, " in ended.err
    assert "layers.0.lora.10" not in ended.err


def test_the_draft_and_the_image_tower_may_be_absent(checkpoint: Path, quick_compile: None, command: Command,
                                                     tmp_path: Path) -> None:
    def without_draft(names: dict[str, object]) -> None:
        for name in [n for n in names if n.startswith("mtp.")]:
            del names[name]

    for shard in SHARDS:
        change_shard(checkpoint / shard, without_draft)
    change_json(checkpoint / INDEX, lambda index: without_draft(index["weight_map"]))
    assert command("compile", checkpoint, "-o", tmp_path / "art", *OPTIONS).code == 0


def test_a_single_file_needs_no_index(checkpoint: Path) -> None:
    def fill(tensors: dict[str, Tensor]) -> None:
        for shard in SHARDS[1:]:
            change_shard(checkpoint / shard, tensors.update)

    change_shard(checkpoint / SHARDS[0], fill)
    (checkpoint / SHARDS[0]).rename(checkpoint / "model.safetensors")
    (checkpoint / INDEX).unlink()
    assert NORM in CheckpointView.open(checkpoint).tensors
