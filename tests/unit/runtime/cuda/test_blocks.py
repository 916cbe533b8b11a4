"""Eager blocks of rows on the fake driver, which runs nothing before somebody waits: staging, bridge rows, records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan import schema as s
from tests.unit.runtime.cuda.cuda_plan import COLUMNS, MAX_ROWS, CudaPlan
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.cuda.split_plan import split_toy
from tests.unit.runtime.cuda.test_split import expected, step
from tests.unit.runtime.toy_artifact import identity

Opened = Callable[..., Runtime]
BLOCK_ROWS = 5


def block_toy() -> tuple[CudaPlan, s.Plan]:
    """The encoder has a bucket of 2 rows and runs at most 5, the decoder splits, or runs at most 5 on request."""
    table, plan = split_toy()
    encoder, decoder, head = (replace(m, ladder=replace(m.ladder, block_rows=BLOCK_ROWS if not m.outputs else 0))
                              for m in plan.methods)
    return table, replace(plan, methods=(replace(encoder, buckets=(2,)), decoder, head))


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("mode", ["graphs", "eager"])
@pytest.mark.parametrize("count", range(1, MAX_ROWS + 1))
def test_every_row_gets_its_own_logits(opened: Opened, mode: str, count: int, eager: bool) -> None:
    """Blocks end anywhere in a slot's rows; all of them were staged before the first one ran."""
    runtime = opened(*block_toy(), cuda_mode=mode, poison=7)
    tokens = [3 + i for i in range(count)]
    for logit_rows in (identity(count), identity(count)[::2], identity(count)[-1:]):
        step(runtime, tokens, logit_rows, eager)
        assert np.array_equal(runtime.output("logits"), expected([tokens[i] for i in logit_rows]))
    assert runtime.state("slot_position")[[0, 2]].tolist() == [count // 2, count - count // 2]


def test_a_step_in_blocks_returns_before_its_work_has_run(opened: Opened, driver: Driver) -> None:
    runtime = opened(*block_toy())
    before = len(driver.report()["executed"])
    step(runtime, [1] * 12, identity(12))
    assert driver.report()["executed"][before:] == []


def test_steps_in_a_row_do_not_disturb_each_other(opened: Opened) -> None:
    runtime = opened(*block_toy())
    for count in (16, 7, 16, 3, 11, 16, 5):
        step(runtime, [(count + i) % COLUMNS for i in range(count)], identity(count), eager=count % 2 == 0)
    assert np.array_equal(runtime.output("logits"), expected([5 + i for i in range(5)]))


@pytest.mark.parametrize(("eager", "reason"), [(False, "above the largest bucket"), (True, "requested")])
def test_records_name_the_blocks(opened: Opened, eager: bool, reason: str) -> None:
    runtime = opened(*block_toy())
    step(runtime, [1] * 12, identity(12), eager)
    encoder = [(r.bucket, r.rows, r.eager, r.reason) for r in runtime.records() if r.method == "encoder"]
    assert encoder == [(rows, rows, True, f"{reason}, block {i + 1} of 3") for i, rows in enumerate((5, 5, 2))]
