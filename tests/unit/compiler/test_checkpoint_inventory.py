"""`checkpoint inspect`: every deviation of a checkpoint from its config, by kind, and totals by group."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from dsv41c.compiler.checkpoint.inventory import Deviation, take_inventory
from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.tools.cli.checkpoint import checkpoint_app

FIRST, SECOND = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"
NAME = "layers.0.attn.wq_a.weight"


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


def rewrite(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def edit_index(path: Path, change: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((path / "model.safetensors.index.json").read_text())
    change(index["weight_map"])
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def test_a_made_checkpoint_has_none(tiny_checkpoint: Path) -> None:
    found = take_inventory(tiny_checkpoint)
    assert found.deviations == ()
    assert (found.total.tensors, found.shards, found.headers_only) == (783, 3, False)
    assert sum(group.bytes for group in found.groups.values()) == found.total.bytes == 1_143_038
    assert found.groups["engram tables"].tensors == 4
    assert "vision" not in found.groups and "other" not in found.groups


def test_a_missing_tensor(copy: Path) -> None:
    rewrite(copy / FIRST, lambda tensors: tensors.pop(NAME))
    (indexed,) = take_inventory(copy).deviations
    assert (indexed.kind, indexed.tensor) == ("missing", NAME)
    assert "not in its shard" in indexed.found
    edit_index(copy, lambda names: names.pop(NAME))
    assert take_inventory(copy).deviations == (Deviation("missing", NAME, "no such tensor", "F8_E4M3 [32, 64]"),)


def test_another_shape_and_a_surplus_tensor(copy: Path) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[NAME] = tensors[NAME][:16].contiguous()
        tensors["extra"] = torch.zeros(3)

    rewrite(copy / FIRST, change)
    found = take_inventory(copy)
    assert found.deviations == (Deviation("surplus", "extra", "F32 [3]", "no tensor of this name"),
                                Deviation("different", NAME, "F8_E4M3 [16, 64]", "F8_E4M3 [32, 64]"))
    assert found.groups["other"].bytes == 12


def test_a_stale_copy_is_listed_and_the_index_decides(copy: Path, tiny_checkpoint: Path) -> None:
    stale = torch.zeros(32, 64).to(torch.float8_e4m3fn)
    rewrite(copy / SECOND, lambda tensors: tensors.update({NAME: stale}))
    (deviation,) = take_inventory(copy).deviations
    assert (deviation.kind, deviation.tensor, deviation.found) == ("stale copy", NAME, SECOND)
    view = CheckpointView.open(copy)
    assert view.stale == (f"{NAME} in {SECOND}",)
    assert view.read(NAME).tobytes() == CheckpointView.open(tiny_checkpoint).read(NAME).tobytes()


def test_packed_fp4_may_be_u8(copy: Path, tiny_checkpoint: Path) -> None:
    name = "layers.0.ffn.experts.0.w1.weight"
    rewrite(copy / FIRST, lambda tensors: tensors.update({name: tensors[name].view(torch.uint8)}))
    assert take_inventory(copy).deviations == ()
    read = CheckpointView.open(copy).read_torch(name)
    assert read.dtype is torch.int8
    assert torch.equal(read, CheckpointView.open(tiny_checkpoint).read_torch(name))


def test_headers_only(tmp_path: Path, tiny_checkpoint: Path) -> None:
    """Known by its own mark: a shard that merely lost its data is still refused, as is reading the data."""
    made = make_checkpoint("tiny", tmp_path / "headers", headers_only=True)
    found = take_inventory(made.path)
    assert found.headers_only and found.deviations == ()
    assert found.groups == take_inventory(tiny_checkpoint).groups
    view = CheckpointView.open(made.path)
    for read in (lambda: view.read(NAME), view.content_digest):
        with pytest.raises(Dsv41cError, match="E0105 checkpoint without data"):
            read()
    with pytest.raises(Exception, match="MetadataIncompleteBuffer|incomplete"):
        load_file(made.path / FIRST)
    cut = Path(shutil.copytree(tiny_checkpoint, tmp_path / "cut"))
    whole = (cut / FIRST).read_bytes()
    (cut / FIRST).write_bytes(whole[: 8 + int.from_bytes(whole[:8], "little")])
    with pytest.raises(Dsv41cError, match="E0105 bad safetensors file"):
        take_inventory(cut)


def test_command(copy: Path) -> None:
    edit_index(copy, lambda names: [names.pop(n) for n in list(names) if n.endswith("attn_sink")])
    for shard in (FIRST, SECOND):
        rewrite(copy / shard, lambda tensors: [tensors.pop(n) for n in list(tensors) if n.endswith("attn_sink")])
    report = json.loads(CliRunner().invoke(checkpoint_app, ["inspect", str(copy), "--json"]).stdout)
    assert len(report["deviations"]) == 10
    assert set(report["deviations"][0]) == {"kind", "tensor", "found", "needed"}
    assert report["tensors"] == 773
    text = CliRunner().invoke(checkpoint_app, ["inspect", str(copy)]).stdout
    assert "10 deviations" in text
    assert "missing: layers.0.attn.attn_sink: found no such tensor, needed F32 [4]" in text
