"""Loads prebuilt cubins, launches them from their records on the current stream, and times calls inside a graph."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from dsv41c.compiler.kernels.source import Float, Int64, LaunchRecord, Scratch, Tensor, TensorMap
from dsv41c.runtime.plan import expr
from dsv41c.runtime.plan.format import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES

Call = Callable[[], None]
_MAP_TYPES = {"int32": 3, "int64": 5, "float32": 7, "float64": 8, "bfloat16": 9}  # CUtensorMapDataType; else bytes
_DYNAMIC_SHARED = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def checked(result: tuple[Any, ...]) -> Any:
    """The values of a driver call; an error carries the driver's own name of it."""
    if int(result[0]) != 0:
        raise RuntimeError(f"driver call failed: {result[0]}")
    return result[1] if len(result) == 2 else result[1:]


def encode_map(
    param: TensorMap, tensors: Sequence[torch.Tensor], scratch: torch.Tensor, symbols: dict[str, int]
) -> driver.CUtensorMap:
    """As the executor encodes it when it binds the launch."""
    if isinstance(param.tensor, Tensor):
        address = tensors[param.tensor.index].data_ptr()
    else:
        address = scratch.data_ptr() + expr.evaluate(param.tensor.offset, symbols)
    layout = param.layout
    sizes, strides = ([driver.cuuint64_t(expr.evaluate(e, symbols)) for e in each]
                      for each in (layout.sizes, layout.strides))
    box, steps = ([driver.cuuint32_t(n) for n in each] for each in (layout.box, layout.element_strides))
    modes = (driver.CUtensorMapInterleave(INTERLEAVES.index(layout.interleave)),
             driver.CUtensorMapSwizzle(SWIZZLES.index(layout.swizzle)),
             driver.CUtensorMapL2promotion(L2_PROMOTIONS.index(layout.l2_promotion)),
             driver.CUtensorMapFloatOOBfill(OOB_FILLS.index(layout.oob_fill)))
    dtype = driver.CUtensorMapDataType(_MAP_TYPES.get(layout.dtype, 0))
    return checked(driver.cuTensorMapEncodeTiled(dtype, len(sizes), address, sizes, strides, box, steps, *modes))


class Kernel:
    """One loaded cubin with its record."""

    def __init__(self, folder: Path, node: dict[str, Any]) -> None:
        self.record = LaunchRecord.from_json(node)
        self.module = checked(driver.cuModuleLoadData((folder / f"{node['cubin']}.cubin").read_bytes()))
        self.function = checked(driver.cuModuleGetFunction(self.module, self.record.symbol.encode()))
        if self.record.shared_bytes > 0:  # the default limit counts static shared memory in
            checked(driver.cuFuncSetAttribute(self.function, _DYNAMIC_SHARED, self.record.shared_bytes))

    def launch(self, tensors: Sequence[torch.Tensor], scratch: torch.Tensor, rows: int) -> None:
        symbols = {"rows": rows}
        values, kinds = [], []
        for param in self.record.params:
            if isinstance(param, Tensor):
                value, kind = tensors[param.index].data_ptr(), ctypes.c_void_p
            elif isinstance(param, Scratch):
                value, kind = scratch.data_ptr() + expr.evaluate(param.offset, symbols), ctypes.c_void_p
            elif isinstance(param, Float):
                value, kind = param.value, ctypes.c_float
            elif isinstance(param, TensorMap):
                value, kind = encode_map(param, tensors, scratch, symbols), None  # the driver's own object
            else:
                value = expr.evaluate(param.value, symbols)
                kind = ctypes.c_int64 if isinstance(param, Int64) else ctypes.c_int32
            values.append(value)
            kinds.append(kind)
        grid = [expr.evaluate(e, symbols) for e in self.record.grid]
        stream = torch.cuda.current_stream().cuda_stream
        checked(driver.cuLaunchKernel(self.function, *grid, *self.record.block, self.record.shared_bytes, stream,
                                      (tuple(values), tuple(kinds)), 0))


class Case:
    """The launches of one op, in order, with their scratch."""

    def __init__(self, folder: Path, node: dict[str, Any]) -> None:
        self.kernels = [Kernel(folder, launch) for launch in node["launches"]]
        self._scratch = expr.from_json(node["scratch_bytes"])

    def scratch(self, rows: int) -> torch.Tensor:
        """Poisoned: every byte that a launch reads has to be written by an earlier one."""
        size = expr.evaluate(self._scratch, {"rows": rows})
        return torch.full((max(size, 16),), 255, dtype=torch.uint8, device="cuda")

    def launch(self, tensors: Sequence[torch.Tensor], scratch: torch.Tensor, rows: int) -> None:
        for kernel in self.kernels:
            kernel.launch(tensors, scratch, rows)

    def run(self, tensors: Sequence[torch.Tensor], rows: int) -> None:
        self.launch(tensors, self.scratch(rows), rows)
        torch.cuda.synchronize()


def load_cases(folder: Path, target: str) -> dict[str, Case]:
    torch.zeros(1, device="cuda")  # makes the context that the driver calls work in
    node = json.loads((folder / "index.json").read_text(encoding="ascii"))
    return {name: Case(folder, case) for name, case in node["targets"][target].items()}


def graph_us(calls: Sequence[Call], replays: int = 30) -> float:
    """Median microseconds of one call: all of them in one graph, each on its own inputs."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    for _ in range(5):
        graph.replay()
    times = []
    for _ in range(replays):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return sorted(times)[len(times) // 2]


def rotation(bytes_of_set: int) -> int:
    """Input sets in one graph: enough that none is still in the L2 cache when its turn comes again."""
    return max(2, min(64, 400_000_000 // max(bytes_of_set, 1)))
