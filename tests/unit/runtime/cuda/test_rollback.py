"""Rollback on the fake driver: in order with the steps, through the upload ring, without waiting."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime, heap_allocations
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.cuda.cuda_plan import SLOTS, CudaPlan, toy
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.toy_artifact import identity, rows_of, upload_of

Opened = Callable[..., Runtime]


def with_drafts(draft_len: int) -> tuple[CudaPlan, s.Plan]:
    """The toy plan as one that was compiled with --draft-len."""
    built, plan = toy()
    provenance = dataclasses.replace(plan.provenance, options={"max_model_len": 28, "draft_len": draft_len})
    return built, dataclasses.replace(plan, provenance=provenance)


def step(runtime: Runtime, slot: int, count: int, base: int) -> None:
    upload = upload_of(rows_of(slot, [3] * count, base=base))
    runtime.step(upload, identity(count), identity(count))


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize("mode", ["graphs", "eager"])
def test_steps_and_rollbacks_run_in_the_order_of_the_calls(opened: Opened, mode: str) -> None:
    """The ring is used by both, many times over: a piece that was refilled early would write wrong positions."""
    runtime = opened(*with_drafts(3), cuda_mode=mode)
    step(runtime, 0, 4, 0)
    step(runtime, 2, 4, 0)
    held = 4
    for forgotten in (1, 3, 0, 2, 3, 1, 3, 3):
        step(runtime, 0, 4, held)
        held += 4 - forgotten
        runtime.rollback(numbers(0, 2), numbers(held, 4))
    assert runtime.state("slot_position").tolist() == [held, 0, 4, 0]


def test_a_rollback_does_not_wait(opened: Opened, driver: Driver) -> None:
    runtime = opened(*with_drafts(3))
    before = len(driver.report()["executed"])
    step(runtime, 1, 3, 0)
    runtime.rollback(numbers(1), numbers(2))
    assert driver.report()["executed"][before:] == []
    step(runtime, 1, 1, 2)
    assert runtime.state("slot_position")[:SLOTS].tolist() == [0, 3, 0]


def test_a_rollback_makes_no_heap_allocation(opened: Opened) -> None:
    runtime = opened(*with_drafts(3))
    slots, lengths = numbers(0), numbers(2)
    for _ in range(2):
        step(runtime, 0, 3, 0)
        before = heap_allocations()
        runtime.rollback(slots, lengths)
    assert heap_allocations() == before


def test_the_host_knows_the_positions_that_the_device_will_hold(opened: Opened) -> None:
    runtime = opened(*with_drafts(1))
    step(runtime, 0, 5, 0)
    runtime.rollback(numbers(0), numbers(3))
    with pytest.raises(Dsv41cError, match="E0801") as failure:
        runtime.rollback(numbers(0), numbers(2))
    assert "at least 3: slot 0 has held 5 positions" in failure.value.needed
    with pytest.raises(Dsv41cError, match="E0801"):
        runtime.rollback(numbers(0), numbers(4))
