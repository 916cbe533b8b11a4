"""A launch of a sequence on the fake driver: parts are nodes, with edges from the bytes that each part touches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.verify import verify
from tests.unit.runtime.cuda.cuda_plan import (
    BLOCK,
    COLUMNS,
    COUNTER,
    PAGE_TABLE,
    PAGES_PER_SLOT,
    POSITION,
    ROWS_INT,
    CudaPlan,
    Start,
    number,
    plus_one,
    tensors,
)
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.cuda.test_step import decode, expected
from tests.unit.runtime.toy_artifact import rows_of

Opened = Callable[..., Runtime]
NOTE, COPY = Start("test_note", tensors(0)), Start("test_copy", tensors(0, 1))
BOTH = Start("test_both", tensors(0, 1, 2))
ROOM = s.Binary("*", 64, s.Binary("ceildiv", "rows", 16))  # bytes of one float32 [rows], rounded up


def room(count: int) -> s.Expr:
    return s.Binary("*", count, ROOM)


def arg(index: int) -> s.ArgLocal:
    return s.ArgLocal(index, "float32", ("rows",), (1,))


def temp(slot: int) -> s.TempLocal:
    return s.TempLocal("float32", ("rows",), (1,), room(slot))


def scratch_value(p: CudaPlan, slots: int) -> int:
    size = s.Binary("*", slots, s.Binary("*", 64, s.Binary("ceildiv", "T", 16)))
    p.arena += 64 * slots
    p.values.append(s.Value("scratch", "uint8", (size,), (1,), s.ArenaStorage(p.arena - 64 * slots), "rows"))
    return len(p.values) - 1


def sources(opened: Opened, driver: Driver, p: CudaPlan, upload: int) -> list[list[int]]:
    plan = p.plan(upload)
    verify(plan)
    opened(p, plan)
    graphs = [[node["sources"] for node in graph] for graph in driver.report()["graphs"]]
    assert graphs and all(graph == graphs[0] for graph in graphs)
    found: list[list[int]] = graphs[0]
    return found


def diamond(p: CudaPlan, second_slot: int = 1) -> s.SequenceBody:
    """in -> two copies in the scratch -> both of them into out."""
    copy, both = p.kernel("copy", COPY), p.kernel("both", BOTH)
    return s.SequenceBody((arg(0), arg(1), temp(0), temp(second_slot)), (
        s.Part(copy, (s.In(0), s.Out(2)), 0), s.Part(copy, (s.In(0), s.Out(3)), 0),
        s.Part(both, (s.In(2), s.In(3), s.Out(1)), 0)))


def launched(p: CudaPlan, body: s.SequenceBody, slots: int, names: tuple[str, ...] = ("one",)) -> None:
    """note(a), then the sequence from `a` for each name, all in one scratch, then a copy of what the last one wrote."""
    a, scratch = p.buffer("a"), scratch_value(p, slots)
    p.launch("note", NOTE, s.Out(a))
    kernel = p.kernel("sequence", body, room(slots))
    for name in names:
        out = p.buffer(name)
        p.launches.append(s.Launch(name, kernel, (s.In(a), s.Out(out)), scratch))
    p.launch("copy", COPY, s.In(out), s.Out(p.buffer("end")))


def test_parts_are_nodes_that_wait_for_what_they_read(opened: Opened, driver: Driver) -> None:
    """The two copies do not wait for each other: temporaries are byte ranges of their own."""
    p = CudaPlan()
    upload = p.port("upload", "int32", 5)
    launched(p, diamond(p), 2)
    assert sources(opened, driver, p, upload) == [[], [0], [0], [1, 2], [3]]


def test_the_next_launch_waits_for_the_scratch(opened: Opened, driver: Driver) -> None:
    """A copy of the second launch waits for the reader of its temporary, not for the other copy."""
    p = CudaPlan()
    upload = p.port("upload", "int32", 5)
    launched(p, diamond(p), 2, ("one", "two"))
    assert sources(opened, driver, p, upload) == [[], [0], [0], [1, 2], [3], [3], [4, 5], [6]]


@pytest.mark.parametrize("apart", [False, True])
def test_scratches_of_parts_are_ranges_too(opened: Opened, driver: Driver, apart: bool) -> None:
    """Two parts in one range of the scratch wait for each other, in two ranges they do not."""
    p = CudaPlan()
    upload = p.port("upload", "int32", 5)
    kernel = p.kernel("work", Start("test_work", (*tensors(0), s.ScratchParam(0))), ROOM)
    out, more, scratch = p.buffer("out"), p.buffer("more"), scratch_value(p, 2)
    body = s.SequenceBody((arg(0), arg(1)), (s.Part(kernel, (s.Out(0),), 0),
                                             s.Part(kernel, (s.Out(1),), room(1) if apart else 0)))
    p.launch("sequence", body, s.Out(out), s.Out(more), scratch=scratch, scratch_bytes=room(2))
    assert sources(opened, driver, p, upload) == [[], [] if apart else [0]]


def test_views_and_weights_of_parts(opened: Opened, driver: Driver) -> None:
    """Halves of a temporary are apart; a weight is never waited for; an absent tensor is null."""
    p = CudaPlan()
    upload = p.port("upload", "int32", 5)
    head, out, scratch = p.value("head", "float32", (COLUMNS,), s.WeightStorage(0)), p.buffer("out"), p.fixed("scratch")
    p.values[scratch] = s.Value("scratch", "uint8", (64,), (1,), p.values[scratch].storage, "none")
    write, copy = p.kernel("copy", COPY), p.kernel("three", BOTH)
    halves = tuple(s.ViewLocal(2, "float32", (8,), (1,), 8 * n) for n in range(2))
    body = s.SequenceBody((s.ArgLocal(0, "float32", (COLUMNS,), (1,)), arg(1),
                           s.TempLocal("float32", (16,), (1,), 0), *halves), (
        s.Part(write, (s.In(0), s.Out(3)), 0), s.Part(write, (s.In(0), s.Out(4)), 0),
        s.Part(copy, (s.In(2), s.Absent(), s.Out(1)), 0)))
    p.launch("sequence", body, s.In(head), s.Out(out), scratch=scratch, scratch_bytes=64)
    assert sources(opened, driver, p, upload) == [[], [], [0, 1]]
    first, second, third = driver.report()["graphs"][0]
    assert second["values"][1] - first["values"][1] == 32 and third["values"][1] == 0
    assert first["values"][0] == second["values"][0] and third["values"][0] == first["values"][1]


def toy_sequence() -> tuple[CudaPlan, s.Plan]:
    """The toy with its fallback; scale, plus one and add are the parts of one launch."""
    p = CudaPlan()
    upload, x, z = p.port("upload", "int32", 5), p.buffer("x"), p.buffer("z")
    p.launch("row_table", Start("test_rows", (*tensors(0, 1, 2, 3), ROWS_INT, s.Int32Param(PAGES_PER_SLOT),
                                              s.Int32Param(BLOCK))),
             s.In(upload), s.InOut(p.state(POSITION)), s.InOut(p.state(PAGE_TABLE)), s.Out(x))
    scale = p.kernel("scale", Start("test_scale", (*tensors(0, 1), ROWS_INT, number(2.0))))
    plus = p.kernel("plus_one", plus_one())
    add = p.kernel("add", Start("test_add", (*tensors(0, 1, 2), s.Int64Param("rows"))))
    body = s.SequenceBody((arg(0), arg(1), temp(0), temp(1)), (
        s.Part(scale, (s.In(0), s.Out(2)), 0), s.Part(plus, (s.In(2), s.Out(3)), 0),
        s.Part(add, (s.In(0), s.In(3), s.Out(1)), 0)))
    p.launch("fused", body, s.In(x), s.Out(z), scratch=scratch_value(p, 2), scratch_bytes=room(2))
    p.launch("count", Start("test_count", (*tensors(0), s.Int32Param(4)), grid=(1, 1, 1)), s.InOut(p.state(COUNTER)))
    head, logits = p.value("head", "float32", (COLUMNS,), s.WeightStorage(0)), p.port("logits", "float32", COLUMNS)
    p.launch("head", Start("test_head", (*tensors(0, 1, 2), ROWS_INT, s.Int32Param(COLUMNS))),
             s.In(z), s.In(head), s.Out(logits))
    return p, p.plan(upload, logits)


@pytest.mark.parametrize("mode", ["graphs", "eager"])
@pytest.mark.parametrize("eager", [False, True])
def test_a_part_without_a_cubin_runs_between_the_graphs(
    opened: Opened, driver: Driver, mode: str, eager: bool
) -> None:
    runtime = opened(*toy_sequence(), cuda_mode=mode)
    if mode == "graphs":
        assert [len(graph) for graph in driver.report()["graphs"]] == [2, 3] * 3
    before = len(driver.report()["executed"])
    assert np.array_equal(decode(runtime, rows_of(0, [3, 4]), eager=eager), expected([3, 4], plus=1))
    ran = [name for name in driver.report()["executed"][before:] if not name.startswith("cuMem")]
    assert ran.index("test_scale") < ran.index("aten") < ran.index("test_add")


def test_the_report_names_no_provider_for_a_sequence(opened: Opened) -> None:
    """The launch counts as a sequence, each part with its own provider; its fallback sizes torch's pool."""
    report = opened(*toy_sequence()).report()
    assert report["methods"]["decode"]["launches"] == {"cuda": 3, "sequence": 1}
    assert report["methods"]["decode"]["kernels"] == {"cuda": 5, "aten": 1}
    assert report["cuda"]["methods"]["decode"]["fallback_launches"] == 1
    assert report["aten"]["decode"]["rows"] == 16


