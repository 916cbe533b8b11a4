"""CheckpointView: reading, the census, and files that are broken in every usual way."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.runtime.plan.errors import Dsv41cError

INDEX = "model.safetensors.index.json"
FIRST, SECOND, LAST = (f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_checkpoint("tiny", tmp_path_factory.mktemp("made") / "tiny").path


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy")


def _refused(path, code: str, *parts: str, **options: bool) -> None:
    with pytest.raises(Dsv41cError, match=code) as caught:
        CheckpointView.open(path, **options)
    for part in parts:
        assert part in str(caught.value)


def _edit_shard(path, edit) -> None:
    """Rewrites a shard after `edit` changed its dict of tensors."""
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    edit(tensors)
    save_file(tensors, path)


def _edit_index(path, edit) -> None:
    index = json.loads((path / INDEX).read_text())
    edit(index["weight_map"])
    (path / INDEX).write_text(json.dumps(index))


def test_reads_equal_the_librarys(made) -> None:
    view = CheckpointView.open(made)
    assert (view.surplus, view.has_draft, view.tokenizer_path) == ((), True, None)
    seen = set()
    for file in (FIRST, SECOND, LAST):
        for name, tensor in load_file(made / file).items():
            mine = view.read_torch(name)
            assert mine.dtype == tensor.dtype and mine.shape == tensor.shape
            assert torch.equal(mine.view(torch.uint8), tensor.view(torch.uint8))
            seen.add(name)
    assert seen == view.tensors.keys()
    stored = view.read("embed.weight")
    assert stored.dtype == np.uint16 and not stored.flags.writeable
    assert view.token_map().tolist() == [token % 40 for token in range(96)]


def test_optional_prefix_and_single_file(made, tmp_path) -> None:
    tensors = {}
    for file in (FIRST, SECOND, LAST):
        tensors.update({f"model.{name}": tensor for name, tensor in load_file(made / file).items()})
    for file in ("config.json", "engram_token_map.json"):
        shutil.copy(made / file, tmp_path)
    save_file(tensors, tmp_path / "model.safetensors")
    view = CheckpointView.open(tmp_path)
    whole = CheckpointView.open(made)
    assert view.tensors.keys() == whole.tensors.keys()
    assert view.content_digest() == whole.content_digest()
    assert view.model_digest == whole.model_digest


def test_content_digest_sees_one_changed_element(made, copy) -> None:
    _edit_shard(copy / FIRST, lambda tensors: tensors["layers.0.attn.attn_sink"][0].add_(1))
    before, after = CheckpointView.open(made), CheckpointView.open(copy)
    assert before.model_digest == after.model_digest
    assert before.content_digest() != after.content_digest()


def test_content_digest_sees_the_token_map(made, copy) -> None:
    (copy / "engram_token_map.json").write_text(json.dumps([0] * 96))
    assert CheckpointView.open(made).content_digest() != CheckpointView.open(copy).content_digest()


def test_missing_tensors_are_listed(copy) -> None:
    def drop_layer(names) -> None:
        for name in [name for name in names if name.startswith("layers.0.")]:
            del names[name]

    _edit_index(copy, drop_layer)
    _edit_shard(copy / FIRST, drop_layer)
    _refused(copy, "E0102", "layers.0.attn_norm.weight", "first 10 of 78")


def test_renamed_tensor_is_missing(copy) -> None:
    _edit_index(copy, lambda names: names.update({"norm.gain": names.pop("norm.weight")}))
    _refused(copy, "E0102", "norm.gain")


def test_missing_shard_and_index(copy) -> None:
    (copy / LAST).unlink()
    _refused(copy, "E0101", LAST)
    (copy / INDEX).unlink()
    _refused(copy, "E0101", INDEX)


def test_index_may_not_leave_the_directory(copy) -> None:
    _edit_index(copy, lambda names: names.update({"norm.weight": "../x.safetensors"}))
    _refused(copy, "E0105", "../x.safetensors")
    _edit_index(copy, lambda names: names.update({"norm.weight": ["x"]}))
    _refused(copy, "E0105", "norm.weight")


def test_config_with_one_layer_more(copy) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["text_config"]["num_hidden_layers"] = 9
    config["text_config"]["compress_ratios"].insert(4, 1)
    (copy / "config.json").write_text(json.dumps(config))
    _refused(copy, "E0102", "layers.8.attn_norm.weight")


def test_wrong_shape_and_dtype(copy) -> None:
    def edit(tensors) -> None:
        tensors["layers.0.attn.attn_sink"] = torch.zeros(5)
        tensors["embed.weight"] = tensors["embed.weight"].float()

    _edit_shard(copy / FIRST, edit)
    _refused(copy, "E0103", "F32 [5] instead of F32 [4]", "F32 [96, 64] instead of BF16 [96, 64]")


def test_surplus_is_reported_and_vision_is_known(copy) -> None:
    extra = {"rotary.inv_freq": torch.zeros(2), "vision.norm.weight": torch.zeros(2)}
    _edit_shard(copy / LAST, lambda tensors: tensors.update(extra))
    view = CheckpointView.open(copy)
    assert view.surplus == ("rotary.inv_freq",)
    assert "rotary.inv_freq" not in view.tensors


def test_draft_may_be_absent_as_a_whole_only(copy) -> None:
    def drop(prefix: str):
        def edit(names) -> None:
            for name in [name for name in names if name.startswith(prefix)]:
                del names[name]

        return edit

    for prefix, works in (("mtp.1.", False), ("mtp.", True)):
        _edit_index(copy, drop(prefix))
        for file in (FIRST, SECOND):
            _edit_shard(copy / file, drop(prefix))
        if works:
            assert not CheckpointView.open(copy).has_draft
        else:
            _refused(copy, "E0102", "mtp.1.attn_norm.weight")
    _refused(copy, "E0102", "mtp.0.main_proj.weight", draft=True)


def _raw(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 8,
        b"\xff" * 16,
        _raw(b"[]", b""),
        _raw(b"{,}", b""),
        _raw(b'{"a":1}', b""),
        _raw(b'{"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}', b"\x00" * 8),
        _raw(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}', b"\x00" * 8),
        _raw(b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b"\x00" * 4),
        _raw(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', b"\x00" * 7),
        _raw(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', b"\x00" * 8),
        _raw(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":1}', b"\x00" * 4),
    ],
)
def test_broken_files_are_refused(copy, content: bytes) -> None:
    (copy / LAST).write_bytes(content)
    _refused(copy, "E0105", LAST)
