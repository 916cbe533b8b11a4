"""`dsv41c export-triton`: what a model repository holds, and that it never touches what exists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.tools.command_line import dsv41c

OPTIONS = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}


@pytest.fixture(scope="module")
def silent(compiled_artifact: Callable[..., Path]) -> Path:
    """An artifact without a tokenizer."""
    return compiled_artifact("tiny", 0, **OPTIONS)


@pytest.fixture(scope="module")
def talking(compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact("demo", 0, recite="Hello brave new world", **OPTIONS)


def test_a_copy_needs_one_line_of_config(silent: Path, tmp_path: Path) -> None:
    done = dsv41c("export-triton", silent, tmp_path / "repo", "--name", "m", "--json")
    assert done.code == 0
    answer = json.loads(done.out)
    assert answer["models"] == ["m"]
    assert (Path(answer["backend_directory"]) / "dsv41c/libtriton_dsv41c.so").is_file()
    assert (tmp_path / "repo/m/config.pbtxt").read_text() == 'backend: "dsv41c"\n'
    copied = {path.name: path.read_bytes() for path in (tmp_path / "repo/m/1").iterdir() if path.is_file()}
    assert copied == {path.name: path.read_bytes() for path in silent.iterdir() if path.is_file()}


def test_a_link_names_the_artifact(silent: Path, tmp_path: Path) -> None:
    assert dsv41c("export-triton", silent, tmp_path / "repo", "--name", "m", "--link").code == 0
    assert list((tmp_path / "repo/m/1").iterdir()) == []
    assert f'key: "artifact" value {{ string_value: "{silent}" }}' in (tmp_path / "repo/m/config.pbtxt").read_text()


def test_a_tokenizer_brings_three_models_for_text(talking: Path, tmp_path: Path) -> None:
    done = dsv41c("export-triton", talking, tmp_path, "--name", "m", "--link")
    assert done.code == 0 and "m m_tokenize m_detokenize m_text" in done.out
    ensemble = (tmp_path / "m_text/config.pbtxt").read_text()
    assert re.findall(r'\bname: "(\w+)"', ensemble) == [
        "text_input", "stream", "sampling_parameters", "text_output", "finish_reason"]
    assert re.findall(r'model_name: "(\w+)"', ensemble) == ["m_tokenize", "m", "m_detokenize"]
    for model in ("tokenize", "detokenize"):
        folder = tmp_path / f"m_{model}/1"
        assert (folder / "tokenizer.json").read_bytes() == (talking / "tokenizer.json").read_bytes()
        compile((folder / "model.py").read_text(), "model.py", "exec")
    config = (tmp_path / "m_detokenize/config.pbtxt").read_text()
    ends = re.search(r'"eos_ids" value \{ string_value: "(.*)" \}', config)
    assert ends is not None and all(type(i) is int for i in json.loads(ends.group(1)))


def test_models_join_a_repository(silent: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert dsv41c("export-triton", silent, tmp_path, "--name", name, "--link").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_what_exists_is_refused_and_nothing_is_left(talking: Path, tmp_path: Path) -> None:
    (tmp_path / "m_text").mkdir()
    done = dsv41c("export-triton", talking, tmp_path, "--name", "m", "--link", "--json")
    error = json.loads(done.err)
    assert (done.code, done.out) == (2, "")
    assert error["code"] == "DSV41C-E0605" and error["where"].endswith("/m_text")
    assert [path.name for path in tmp_path.iterdir()] == ["m_text"]


@pytest.mark.parametrize("name", ["", "../m", "a b", "-m", ".m"])
def test_names_that_are_no_model_names_are_refused(silent: Path, tmp_path: Path, name: str) -> None:
    done = dsv41c("export-triton", silent, tmp_path / "repo", f"--name={name}")
    assert done.code == 2 and "DSV41C-E0901" in done.err and not (tmp_path / "repo").exists()


def test_what_cannot_run_is_refused(tmp_path: Path, compiled_artifact: Callable[..., Path]) -> None:
    plan = compiled_artifact("tiny", 0, plan_only=True, **OPTIONS)
    for artifact, code in ((plan, "DSV41C-E0603"), (tmp_path / "nothing", "DSV41C-E0601")):
        done = dsv41c("export-triton", artifact, tmp_path / "repo")
        assert done.code == 5 and code in done.err and not (tmp_path / "repo").exists()


def test_a_checkpoint_is_named_when_the_artifact_maps_it_and_only_then(
        silent: Path, tmp_path: Path, compiled_artifact: Callable[..., Path], tiny_checkpoint: Path) -> None:
    mapping = compiled_artifact("tiny", 0, weights="map", **OPTIONS)
    refused = dsv41c("export-triton", mapping, tmp_path / "a")
    assert refused.code == 2 and "--weights" in refused.err
    refused = dsv41c("export-triton", silent, tmp_path / "b", "--weights", tiny_checkpoint)
    assert refused.code == 2 and "--weights" in refused.err
    assert dsv41c("export-triton", mapping, tmp_path / "c", "--weights", tiny_checkpoint).code == 0
    config = (tmp_path / "c/dsv41c/config.pbtxt").read_text()
    assert f'"weights" value {{ string_value: "{tiny_checkpoint}" }}' in config
