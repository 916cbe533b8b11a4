"""The order of the pipeline: what a pass requires comes first, and neighbours that commute give one program."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import capture_program
from dsv41c.compiler.model.state import state_specs
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.pass_driver import check_order, run_passes
from dsv41c.compiler.pipeline import PIPELINE
from dsv41c.compiler.program import Program
from dsv41c.compiler.program_text.printer import print_program
from dsv41c.compiler.weights import weight_recipes, weight_shapes
from dsv41c.passes.base import Pass, Stage
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.passes.four_layers import write_four_layers
from tests.passes.fuse.draft_programs import DraftProgram

ORDERS = 50
REQUIRED = [(step, name) for step in PIPELINE for name in step.requires]
BY_NAME = {step.name: step for step in PIPELINE}


def commuting_runs() -> list[tuple[int, int]]:
    """First and last place, exclusive, of each longest run of neighbours that say that they commute."""
    runs, place = [], 0
    for commutes, group in itertools.groupby(PIPELINE, lambda s: s.commutes):
        length = len(list(group))
        if commutes and length > 1:
            runs.append((place, place + length))
        place += length
    return runs


def drawn_orders(count: int) -> list[tuple[Pass, ...]]:
    """The pipeline with every run shuffled, the reversed runs first."""
    orders = []
    for seed in range(count):
        order, draws = list(PIPELINE), random.Random(seed)
        for first, last in commuting_runs():
            run = order[first:last]
            run.reverse() if seed == 0 else draws.shuffle(run)
            order[first:last] = run
        orders.append(tuple(order))
    return orders


# --- requirements -----------------------------------------


def assert_refused(order: Sequence[Pass], *names: str, left_out: Sequence[str] = ()) -> None:
    with pytest.raises(Dsv41cError) as caught:
        run_passes(Program({}), order, left_out=left_out)
    assert caught.value.code == "DSV41C-E0304"
    assert all(name in caught.value.found for name in names), caught.value.found


@pytest.mark.parametrize(("step", "required"), REQUIRED, ids=lambda x: x if isinstance(x, str) else x.name)
def test_a_pass_before_what_it_requires_is_an_error_that_names_both(step: Pass, required: str) -> None:
    others = [s for s in PIPELINE if s is not step]
    place = next(i for i, s in enumerate(others) if s.name == required)
    assert_refused([*others[:place], step, *others[place:]], step.name, required)
    others_done = [name for name in step.requires if name != required]
    assert_refused([step], step.name, required, left_out=others_done)
    check_order([step], [*others_done, required])  # left out on purpose


def test_the_pipeline_is_in_order_and_requires_only_what_it_holds() -> None:
    check_order(PIPELINE)
    assert {name for _, name in REQUIRED} <= BY_NAME.keys()
    assert len(BY_NAME) == len(PIPELINE)


def test_a_stage_behind_a_later_one_is_an_error_that_names_both() -> None:
    early, late = next(p for p in PIPELINE if p.stage is Stage.CANONICALIZE), PIPELINE[-1]
    assert late.stage is Stage.FUSE
    order = [*(p for p in PIPELINE if p is not early), early]
    assert_refused(order, early.name, late.name, early.stage.value, late.stage.value)


def test_one_pass_twice_is_an_error() -> None:
    assert_refused([PIPELINE[0], PIPELINE[0]], PIPELINE[0].name)


# --- orders that give one program -------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_four_layers(tmp_path_factory.mktemp("order") / "ckpt")


def captured(folder: Path, quantizers: str) -> Program:
    view = CheckpointView.open(folder)
    options = CompileOptions(quantizers=quantizers, max_num_seqs=4, max_num_batched_tokens=32).resolved(view.config)
    shapes = weight_shapes(view, weight_recipes(view, options))
    return capture_program(view.config, options, shapes, state_specs(view.config, options))


def applied(program: Program, order: Sequence[Pass]) -> Program:
    """Without the checks between two passes, which the other tests of this file and the driver make."""
    for step in order:
        program = step.apply(program).program
    return program


@pytest.mark.parametrize("quantizers", ["fake", "off"])
def test_fifty_orders_of_commuting_passes_give_one_program(quantizers: str, folder: Path) -> None:
    """On `decode`, which holds every call of the other methods; the passes before the first run are applied once."""
    decode = Program({"decode": captured(folder, quantizers).methods["decode"]})
    start = commuting_runs()[0][0]
    before = applied(decode, PIPELINE[:start])
    orders = {tuple(s.name for s in order): order for order in (PIPELINE, *drawn_orders(ORDERS // 2))}
    assert len(orders) == ORDERS // 2 + 1
    texts = {print_program(applied(before, order[start:])) for order in orders.values()}
    assert len(texts) == 1


def test_orders_of_commuting_passes_give_one_program_of_all_methods_and_the_draft(folder: Path) -> None:
    """Without quantizers, where more compositions begin alike; through the driver."""
    source = DraftProgram(folder, dtype="float32", quantizers="off", max_model_len=64, block_size=4,
                          max_num_seqs=3)
    start = commuting_runs()[0][0]
    before = run_passes(source.program, PIPELINE[:start]).program
    done = [s.name for s in PIPELINE[:start]]
    texts = {print_program(run_passes(before, order[start:], left_out=done).program)
             for order in (PIPELINE, *drawn_orders(2))}
    assert len(texts) == 1
