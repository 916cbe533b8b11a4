"""Fixtures every test room shares: checkpoints and artifacts made by the product itself, once per test run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# The oracle is test code, not part of the installed package: `from oracle.model import OracleModel`.
sys.path.insert(0, str(Path(__file__).parent))

MakeCheckpoint = Callable[..., Path]
CompiledArtifact = Callable[..., Path]
OncePerRun = Callable[[str, dict[str, Any], Callable[[Path], object]], Path]

_NOT_RUN = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a CUDA device, gpu tests are left out and counted: the summary says how many."""
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu or Path("/dev/nvidiactl").exists():
        return
    items[:] = [item for item in items if item not in gpu]
    config.hook.pytest_deselected(items=gpu)
    config.stash[_NOT_RUN] = len(gpu)
    if hasattr(config, "workeroutput"):
        config.workeroutput["gpu_not_run"] = len(gpu)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every parallel worker collects all tests, so that any of them knows the number."""
    node.config.stash[_NOT_RUN] = getattr(node, "workeroutput", {}).get("gpu_not_run", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(_NOT_RUN, 0):
        terminalreporter.write_line(f"gpu tests not run: {count} (no CUDA device here)")


@pytest.fixture(scope="session")
def once_per_run(tmp_path_factory: pytest.TempPathFactory) -> OncePerRun:
    """`once_per_run(kind, arguments, write) -> directory`: one for each arguments, shared by parallel workers."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def once(kind: str, arguments: dict[str, Any], write: Callable[[Path], object]) -> Path:
        name = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]
        directory = base / kind / name
        directory.parent.mkdir(exist_ok=True)
        # The second worker waits for the first; the writer renames at its end, so that what exists is whole.
        with directory.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.exists():
                write(directory)
        return directory

    return once


@pytest.fixture(scope="session")
def make_checkpoint(once_per_run: OncePerRun) -> MakeCheckpoint:
    """`make_checkpoint(config, seed, counter=None, recite=None) -> directory`."""

    def make(config: str, seed: int, counter: int | None = None, recite: str | None = None) -> Path:
        # Imported here so that tests which need no checkpoint do not depend on the maker.
        from dsv41c.compiler.checkpoint.make import make_checkpoint as write

        arguments = {"config": config, "seed": seed, "counter": counter, "recite": recite}
        return once_per_run("checkpoints", arguments,
                            lambda path: write(config, path, seed=seed, counter=counter, recite=recite))

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """The random tiny checkpoint of seed 0."""
    return make_checkpoint("tiny", 0)


@pytest.fixture(scope="session")
def compiled_artifact(make_checkpoint: MakeCheckpoint, once_per_run: OncePerRun) -> CompiledArtifact:
    """`compiled_artifact(config, seed, counter=None, recite=None, **compile_options) -> directory`."""

    def compiled(config: str, seed: int, counter: int | None = None, recite: str | None = None,
                 **options: Any) -> Path:
        from dsv41c.compiler.driver import compile_checkpoint
        from dsv41c.compiler.options import CompileOptions

        checkpoint = make_checkpoint(config, seed, counter, recite)
        arguments = {"checkpoint": checkpoint.name, "options": options}
        chosen = CompileOptions(**options)
        return once_per_run("artifacts", arguments,
                            lambda path: compile_checkpoint(checkpoint, path, chosen, lambda _: None))

    return compiled
