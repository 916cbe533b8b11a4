"""`compile --without PASS`: for each fusion the artifact compiles, runs and gives the same tokens and logits.

Each fusion is left out in one of the two dtypes here; tests/passes/fuse/test_whole_programs.py leaves each out in both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dsv41c.compiler import driver, pass_driver
from dsv41c.compiler.pipeline import PIPELINE
from dsv41c.compiler.program import Program
from dsv41c.passes.base import Pass, PassResult, Stage
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import load
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.requests import Request
from tests.damage.command import Command, runner
from tests.passes.four_layers import write_four_layers

OPTIONS = ["--max-model-len", "64", "--block-size", "16", "--max-num-seqs", "2", "--max-num-batched-tokens", "8"]
PROMPTS = ((5, 9, 33, 2, 71, 8, 8, 1, 44, 3, 90), (12, 60))
FUSIONS = [step.name for step in PIPELINE if step.stage is Stage.FUSE]
OF_THE_DRAFT = ("tap_feature", "project_features", "feature_commit", "markov_step")  # find nothing in plans yet
MATCHING = [name for name in FUSIONS if name not in OF_THE_DRAFT]


@dataclass(frozen=True)
class Said:
    """Tokens of each prompt, bytes of all logits, and launches of each method."""

    tokens: tuple[tuple[int, ...], ...]
    logits: tuple[bytes, ...]
    launches: tuple[int, ...]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_four_layers(tmp_path_factory.mktemp("without") / "ckpt")


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What does not depend on the passes is made once for all compilations: the captured program, the self-test."""
    for name in ("capture_program", "record_self_test"):
        real, known = getattr(driver, name), dict[str, Any]()

        def remembered(*given: Any, real: Callable[..., Any] = real, known: dict[str, Any] = known) -> Any:
            if "made" not in known:
                known["made"] = real(*given)
            return known["made"]

        monkeypatch.setattr(driver, name, remembered)
    run, ran = pass_driver._run, dict[tuple[str, int], tuple[Any, Any]]()

    def run_once(step: Pass, program: Program, *others: Any) -> PassResult:
        """The passes before the missing one rewrite one program to one result."""
        _, result = ran.setdefault((step.name, id(program)), (program, None))
        if result is None:
            result = run(step, program, *others)
            ran[step.name, id(program)] = program, result
        return result

    monkeypatch.setattr(pass_driver, "_run", run_once)
    yield


def said(artifact: Path) -> Said:
    limits = Limits.read(artifact)
    with load(artifact) as runtime:
        made = generate(runtime, limits, [Request(p, 4, ignore_eos=True) for p in PROMPTS], keep_logits=True)
    plan = Manifest.read(artifact).read_plan()
    return Said(tuple(tuple(c.tokens) for c in made), tuple(c.logits.tobytes() for c in made if c.logits is not None),
                tuple(sum(len(s.launches) for s in m.steps) for m in plan.methods))


@pytest.mark.parametrize(("dtype", "names"), [("bfloat16", MATCHING[::2]), ("float32", MATCHING[1::2])])
def test_without_each_fusion_the_same_bits_come_out(dtype: str, names: Sequence[str], checkpoint: Path, once: None,
                                                    tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = functools.partial(compile_and_run, runner(capsys), checkpoint, tmp_path, dtype)
    whole = compiled(())
    assert len(whole.tokens) == len(whole.logits) == len(PROMPTS) and all(whole.logits)
    for name in names:
        found = compiled((name,))
        assert (found.tokens, found.logits) == (whole.tokens, whole.logits), name
        assert sum(found.launches) > sum(whole.launches), name
    assert compiled(OF_THE_DRAFT) == whole
    none = compiled(tuple(FUSIONS))
    assert (none.tokens, none.logits) == (whole.tokens, whole.logits)


def compile_and_run(command: Command, checkpoint: Path, folder: Path, dtype: str, without: tuple[str, ...]) -> Said:
    artifact = folder / ("art-" + "-".join(without))[:100]
    leave_out = [word for name in without for word in ("--without", name)]
    ended = command("compile", checkpoint, "-o", artifact, "--dtype", dtype, *OPTIONS, *leave_out)
    assert ended.code == 0, ended.err
    return said(artifact)


def test_an_unknown_pass_is_answered_with_the_nearest(checkpoint: Path, tmp_path: Path,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    ended = runner(capsys)("compile", checkpoint, "-o", tmp_path / "art", "--without", "mega_mo", *OPTIONS)
    assert ended.code == 2 and "E0901" in ended.err and "did you mean mega_moe?" in ended.err
    assert not (tmp_path / "art").exists()
