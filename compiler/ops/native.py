"""Calls a native kernel of the cpu provider on torch tensors: the same bodies that the executor launches."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Callable
from typing import Any

import torch

from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.runtime.library import core_library
from dsv41c.runtime.plan.errors import Dsv41cError

MAX_DIMS = 6
PROVIDER_ABI = 2  # DSV41C_PROVIDER_ABI
_CPU = -1  # dsv41c_binding.device
DTYPE_CODES: dict[torch.dtype, int] = {
    torch.float32: 0, torch.bfloat16: 1, torch.float8_e4m3fn: 2, torch.float8_e8m0fnu: 3, torch.int8: 4,
    torch.uint8: 5, torch.int32: 6, torch.int64: 7, torch.float64: 8, torch.bool: 9,
}


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("sizes", ctypes.c_int64 * MAX_DIMS), ("strides", ctypes.c_int64 * MAX_DIMS)]


class _Binding(ctypes.Structure):
    _fields_ = [("tensors", ctypes.POINTER(_Tensor)), ("num_tensors", ctypes.c_int32),
                ("device", ctypes.c_int32),
                ("rows", ctypes.c_int64), ("scratch", ctypes.c_void_p), ("scratch_bytes", ctypes.c_int64),
                ("stream", ctypes.c_void_p)]


class _Error(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("capacity", ctypes.c_int64)]


_PREPARE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p),
                            ctypes.POINTER(_Error))
_BIND = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(_Binding),
                         ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(_Error))
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(_Error))
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Provider(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_int32), ("reserved", ctypes.c_int32), ("name", ctypes.c_char_p),
                ("prepare", _PREPARE),
                ("bind", _BIND), ("launch", _LAUNCH), ("unbind", _FREE), ("release", _FREE),
                ("count_allocations", ctypes.c_void_p)]


@functools.cache
def _provider() -> _Provider:
    function = core_library().dsv41c_cpu_provider
    function.restype = ctypes.POINTER(_Provider)
    provider: _Provider = function().contents
    check_abi(provider.abi)
    return provider


def check_abi(abi: int) -> None:
    if abi != PROVIDER_ABI:
        raise Dsv41cError("DSV41C-E0303", "native library", found=f"provider interface {abi}",
                          needed=f"provider interface {PROVIDER_ABI}", do="install matching versions of the package")


def encode_attribute(value: Any) -> Any:
    """An op attribute as the plan writes it: floats as hex strings, dtypes by name."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"f": value.hex()}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    raise TypeError(f"attribute {value!r} of type {type(value).__name__}")


@functools.cache
def _prepared(entry: str, attributes: str) -> int:
    """Handle of a prepared kernel, kept for the life of the process: there are a few dozen of them."""
    body = json.dumps({"entry": entry, "attributes": json.loads(attributes)}).encode()
    handle = ctypes.c_void_p()
    error, text = _error()
    if _provider().prepare(body, ctypes.byref(handle), ctypes.byref(error)) != 0:
        raise _failed(entry, text)
    assert handle.value is not None
    return handle.value


def native_call(spec: OpSpec) -> Callable[..., Any]:
    """A function with the op's signature that allocates outputs by `fake` and runs the native body."""
    assert spec.native is not None
    entry, scratch_bytes = spec.native.entry, spec.native.scratch_bytes
    arguments = spec.parsed().arguments
    is_tensor = [str(a.type).startswith(("Tensor", "Optional[Tensor]", "Tensor?")) for a in arguments]
    names = [a.name for a in arguments]

    def call(*args: Any) -> Any:
        outputs = spec.fake(*args)
        flat = () if outputs is None else outputs if isinstance(outputs, tuple) else (outputs,)
        tensors = [a for a, tensor in zip(args, is_tensor, strict=True) if tensor] + list(flat)
        attributes = {n: encode_attribute(a) for n, a, t in zip(names, args, is_tensor, strict=True) if not t}
        size = scratch_bytes(*args) if scratch_bytes else 0
        run_native(entry, attributes, tensors, size)
        return outputs

    return call


def run_native(
    entry: str, attributes: dict[str, Any], tensors: list[torch.Tensor | None], scratch_bytes: int
) -> None:
    """Bind and launch once; E0302 with the kernel's message when it refuses the tensors."""
    handle = _prepared(entry, json.dumps(attributes, sort_keys=True))
    described = (_Tensor * len(tensors))(*(_describe(t, entry) for t in tensors))
    scratch = torch.empty(max(scratch_bytes, 1), dtype=torch.uint8)
    binding = _Binding(described, len(tensors), _CPU, 0, scratch.data_ptr(), scratch_bytes, None)
    bound = ctypes.c_void_p()
    error, text = _error()
    provider = _provider()
    if provider.bind(handle, ctypes.byref(binding), ctypes.byref(bound), ctypes.byref(error)) != 0:
        raise _failed(entry, text)
    status = provider.launch(bound, ctypes.byref(error))
    provider.unbind(bound)
    if status != 0:
        raise _failed(entry, text)


def _describe(tensor: torch.Tensor | None, entry: str) -> _Tensor:
    if tensor is None:
        return _Tensor(None, 0, -1)
    if tensor.dtype not in DTYPE_CODES or tensor.dim() > MAX_DIMS:
        names = " ".join(str(dtype).removeprefix("torch.") for dtype in DTYPE_CODES)
        raise Dsv41cError("DSV41C-E0302", f"native kernel {entry}", found=f"{tensor.dtype} {list(tensor.shape)}",
                          needed=f"at most {MAX_DIMS} dimensions of one of: {names}",
                          do="check the call against the op's schema")
    pad = (0,) * (MAX_DIMS - tensor.dim())
    return _Tensor(tensor.data_ptr(), DTYPE_CODES[tensor.dtype], tensor.dim(),
                   (ctypes.c_int64 * MAX_DIMS)(*tensor.shape, *pad),
                   (ctypes.c_int64 * MAX_DIMS)(*tensor.stride(), *pad))


def _error() -> tuple[_Error, ctypes.Array[ctypes.c_char]]:
    text = ctypes.create_string_buffer(1024)
    return _Error(ctypes.cast(text, ctypes.c_char_p), 1024), text


def _failed(entry: str, text: ctypes.Array[ctypes.c_char]) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0302", f"native kernel {entry}", found=text.value.decode(errors="replace"),
                       needed="tensors and attributes that the kernel takes",
                       do="check the call against the op's schema")