def test_a_step_of_a_sequence_builds_nothing(opened: Opened, driver: Driver) -> None:
    runtime = opened(*toy_sequence())
    decode(runtime, rows_of(0, [1, 2]))
    before = len(driver.report()["log"])
    decode(runtime, rows_of(0, [1, 2]))
    log = driver.report()["log"][before:]
    assert log.count("cuGraphLaunch") == 2
    assert not [name for name in log if "Create" in name or "Alloc" in name or "AddKernel" in name]


def test_a_failure_names_the_launch_and_the_part(opened: Opened, driver: Driver) -> None:
    runtime = opened(*toy_sequence())
    driver.library.stub_aten_fail(1)
    with pytest.raises(Dsv41cError, match="launch fused, part 1, 4 rows") as failure:
        decode(runtime, rows_of(0, [1, 2]))
    assert failure.value.code == "DSV41C-E0802"


def test_a_node_that_cannot_be_added_names_its_part(opened: Opened, driver: Driver) -> None:
    opened(*toy_sequence()).close()
    calls = driver.report()["log"]
    added = [i for i, name in enumerate(calls) if name == "cuGraphAddKernelNode"]
    driver.reset()
    driver.fail(added[2] + 1)
    with pytest.raises(Dsv41cError, match="launch fused, part 2, 1 rows, node 0"):
        opened(*toy_sequence())
