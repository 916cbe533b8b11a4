"""Breaks on the fake driver: a break ends the graph, its launches go on the stream one by one, no result changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import pytest

from dsv41c.compiler.ops.spec import CaptureClass
from dsv41c.graphs.bridges import Effects, find_bridges
from dsv41c.graphs.cut import Call, GraphSegment, cut
from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.verify import verify
from tests.unit.runtime.cuda.cuda_plan import BUCKETS, MAX_ROWS, CudaPlan, toy
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.cuda.test_sequences import toy_sequence
from tests.unit.runtime.cuda.test_step import MODES, decode, expected
from tests.unit.runtime.toy_artifact import rows_of

Opened = Callable[..., Runtime]
NAMES = ("row_table", "scale", "add", "count", "head")


def with_breaks(built: CudaPlan, plan: s.Plan, names: Collection[str]) -> tuple[CudaPlan, s.Plan]:
    """The plan of one method with a break at each launch of these names, and a bridge for what it leaves behind."""
    (method,) = plan.methods
    launches = [launch for step in method.steps for launch in step.launches]
    cut_set = cut([Call(x.name, x.name, CaptureClass.CAPTURE, x.name in names) for x in launches])
    steps = tuple(s.Segment(tuple(launches[i] for i in x.calls)) if isinstance(x, GraphSegment)
                  else s.Break(x.op, x.reason, (launches[x.call],)) for x in cut_set.steps)
    effects = [Effects(frozenset(t.value for t in x.tensors if isinstance(t, s.In)),
                       frozenset(t.value for t in x.tensors if isinstance(t, s.Out))) for x in launches]
    values, bridges = list(method.values), list[s.Bridge]()
    for index, life in find_bridges(cut_set, effects).items():
        name = method.values[index].name
        values[index] = replace(values[index], storage=s.BridgeStorage(len(bridges)))
        bridges.append(s.Bridge(name, "float32", (MAX_ROWS,), 64 * len(bridges),
                                s.StepsLife(method.name, life.first, life.last)))
    more = 64 * len(bridges)
    memory = replace(plan.memory, bridge_bytes=more, total_bytes=plan.memory.total_bytes + more)
    changed = replace(plan, memory=memory, bridges=tuple(bridges),
                      methods=(replace(method, values=tuple(values), steps=steps),))
    verify(changed)
    return built, changed


@pytest.mark.parametrize("names", [c for n in range(6) for c in itertools.combinations(NAMES, n)])
def test_breaks_anywhere_change_no_result(opened: Opened, driver: Driver, names: tuple[str, ...]) -> None:
    """Bucketed, at an exact size, and above the largest bucket."""
    built, plan = with_breaks(*toy(), names)
    runtime = opened(built, plan, poison=7)
    runs = [len(step.launches) for step in plan.methods[0].steps if isinstance(step, s.Segment)]
    assert [len(graph) for graph in driver.report()["graphs"]] == runs * len(BUCKETS)
    for eager, count in ((False, 3), (True, 3), (False, 12)):
        tokens = [3 + i for i in range(count)]
        assert np.array_equal(decode(runtime, rows_of(1, tokens), eager=eager), expected(tokens))
    assert runtime.report()["methods"]["decode"]["segments"] == len(runs)
    assert runtime.report()["methods"]["decode"]["breaks"] == len(names)
    assert runtime.state("counter")[0] == 5 + 3


def test_launches_of_a_break_go_on_the_stream_between_the_graphs(opened: Opened, driver: Driver) -> None:
    runtime = opened(*with_breaks(*toy(), ("scale", "add")))
    decode(runtime, rows_of(0, [1, 2]))
    before, ran = len(driver.report()["log"]), len(driver.report()["executed"])
    decode(runtime, rows_of(0, [1, 2]))
    log = driver.report()["log"][before:]
    assert [n for n in log if n in ("cuGraphLaunch", "cuLaunchKernel")] == [
        "cuGraphLaunch", "cuLaunchKernel", "cuLaunchKernel", "cuGraphLaunch"]
    executed = [n for n in driver.report()["executed"][ran:] if n.startswith("test_")]
    assert executed[:3] == ["test_rows", "test_scale", "test_add"]
    assert set(executed[3:]) == {"test_count", "test_head"}  # one graph, in which neither waits for the other
    assert not [n for n in log if "Create" in n or "Alloc" in n or "AddKernel" in n]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("eager", [False, True])
def test_parts_of_a_sequence_in_a_break_are_in_no_graph(opened: Opened, driver: Driver, mode: str, eager: bool) -> None:
    """One of them has no cubin: it runs in its place."""
    runtime = opened(*with_breaks(*toy_sequence(), ("fused",)), cuda_mode=mode)
    if mode == "graphs":
        assert [len(graph) for graph in driver.report()["graphs"]] == [1, 2] * len(BUCKETS)
    before = len(driver.report()["executed"])
    assert np.array_equal(decode(runtime, rows_of(0, [3, 4]), eager=eager), expected([3, 4], plus=1))
    ran = [name for name in driver.report()["executed"][before:] if not name.startswith("cuMem")]
    assert ran.index("test_scale") < ran.index("aten") < ran.index("test_add") < ran.index("test_head")
