"""Broken checkpoints: every one is refused by `compile` with its own error, before any work."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.damage.command import Command, check_refusal
from tests.damage.conftest import OPTIONS, Refused
from tests.damage.shard import CUTS, Change, Tensor, change_shard, cut, cuts, read_shard

SHARDS = tuple(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3))
INDEX = "model.safetensors.index.json"
NORM, WQ_A = "layers.0.attn_norm.weight", "layers.0.attn.wq_a"


def change_json(path: Path, change: Callable[[Any], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def shard_with(checkpoint: Path, name: str) -> Path:
    return checkpoint / json.loads((checkpoint / INDEX).read_text())["weight_map"][name]


# --- shards -----------------------------------------------


@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("shard", SHARDS)
def test_a_cut_shard(shard: str, where: str, checkpoint: Path, compile_refused: Refused) -> None:
    path = checkpoint / shard
    cut(path, cuts(path)[where])
    compile_refused("E0105", shard, "fetch the file again")


@pytest.mark.parametrize("shard", SHARDS)
def test_a_missing_shard(shard: str, checkpoint: Path, compile_refused: Refused) -> None:
    (checkpoint / shard).unlink()
    compile_refused("E0101", shard)


def test_a_link_to_nothing(checkpoint: Path, compile_refused: Refused) -> None:
    (checkpoint / SHARDS[0]).unlink()
    (checkpoint / SHARDS[0]).symlink_to("blobs/gone")
    compile_refused("E0101", SHARDS[0])


@pytest.mark.parametrize("make", [lambda p: p.symlink_to(p.name), lambda p: p.mkdir()], ids=["loop", "directory"])
def test_a_shard_that_is_no_file(make: Callable[[Path], None], checkpoint: Path, compile_refused: Refused) -> None:
    (checkpoint / SHARDS[0]).unlink()
    make(checkpoint / SHARDS[0])
    compile_refused("E0105", SHARDS[0])


@pytest.mark.parametrize("header", [
    b"[]", b"{" + b"[" * 100_000, b'{"a": 1}', b'{"a": {"dtype": [], "shape": [], "data_offsets": [0, 0]}}',
    b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}', b'{"a":{}, "a":{}}', b"\xff\xfe",
    b'{"a": {"dtype": "F32", "shape": [1e3], "data_offsets": [0, 4000]}}',
    b'{"a": {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]}}',
    b'{"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}}',
])
def test_a_header_that_means_nothing(header: bytes, checkpoint: Path, compile_refused: Refused) -> None:
    (checkpoint / SHARDS[2]).write_bytes(len(header).to_bytes(8, "little") + header)
    compile_refused("E0105", SHARDS[2])


# --- index ------------------------------------------------


@pytest.mark.parametrize("file", ["../up.safetensors", "/etc/passwd", "", ".", "..", "a\0b", 42, None, "sub/x"])
def test_an_index_that_leaves_the_folder(file: object, checkpoint: Path, compile_refused: Refused) -> None:
    change_json(checkpoint / INDEX, lambda index: index["weight_map"].update({NORM: file}))
    compile_refused("E0105")


@pytest.mark.parametrize(("text", "code"), [
    ("", "E0109"), ("{", "E0109"), ("[]", "E0105"), ("{}", "E0105"), ('{"weight_map": []}', "E0105"),
    ("[" * 100_000, "E0109"), ('{"weight_map": {}}', "E0102"),
])
def test_a_broken_index(text: str, code: str, checkpoint: Path, compile_refused: Refused) -> None:
    (checkpoint / INDEX).write_text(text)
    compile_refused(code)


def test_an_index_that_names_the_wrong_shard(checkpoint: Path, compile_refused: Refused) -> None:
    wrong = next(s for s in SHARDS if s != shard_with(checkpoint, NORM).name)
    change_json(checkpoint / INDEX, lambda index: index["weight_map"].update({NORM: wrong}))
    compile_refused("E0102", NORM, "missing from their shards")


def test_no_index_and_no_single_file(checkpoint: Path, compile_refused: Refused) -> None:
    (checkpoint / INDEX).unlink()
    compile_refused("E0101", INDEX)


# --- tensors ----------------------------------------------


def rename(old: str, new: str) -> Change:
    return lambda tensors: tensors.update({new: tensors.pop(old)})


def retype(name: str, dtype: str, shape: list[int] | None = None, scale: int = 1) -> Change:
    def change(tensors: dict[str, Tensor]) -> None:
        old = tensors[name]
        tensors[name] = Tensor(dtype, shape or old.shape, old.data * scale)

    return change


def scales_as_floats(tensors: dict[str, Tensor]) -> None:
    """The same powers of two in F32, as some tools store them."""
    old = tensors[f"{WQ_A}.scale"]
    tensors[f"{WQ_A}.scale"] = Tensor("F32", old.shape, b"".join(
        struct.pack("<f", 2.0 ** (code - 127)) for code in old.data))


def change_tensor(checkpoint: Path, name: str, change: Change) -> None:
    """In the shard, and in the index where the names change."""
    shard = shard_with(checkpoint, name)
    before = set(read_shard(shard))
    change_shard(shard, change)
    after = set(read_shard(shard))
    change_json(checkpoint / INDEX, lambda index: index["weight_map"].update(dict.fromkeys(after, shard.name)) or
                [index["weight_map"].pop(n) for n in before - after])


@pytest.mark.parametrize(("name", "change", "code", "words"), [
    (NORM, rename(NORM, "layers.0.input_layernorm.weight"), "E0102", (NORM,)),
    (NORM, lambda tensors: tensors.pop(NORM), "E0102", (NORM, "1 of ")),
    (f"{WQ_A}.scale", lambda tensors: tensors.pop(f"{WQ_A}.scale"), "E0102", (f"{WQ_A}.scale",)),
    (NORM, retype(NORM, "F16"), "E0103", (NORM, "F16", "BF16")),
    (f"{WQ_A}.weight", retype(f"{WQ_A}.weight", "U8"), "E0103", ("U8", "F8_E4M3")),
    (f"{WQ_A}.scale", retype(f"{WQ_A}.scale", "F32", scale=4), "E0103", ("F32", "F8_E8M0")),
    (f"{WQ_A}.scale", retype(f"{WQ_A}.scale", "BF16", scale=2), "E0103", ("BF16", "F8_E8M0")),
    (f"{WQ_A}.scale", scales_as_floats, "E0103", (f"{WQ_A}.scale", "F32", "F8_E8M0")),
], ids=["name", "missing", "missing scale", "dtype", "bytes for FP8", "scale in F32", "scale in BF16",
        "powers of two in F32"])
def test_a_wrong_tensor(name: str, change: Change, code: str, words: tuple[str, ...], checkpoint: Path,
                        compile_refused: Refused) -> None:
    """A scale that is no power of two can only come in another dtype than F8_E8M0, which has nothing else; another
    dtype is refused whatever it holds, because kernels read the checkpoint's own bytes."""
    change_tensor(checkpoint, name, change)
    compile_refused(code, *words)


