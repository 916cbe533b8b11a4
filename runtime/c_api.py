"""ctypes structs and functions of the public C interface (include/dsv41c/dsv41c.h), and its errors as Dsv41cError."""

from __future__ import annotations

import ctypes
import functools
import json
from ctypes import (
    CFUNCTYPE,
    POINTER,
    byref,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from dsv41c.runtime.library import core_library
from dsv41c.runtime.plan.errors import Dsv41cError

MAJOR, MINOR = 1, 0


class EngineOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("flags", c_uint32), ("device_id", c_int32), ("memory_budget", c_uint64),
                ("kv_pages", c_uint64), ("max_context", c_uint64), ("max_batch", c_uint32),
                ("max_batch_tokens", c_uint32), ("max_queue", c_uint32), ("reserved", c_uint32), ("log", c_void_p),
                ("log_user", c_void_p)]


class EngineInfo(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("max_batch", c_uint32), ("max_batch_tokens", c_uint32),
                ("max_queue", c_uint32), ("vocab", c_uint32), ("max_context", c_uint64), ("block_size", c_uint64),
                ("kv_pages", c_uint64)]


class Stats(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t)] + [(name, c_uint64) for name in (
        "requests_active", "requests_queued", "requests_done", "requests_cancelled", "requests_failed",
        "requests_refused", "tokens_in", "tokens_out", "kv_pages_total", "kv_pages_used", "slots_total", "slots_used",
        "steps", "step_rows", "step_requests", "preemptions", "planned_bytes", "weight_bytes")]


class GenerateParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("tokens", POINTER(c_int32)), ("n_tokens", c_size_t),
                ("max_new_tokens", c_uint32), ("min_new_tokens", c_uint32), ("temperature", c_double),
                ("top_p", c_double), ("top_k", c_int32), ("n_logprobs", c_uint32), ("seed", c_uint64),
                ("stop_ids", POINTER(c_int32)), ("n_stop_ids", c_size_t), ("flags", c_uint32), ("priority", c_uint32),
                ("deadline_ms", c_uint64), ("id", c_char_p)]


class Event(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("kind", c_uint32), ("finish", c_uint32), ("tokens", POINTER(c_int32)),
                ("n_tokens", c_size_t), ("first_index", c_uint64), ("logprobs", POINTER(c_float)),
                ("top_ids", POINTER(c_int32)), ("top_logprobs", POINTER(c_float)), ("n_top", c_size_t),
                ("code", c_int32), ("preemptions", c_uint32), ("message", c_char_p), ("error_json", c_char_p),
                ("queue_ns", c_uint64), ("prefill_ns", c_uint64), ("decode_ns", c_uint64)]


EventFunction = CFUNCTYPE(c_int32, c_void_p, POINTER(Event))

# Slots behind the head of the table, with result and arguments; null where Python does not use one.
_SLOTS: list[tuple[str, Any]] = [
    ("status_code", None), ("status_message", None), ("status_json", CFUNCTYPE(c_char_p, c_void_p)),
    ("status_free", CFUNCTYPE(None, c_void_p)), ("buffer_data", CFUNCTYPE(c_void_p, c_void_p, POINTER(c_size_t))),
    ("buffer_free", CFUNCTYPE(None, c_void_p)), ("artifact_open", None), ("artifact_info", None),
    ("artifact_port", None), ("artifact_plan_json", None), ("artifact_close", None), ("engine_create", None),
    ("engine_info", CFUNCTYPE(c_void_p, c_void_p, POINTER(EngineInfo))),
    ("engine_ready", CFUNCTYPE(c_void_p, c_void_p)), ("engine_stats", CFUNCTYPE(c_void_p, c_void_p, POINTER(Stats))),
    ("engine_metrics", CFUNCTYPE(c_void_p, c_void_p, POINTER(c_void_p))),
    ("engine_pause", CFUNCTYPE(c_void_p, c_void_p, c_int32)),
    ("engine_close", CFUNCTYPE(c_void_p, c_void_p, c_uint64)),
    ("generate", CFUNCTYPE(c_void_p, c_void_p, POINTER(GenerateParams), EventFunction, c_void_p, POINTER(c_void_p))),
    ("request_cancel", CFUNCTYPE(c_void_p, c_void_p)), ("request_wait", None),
    ("request_free", CFUNCTYPE(None, c_void_p)), ("session_create", None), ("session_prefill", None),
    ("session_decode", None), ("session_truncate", None), ("session_run", None), ("session_free", None),
]


class Api(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("abi_major", c_uint32), ("abi_minor", c_uint32), ("version", c_char_p),
                *((name, form or c_void_p) for name, form in _SLOTS)]


@functools.cache
def api() -> Any:
    """The table of the library that the executor of this process lives in."""
    entry = core_library().dsv41c_get_api_v1
    entry.restype, entry.argtypes = POINTER(Api), [c_uint32, c_uint32, POINTER(c_uint32), POINTER(c_uint32)]
    return entry(MAJOR, MINOR, None, None).contents


def engine_over(executor: c_void_p, options: EngineOptions) -> c_void_p:
    """A handle of an engine that has the executor for itself until it is closed."""
    entry = core_library().dsv41c_engine_over
    entry.restype, entry.argtypes = c_void_p, [c_void_p, POINTER(EngineOptions), POINTER(c_void_p)]
    handle = c_void_p()
    check(entry(executor, byref(options), byref(handle)))
    return handle


def check(status: int | None) -> None:
    """Raises the error that a status object holds, and frees it."""
    if status:
        text = api().status_json(status)
        api().status_free(status)
        raise error_of(text)


def error_of(text: bytes) -> Dsv41cError:
    return Dsv41cError.from_json(json.loads(text))


def take_text(buffer: c_void_p) -> str:
    """The bytes of a dsv_buffer as text; the buffer is freed."""
    length = c_size_t()
    data = api().buffer_data(buffer, byref(length))
    text = ctypes.string_at(data, length.value).decode()
    api().buffer_free(buffer)
    return text


def sized(struct: ctypes.Structure) -> Any:
    struct.struct_size = ctypes.sizeof(struct)  # type: ignore[attr-defined]
    return struct
