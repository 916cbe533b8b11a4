"""Parts of a sequence that copy, fill and map tensors: nodes on the fake driver, and rules of both verifiers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.codec import encode
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.verify import verify
from tests.unit.runtime.cuda.cuda_plan import (
    BLOCK,
    COLUMNS,
    PAGE_TABLE,
    PAGES_PER_SLOT,
    POSITION,
    ROWS_INT,
    WEIGHT,
    CudaPlan,
    Node,
    Start,
    tensors,
)
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.cuda.test_sequences import COPY, NOTE, ROOM, arg, launched, room, scratch_value, sources, temp
from tests.unit.runtime.cuda.test_step import decode
from tests.unit.runtime.plan import native_plan
from tests.unit.runtime.plan.both_verifiers import assert_same_verdict_on_changes, leaves
from tests.unit.runtime.toy_artifact import rows_of

Opened = Callable[..., Runtime]
IN, OUT, ROOM_START = s.TensorParam(0), s.TensorParam(1), s.ScratchParam(0)
BYTES = s.Binary("*", 4, "rows")
COPIES = (s.CudaMemset(OUT, 255, BYTES), s.CudaCopy(ROOM_START, IN, BYTES), s.CudaCopy(OUT, ROOM_START, BYTES))


def tensor_map(**fields: object) -> s.TensorMapParam:
    """Of the first half of the part's input, 0 behind."""
    sound = s.TensorMapParam(IN, "float32", (s.Binary("ceildiv", "rows", 2),), (), (4,), (1,), "none", "none", "128b",
                             "zero")
    return dataclasses.replace(sound, **fields)  # type: ignore[arg-type]


def mapped(**fields: object) -> Start:
    return Start("test_mapped", (tensor_map(**fields), OUT, s.Int64Param("rows")))


def transferred_sequence() -> tuple[CudaPlan, s.Plan]:
    """logits[r] = token * weight for the first half of the rows, 0 behind: one launch copies to a temporary by way of a
    part's scratch, and reads the temporary through a tensor map."""
    p = CudaPlan()
    upload, x, z = p.port("upload", "int32", 5), p.buffer("x"), p.buffer("z")
    p.launch("row_table", Start("test_rows", (*tensors(0, 1, 2, 3), ROWS_INT, s.Int32Param(PAGES_PER_SLOT),
                                              s.Int32Param(BLOCK))),
             s.In(upload), s.InOut(p.state(POSITION)), s.InOut(p.state(PAGE_TABLE)), s.Out(x))
    copies, halves = p.kernel("copies", COPIES, ROOM), p.kernel("mapped", mapped())
    body = s.SequenceBody((arg(0), arg(1), temp(0)), (s.Part(copies, (s.In(0), s.Out(2)), room(1)),
                                                      s.Part(halves, (s.In(2), s.Out(1)), 0)))
    p.launch("fused", body, s.In(x), s.Out(z), scratch=scratch_value(p, 2), scratch_bytes=room(2))
    head, logits = p.value("head", "float32", (COLUMNS,), s.WeightStorage(0)), p.port("logits", "float32", COLUMNS)
    p.launch("head", Start("test_head", (*tensors(0, 1, 2), ROWS_INT, s.Int32Param(COLUMNS))),
             s.In(z), s.In(head), s.Out(logits))
    return p, p.plan(upload, logits)


