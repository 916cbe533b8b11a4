"""What the graph builder makes of a plan: nodes, edges of each kind of hazard, parameters, grids, shared memory."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan import schema as s
from tests.unit.runtime.cuda.cuda_plan import COUNTER, CudaPlan, Start, number, tensors, toy, transferred
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.cuda.test_step import decode
from tests.unit.runtime.toy_artifact import rows_of

Opened = Callable[..., Runtime]
NOTE = Start("test_note", tensors(0))
COPY = Start("test_copy", tensors(0, 1))


def raw(p: CudaPlan) -> list[list[int]]:
    a, b = p.buffer("a"), p.buffer("b")
    p.launch("write", NOTE, s.Out(a))
    p.launch("copy", COPY, s.In(a), s.Out(b))
    return [[], [0]]


def war(p: CudaPlan) -> list[list[int]]:
    a, b, c = p.buffer("a"), p.buffer("b"), p.buffer("c")
    p.launch("write", NOTE, s.Out(a))
    p.launch("copy", COPY, s.In(a), s.Out(b))
    p.launch("copy", COPY, s.In(a), s.Out(c))
    p.launch("write", NOTE, s.Out(a))
    return [[], [0], [0], [1, 2]]


def waw(p: CudaPlan) -> list[list[int]]:
    a = p.buffer("a")
    p.launch("write", NOTE, s.Out(a))
    p.launch("write", NOTE, s.Out(a))
    return [[], [0]]


def independent(p: CudaPlan) -> list[list[int]]:
    for name in "abc":
        p.launch("write", NOTE, s.Out(p.buffer(name)))
    return [[], [], []]


def arena_reuse(p: CudaPlan) -> list[list[int]]:
    """Another value in the same bytes, once the first is dead."""
    a, b = p.buffer("a"), p.buffer("b")
    p.launch("write", NOTE, s.Out(a))
    p.launch("copy", COPY, s.In(a), s.Out(b))
    p.launch("write", NOTE, s.Out(p.buffer("again", offset=0)))
    return [[], [0], [1]]


def views(p: CudaPlan) -> list[list[int]]:
    """Halves of one value are apart from each other, and both part of the whole."""
    whole = p.fixed("whole")
    first, second, out = p.half("first", whole, False), p.half("second", whole, True), p.buffer("out")
    p.launch("write", NOTE, s.Out(first))
    p.launch("write", NOTE, s.Out(second))
    p.launch("copy", COPY, s.In(whole), s.Out(out))
    p.launch("write", NOTE, s.Out(second))
    p.launch("copy", COPY, s.In(first), s.Out(p.buffer("more")))
    return [[], [], [0, 1], [2], [0]]


def state(p: CudaPlan) -> list[list[int]]:
    counter = p.state(COUNTER)
    p.launch("count", NOTE, s.InOut(counter))
    p.launch("look", COPY, s.In(counter), s.Out(p.buffer("out")))
    p.launch("count", NOTE, s.InOut(counter))
    return [[], [0], [1]]


def implied(p: CudaPlan) -> list[list[int]]:
    """The third reads what the first wrote, but waits for the second, which waits for the first."""
    a, b = p.buffer("a"), p.buffer("b")
    p.launch("write", NOTE, s.Out(a))
    p.launch("copy", COPY, s.In(a), s.Out(b))
    p.launch("both", Start("test_both", tensors(0, 1, 2)), s.In(a), s.In(b), s.Out(p.buffer("c")))
    return [[], [0], [1]]


def untouched(p: CudaPlan) -> list[list[int]]:
    """A tensor that no parameter names is not touched: the second call of a body may run beside the first."""
    a, b = p.buffer("a"), p.buffer("b")
    p.launch("pair", (NOTE, Start("test_note", tensors(1))), s.Out(a), s.Out(b))
    return [[], []]


def scratch(p: CudaPlan) -> list[list[int]]:
    """The second call of a body reads what the first left in the scratch; the next launch reuses it."""
    p.arena += 64
    shared = p.value("scratch", "uint8", (64,), s.ArenaStorage(p.arena - 64), (1,))
    body = (Start("test_into", (s.ScratchParam(0),)), Start("test_from", (s.ScratchParam(32), *tensors(0))))
    for name in "ab":
        p.launch("pair", body, s.Out(p.buffer(name)), scratch=shared, scratch_bytes=64)
    return [[], [0], [1], [2]]


def transfers(p: CudaPlan) -> list[list[int]]:
    """A memset writes only its bytes, a copy only reads its source: halves of the scratch are apart."""
    a, b = p.buffer("a"), p.buffer("b")
    body = (s.CudaMemset(s.ScratchParam(0), 1, 32), s.CudaMemset(s.ScratchParam(32), 2, 32),
            s.CudaCopy(s.TensorParam(0), s.ScratchParam(0), 4), s.CudaCopy(s.TensorParam(1), s.ScratchParam(32), 4),
            s.CudaMemset(s.ScratchParam(0), 3, 32))
    p.launch("transfers", body, s.Out(a), s.Out(b), scratch=p.room(64), scratch_bytes=64)
    p.launch("copy", COPY, s.In(b), s.Out(p.buffer("c")))
    return [[], [], [0], [1], [2], [3]]


@pytest.mark.parametrize("hazard", [raw, war, waw, independent, arena_reuse, views, state, implied, untouched,
                                    scratch, transfers])
def test_edges_follow_the_effects(
    opened: Opened, driver: Driver, hazard: Callable[[CudaPlan], list[list[int]]]
) -> None:
    built = CudaPlan()
    upload = built.port("upload", "int32", 5)
    wanted = hazard(built)
    opened(built, built.plan(upload))
    for graph in driver.report()["graphs"]:
        assert [node["sources"] for node in graph] == wanted


def nodes_of(opened: Opened, driver: Driver, *toy_plan: Any) -> list[list[dict[str, Any]]]:
    opened(*toy_plan)
    graphs: list[list[dict[str, Any]]] = driver.report()["graphs"]
    return graphs


def test_one_graph_for_each_bucket(opened: Opened, driver: Driver) -> None:
    graphs = nodes_of(opened, driver, *toy())
    assert [[node["symbol"] for node in graph] for graph in graphs] == [
        ["test_rows", "test_scale", "test_add", "test_count", "test_head"]] * 3
    assert [node["sources"] for node in graphs[0]] == [[], [0], [1], [], [2]]


def test_grids_and_numbers_come_from_the_expressions(opened: Opened, driver: Driver) -> None:
    for rows, graph in zip((1, 4, 8), nodes_of(opened, driver, *toy()), strict=True):
        scale, add, count = graph[1], graph[2], graph[3]
        assert (scale["grid"], scale["block"]) == ([-(-rows // 2), 1, 1], [32, 1, 1])
        assert count["grid"] == [1, 1, 1]
        assert scale["values"][2] == rows
        assert struct.unpack("f", scale["values"][3].to_bytes(4, "little")) == (2.0,)
        assert add["values"][3] == rows
        assert add["values"][:2] == [graph[0]["values"][3], scale["values"][1]]
        assert all(pointer % 64 == 0 for pointer in add["values"][:3])


def test_absent_tensor_is_a_null_pointer_and_scratch_an_address(opened: Opened, driver: Driver) -> None:
    p = CudaPlan()
    upload, out = p.port("upload", "int32", 5), p.buffer("out")
    room = p.value("scratch", "uint8", ("T",), s.ArenaStorage(p.arena), (1,))
    p.values[room] = s.Value("scratch", "uint8", (s.Binary("*", 64, "T"),), (1,), s.ArenaStorage(p.arena), "rows")
    p.arena += 64 * 16
    start = Start("test_all", (*tensors(1, 0), s.ScratchParam(s.Binary("*", 16, "rows")), s.Int64Param(2**40),
                               s.Int32Param(s.Binary("-", 0, "rows")), number(-0.5)))
    p.launch("all", start, s.Absent(), s.Out(out), scratch=room,
             scratch_bytes=s.Binary("*", 64, "rows"))
    for rows, graph in zip((1, 4, 8), nodes_of(opened, driver, p, p.plan(upload)), strict=True):
        pointer, null, inside, wide, narrow, real = graph[0]["values"]
        assert (null, inside - pointer, wide, narrow) == (0, 64 + 16 * rows, 2**40, 2**32 - rows)
        assert struct.unpack("f", real.to_bytes(4, "little")) == (-0.5,)


@pytest.mark.parametrize(("shared", "sets"), [(48 * 1024, 0), (48 * 1024 + 1, 1), (200 * 1024, 1)])
def test_shared_memory_is_allowed_once_for_each_function(
    opened: Opened, driver: Driver, shared: int, sets: int
) -> None:
    graphs = nodes_of(opened, driver, *toy(big_shared=shared))
    assert graphs[0][1]["shared"] == shared
    assert driver.report()["log"].count("cuFuncSetAttribute") == sets


def test_copies_and_memsets_become_nodes_of_their_bytes(opened: Opened, driver: Driver) -> None:
    for rows, graph in zip((1, 4, 8), nodes_of(opened, driver, *transferred()), strict=True):
        assert [node["symbol"] for node in graph] == ["test_rows", "memset", "copy", "copy", "test_mapped", "test_head"]
        assert [node["sources"] for node in graph] == [[], [], [0], [1, 2], [3], [4]]
        x = graph[0]["values"][3]
        y, value, filled = graph[1]["values"]
        assert (value, filled) == (255, 4 * rows)
        room = graph[2]["values"][0]
        assert graph[2]["values"] == [room, x, 4 * rows] and graph[3]["values"] == [y, room, 4 * rows]


def test_tensor_map_is_encoded_when_the_launch_is_bound(opened: Opened, driver: Driver) -> None:
    graphs = nodes_of(opened, driver, *transferred())
    maps = driver.report()["maps"]
    for rows, graph in zip((1, 4, 8), graphs, strict=True):
        assert maps[graph[4]["values"][0]] == {
            "type": 7, "address": graph[3]["values"][0], "sizes": [-(-rows // 2)], "strides": [], "box": [4],
            "steps": [1], "modes": [0, 0, 2, 0]}


def test_every_field_of_a_tensor_map_reaches_the_driver(opened: Opened, driver: Driver) -> None:
    p = CudaPlan()
    upload, out = p.port("upload", "int32", 5), p.buffer("out")
    recipe = s.TensorMapParam(s.ScratchParam(32), "bfloat16", (4, 2, "rows"), (32, s.Binary("*", 32, 2)), (8, 1, 4),
                              (1, 2, 8), "32b", "32b", "256b", "nan")
    body = Start("test_all", (s.Int32Param(7), recipe, *tensors(0)))
    p.launch("all", body, s.Out(out), scratch=p.room(1088), scratch_bytes=1088)
    for rows, graph in zip((1, 4, 8), nodes_of(opened, driver, p, p.plan(upload)), strict=True):
        seven, number_of_map, pointer = graph[0]["values"]
        found = driver.report()["maps"][number_of_map]
        assert (seven, found["address"] % 64) == (7, 32) and pointer % 64 == 0
        assert found | {"address": 0} == {
            "type": 9, "address": 0, "sizes": [4, 2, rows], "strides": [32, 64], "box": [8, 1, 4], "steps": [1, 2, 8],
            "modes": [2, 1, 3, 1]}


def test_fallback_and_break_cut_the_graphs(opened: Opened, driver: Driver) -> None:
    graphs = nodes_of(opened, driver, *toy(with_fallback=True))
    assert [len(graph) for graph in graphs] == [2, 3] * 3


def test_launches_of_a_break_are_in_no_graph(opened: Opened, driver: Driver) -> None:
    p = CudaPlan()
    upload = p.port("upload", "int32", 5)
    for name in ("before", "inside", "after"):
        p.launch(name, NOTE, s.Out(p.buffer(name)))
        p.end_step("dsv41c::host" if name == "inside" else None)
    graphs = nodes_of(opened, driver, p, p.plan(upload))
    assert [len(graph) for graph in graphs] == [1, 1] * 3
    assert driver.report()["executed"].count("test_note") == 3  # the warm-up


def test_eager_mode_builds_no_graph(opened: Opened, driver: Driver) -> None:
    opened(*toy(), cuda_mode="eager")
    assert driver.report()["graphs"] == []
    assert "cuGraphCreate" not in driver.report()["log"]


def test_nothing_is_built_or_allocated_by_a_step(opened: Opened, driver: Driver) -> None:
    runtime = opened(*toy(with_fallback=True))
    decode(runtime, rows_of(0, [1, 2]))
    before = len(driver.report()["log"])
    decode(runtime, rows_of(0, [1, 2]))
    assert driver.report()["log"][before:] == [
        "cuCtxPushCurrent", "cuEventSynchronize", "cuMemcpyHtoDAsync", "cuEventRecord", "cuGraphLaunch",
        "cuGraphLaunch", "cuCtxPopCurrent", "cuCtxPushCurrent", "cuMemcpyDtoHAsync", "cuStreamSynchronize",
        "cuCtxPopCurrent"]
