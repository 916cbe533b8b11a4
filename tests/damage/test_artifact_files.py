"""Broken artifacts: `run`, `check`, `inspect`, `explain` and `diff` refuse each with its own error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.damage.command import Command, check_refusal
from tests.damage.conftest import Refused
from tests.damage.seal import change_plan, seal
from tests.damage.shard import CUTS, cut, cuts, header_of

MANIFEST, PLAN, INDEX = "dsv41c.json", "plan.json", "model.safetensors.index.json"
WEIGHTS = "model-00001-of-00001.safetensors"
CONFIGS = ("config.json", "generation_config.json")
FILES = (MANIFEST, PLAN, INDEX, WEIGHTS, *CONFIGS)
READERS = (["inspect"], ["explain"], ["check"], ["run", "--prompt-ids", "1"])


def refusal_of(name: str) -> str:
    """The prompt is checked against the configs first; the executor then compares all sizes with the manifest."""
    return "E0703" if name in (MANIFEST, *CONFIGS) else "E0602"


# --- files ------------------------------------------------


@pytest.mark.parametrize("where", CUTS)
def test_cut_weights(where: str, artifact: Path, run_refused: Refused) -> None:
    cut(artifact / WEIGHTS, cuts(artifact / WEIGHTS)[where])
    run_refused("E0602", WEIGHTS)


@pytest.mark.parametrize("where", ["empty", "first byte", "middle", "last byte"])
@pytest.mark.parametrize("name", [n for n in FILES if n != WEIGHTS])
def test_a_cut_file(name: str, where: str, artifact: Path, run_refused: Refused) -> None:
    cut(artifact / name, cuts(artifact / name)[where])
    run_refused(refusal_of(name), name)


@pytest.mark.parametrize("name", [n for n in FILES if n != MANIFEST])
def test_an_appended_file(name: str, artifact: Path, run_refused: Refused) -> None:
    """The manifest itself has no digest, and blanks behind it mean nothing."""
    cut(artifact / name, cuts(artifact / name)["appended"])
    run_refused("E0602", name)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(name: str, artifact: Path, run_refused: Refused) -> None:
    """Without generation_config.json config.json would do, but the manifest promises it."""
    (artifact / name).unlink()
    run_refused("E0601", name)


@pytest.mark.parametrize("name", FILES)
def test_a_directory_in_place_of_a_file(name: str, artifact: Path, run_refused: Refused) -> None:
    (artifact / name).unlink()
    (artifact / name).mkdir()
    run_refused("E0601", name)


@pytest.mark.parametrize("name", [n for n in FILES if n != MANIFEST])
def test_a_flipped_byte(name: str, artifact: Path, run_refused: Refused, command: Command) -> None:
    """Found by --verify full, in `run` and in `check`, wherever it is."""
    data = bytearray((artifact / name).read_bytes())
    spot = header_of(artifact / name)[1] + 1001 if name == WEIGHTS else data.index(b"1")
    data[spot] ^= 1
    (artifact / name).write_bytes(data)
    run_refused("E0602", name, options=("--verify", "full"))
    check_refusal(command("check", artifact, "--verify", "full"), "E0602", name)


@pytest.mark.parametrize("arguments", READERS, ids=lambda a: a[0])
@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.write_text("x"), lambda p: p.mkdir()],
                         ids=["nothing", "file", "empty"])
def test_a_path_that_is_no_artifact(arguments: list[str], make: Callable[[Path], None], command: Command,
                                    tmp_path: Path) -> None:
    make(tmp_path / "art")
    check_refusal(command(*arguments, tmp_path / "art"), "E0601", MANIFEST)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_may_not_be_read(name: str, sound: Path, public_folder: Path, as_nobody: Callable[[], None],
                                     command: Command) -> None:
    import shutil

    copy = Path(shutil.copytree(sound, public_folder / "art"))
    copy.chmod(0o755)
    (copy / name).chmod(0)
    command("run", "nowhere", "--prompt-ids", "1")
    as_nobody()
    check_refusal(command("run", copy, "--prompt-ids", "1"), "E0601", name, "Permission denied")


# --- manifest ---------------------------------------------


@pytest.mark.parametrize(("fields", "code", "words"), [
    ({"format_version": 2}, "E0604", ("format version 2", "format version 1")),
    ({"format_version": None}, "E0604", ("format version 1",)),
    ({"required_features": ["teleport"]}, "E0503", ("teleport",)),
    ({"plan_digest": "0" * 64}, "E0602", ("0" * 64,)),
    ({"model_digest": "0" * 64}, "E0602", ("0" * 64,)),
    ({"files": {"/etc/passwd": {"bytes": 1, "sha256": ""}}}, "E0703", ("/etc/passwd",)),
    ({"files": {"../x": {"bytes": 1, "sha256": ""}}}, "E0703", ("../x",)),
    ({"plan_only": True}, "E0603", ("--plan-only",)),
    ({"options": {}}, "E0703", ("max_model_len",)),
    ({"options": {"max_model_len": 10**30}}, "E0703", ("max_num_seqs",)),
    ({"required_features": "native_cpu"}, "E0703", ()),
])
def test_a_manifest_that_does_not_fit(fields: dict[str, object], code: str, words: tuple[str, ...], artifact: Path,
                                      run_refused: Refused) -> None:
    seal(artifact, **fields)
    run_refused(code, *words)


@pytest.mark.parametrize("text", ["{", "[]", "null", "[" * 100_000, '{"format_version": 1}', "\xff"])
def test_a_broken_manifest(text: str, artifact: Path, run_refused: Refused) -> None:
    (artifact / MANIFEST).write_text(text, encoding="latin-1")
    run_refused("E0703", MANIFEST)


# --- plan -------------------------------------------------


def test_an_unknown_feature_of_the_plan(artifact: Path, run_refused: Refused) -> None:
    change_plan(artifact, lambda plan: plan["required_features"].append("teleport"))
    run_refused("E0503", "teleport")


def test_another_plan_version(artifact: Path, run_refused: Refused) -> None:
    change_plan(artifact, lambda plan: plan.update(version=2))
    run_refused("E0501", "integer 1")


@pytest.mark.parametrize(("target", "code"), [("tpu", "E0502"), ("sm_90a", "E0502"), ("sm_100a", "E0502")])
def test_another_target(target: str, code: str, artifact: Path, run_refused: Refused) -> None:
    """A plan of native kernels does not become one for a GPU by its target."""
    change_plan(artifact, lambda plan: plan.update(target=target))
    run_refused(code, target)


# --- prompts ----------------------------------------------


@pytest.mark.parametrize(("ids", "words"), [
    ("-1", "0..95"), ("96", "0..95"), ("1,2,99999999999999999999", "index 2"), ("", "index 0"),
    (",".join(["1"] * 64), "max_model_len 64"), (",".join(["1"] * 5000), "5000 token ids"), ("one", "index 0"),
])
def test_a_bad_prompt(ids: str, words: str, sound: Path, command: Command) -> None:
    check_refusal(command("run", sound, "--prompt-ids", ids), "E0902", words)


def test_an_empty_prompt(sound: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "lines").write_text("[]\n")
    check_refusal(command("run", sound, "--prompts-file", tmp_path / "lines"), "E0902", "no token ids")