def test_a_wrong_shape(checkpoint: Path, compile_refused: Refused) -> None:
    shape = read_shard(shard_with(checkpoint, f"{WQ_A}.weight"))[f"{WQ_A}.weight"].shape
    turned = [shape[0] // 2, shape[1] * 2]
    change_tensor(checkpoint, f"{WQ_A}.weight", retype(f"{WQ_A}.weight", "F8_E4M3", turned))
    compile_refused("E0103", str(turned), str(shape))


def test_a_missing_layer_names_the_first_ten(checkpoint: Path, compile_refused: Refused) -> None:
    for shard in SHARDS:
        lost = {n for n in read_shard(checkpoint / shard) if n.startswith("layers.2.")}
        change_shard(checkpoint / shard, lambda tensors, lost=lost: [tensors.pop(n) for n in lost])
    change_json(checkpoint / INDEX, lambda index: [index["weight_map"].pop(n) for n in list(index["weight_map"])
                                                   if n.startswith("layers.2.")])
    ended = compile_refused("E0102", "first 10 of ")
    assert ended.err.count("layers.2.") == 10


def test_a_draft_that_is_there_in_part(checkpoint: Path, compile_refused: Refused) -> None:
    name = "mtp.0.main_norm.weight"
    change_tensor(checkpoint, name, lambda tensors: tensors.pop(name))
    compile_refused("E0102", name)


def test_both_spellings_of_a_name(checkpoint: Path, compile_refused: Refused) -> None:
    change_tensor(checkpoint, NORM, lambda tensors: tensors.update({f"model.{NORM}": tensors[NORM]}))
    compile_refused("E0105", f"model.{NORM}")


# --- config -----------------------------------------------


@pytest.mark.parametrize(("path", "value"), [
    (("architectures",), ["LlamaForCausalLM"]), (("model_type",), "deepseek_v3"),
    (("quantization_config", "quant_method"), "gptq"), (("quantization_config", "weight_block_size"), [128, 128]),
    (("text_config", "hidden_act"), "gelu"), (("text_config", "attention_bias"), True),
    (("text_config", "rope_scaling", "type"), "linear"),
    (("text_config", "num_hidden_layers"), "8"), (("text_config", "hidden_size"), 0),
    (("text_config", "compress_ratios"), [4, 4]), (("text_config", "sliding_window"), -1),
    (("text_config", "rms_norm_eps"), None), (("text_config", "new_feature"), True),
    (("text_config", "tie_word_embeddings"), True), (("text_config", "scoring_func"), "softmax"),
])
def test_an_unsupported_config_value(path: tuple[str, ...], value: object, checkpoint: Path,
                                     compile_refused: Refused) -> None:
    def change(config: Any) -> None:
        for key in path[:-1]:
            config = config[key]
        config[path[-1]] = value

    change_json(checkpoint / "config.json", change)
    compile_refused("E0104", path[-1])


def test_one_layer_more_than_there_is(checkpoint: Path, compile_refused: Refused) -> None:
    change_json(checkpoint / "config.json", lambda config: config["text_config"].update(num_hidden_layers=9))
    compile_refused("E0104", "9 + 2 entries")


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"text_config": 1}', "\x00", "[" * 100_000, "NaN"])
def test_a_broken_config(text: str, checkpoint: Path, compile_refused: Refused) -> None:
    (checkpoint / "config.json").write_text(text)
    compile_refused("E0109", "config.json")


