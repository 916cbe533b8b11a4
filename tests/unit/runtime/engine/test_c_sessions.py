"""Sessions step one sequence as the executor does, share an engine with requests, and check their tensors."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsv41c.runtime.c_api import EngineOptions, Stats
from tests.unit.runtime.engine.c_table import CTable, Failed, ManagedTensor, borrowed, params_of, taken
from tests.unit.runtime.engine.conftest import prompt_of
from tests.unit.runtime.engine.test_c_rules import Seen, failure

PROMPT = prompt_of(90, 3)


@pytest.fixture(scope="module")
def table() -> CTable:
    return CTable()


@pytest.fixture
def engine(table: CTable, engine_artifact: Path) -> Iterator[c_void_p]:
    artifact = table.made("artifact_open", str(engine_artifact).encode(), None)
    handle = table.made("engine_create", artifact, None)
    yield handle
    table.engine_close(handle, 10_000)
    table.artifact_close(artifact)


def prefill(table: CTable, session: c_void_p, tokens: list[int]) -> np.ndarray:
    ids = (c_int32 * len(tokens))(*tokens)
    return taken(table.made("session_prefill", session, ids, len(tokens)))


def run(table: CTable, session: c_void_p, inputs: dict[str, ManagedTensor], outputs: list[str]) -> list[np.ndarray]:
    names = (c_char_p * len(inputs))(*(name.encode() for name in inputs))
    tensors = (POINTER(ManagedTensor) * len(inputs))(*(ctypes.pointer(t) for t in inputs.values()))
    wanted, out = (c_char_p * len(outputs))(*(n.encode() for n in outputs)), (c_void_p * len(outputs))()
    table.session_run(session, names, tensors, len(inputs), wanted, out, len(outputs))
    return [taken(c_void_p(pointer)) for pointer in out]


def held(table: CTable, engine: c_void_p) -> tuple[int, int]:
    stats = Stats(struct_size=ctypes.sizeof(Stats))
    table.engine_stats(engine, byref(stats))
    return stats.slots_used, stats.kv_pages_used


def test_prefill_decode_and_truncate_give_the_logits_of_one_run(table: CTable, engine: c_void_p) -> None:
    whole, pieces = table.made("session_create", engine, 128), table.made("session_create", engine, 100)
    assert held(table, engine) == (2, 8 + 7)
    logits = prefill(table, whole, PROMPT)
    prefill(table, pieces, PROMPT[:70])
    for token in PROMPT[70:-1]:
        table.session_decode(pieces, token, None)
    last = taken(table.made("session_decode", pieces, PROMPT[-1]))
    assert logits.shape == (1, 96) and last.tobytes() == logits.tobytes()
    prefill(table, pieces, [1, 2, 3])
    table.session_truncate(pieces, 50)
    assert prefill(table, pieces, PROMPT[50:]).tobytes() == logits.tobytes()
    for session in (whole, pieces):
        table.session_free(session)
    assert held(table, engine) == (0, 0)


def test_named_tensors_give_logits_of_any_rows(table: CTable, engine: c_void_p) -> None:
    """More rows than one step gives logits of."""
    session, other = table.made("session_create", engine, 128), table.made("session_create", engine, 128)
    tokens, rows = np.array(PROMPT, np.int32), np.arange(3, 90, 2, dtype=np.int32)
    logits, choices = run(table, session, {"tokens": borrowed(tokens), "rows": borrowed(rows)}, ["logits", "choices"])
    assert logits.shape == (44, 96) and choices.tolist() == logits.argmax(1).tolist()
    one_by_one = [prefill(table, other, PROMPT[: rows[0] + 1])]
    one_by_one += [prefill(table, other, PROMPT[r - 1 : r + 1]) for r in rows[1:]]
    assert logits.tobytes() == b"".join(one.tobytes() for one in one_by_one)
    table.session_truncate(session, 0)
    (last,) = run(table, session, {"tokens": borrowed(tokens, flags=1)}, ["logits"])  # read-only
    assert last.tobytes() == prefill_alone(table, engine).tobytes()
    table.session_free(session)
    table.session_free(other)


def prefill_alone(table: CTable, engine: c_void_p) -> np.ndarray:
    session = table.made("session_create", engine, 128)
    logits = prefill(table, session, PROMPT)
    table.session_free(session)
    return logits


def test_sessions_and_requests_share_an_engine(table: CTable, engine: c_void_p) -> None:
    alone = prefill_alone(table, engine)
    seen = [Seen() for _ in range(8)]
    for i, one in enumerate(seen):
        table.generate(engine, byref(params_of(prompt_of(30, i), max_new_tokens=40, flags=1)), one.function, None, None)
    session = table.made("session_create", engine, 128)
    assert prefill(table, session, PROMPT).tobytes() == alone.tobytes()
    table.session_free(session)
    assert all(one.ended.wait(30) and len(one.tokens) == 40 for one in seen)


def test_a_tensor_out_outlives_every_handle(table: CTable, engine_artifact: Path) -> None:
    artifact = table.made("artifact_open", str(engine_artifact).encode(), None)
    engine = table.made("engine_create", artifact, None)
    session = table.made("session_create", engine, 16)
    logits = table.made("session_prefill", session, (c_int32 * 2)(1, 2), 2)
    table.session_free(session)
    table.engine_close(engine, 1000)
    table.artifact_close(artifact)
    assert np.isfinite(taken(logits)).all()


def test_a_second_thread_is_refused(table: CTable, engine: c_void_p) -> None:
    """R7, from whichever of two threads comes second."""
    session, busy = table.made("session_create", engine, 128), threading.Event()
    ids = (c_int32 * 100)(*prompt_of(100))

    def again(*calls: Any) -> None:
        while not busy.is_set():
            for call, *arguments in calls:
                try:
                    call(session, *arguments)
                except Failed as failed:
                    assert failed.code == "BUSY"
                    busy.set()

    other = threading.Thread(target=again, args=([table.session_truncate, 0], [table.session_prefill, ids, 100, None]))
    other.start()
    again([table.session_truncate, 0])
    other.join()
    table.session_truncate(session, 0)
    assert len(prefill(table, session, PROMPT)) == 1
    table.session_free(session)


ROWS = np.array([0, 1, 2, 3], np.int32)
BAD_TENSORS: list[tuple[dict[str, Any], str]] = [
    ({"major": 2}, "DLPack version"), ({"device_type": 2}, "device"), ({"code": 2}, "dtype"), ({"bits": 64}, "dtype"),
    ({"lanes": 2}, "dtype"), ({"ndim": 2}, "shape"), ({"ndim": 0}, "shape"), ({"shape": None}, "shape"),
    ({"shape": (ctypes.c_int64 * 1)(-1)}, "shape"), ({"shape": (ctypes.c_int64 * 1)(2**40)}, "shape"),
    ({"strides": (ctypes.c_int64 * 1)(2)}, "stride"), ({"data": None}, "data"), ({"byte_offset": 2}, "alignment"),
]


@pytest.mark.parametrize(("changes", "what"), BAD_TENSORS, ids=str)
def test_bad_tensors_are_refused_by_what_is_wrong(table: CTable, engine: c_void_p, changes: dict[str, Any],
                                                  what: str) -> None:
    session = table.made("session_create", engine, 16)
    failed = failure(run, table, session, {"tokens": borrowed(ROWS, **changes)}, ["logits"])
    assert failed.code == "INVALID_ARG" and failed.fields["subject"] == f"{what} of tensor tokens"
    assert len(run(table, session, {"tokens": borrowed(ROWS)}, ["choices"])[0]) == 1
    table.session_free(session)


@pytest.mark.parametrize(("inputs", "outputs", "subject"), [
    ({"token": ROWS}, ["logits"], "input token"), ({}, ["logits"], "input tokens"),
    ({"tokens": ROWS}, ["x"], "output x"),
    ({"tokens": ROWS}, ["logits", "logits"], "output logits"),
    ({"tokens": ROWS, "rows": np.array([4], np.int32)}, ["logits"], "rows of a session, entry 0"),
    ({"tokens": ROWS, "rows": np.array([2, 2], np.int32)}, ["logits"], "rows of a session, entry 1"),
    ({"tokens": np.array([96], np.int32)}, ["logits"], "tokens of a session"),
    ({"tokens": np.zeros(0, np.int32)}, ["logits"], "tokens of a session"),
])
def test_bad_names_and_contents(table: CTable, engine: c_void_p, inputs: dict[str, np.ndarray], outputs: list[str],
                                subject: str) -> None:
    session = table.made("session_create", engine, 16)
    failed = failure(run, table, session, {name: borrowed(values) for name, values in inputs.items()}, outputs)
    assert failed.code == "INVALID_ARG" and failed.fields["subject"] == subject
    table.session_free(session)


def test_a_session_is_bounded(table: CTable, engine_artifact: Path) -> None:
    artifact = table.made("artifact_open", str(engine_artifact).encode(), None)
    options = EngineOptions(struct_size=ctypes.sizeof(EngineOptions), kv_pages=4, max_batch=2)
    engine = table.made("engine_create", artifact, byref(options))
    assert failure(table.session_create, engine, 0, byref(c_void_p())).code == "INVALID_ARG"
    assert failure(table.session_create, engine, 2**64 - 1, byref(c_void_p())).code == "INVALID_ARG"
    failed = failure(table.session_create, engine, 65, byref(c_void_p()))
    assert (failed.code, failed.fields["found"]) == ("KV_EXHAUSTED", "2 free slots and 4 free pages")
    session = table.made("session_create", engine, 33)
    assert failure(table.session_create, engine, 17, byref(c_void_p())).code == "KV_EXHAUSTED"
    assert failure(prefill, table, session, [1] * 34).code == "KV_EXHAUSTED"
    assert failure(table.session_truncate, session, 1).code == "INVALID_ARG"
    prefill(table, session, [1] * 33)
    table.session_free(session)
    table.engine_close(engine, 1000)
    table.artifact_close(artifact)
