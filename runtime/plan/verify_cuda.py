"""Rules of CUDA bodies: launch shapes a device takes, scratch offsets inside the scratch, cubins named by digest."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

from dsv41c.runtime.plan.cuda_bodies import (
    CudaBody,
    CudaLaunch,
    FloatParam,
    Int32Param,
    Int64Param,
    ScratchParam,
    TensorParam,
)
from dsv41c.runtime.plan.format import MAX_BLOCK_THREADS, MAX_GRID, MAX_SHARED_BYTES
from dsv41c.runtime.plan.verify_geometry import broken, check_index, evaluate_at, evaluate_extent

_DIGEST = re.compile(r"^[0-9a-f]{64}$")


def check_cuda_body(body: CudaBody, symbols: Mapping[str, int], scratch_bytes: int, where: str) -> None:
    """At one number of rows."""
    if not body.launches:
        raise broken("body without launches", where, 0, "at least 1 launch")
    for index, launch in enumerate(body.launches):
        _check_launch(launch, symbols, scratch_bytes, f"{where}, cuda launch {index}")


def _check_launch(launch: CudaLaunch, symbols: Mapping[str, int], scratch_bytes: int, where: str) -> None:
    if not _DIGEST.match(launch.cubin):
        raise broken("bad cubin digest", where, launch.cubin, "64 lower-case hex digits")
    if not launch.symbol:
        raise broken("no kernel symbol", where, '""', "the function's name in the cubin")
    _check_shape(launch, symbols, where)
    for number, param in enumerate(launch.params):
        place = f"{where}, parameter {number}"
        if isinstance(param, TensorParam):
            if param.index < 0:
                raise broken("argument index out of range", place, param.index, "at least 0")
        elif isinstance(param, ScratchParam):
            offset = evaluate_extent(param.offset, symbols, place)
            if not 0 <= offset <= scratch_bytes:
                raise broken("parameter outside the scratch", place, offset, f"0 to {scratch_bytes}")
        elif isinstance(param, Int32Param):
            value = evaluate_at(param.value, symbols, place)
            if not -(2**31) <= value < 2**31:
                raise broken("parameter outside int32", place, value, "a value that int32 holds")
        elif isinstance(param, Int64Param):
            evaluate_at(param.value, symbols, place)
        else:
            assert isinstance(param, FloatParam)  # its hex form is checked when it is decoded


def _check_shape(launch: CudaLaunch, symbols: Mapping[str, int], where: str) -> None:
    for name, sizes in (("grid", launch.grid), ("block", launch.block)):
        if len(sizes) != 3:
            raise broken(f"bad {name}", where, f"{len(sizes)} dimensions", "3 dimensions")
    for size, most in zip(launch.grid, MAX_GRID, strict=True):
        blocks = evaluate_at(size, symbols, where)  # may fall: more rows a block, fewer blocks
        if not 1 <= blocks <= most:
            raise broken("bad grid", where, blocks, f"1 to {most} blocks")
    threads = math.prod(launch.block)
    if min(launch.block) < 1 or threads > MAX_BLOCK_THREADS:
        raise broken("bad block", where, f"{threads} threads", f"1 to {MAX_BLOCK_THREADS} threads")
    if not 0 <= launch.shared_bytes <= MAX_SHARED_BYTES:
        raise broken("bad shared memory", where, launch.shared_bytes, f"0 to {MAX_SHARED_BYTES} bytes")


def check_cuda_arguments(body: CudaBody, num_tensors: int, outs: Collection[int], where: str) -> None:
    """A parameter names a tensor that the launch has, and every output is some parameter."""
    passed = [p.index for launch in body.launches for p in launch.params if isinstance(p, TensorParam)]
    for index in passed:
        check_index(index, num_tensors, "argument", where)
    for index in sorted(set(outs) - set(passed)):
        raise broken("out is no parameter", where, f"argument {index}", "a parameter that points to it")