@pytest.mark.parametrize(("text", "code"), [("[]", "E0104"), ("{", "E0109"), ("[-1]", "E0104"), ('["a"]', "E0104")])
def test_a_broken_token_map(text: str, code: str, checkpoint: Path, compile_refused: Refused) -> None:
    (checkpoint / "engram_token_map.json").write_text(text)
    compile_refused(code, "engram_token_map.json")


# --- paths ------------------------------------------------


def test_a_path_to_nothing(command: Command, tmp_path: Path) -> None:
    check_refusal(command("compile", tmp_path / "none", "-o", tmp_path / "art", *OPTIONS), "E0101", "config.json")


def test_a_path_to_a_file(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    ended = command("compile", checkpoint / "config.json", "-o", tmp_path / "art", *OPTIONS)
    check_refusal(ended, "E0109", "Not a directory")


@pytest.mark.parametrize(("name", "code"), [("config.json", "E0109"), (INDEX, "E0109"), (SHARDS[1], "E0105")])
def test_a_file_that_may_not_be_read(name: str, code: str, tiny_checkpoint: Path, public_folder: Path,
                                     as_nobody: Callable[[], None], command: Command) -> None:
    import shutil

    copy = Path(shutil.copytree(tiny_checkpoint, public_folder / "ckpt"))
    (copy / name).chmod(0)
    command("compile", "nothing", "-o", "nowhere")  # imports what it needs while it may
    as_nobody()
    check_refusal(command("compile", copy, "-o", copy / "art", *OPTIONS), code, name, "Permission denied")