@pytest.mark.parametrize("mode", ["graphs", "eager"])
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(("count", "rows"), [(1, 1), (4, 4), (8, 8)])
def test_parts_copy_fill_and_map(opened: Opened, mode: str, eager: bool, count: int, rows: int) -> None:
    runtime = opened(*transferred_sequence(), cuda_mode=mode, poison=7)
    tokens = [3 + i for i in range(count)]
    wanted = np.outer([t if i < -(-rows // 2) else 0 for i, t in enumerate(tokens)], WEIGHT)
    assert np.array_equal(decode(runtime, rows_of(1, tokens), eager=eager), wanted.astype(np.float32))


def test_nodes_of_a_part_touch_locals_and_its_scratch(opened: Opened, driver: Driver) -> None:
    opened(*transferred_sequence())
    maps = driver.report()["maps"]
    for rows, graph in zip((1, 4, 8), driver.report()["graphs"], strict=True):
        assert [node["symbol"] for node in graph] == ["test_rows", "memset", "copy", "copy", "test_mapped", "test_head"]
        assert [node["sources"] for node in graph] == [[], [], [0], [1, 2], [3], [4]]
        x, z = graph[0]["values"][3], graph[5]["values"][0]
        temporary = graph[1]["values"][0]
        assert graph[1]["values"] == [temporary, 255, 4 * rows]
        assert graph[2]["values"] == [temporary + 64, x, 4 * rows]
        assert graph[3]["values"] == [temporary, temporary + 64, 4 * rows]
        number_of_map, out, _ = graph[4]["values"]
        assert (maps[number_of_map]["address"], maps[number_of_map]["sizes"], out) == (temporary, [-(-rows // 2)], z)


def test_nodes_of_parts_wait_for_the_bytes_they_touch(opened: Opened, driver: Driver) -> None:
    """Two parts with scratches of their own do not wait for each other; what reads both waits for both."""
    p = CudaPlan()
    upload = p.port("upload", "int32", 5)
    copies, both = p.kernel("copies", COPIES, ROOM), p.kernel("both", Start("test_both", tensors(0, 1, 2)))
    body = s.SequenceBody((arg(0), arg(1), temp(0), temp(1)), (
        s.Part(copies, (s.In(0), s.Out(2)), room(2)), s.Part(copies, (s.In(0), s.Out(3)), room(3)),
        s.Part(both, (s.In(2), s.In(3), s.Out(1)), 0)))
    launched(p, body, 4)
    assert sources(opened, driver, p, upload) == [[], [], [0], [1, 2], [], [0], [4, 5], [3, 6], [7]]


def test_a_copy_that_cannot_be_added_names_its_part(opened: Opened, driver: Driver) -> None:
    opened(*transferred_sequence()).close()
    added = driver.report()["log"].index("cuGraphAddMemcpyNode")
    driver.reset()
    driver.fail(added + 1)
    with pytest.raises(Dsv41cError, match="launch fused, part 0, 1 rows, node 2"):
        opened(*transferred_sequence())


Use = tuple[s.Argument, ...]
PLAIN: Use = (s.In(0), s.Out(1))


def one_part(nodes: tuple[Node, ...], use: Use = PLAIN, begin: int = 0) -> s.Plan:
    """A sequence with one part. Its locals: two arguments, the second written by a first part; a view 8 bytes and one
    16 bytes into argument 0. `begin`: of argument 0 in a buffer, in elements."""
    p = CudaPlan()
    upload, base, out, end = p.port("upload", "int32", 5), p.fixed("base"), p.buffer("out"), p.buffer("end")
    given = p.value("given", "float32", (8,), s.ViewStorage(base, begin), (1,))
    p.launch("write", NOTE, s.Out(base))
    part = p.kernel("part", nodes, 64)
    eight = s.ArgLocal(0, "float32", (8,), (1,))
    views = tuple(s.ViewLocal(0, "float32", (4,), (1,), offset) for offset in (2, 4))
    body = s.SequenceBody((eight, arg(1), *views), (s.Part(part, use, 0),))
    p.launch("sequence", body, s.In(given), s.Out(out), scratch=p.room(64), scratch_bytes=64)
    p.launch("copy", COPY, s.In(out), s.Out(end))
    return p.plan(upload)


FOUR = Start("test_mapped", (tensor_map(sizes=(4,)), OUT, s.Int64Param("rows")))
STRICT = Start("test_mapped", (tensor_map(sizes=(1, 1, 1), strides=(32, 32), box=(8, 1, 1), element_strides=(1,) * 3,
                                          interleave="32b", swizzle="32b"), OUT, s.Int64Param("rows")))
WRITTEN = s.CudaMemset(OUT, 0, BYTES)


@pytest.mark.parametrize(("plan", "subject", "found"), [
    (one_part((s.CudaMemset(OUT, 0, s.Binary("+", 4, BYTES)),)), "argument is too small", "argument 1, 4 bytes"),
    (one_part((s.CudaCopy(OUT, IN, 32),)), "argument is too small", "argument 1, 4 bytes"),
    (one_part((WRITTEN, s.CudaCopy(ROOM_START, IN, 17)), (s.In(3), s.Out(1))), "argument is too small",
     "argument 0, 16 bytes"),
    (one_part((WRITTEN, s.CudaMemset(IN, 0, 4))), "body writes an input", "argument 0"),
    (one_part((WRITTEN, s.CudaMemset(s.TensorParam(2), 0, 4))), "argument index out of range", "2"),
    (one_part((WRITTEN, s.CudaCopy(ROOM_START, IN, 4)), (s.Absent(), s.Out(1))), "body uses an absent argument",
     "argument 0"),
    (one_part((s.CudaCopy(ROOM_START, OUT, 4), WRITTEN)), "out is not written first", "argument 1"),
    (one_part((s.CudaMemset(ROOM_START, 0, 64),)), "out is no parameter", "argument 1"),
    (one_part((WRITTEN, s.CudaCopy(s.ScratchParam(32), IN, 33))), "parameter outside the scratch", "32 and 33 bytes"),
    (one_part((WRITTEN, s.CudaCopy(OUT, IN, BYTES)), (s.In(1), s.Out(1))), "written tensor overlaps another",
     "local 1 at argument 1 bytes 0 to 4"),
    (one_part((FOUR,), (s.Absent(), s.Out(1))), "body uses an absent argument", "argument 0"),
    (one_part((mapped(sizes=(5,)),), (s.In(3), s.Out(1))), "argument is too small", "argument 0, 16 bytes"),
    (one_part((FOUR,), (s.In(2), s.Out(1))), "tensor map is not aligned", "byte 8"),
    (one_part((STRICT,), (s.In(3), s.Out(1))), "tensor map is not aligned", "byte 16"),
    (one_part((FOUR,), begin=2), "tensor map is not aligned", "argument 0 at byte 8"),
    (one_part((FOUR,), (s.In(3), s.Out(1)), begin=2), "tensor map is not aligned", "argument 0 at byte 8"),
    (one_part((FOUR, STRICT), begin=4), "tensor map is not aligned", "argument 0 at byte 16"),
    (one_part((STRICT, FOUR), begin=4), "tensor map is not aligned", "argument 0 at byte 16"),
])
def test_broken_part_is_refused_in_the_same_words(plan: s.Plan, subject: str, found: str) -> None:
    with pytest.raises(Dsv41cError) as python:
        verify(plan)
    with pytest.raises(Dsv41cError) as native:
        native_plan.verify(encode(plan))
    assert native.value.to_json() == python.value.to_json()
    assert (python.value.subject, python.value.found) == (subject, found)


@pytest.mark.parametrize("plan", [
    one_part((WRITTEN, s.CudaCopy(ROOM_START, OUT, BYTES), s.CudaCopy(s.ScratchParam(32), IN, 32))),
    one_part((WRITTEN, s.CudaCopy(ROOM_START, IN, 16)), (s.In(2), s.Out(1)), begin=2),
    one_part((FOUR,), (s.In(3), s.Out(1)), begin=4),
    one_part((STRICT, FOUR)), one_part((STRICT,), begin=8), one_part((FOUR,), begin=4),
])
def test_sound_part_passes_both(plan: s.Plan) -> None:
    verify(plan)
    native_plan.verify(encode(plan))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_change_gets_the_same_verdict(data: st.DataObject) -> None:
    """Differential fuzzing: one or two changed leaves of a sequence, of its parts' bodies and of its launch."""
    doc = json.loads(encode(transferred_sequence()[1]))
    paths = [("kernels", *path) for path in leaves(doc["kernels"])]
    paths += [("methods", 0, "steps", *path) for path in leaves(doc["methods"][0]["steps"])]
    assert_same_verdict_on_changes(data, doc, paths)
