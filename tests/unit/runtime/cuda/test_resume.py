"""Prefix hits on the fake driver: the slot is placed in order with the steps, without waiting for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.step_rows import HIT, REPLAY
from tests.unit.runtime.cuda.cuda_plan import (
    BLOCK,
    COUNTER,
    PAGE_TABLE,
    PAGES,
    POSITION,
    ROWS_INT,
    TOKEN_RING,
    CudaPlan,
    Start,
    tensors,
)
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.toy_artifact import identity, rows_of, upload_of

Opened = Callable[..., Runtime]
MODES = ["graphs", "eager"]
PREFIX, FIRST = 16, 8
PAGES_OF_HIT = np.array([5, 3], np.int32)


def windowed() -> tuple[CudaPlan, s.Plan]:
    """The state of row_table, behind kernels of which the executor reads a window of 8 and a look-back of 2 tokens."""
    p = CudaPlan()
    upload, x = p.port("upload", "int32", 5), p.buffer("x")
    p.launch("row_table", Start("test_rows", (*tensors(0, 1, 2, 3), ROWS_INT, s.Int32Param(4), s.Int32Param(BLOCK))),
             s.In(upload), s.InOut(p.state(POSITION)), s.InOut(p.state(PAGE_TABLE)), s.Out(x))
    ring, counter = p.state(TOKEN_RING), p.state(COUNTER)
    count = Start("test_count", (*tensors(3), s.Int32Param(4)), grid=(1, 1, 1))
    p.launch("engram_hash", count, s.In(x), s.In(x), s.In(ring), s.InOut(counter))  # as multipliers: sizes [4, 3]
    p.launch("window_attention", count, s.In(x), s.In(x), s.In(ring), s.InOut(counter))
    return p, p.plan(upload)


def run(runtime: Runtime, upload: np.ndarray) -> None:
    runtime.step(upload, identity(len(upload)), identity(len(upload)))


def resume(runtime: Runtime, slot: int = 1, tokens: tuple[int, ...] = (6, 7)) -> None:
    runtime.resume(slot, PREFIX, np.array(tokens, np.int32), PAGES_OF_HIT)


def hit_rows(slot: int, count: int) -> np.ndarray:
    upload = upload_of([[slot, i, 1, REPLAY if FIRST + i < PREFIX else 0, -1] for i in range(count)])
    upload[0, 3] |= HIT
    upload[PREFIX - FIRST :: BLOCK, 4] = 6
    return upload


@pytest.mark.parametrize("mode", MODES)
def test_a_slot_is_placed_behind_steps_that_have_not_run(opened: Opened, driver: Driver, mode: str) -> None:
    runtime = opened(*windowed(), cuda_mode=mode)
    runtime.synchronize()
    before = len(driver.report()["executed"])
    run(runtime, upload_of(rows_of(1, [1] * 11)))
    resume(runtime)
    assert driver.report()["executed"][before:] == [], "neither step nor resume waits"
    run(runtime, hit_rows(1, 10))
    assert runtime.state("slot_position").tolist() == [0, FIRST + 10, 0, 0]
    assert runtime.state("page_table")[1].tolist() == [5, 3, 6, PAGES]
    assert runtime.state("token_ring")[1].tolist() == [6, 7, -1], "positions 6 and 7 in a ring of 3"


def test_the_host_knows_the_placed_position_at_once(opened: Opened) -> None:
    runtime = opened(*windowed())
    resume(runtime)
    for upload, field in ((hit_rows(1, 1), None), (upload_of([[1, 0, 1, 0, -1]]), "FLAGS")):
        if field is None:
            run(runtime, upload)
            continue
        with pytest.raises(Dsv41cError, match="E0801") as failure:
            run(runtime, upload)
        assert failure.value.subject == f"upload row 0, field {field}"
        assert "REPLAY (16) at position 9 of slot 1" in failure.value.needed


def test_more_resumes_than_the_upload_ring_has_turns(opened: Opened) -> None:
    runtime = opened(*windowed())
    for turn in range(9):
        resume(runtime, turn % 3, (turn, turn + 1))
    for slot in range(3):
        run(runtime, hit_rows(slot, 2))
    assert runtime.state("token_ring")[:3].tolist() == [[6, 7, -1], [7, 8, -1], [8, 9, -1]]
    assert runtime.state("slot_position")[:3].tolist() == [FIRST + 2] * 3


@pytest.mark.parametrize("changes", [{"prefix_length": 15}, {"slot": 3}, {"tokens": np.zeros(1, np.int32)},
                                     {"pages": np.array([5, PAGES], np.int32)}])
def test_bad_hits_reach_no_device(opened: Opened, driver: Driver, changes: dict[str, object]) -> None:
    runtime = opened(*windowed())
    runtime.synchronize()
    before = len(driver.report()["executed"])
    given: dict[str, object] = {"slot": 1, "prefix_length": PREFIX, "tokens": np.array([6, 7], np.int32),
                                "pages": PAGES_OF_HIT} | changes
    with pytest.raises(Dsv41cError, match="E0801"):
        runtime.resume(**given)  # type: ignore[arg-type]
    runtime.synchronize()
    assert driver.report()["executed"][before:] == []
