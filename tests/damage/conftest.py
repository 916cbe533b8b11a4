"""Fixtures of the damage suite: copies to break, commands in this process, and compilation without its slow part."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dsv41c.compiler import driver
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import weight_recipes
from tests.damage.command import Command, Ended, check_refusal, runner, tree

SIZES = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}
OPTIONS = [text for name, value in SIZES.items() for text in (f"--{name.replace('_', '-')}", str(value))]
NOBODY = 65534

Refused = Callable[..., Ended]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(capsys)


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "ckpt"))


@pytest.fixture(scope="session")
def sound(compiled_artifact: Callable[..., Path]) -> Path:
    """The artifact of the tiny checkpoint; not to be touched."""
    return compiled_artifact("tiny", 0, **SIZES)


@pytest.fixture
def artifact(sound: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(sound, tmp_path / "art"))


@pytest.fixture
def compile_refused(command: Command, checkpoint: Path, tmp_path: Path) -> Refused:
    """`compile_refused(code, *words)`: the broken copy is refused, and the folder is as it was."""

    def refused(code: str, *words: str) -> Ended:
        before = tree(tmp_path)
        ended = command("compile", checkpoint, "-o", tmp_path / "art", *OPTIONS)
        check_refusal(ended, code, *words)
        assert tree(tmp_path) == before
        return ended

    return refused


@pytest.fixture
def run_refused(command: Command, artifact: Path, tmp_path: Path) -> Refused:
    """`run_refused(code, *words, options=())`: the broken copy does not run, and the folder is as it was."""

    def refused(code: str, *words: str, options: tuple[str, ...] = ()) -> Ended:
        before = tree(tmp_path)
        ended = command("run", artifact, "--prompt-ids", "1,2,3", "--max-new-tokens", "2", *options)
        check_refusal(ended, code, *words)
        assert tree(tmp_path) == before
        return ended

    return refused


@pytest.fixture(scope="session")
def planned(tiny_checkpoint: Path) -> driver.Compiled:
    """The plan of the tiny checkpoint and its recipes."""
    return driver.compile_plan(CheckpointView.open(tiny_checkpoint), CompileOptions(**SIZES), lambda _: None)


@pytest.fixture
def quick_compile(planned: driver.Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """`compile` reads, checks and writes as always; the plan and the self-test are those of the tiny checkpoint."""
    def quick(view: CheckpointView, options: CompileOptions, *_: object) -> driver.Compiled:
        recipes = weight_recipes(view, planned.options)
        return replace(planned, view=view, recipes={name: recipes[name] for name in planned.recipes})

    monkeypatch.setattr(driver, "compile_plan", quick)
    monkeypatch.setattr(driver, "record_self_test", lambda *_: driver.SelfTest((1,), (2,)))


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that another user can enter; pytest's own ones are private."""
    folder = Path(tempfile.mkdtemp(prefix="dsv41c-damage-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_nobody() -> Iterator[Callable[[], None]]:
    """A function after which this process has the rights of an unprivileged user, until the test ends."""
    user = os.geteuid()

    def become() -> None:
        if user == 0:
            os.seteuid(NOBODY)

    yield become
    os.seteuid(user)
