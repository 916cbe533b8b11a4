"""libdsv41c.so.1 through ctypes, as a C program has it: the table, statuses, tensors."""

from __future__ import annotations

import ctypes
import json
from ctypes import (
    CFUNCTYPE,
    POINTER,
    byref,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

import numpy as np

from dsv41c.runtime.c_api import Api, EventFunction, GenerateParams
from dsv41c.runtime.library import PUBLIC, installed_file

CODES = ("OK", "INVALID_ARG", "NOT_FOUND", "CORRUPT_ARTIFACT", "VERSION_MISMATCH", "UNSUPPORTED", "OUT_OF_MEMORY",
         "KV_EXHAUSTED", "QUEUE_FULL", "CANCELLED", "DEADLINE", "BUSY", "DEVICE", "DEADLOCK", "CLOSED", "NOT_FINITE",
         "INTERNAL")
_H, _O = c_void_p, POINTER(c_void_p)
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "artifact_open": (c_char_p, c_void_p, _O), "artifact_info": (_H, c_void_p),
    "artifact_port": (_H, c_uint32, c_void_p), "artifact_plan_json": (_H, _O), "engine_create": (_H, c_void_p, _O),
    "engine_info": (_H, c_void_p),
    "engine_ready": (_H,), "engine_stats": (_H, c_void_p), "engine_metrics": (_H, _O), "engine_pause": (_H, c_int32),
    "engine_close": (_H, c_uint64), "generate": (_H, c_void_p, EventFunction, c_void_p, _O), "request_cancel": (_H,),
    "request_wait": (_H, c_uint64), "session_create": (_H, c_uint64, _O),
    "session_prefill": (_H, c_void_p, c_size_t, _O), "session_decode": (_H, c_int32, _O),
    "session_truncate": (_H, c_uint64), "session_run": (_H, c_void_p, c_void_p, c_size_t, c_void_p, _O, c_size_t),
}
_VOID = {name: (_H,) for name in ("status_free", "buffer_free", "artifact_close", "request_free", "session_free")}
FALLIBLE = tuple(_ARGUMENTS)


class Version(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class DlTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class ManagedTensor(ctypes.Structure):
    pass


Deleter = CFUNCTYPE(None, POINTER(ManagedTensor))
ManagedTensor._fields_ = [("version", Version), ("context", c_void_p), ("deleter", Deleter), ("flags", c_uint64),
                          ("tensor", DlTensor)]


def borrowed(values: np.ndarray, **changes: Any) -> ManagedTensor:
    """An int32 tensor over an array, with fields changed; both must stay alive for the call."""
    shape, strides = (c_int64 * 1)(len(values)), (c_int64 * 1)(1)
    fields = {"data": values.ctypes.data, "device_type": 1, "ndim": 1, "code": 0, "bits": 32, "lanes": 1,
              "shape": shape, "strides": strides} | changes
    version = Version(fields.pop("major", 1), 0)
    return ManagedTensor(version=version, flags=fields.pop("flags", 0), tensor=DlTensor(**fields))


def taken(pointer: c_void_p) -> np.ndarray:
    """The contents of a tensor that the library gave out; it is deleted."""
    managed = ctypes.cast(pointer, POINTER(ManagedTensor))
    tensor = managed.contents.tensor
    assert managed.contents.version.major == 1 and tensor.device_type == 1 and tensor.byte_offset == 0
    shape = tensor.shape[: tensor.ndim]
    assert tensor.strides[: tensor.ndim] == [int(np.prod(shape[d + 1 :])) for d in range(tensor.ndim)]
    dtype = np.float32 if tensor.code == 2 else np.int32
    result = np.frombuffer(ctypes.string_at(tensor.data, 4 * int(np.prod(shape))), dtype).reshape(shape)
    managed.contents.deleter(managed)
    return result


class Failed(Exception):
    """A status that was not null: `code` without DSV_E_, the message, and the fields of the error."""

    def __init__(self, code: str, message: str, fields: dict[str, Any]) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.fields = code, message, fields


class CTable:
    """`table.engine_create(...)` raises Failed; handles are c_void_p."""

    def __init__(self) -> None:
        self.entry = ctypes.CDLL(str(installed_file(f"lib/{PUBLIC}"))).dsv41c_get_api_v1
        self.entry.restype = POINTER(Api)
        self.entry.argtypes = [c_uint32, c_uint32, POINTER(c_uint32), POINTER(c_uint32)]
        self.raw = self.entry(1, 0, None, None).contents
        self._functions = {name: self._function(name, c_void_p, arguments) for name, arguments in _ARGUMENTS.items()}
        self._functions |= {name: self._function(name, None, arguments) for name, arguments in _VOID.items()}
        self.status_code = self._function("status_code", c_int32, (_H,))
        self.status_message = self._function("status_message", c_char_p, (_H,))
        self.status_json = self._function("status_json", c_char_p, (_H,))

    def _function(self, name: str, result: Any, arguments: tuple[Any, ...]) -> Any:
        address = ctypes.c_void_p.from_buffer(self.raw, getattr(Api, name).offset).value
        return CFUNCTYPE(result, *arguments)(address)

    def __getattr__(self, name: str) -> Any:
        function = self._functions[name]
        return function if name in _VOID else lambda *arguments: self._checked(function(*arguments))

    def _checked(self, status: int | None) -> None:
        if status:
            failed = Failed(CODES[self.status_code(status)], self.status_message(status).decode(),
                            json.loads(self.status_json(status)))
            self.status_free(status)
            raise failed

    def made(self, name: str, *arguments: Any) -> c_void_p:
        """The handle that a call writes into its last argument."""
        handle = c_void_p()
        getattr(self, name)(*arguments, byref(handle))
        return handle


def params_of(prompt: list[int], **fields: Any) -> GenerateParams:
    """As dsv_generate_params_init leaves them, with fields set."""
    ids = (c_int32 * len(prompt))(*prompt)
    params = GenerateParams(struct_size=ctypes.sizeof(GenerateParams), tokens=ids, n_tokens=len(prompt),
                            max_new_tokens=16, top_p=1.0)
    for name, value in fields.items():
        setattr(params, name, value)
    return params
