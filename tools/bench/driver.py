"""The CUDA driver through ctypes: loads cubins and launches their kernels on torch's current stream."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch

from dsv41c.tools.bench.plain_launch import Call

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEFAULT_SHARED = 48 * 1024


class DriverError(RuntimeError):
    """A driver call that did not return success."""


@functools.cache
def _driver() -> ctypes.CDLL:
    torch.zeros(1, device="cuda")  # torch makes the primary context current
    return ctypes.CDLL("libcuda.so.1")


def _check(call: str, status: int) -> None:
    if status == 0:
        return
    text = ctypes.c_char_p()
    _driver().cuGetErrorString(status, ctypes.byref(text))
    raise DriverError(f"{call}: {status} {(text.value or b'').decode()}")


@functools.cache
def load(cubin: Path, symbol: str, shared_bytes: int) -> Any:
    """Handle of the function; loaded once and kept."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check("cuModuleLoadData", _driver().cuModuleLoadData(ctypes.byref(module), cubin.read_bytes()))
    status = _driver().cuModuleGetFunction(ctypes.byref(function), module, symbol.encode())
    _check(f"cuModuleGetFunction {symbol}", status)
    if shared_bytes > _DEFAULT_SHARED:
        _check("cuFuncSetAttribute", _driver().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes))
    return function


def launch(function: Any, call: Call) -> None:
    """Starts the kernel; `call` must live until the stream has been waited for."""
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    sizes = (*call.grid, *call.kernel.block, call.kernel.shared_bytes)
    _check("cuLaunchKernel", _driver().cuLaunchKernel(
        function, *(ctypes.c_uint(n) for n in sizes), stream, call.pointers(), None))
