"""Fixtures every test room shares: checkpoints and artifacts made by the product itself, once per test run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# The oracle is test code, not part of the installed package: `from oracle.model import OracleModel`.
sys.path.insert(0, str(Path(__file__).parent))

MakeCheckpoint = Callable[..., Path]
CompiledArtifact = Callable[..., Path]
OncePerRun = Callable[[str, dict[str, Any], Callable[[Path], object]], Path]

_NOT_RUN = pytest.StashKey[dict[str, int]]()
_WHY = {"gpu": "no CUDA device here", "sanitized": "--sanitized HOST was not given: see `make sanitize`"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sanitized", metavar="HOST", type=Path,
                     help="every artifact that a test opens goes through this build of tests/native too")
    parser.addoption("--triton", metavar="DIR", type=Path,
                     help="also run tests/triton_server, with what its prepare.py wrote: see `make test-triton`")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """tests/triton_server imports what only the environment of `make test-triton` has."""
    is_served = collection_path == Path(__file__).parent / "triton_server"
    return True if is_served and not config.getoption("triton") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a CUDA device gpu tests, and without a host the sanitized ones are left out and counted."""
    absent = [name for name, is_there in (("gpu", Path("/dev/nvidiactl").exists()),
                                          ("sanitized", config.getoption("sanitized"))) if not is_there]
    left_out = {name: [item for item in items if item.get_closest_marker(name)] for name in absent}
    gone = [item for group in left_out.values() for item in group]
    if not gone:
        return
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=gone)
    config.stash[_NOT_RUN] = {name: len(group) for name, group in left_out.items() if group}
    if hasattr(config, "workeroutput"):
        config.workeroutput["not_run"] = config.stash[_NOT_RUN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every parallel worker collects all tests, so that any of them knows the number."""
    node.config.stash[_NOT_RUN] = getattr(node, "workeroutput", {}).get("not_run", {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, count in config.stash.get(_NOT_RUN, {}).items():
        terminalreporter.write_line(f"{name} tests not run: {count} ({_WHY[name]})")


@pytest.fixture(scope="session")
def sanitized_host(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The loader in a process of its own, built with sanitizers; only with --sanitized."""
    from tests.sanitized_host import SanitizedHost

    host = SanitizedHost(request.config.getoption("sanitized").resolve())
    yield host
    host.close()


@pytest.fixture(autouse=True)
def _through_sanitizers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --sanitized, whatever this process opens for the CPU is opened by the sanitized loader as well."""
    if not request.config.getoption("sanitized"):
        return
    from dsv41c.runtime.binding import interface
    from tests.sanitized_host import through

    host = request.getfixturevalue("sanitized_host")
    monkeypatch.setattr(interface(), "open", through(host, interface().open))


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
def flash_plan(once_per_run: OncePerRun) -> Callable[[str], Any]:
    """`flash_plan(target)`: the plan of the published model, from headers."""
    from tests.acceptance.flash_plan import FlashPlan, write_flash_plan

    return lambda target: FlashPlan.read(once_per_run("flash", {"target": target},
                                                      lambda path: write_flash_plan(path, target)))


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
