"""Memory is exact before load: what `plan` prints is planned, reserved and allowed, to the byte."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import Fused, fuse
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.load import load
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.damage.command import Command, runner

TINY: dict[str, Any] = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}
# (config, options): the first is the artifact of many other tests; programs differ by dtype and quantizers only.
OPTION_SETS: list[tuple[str, dict[str, Any]]] = [
    ("tiny", TINY),
    *(("tiny", TINY | {"max_model_len": length}) for length in (2, 100, 1000, 4096)),
    *(("tiny", TINY | {"max_num_batched_tokens": rows}) for rows in (4, 5, 130, 512)),
    *(("tiny", TINY | {"max_num_seqs": seqs, "max_num_batched_tokens": 32}) for seqs in (1, 7, 32)),
    *(("tiny", TINY | {"block_size": block}) for block in (2, 128)),
    ("tiny", TINY | {"dtype": "float32"}),
    ("tiny", TINY | {"quantizers": "off"}),
    ("tiny", TINY | {"dtype": "float32", "quantizers": "off", "max_model_len": 333, "max_num_batched_tokens": 99}),
    ("tiny", TINY | {"without": ("mega_moe",)}),
    ("demo", TINY),
    ("small", {"max_model_len": 256, "max_num_batched_tokens": 128}),
]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(capsys)


@pytest.fixture(scope="module")
def captured() -> dict[tuple[object, ...], Fused]:
    return {}


@pytest.fixture
def capture_once(captured: dict[tuple[object, ...], Fused], monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan` plans every size from one capture of a program: here also across its runs. Compilations capture anew."""

    def fuse_once(view: CheckpointView, options: CompileOptions, progress: Callable[[str], None]) -> Fused:
        key = (view.path, options.dtype, options.quantizers, options.without)
        if key not in captured:
            captured[key] = fuse(view, options, progress)
        return dataclasses.replace(captured[key], view=view, options=options.resolved(view.config))

    monkeypatch.setattr("dsv41c.compiler.driver.fuse", fuse_once)


def arguments_of(options: dict[str, Any]) -> list[str]:
    words = []
    for name, value in options.items():
        for each in value if isinstance(value, tuple) else (value,):
            words += [f"--{name.replace('_', '-')}", str(each)]
    return words


def test_there_are_twenty() -> None:
    assert len(OPTION_SETS) == 20


@pytest.mark.parametrize(("config", "options"), OPTION_SETS, ids=str)
def test_printed_is_planned_is_reserved_is_the_least_budget(
    config: str, options: dict[str, Any], make_checkpoint: Callable[..., Path],
    compiled_artifact: Callable[..., Path], command: Command, request: pytest.FixtureRequest,
) -> None:
    checkpoint, artifact = make_checkpoint(config, 0), compiled_artifact(config, 0, **options)
    request.getfixturevalue("capture_once")  # behind the compilation
    printed = command("plan", checkpoint, *arguments_of(options), "--json").json["total_bytes"]
    assert printed == Manifest.read(artifact).read_plan().memory.total_bytes
    with load(artifact, memory_budget=printed) as runtime:
        assert runtime.report()["reserved_bytes"] == runtime.report()["planned_bytes"] == printed
    with pytest.raises(Dsv41cError, match="DSV41C-E0707"):
        load(artifact, memory_budget=printed - 1)
