"""Every method of a small model: fused and unfused programs give the same bits of results and state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.pipeline import PIPELINE
from dsv41c.compiler.program import Program
from dsv41c.compiler.program_text.printer import print_program
from dsv41c.passes.base import Pass, Stage
from tests.passes.four_layers import write_four_layers
from tests.passes.programs import same_bits
from tests.passes.tiny import FLOWS, NUMERICS, Model, Outcome, load, outcome

NAMES = tuple(step.name for step in PIPELINE)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_four_layers(tmp_path_factory.mktemp("whole") / "ckpt")


def differences(wanted: Outcome, found: Outcome) -> list[str]:
    """Names of results and state tensors that are not the same bits."""
    results = [f"result {i}" for i, (a, b) in enumerate(zip(wanted[0], found[0], strict=True)) if not same_bits(a, b)]
    return results + [f"state {name}" for name, value in wanted[1].items() if not same_bits(value, found[1][name])]


def restricted(program: Program, flow: tuple[str, ...]) -> Program:
    return Program({name: program.methods[name] for name in flow})


def variants(program: Program) -> Iterator[tuple[str, Program]]:
    """The program behind each pass alone, where that is another one, and behind all of them."""
    for step in PIPELINE:
        rewritten = run_passes(program, (step,), left_out=step.requires).program
        if print_program(rewritten) != print_program(program):
            yield step.name, rewritten
    yield "all", run_passes(program, PIPELINE).program


@pytest.mark.parametrize("flow", FLOWS, ids="-".join)
@pytest.mark.parametrize("numerics", NUMERICS)
def test_each_pass_alone_and_all_together_keep_every_bit(numerics: str, flow: tuple[str, ...],
                                                         checkpoint: Path) -> None:
    """In bfloat16 too: no pass takes a rounding away or adds one."""
    given = load(checkpoint, numerics)
    program = restricted(given.program, flow)
    wanted, tried, wrong = outcome(given, program, flow), [], {}
    for name, rewritten in variants(program):
        tried.append(name)
        if found := differences(wanted, outcome(given, rewritten, flow)):
            wrong[name] = found
    assert wrong == {}
    assert tried == [*changing(numerics, flow), "all"]


def changing(numerics: str, flow: tuple[str, ...]) -> list[str]:
    """The passes that find something: without casts fewer; without drafts theirs do not; the cut merges no calls."""
    nothing = {step.name for step in PIPELINE if step.stage is Stage.RAISE}  # the program is not foreign
    nothing |= {"normalize_arguments", "drop_no_op_views", "drop_dead_calls"}
    nothing |= {"tap_feature", "project_features", "feature_commit", "markov_step"}
    nothing |= {"engram_gather", "norm_cast", "grouped_out"} if numerics.endswith("off") else set()
    nothing |= set() if "decode" in flow else {"merge_equal_calls"}
    return [name for name in NAMES if name not in nothing]


def all_but_one(program: Program) -> Iterator[tuple[str, Program]]:
    """The passes before the missing one are the same for all: each of them runs once."""
    before = program
    for place, step in enumerate(PIPELINE):
        if step.stage is Stage.FUSE:
            rest: tuple[Pass, ...] = PIPELINE[place + 1:]
            yield step.name, run_passes(before, rest, left_out=NAMES[:place + 1]).program
        before = run_passes(before, (step,), left_out=NAMES[:place]).program


@pytest.mark.parametrize("numerics", ["float32 fake", "bfloat16 fake"])
def test_all_but_one_keep_every_bit(numerics: str, checkpoint: Path) -> None:
    flow = FLOWS[0]
    given: Model = load(checkpoint, numerics)
    program = restricted(given.program, flow)
    wanted, wrong = outcome(given, program, flow), {}
    for name, rewritten in all_but_one(program):
        if found := differences(wanted, outcome(given, rewritten, flow)):
            wrong[name] = found
    assert wrong == {}


def test_the_next_runs_of_the_pipeline_find_nothing(checkpoint: Path) -> None:
    """Only what the fusions have left unread goes in the second run; the third one changes no character."""
    program = restricted(load(checkpoint, "bfloat16 fake").program, FLOWS[0])
    second = run_passes(run_passes(program, PIPELINE).program, PIPELINE)
    assert {r.name for r in second.records if r.num_matches} <= {"drop_dead_calls"}
    third = run_passes(second.program, PIPELINE)
    assert [r.num_matches for r in third.records] == [0] * len(PIPELINE)
    assert print_program(third.program) == print_program(second.program)
