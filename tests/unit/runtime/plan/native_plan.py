"""The C++ side of the plan as Python calls: evaluate an expression, verify a plan; errors come back typed."""

from __future__ import annotations

import ctypes
import json

from dsv41c.runtime.library import core_library
from dsv41c.runtime.plan.errors import Dsv41cError


class ErrorBuffer(ctypes.Structure):
    """dsv41c_error of provider.h."""

    _fields_ = [("text", ctypes.c_void_p), ("capacity", ctypes.c_int64)]


def evaluate(expr: bytes, symbols: dict[str, int]) -> int:
    result = ctypes.c_int64()
    _call("dsv41c_expr_evaluate", expr, json.dumps(symbols).encode(), ctypes.byref(result))
    return result.value


def verify(plan: bytes) -> None:
    _call("dsv41c_plan_verify", plan)


def _call(name: str, *arguments: object) -> None:
    text = ctypes.create_string_buffer(1 << 16)
    error = ErrorBuffer(ctypes.addressof(text), len(text))
    if getattr(core_library(), name)(*arguments, ctypes.byref(error)):
        raise Dsv41cError.from_json(json.loads(text.value))
