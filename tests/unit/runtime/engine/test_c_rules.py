"""Each rule R1 to R10 of dsv41c.h, misused: a typed refusal, never a crash."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, byref, c_int32, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import pytest

from dsv41c.runtime.c_api import EngineInfo, EngineOptions, Event, EventFunction, GenerateParams, Stats
from tests.unit.runtime.engine.c_table import FALLIBLE, CTable, Failed, params_of
from tests.unit.runtime.engine.conftest import prompt_of

DONE = 1


class Seen:
    """What a callback was told; `act` runs inside it."""

    def __init__(self, act: Any = lambda event: 0) -> None:
        self.kinds: list[int] = []
        self.finish, self.code = 0, 0
        self.tokens: list[int] = []
        self.failures: list[BaseException] = []
        self.ended = threading.Event()
        self.function = EventFunction(self._take)
        self._act = act

    def _take(self, _: int, event: Any) -> int:
        told: Event = event.contents
        self.kinds.append(told.kind)
        self.tokens += told.tokens[: told.n_tokens]
        try:
            return int(self._act(told))
        except Exception as error:
            self.failures.append(error)
            return 1
        finally:
            if told.kind:
                self.finish, self.code = told.finish, told.code
                self.ended.set()


@pytest.fixture(scope="module")
def table() -> CTable:
    return CTable()


@pytest.fixture(scope="module")
def artifact(table: CTable, engine_artifact: Path) -> Iterator[c_void_p]:
    handle = table.made("artifact_open", str(engine_artifact).encode(), None)
    yield handle
    table.artifact_close(handle)


@pytest.fixture
def engine(table: CTable, artifact: c_void_p) -> Iterator[c_void_p]:
    handle = table.made("engine_create", artifact, None)
    yield handle
    table.engine_close(handle, 10_000)


def failure(call: Any, *arguments: Any) -> Failed:
    with pytest.raises(Failed) as caught:
        call(*arguments)
    assert caught.value.fields["code"].startswith("DSV41C-E") and caught.value.fields["found"]
    return caught.value


def used(table: CTable, engine: c_void_p) -> tuple[int, int]:
    stats = Stats(struct_size=ctypes.sizeof(Stats))
    table.engine_stats(engine, byref(stats))
    return stats.kv_pages_used, stats.slots_used


@pytest.mark.parametrize("name", FALLIBLE)
def test_r1_a_null_handle_is_refused(table: CTable, name: str) -> None:
    function = table._functions[name]
    nothing = [0 if kind in (c_int32, c_uint32, c_uint64, ctypes.c_size_t) else
               EventFunction() if kind is EventFunction else None for kind in function.argtypes]
    if name == "engine_close":  # it destroys
        table.engine_close(None, 0)
    else:
        assert failure(getattr(table, name), *nothing).code == "INVALID_ARG"


def test_r1_destroying_null_does_nothing(table: CTable) -> None:
    for name in ("status_free", "buffer_free", "artifact_close", "request_free", "session_free"):
        getattr(table, name)(None)


def test_r2_no_status_is_success(table: CTable) -> None:
    assert (table.status_code(None), table.status_message(None), table.status_json(None)) == (0, b"", b"{}")


def test_r2_statuses_are_objects_of_their_own(table: CTable) -> None:
    opened = table._functions["artifact_open"]
    first, second = opened(b"/nowhere", None, byref(c_void_p())), opened(None, None, byref(c_void_p()))
    assert table.status_code(first) == 2 and b"/nowhere" in table.status_message(first)
    assert table.status_code(second) == 1 and b"null pointer" in table.status_message(second)
    table.status_free(first)
    table.status_free(second)


@pytest.mark.parametrize("size", [0, 7, 4097, 2**63])
def test_r4_a_wrong_struct_size_is_refused(table: CTable, artifact: c_void_p, engine: c_void_p, size: int) -> None:
    options = EngineOptions(struct_size=size)
    assert failure(table.engine_create, artifact, byref(options), byref(c_void_p())).code == "INVALID_ARG"
    for call, struct in ((table.engine_stats, Stats(struct_size=size)),
                         (table.engine_info, EngineInfo(struct_size=size))):
        assert failure(call, engine, byref(struct)).code == "INVALID_ARG"
    params = params_of([1], struct_size=size)
    assert failure(table.generate, engine, byref(params), Seen().function, None, None).code == "INVALID_ARG"


def test_r4_a_newer_struct_may_end_in_zeros_only(table: CTable, engine: c_void_p) -> None:
    class Newer(ctypes.Structure):
        _fields_ = [("params", GenerateParams), ("more", c_uint64 * 8)]

    newer, seen = Newer(params=params_of([1, 2], max_new_tokens=1, struct_size=ctypes.sizeof(Newer))), Seen()
    table.generate(engine, byref(newer), seen.function, None, None)
    assert seen.ended.wait(10) and len(seen.tokens) == 1
    newer.more[7] = 1
    failed = failure(table.generate, engine, byref(newer), seen.function, None, None)
    assert failed.code == "UNSUPPORTED" and failed.fields["code"] == "DSV41C-E1009"


def test_r4_an_older_struct_lacks_what_it_lacks(table: CTable, engine: c_void_p) -> None:
    """Neither read nor written beyond its size."""
    params = params_of([1, 2], max_new_tokens=1, struct_size=GenerateParams.stop_ids.offset)
    params.n_stop_ids, params.flags = 1, 0xFFFF  # not read
    seen = Seen()
    table.generate(engine, byref(params), seen.function, None, None)
    assert seen.ended.wait(10)
    stats = Stats()
    ctypes.memset(byref(stats), 0xAB, ctypes.sizeof(stats))
    stats.struct_size = Stats.tokens_in.offset
    table.engine_stats(engine, byref(stats))
    assert stats.requests_refused == 0 and stats.tokens_in == stats.weight_bytes == 0xABABABABABABABAB


@pytest.mark.parametrize(("fields", "subject"), [({"flags": 2}, "flags"), ({"reserved": 1}, "reserved")])
def test_r4_reserved_fields_and_unknown_flags(table: CTable, artifact: c_void_p, fields: dict[str, int],
                                              subject: str) -> None:
    options = EngineOptions(struct_size=ctypes.sizeof(EngineOptions), **fields)
    failed = failure(table.engine_create, artifact, byref(options), byref(c_void_p()))
    assert failed.code == "UNSUPPORTED" and subject in failed.fields["subject"]


def test_r5_what_goes_in_is_copied_and_must_be_text(table: CTable, engine: c_void_p) -> None:
    seen = Seen()
    params = params_of(prompt_of(9), max_new_tokens=3, flags=1)
    table.engine_pause(engine, 1)
    table.generate(engine, byref(params), seen.function, None, None)
    ctypes.memset(params.tokens, 0xFF, 36)
    table.engine_pause(engine, 0)
    assert seen.ended.wait(10) and seen.finish == 2
    for name, found in ((b"\xff", "bytes that are not UTF-8"), (b"x" * 257, "257 bytes")):
        failed = failure(table.generate, engine, byref(params_of([1], id=name)), seen.function, None, None)
        assert (failed.code, failed.fields["found"]) == ("INVALID_ARG", found)


def test_r5_buffers_belong_to_the_caller(table: CTable, engine: c_void_p) -> None:
    buffer, length = table.made("engine_metrics", engine), ctypes.c_size_t()
    data = table._function("buffer_data", c_void_p, (c_void_p, ctypes.POINTER(ctypes.c_size_t)))
    text = ctypes.string_at(data(buffer, byref(length)))
    assert len(text) == length.value and text.startswith(b"# HELP")
    table.buffer_free(buffer)
    assert data(None, byref(length)) is None and length.value == 0


def test_r8_waiting_and_closing_inside_a_callback_are_refused(table: CTable, engine: c_void_p) -> None:
    request = c_void_p()
    ready = threading.Event()

    def act(_: Event) -> int:
        ready.wait()
        codes.append(failure(table.request_wait, request, 1000).code)
        codes.append(failure(table.engine_close, engine, 1000).code)
        return 0

    codes: list[str] = []
    seen = Seen(act)
    table.generate(engine, byref(params_of([1, 2, 3], max_new_tokens=1)), seen.function, None, byref(request))
    ready.set()
    table.request_wait(request, 10_000)
    table.request_free(request)
    assert codes == ["DEADLOCK"] * 4 and not seen.failures


def test_r8_a_request_may_be_freed_inside_its_callback(table: CTable, engine: c_void_p) -> None:
    request, ready = c_void_p(), threading.Event()

    def act(event: Event) -> int:
        ready.wait()
        if event.kind == 0 and not freed:
            freed.append(True)
            table.request_free(request)
        return 0

    freed: list[bool] = []
    seen = Seen(act)
    table.generate(engine, byref(params_of([1, 2, 3], max_new_tokens=90, flags=1)), seen.function, None, byref(request))
    ready.set()
    assert seen.ended.wait(10)
    assert seen.kinds.count(DONE) == 1 and seen.kinds[-1] == DONE and seen.finish == 3 and seen.code == 9


def test_r8_non_zero_cancels_and_the_end_is_told_once(table: CTable, engine: c_void_p) -> None:
    seen = Seen(lambda event: 1)
    params = params_of([1, 2, 3], max_new_tokens=90, flags=1)
    request = table.made("generate", engine, byref(params), seen.function, None)
    table.request_wait(request, 10_000)
    for _ in range(3):
        table.request_cancel(request)
        table.request_wait(request, 0)
    table.request_free(request)
    assert seen.kinds.count(DONE) == 1 and seen.finish == 3
    assert used(table, engine) == (0, 0)


def test_r8_a_wait_ends_at_its_limit(table: CTable, engine: c_void_p) -> None:
    table.engine_pause(engine, 1)
    seen = Seen()
    request = table.made("generate", engine, byref(params_of([1])), seen.function, None)
    assert failure(table.request_wait, request, 20).code == "DEADLINE"
    table.request_free(request)  # cancels it, paused or not
    assert seen.ended.wait(10) and seen.finish == 3


def test_r9_any_order_of_closing(table: CTable, engine_artifact: Path) -> None:
    artifact = table.made("artifact_open", str(engine_artifact).encode(), None)
    engine = table.made("engine_create", artifact, None)
    table.artifact_close(artifact)
    session = table.made("session_create", engine, 20)
    seen = Seen()
    request = table.made("generate", engine, byref(params_of([1, 2], max_new_tokens=100, flags=1)), seen.function, None)
    table.engine_close(engine, 10_000)
    assert seen.ended.is_set() and seen.kinds.count(DONE) == 1
    table.request_cancel(request)
    table.request_wait(request, 0)
    assert failure(table.session_decode, session, 1, None).code == "CLOSED"
    table.session_free(session)
    table.request_free(request)


def test_r9_close_gives_up_on_a_callback_that_stays(table: CTable, artifact: c_void_p) -> None:
    stay, inside = threading.Event(), threading.Event()

    def act(_: Event) -> int:
        inside.set()
        stay.wait()
        return 0

    engine, seen = table.made("engine_create", artifact, None), Seen(act)
    table.generate(engine, byref(params_of([1, 2], max_new_tokens=5)), seen.function, None, None)
    inside.wait()
    failed = failure(table.engine_close, engine, 20)
    assert failed.code == "DEADLINE" and failed.fields["needed"] == "all callbacks to return"
    stay.set()
    assert seen.ended.wait(10) and seen.kinds.count(DONE) == 1


def test_r10_versions(table: CTable) -> None:
    major, minor = c_uint32(), c_uint32()
    assert not table.entry(2, 0, byref(major), byref(minor)) and (major.value, minor.value) == (1, 0)
    assert not table.entry(1, 99, byref(major), None)
    assert not table.entry(0, 0, None, None)
    assert table.entry(1, 0, None, None).contents.struct_size == ctypes.sizeof(type(table.raw))


BAD = [({"tokens": [-1]}, "prompt"), ({"tokens": [96]}, "prompt"), ({"tokens": [-2**31]}, "prompt"),
       ({"tokens": []}, "prompt"), ({"tokens": [1] * 128}, "prompt"), ({"max_new_tokens": 0}, "max_new_tokens"),
       ({"top_p": 0.0}, "top_p"), ({"top_p": 1.1}, "top_p"), ({"top_p": float("nan")}, "top_p"),
       ({"temperature": -1.0}, "temperature"), ({"temperature": float("nan")}, "temperature"),
       ({"temperature": float("inf")}, "temperature"), ({"top_k": -1}, "top_k"), ({"n_logprobs": 21}, "n_logprobs"),
       ({"min_new_tokens": 17}, "min_new_tokens"), ({"n_stop_ids": 1}, "stop_ids"), ({"n_stop_ids": 65}, "stop_ids"),
       ({"n_tokens": 2**40}, "tokens"), ({"tokens": None, "n_tokens": 2}, "tokens")]


@pytest.mark.parametrize(("fields", "subject"), BAD, ids=str)
def test_every_bad_field_is_refused_by_name(table: CTable, engine: c_void_p, fields: dict[str, Any],
                                            subject: str) -> None:
    params = params_of(fields.get("tokens", [1]) or [])
    if fields.get("tokens", [1]) is None:
        params.tokens = POINTER(c_int32)()
    for name, value in fields.items():
        if name != "tokens":
            setattr(params, name, value)
    neighbour = Seen()
    table.generate(engine, byref(params_of(prompt_of(5), max_new_tokens=3, flags=1)), neighbour.function, None, None)
    failed = failure(table.generate, engine, byref(params), Seen().function, None, None)
    assert failed.code == "INVALID_ARG" and subject in failed.fields["subject"]
    assert neighbour.ended.wait(10) and len(neighbour.tokens) == 3


def test_a_missing_callback_is_refused(table: CTable, engine: c_void_p) -> None:
    assert failure(table.generate, engine, byref(params_of([1])), EventFunction(), None, None).code == "INVALID_ARG"


def test_the_log_says_what_the_engine_does(table: CTable, artifact: c_void_p) -> None:
    """Its limits at first, then each preemption."""
    lines: list[tuple[int, str]] = []
    log = CFUNCTYPE(None, c_void_p, c_int32, c_void_p, ctypes.c_size_t)(
        lambda user, level, text, length: lines.append((level, ctypes.string_at(text, length).decode())))
    options = EngineOptions(struct_size=ctypes.sizeof(EngineOptions), kv_pages=7, flags=1,
                            log=ctypes.cast(log, c_void_p))
    engine, seen = table.made("engine_create", artifact, byref(options)), [Seen(), Seen()]
    for i, one in enumerate(seen):
        params = params_of(prompt_of(37, i), max_new_tokens=24, flags=1)
        table.generate(engine, byref(params), one.function, None, None)
    table.engine_pause(engine, 0)
    assert all(one.ended.wait(30) and len(one.tokens) == 24 for one in seen)
    table.engine_close(engine, 1000)
    assert lines == [(2, "engine: 32 slots, 7 pages of 16 tokens, steps of at most 64 rows"),
                     (2, "out of pages: 1 requests wait to be computed again")]
