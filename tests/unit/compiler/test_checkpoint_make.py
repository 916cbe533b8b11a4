"""`checkpoint make`: pinned bytes, atomic output, and the command around it."""

import hashlib
import json
from types import SimpleNamespace

import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from dsv41c.compiler.checkpoint import make as make_module
from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.tools.cli.checkpoint import checkpoint_app

TINY_SEED_0 = {
    "model-00001-of-00003.safetensors": "2ce65952050414738e717430d12a7d66775c71effb992311b12cd2dc791143f1",
    "model-00002-of-00003.safetensors": "800b819dc19f32b11a8048db58d0003b41748d87dfda8a358940e282c3547a6b",
    "model-00003-of-00003.safetensors": "14c7821c315733b852fcb43e6eb3e1422a8d9529e11edbb3a00235969dcc46a2",
}


def test_same_seed_same_bytes(tmp_path) -> None:
    made = make_checkpoint("tiny", tmp_path / "a", seed=0)
    digests = {name: hashlib.sha256((made.path / name).read_bytes()).hexdigest() for name in made.shards}
    assert digests == TINY_SEED_0
    other = make_checkpoint("tiny", tmp_path / "b", seed=1)
    assert CheckpointView.open(other.path).content_digest() != CheckpointView.open(made.path).content_digest()


def test_longer_requests_change_the_config_alone(tmp_path) -> None:
    made, longer = tmp_path / "a", tmp_path / "b"
    for path, more in ((made, ()), (longer, ("--max-position-embeddings", "131072"))):
        assert CliRunner().invoke(checkpoint_app, ["make", "-o", str(path), *more]).exit_code == 0
    differ = [f.name for f in sorted(made.iterdir()) if f.read_bytes() != (longer / f.name).read_bytes()]
    assert differ == ["config.json"]
    configs = [CheckpointView.open(path).config for path in (made, longer)]
    assert [c.max_position_embeddings for c in configs] == [4096, 131_072]
    assert CliRunner().invoke(checkpoint_app, ["make", "-o", str(tmp_path / "c"), "--max-position-embeddings",
                                               "1"]).exit_code == 2


def test_directory_is_what_other_tools_read(tmp_path) -> None:
    made = make_checkpoint("tiny", tmp_path / "a")
    index = json.loads((made.path / "model.safetensors.index.json").read_text())
    assert len(index["weight_map"]) == made.tensors
    assert index["metadata"]["total_size"] == made.data_bytes
    assert len(set(index["weight_map"].values())) >= 2
    for name, file in index["weight_map"].items():
        if name.endswith("wq_a.weight"):
            with safe_open(made.path / file, "pt") as shard:
                assert shard.get_slice(name).get_dtype() == "F8_E4M3"
    assert json.loads((made.path / "generation_config.json").read_text())["eos_token_id"] == 1
    assert json.loads((made.path / "engram_token_map.json").read_text())[41] == 1
    assert not (made.path / "tokenizer.json").exists()
    modes = {file.stat().st_mode for file in made.path.iterdir()}
    assert len(modes) == 1


def test_demo_has_the_real_vocabulary(tmp_path) -> None:
    view = CheckpointView.open(make_checkpoint("demo", tmp_path / "a", recite="All of it.").path)
    assert view.surplus == ()
    assert view.tokenizer_path is not None
    assert int(view.token_map().max()) == 99_091


def test_existing_output_is_kept(tmp_path) -> None:
    with pytest.raises(Dsv41cError, match="E0106"):
        make_checkpoint("tiny", tmp_path)


def test_nothing_is_left_when_writing_fails(tmp_path, monkeypatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(make_module, "write_shard", full_disk)
    with pytest.raises(Dsv41cError, match="No space left") as caught:
        make_checkpoint("tiny", tmp_path / "a")
    assert caught.value.exit_code == 6
    assert list(tmp_path.iterdir()) == []


def test_the_published_size_needs_a_disk_that_holds_it(tmp_path, monkeypatch) -> None:
    """Refused before anything is written, with the bytes that are needed."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=500 * 10**9))
    with pytest.raises(Dsv41cError, match="needed  510,286,023,000 bytes") as caught:
        make_checkpoint("flash", tmp_path / "deep" / "a")
    assert (caught.value.code, caught.value.exit_code) == ("DSV41C-E0606", 6)
    assert "--headers-only" in caught.value.do
    assert list(tmp_path.iterdir()) == []


def test_tiny_cannot_recite(tmp_path) -> None:
    with pytest.raises(Dsv41cError, match="E0107"):
        make_checkpoint("tiny", tmp_path / "a", recite="x")


def test_repeated_pieces_are_named(tmp_path) -> None:
    with pytest.raises(Dsv41cError, match="' the'"):
        make_checkpoint("demo", tmp_path / "a", recite="Up the hill and down the hill")
    assert list(tmp_path.iterdir()) == []


def test_command_prints_one_json_object(tmp_path) -> None:
    arguments = ["make", "--counter", "2", "--seed", "7", "-o", str(tmp_path / "a"), "--json"]
    result = CliRunner().invoke(checkpoint_app, arguments)
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["config"], report["seed"], report["counter"]) == ("tiny", 7, 2)
    assert report["tensors"] == 783 and report["path"] == str(tmp_path / "a")


@pytest.mark.parametrize("option", [["--counter", "3"], ["--config", "large"], ["--seed", "-1"]])
def test_bad_options_are_usage_errors(tmp_path, option: list[str]) -> None:
    result = CliRunner().invoke(checkpoint_app, ["make", "-o", str(tmp_path / "a"), *option])
    assert result.exit_code == 2
