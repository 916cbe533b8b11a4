"""Launches of plain kernels on given tensors: evaluated grids and parameter values, for a driver or an emulator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dsv41c.compiler.kernels.signature import CudaSource
from dsv41c.compiler.kernels.source import (
    Copy,
    Float,
    Int32,
    Int64,
    KernelSource,
    Memset,
    Param,
    Pointer,
    Scratch,
    Tensor,
)
from dsv41c.compiler.tensor_shape import members
from dsv41c.runtime.plan.expr import evaluate
from dsv41c.tools.bench.op_case import Case, results

_GUARD = 256  # bytes around every tensor
_RUBBISH = 0xFF  # NaN in every float format, -1 in integers


@dataclass(frozen=True)
class Call:
    """One kernel launch with every expression evaluated. `values` must stay alive until the launch returns."""

    kernel: KernelSource
    grid: tuple[int, int, int]
    values: tuple[Any, ...]

    def pointers(self) -> Any:
        """void** as cuLaunchKernel takes it."""
        return (ctypes.c_void_p * len(self.values))(*(ctypes.addressof(v) for v in self.values))


@dataclass(frozen=True)
class Transfer:
    """A copy or memset on bytes of the device that the tensors are on."""

    target: torch.Tensor
    source: torch.Tensor | int

    def run(self) -> None:
        if isinstance(self.source, int):
            self.target.fill_(self.source)
        else:
            self.target.copy_(self.source)


@dataclass(frozen=True)
class Bound:
    """The tensors of one op call on one device, and its launches."""

    outputs: list[torch.Tensor]
    written: list[torch.Tensor]
    calls: tuple[Call | Transfer, ...]
    memory: tuple[torch.Tensor, ...]  # each with its guards

    def run(self, start: Callable[[Call], object]) -> None:
        """Everything in order; `start` runs a kernel."""
        for call in self.calls:
            if isinstance(call, Transfer):
                call.run()
            else:
                start(call)

    def guards_hold(self) -> bool:
        """Whether nothing was written before or behind a tensor."""
        return all(bool((m[:_GUARD] == _RUBBISH).all() and (m[-_GUARD:] == _RUBBISH).all()) for m in self.memory)


def bind(case: Case, source: CudaSource, params: Sequence[Sequence[Param]], device: str) -> Bound:
    """Copies the case's tensors to the device; outputs and scratch start as rubbish.

    `params` gives the parameters of every kernel in the kernel's own order.
    """
    memory: list[torch.Tensor] = []

    def place(like: torch.Tensor, filled: bool) -> torch.Tensor:
        size = like.numel() * like.element_size()
        memory.append(torch.full((size + 2 * _GUARD,), _RUBBISH, dtype=torch.uint8, device=device))
        placed = memory[-1][_GUARD : _GUARD + size].view(like.dtype).view(like.shape)
        if filled:
            memory[-1][_GUARD : _GUARD + size].copy_(like.contiguous().view(-1).view(torch.uint8))
        return placed

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(member) for member in value]
        return place(value, True) if isinstance(value, torch.Tensor) else value

    args = [moved(a) for a in case.args]
    outputs = [place(t, False) for t in results(case.spec.fake(*case.args))]
    scratch = place(torch.empty(evaluate(source.scratch_bytes, {"rows": case.rows}), dtype=torch.uint8), False)
    declared = case.spec.parsed().arguments
    given = [a for a, d in zip(args, declared, strict=True) if "Tensor" in str(d.type)]
    tensors = members(given) + outputs
    own = iter(params)
    calls = tuple(_call(each, next(own), tensors, scratch, case.rows) if isinstance(each, KernelSource)
                  else _transfer(each, tensors, scratch, case.rows) for each in source.launches)
    assert next(own, None) is None, "parameters of more kernels than there are"
    return Bound(outputs, case.written(args), calls, tuple(memory))


def _transfer(
    launch: Copy | Memset, tensors: Sequence[torch.Tensor | None], scratch: torch.Tensor, rows: int
) -> Transfer:
    size = evaluate(launch.bytes, {"rows": rows})

    def place(pointer: Pointer) -> torch.Tensor:
        if isinstance(pointer, Scratch):
            begin = evaluate(pointer.offset, {"rows": rows})
            found = scratch[begin : begin + size]
        else:
            tensor = tensors[pointer.index]
            assert tensor is not None, f"a copy names tensor {pointer.index}, which is absent"
            found = tensor.view(-1).view(torch.uint8)[:size]
        assert found.numel() == size, f"{size} bytes of {found.numel()}"
        return found

    return Transfer(place(launch.target), launch.value if isinstance(launch, Memset) else place(launch.source))


def _call(kernel: KernelSource, params: Sequence[Param], tensors: Sequence[torch.Tensor | None], scratch: torch.Tensor,
          rows: int) -> Call:
    x, y, z = (evaluate(g, {"rows": rows}) for g in kernel.grid)
    return Call(kernel, (x, y, z), tuple(_value(p, tensors, scratch, rows) for p in params))


def _value(param: Param, tensors: Sequence[torch.Tensor | None], scratch: torch.Tensor, rows: int) -> Any:
    symbols = {"rows": rows}
    if isinstance(param, Tensor):
        tensor = tensors[param.index]
        assert tensor is not None, f"a parameter names tensor {param.index}, which is absent"
        return ctypes.c_void_p(tensor.data_ptr())
    if isinstance(param, Scratch):
        return ctypes.c_void_p(scratch.data_ptr() + evaluate(param.offset, symbols))
    if isinstance(param, Int32):
        return ctypes.c_int32(evaluate(param.value, symbols))
    if isinstance(param, Int64):
        return ctypes.c_int64(evaluate(param.value, symbols))
    assert isinstance(param, Float)
    return ctypes.c_float(param.value)
