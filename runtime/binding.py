"""ctypes structs and functions of the executor's C interface (include/dsv41c/executor.h); no logic."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import POINTER, c_char, c_char_p, c_double, c_int32, c_int64, c_void_p

from dsv41c.runtime.library import core_library

MAX_DIMS = 6


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("ndim", c_int32),
                ("sizes", c_int64 * MAX_DIMS), ("strides", c_int64 * MAX_DIMS)]


class Error(ctypes.Structure):
    _fields_ = [("text", c_void_p), ("capacity", c_int64)]


class LoadOptions(ctypes.Structure):
    _fields_ = [("verify_full", c_int32), ("num_providers", c_int32), ("providers", POINTER(c_void_p)),
                ("poison", c_int32), ("device", c_int32), ("cuda_mode", c_int32), ("reserved", c_int32),
                ("cuda_driver", c_char_p), ("weights", c_char_p), ("memory_budget", c_int64),
                ("check", c_char_p)]


class StepInputs(ctypes.Structure):
    _fields_ = [("upload", c_void_p), ("num_rows", c_int64), ("keep_rows", c_void_p), ("num_keep", c_int64),
                ("logit_rows", c_void_p), ("num_logit_rows", c_int64), ("eager", c_int32),
                ("reserved", c_int32)]


class Record(ctypes.Structure):
    _fields_ = [("method", c_char * 32), ("bucket", c_int32), ("rows", c_int32), ("pad_rows", c_int32),
                ("eager", c_int32), ("reason", c_char * 64), ("us", c_double)]


class Interface:
    """The functions of libdsv41c_executor with their argument types set."""

    def __init__(self, library: ctypes.CDLL) -> None:
        def function(name: str, result: type | None, *arguments: type) -> Callable[..., int]:
            entry = getattr(library, name)
            entry.restype, entry.argtypes = result, list(arguments)
            called: Callable[..., int] = entry
            return called

        failure = POINTER(Error)
        self.open = function("dsv41c_open", c_int32, c_char_p, POINTER(LoadOptions), POINTER(c_void_p),
                             failure)
        self.close = function("dsv41c_close", None, c_void_p)
        self.step = function("dsv41c_step", c_int32, c_void_p, POINTER(StepInputs), failure)
        self.synchronize = function("dsv41c_synchronize", c_int32, c_void_p, failure)
        self.output = function("dsv41c_output", c_int32, c_void_p, c_char_p, POINTER(Tensor), failure)
        self.state = function("dsv41c_state", c_int32, c_void_p, c_char_p, POINTER(Tensor), failure)
        self.state_write = function("dsv41c_state_write", c_int32, c_void_p, c_char_p, c_void_p, c_int64, failure)
        self.graph_bench = function("dsv41c_graph_bench", c_int32, c_void_p, c_int32, POINTER(c_char_p), failure)
        self.step_bench = function("dsv41c_step_bench", c_int32, c_void_p, POINTER(StepInputs), c_int32,
                                   POINTER(c_char_p), failure)
        self.report: Callable[..., bytes] = function("dsv41c_report", c_char_p, c_void_p)  # type: ignore[assignment]
        self.num_records = function("dsv41c_num_records", c_int64, c_void_p)
        self.record_at = function("dsv41c_record_at", c_int32, c_void_p, c_int64, POINTER(Record), failure)
        self.staged_inputs: Callable[..., int | None] = function("dsv41c_staged_inputs", c_void_p, c_void_p,
                                                                 POINTER(c_int64))
        self.heap_allocations = function("dsv41c_heap_allocations", c_int64)


@functools.cache
def interface() -> Interface:
    return Interface(core_library())
