"""A split decoder on the fake driver, which runs nothing before somebody waits: staging, bridge copies, records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime, heap_allocations
from tests.unit.runtime.cuda.cuda_plan import COLUMNS, MAX_ROWS, WEIGHT
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.cuda.split_plan import TOP, split_toy
from tests.unit.runtime.toy_artifact import identity, rows_of, upload_of

Opened = Callable[..., Runtime]


def step(runtime: Runtime, tokens: list[int], logit_rows: np.ndarray, eager: bool = False) -> None:
    half = len(tokens) // 2
    groups = [rows_of(slot, part) for slot, part in ((0, tokens[:half]), (2, tokens[half:])) if part]
    runtime.step(upload_of(*groups), identity(len(tokens)), logit_rows, eager)


def expected(tokens: list[int]) -> np.ndarray:
    logits: np.ndarray = np.outer(tokens, WEIGHT).astype(np.float32)
    return logits


@pytest.mark.parametrize("mode", ["graphs", "eager"])
@pytest.mark.parametrize("count", range(1, MAX_ROWS + 1))
def test_every_row_gets_its_own_logits(opened: Opened, mode: str, count: int) -> None:
    """Every replay reads its own part of keep_rows, though all of them were staged before the first one ran."""
    runtime = opened(*split_toy(), cuda_mode=mode, poison=7)
    tokens = [3 + i for i in range(count)]
    for logit_rows in (identity(count), identity(count)[::2], identity(count)[-1:]):
        step(runtime, tokens, logit_rows)
        assert np.array_equal(runtime.output("logits"), expected([tokens[i] for i in logit_rows]))
    assert runtime.state("counter").tolist() == [5 + 3 * -(-count // TOP)] * 4


def test_steps_in_a_row_do_not_disturb_each_other(opened: Opened) -> None:
    """Nobody waits between the steps but the ring, which has two slots; sizes change from step to step."""
    runtime = opened(*split_toy())
    for count in (16, 7, 16, 3, 11, 16, 5):
        step(runtime, [(count + i) % COLUMNS for i in range(count)], identity(count))
    assert np.array_equal(runtime.output("logits"), expected([5 + i for i in range(5)]))
    assert runtime.state("slot_position")[:3].tolist() == [2, 0, 3]
    assert runtime.state("counter")[0] == 5 + sum(-(-count // TOP) for count in (16, 7, 16, 3, 11, 16, 5))


def test_a_split_step_returns_before_its_work_has_run(opened: Opened, driver: Driver) -> None:
    runtime = opened(*split_toy())
    before = len(driver.report()["executed"])
    step(runtime, [1] * 8, identity(8))
    assert driver.report()["executed"][before:] == []


@pytest.mark.parametrize(("mode", "eager", "words"), [
    ("graphs", False, "of a split"), ("eager", True, "of a split, launches one by one")])
def test_records_name_the_parts(opened: Opened, mode: str, eager: bool, words: str) -> None:
    runtime = opened(*split_toy(), cuda_mode=mode)
    step(runtime, [1] * 7, identity(7))
    records = [r for r in runtime.records() if r.method == "decoder"]
    assert [(r.bucket, r.rows, r.eager, r.reason) for r in records] == [
        (rows, rows, eager, f"part {i + 1} of 3 {words}") for i, rows in enumerate((1, TOP, TOP))]


def test_eager_on_request_is_one_run(opened: Opened) -> None:
    runtime = opened(*split_toy())
    step(runtime, [2 + i for i in range(8)], identity(8), eager=True)
    assert np.array_equal(runtime.output("logits"), expected([2 + i for i in range(8)]))
    assert runtime.state("counter")[0] == 6 and runtime.output("logits").shape == (8, COLUMNS)


def test_a_split_step_makes_no_heap_allocation(opened: Opened) -> None:
    runtime = opened(*split_toy())
    step(runtime, [1] * 8, identity(8))
    upload, rows = upload_of(rows_of(0, [1] * 8)), identity(8)
    runtime.step(upload, rows, rows)
    before = heap_allocations()
    runtime.step(upload, rows, rows)
    assert heap_allocations() == before
