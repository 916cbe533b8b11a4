"""Rules of CUDA bodies: launch shapes a device takes, bytes inside tensors and scratch, cubins named by digest."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from dsv41c.runtime.plan.cuda_bodies import (
    CudaBody,
    CudaCopy,
    CudaLaunch,
    CudaMemset,
    CudaNode,
    CudaParam,
    FloatParam,
    Int32Param,
    Int64Param,
    Pointer,
    ScratchParam,
    TensorMapParam,
    TensorParam,
)
from dsv41c.runtime.plan.format import MAX_BLOCK_THREADS, MAX_BYTES, MAX_COPY_BYTES, MAX_GRID, MAX_SHARED_BYTES
from dsv41c.runtime.plan.verify_geometry import broken, evaluate_at, evaluate_extent, numbers
from dsv41c.runtime.plan.verify_tensor_map import check_tensor_map

_DIGEST = re.compile(r"^[0-9a-f]{64}$")


def check_cuda_body(body: CudaBody, symbols: Mapping[str, int], scratch_bytes: int, where: str) -> None:
    """At one number of rows."""
    if not body.launches:
        raise broken("body without launches", where, 0, "at least 1 launch")
    for index, node in enumerate(body.launches):
        place = f"{where}, cuda launch {index}"
        if isinstance(node, CudaLaunch):
            _check_launch(node, symbols, scratch_bytes, place)
        else:
            _check_transfer(node, symbols, scratch_bytes, place)


def tensors_of(node: CudaNode) -> list[int]:
    """Indices of the tensors that a node names, as often as it names them."""
    if isinstance(node, CudaLaunch):
        pointers: Sequence[CudaParam] = [p.tensor if isinstance(p, TensorMapParam) else p for p in node.params]
    else:
        pointers = (node.target, node.source) if isinstance(node, CudaCopy) else (node.target,)
    return [p.index for p in pointers if isinstance(p, TensorParam)]


def _check_launch(launch: CudaLaunch, symbols: Mapping[str, int], scratch_bytes: int, where: str) -> None:
    if not _DIGEST.match(launch.cubin):
        raise broken("bad cubin digest", where, launch.cubin, "64 lower-case hex digits")
    if not launch.symbol:
        raise broken("no kernel symbol", where, '""', "the function's name in the cubin")
    _check_shape(launch, symbols, where)
    for number, param in enumerate(launch.params):
        _check_param(param, symbols, scratch_bytes, f"{where}, parameter {number}")


def _check_param(param: CudaParam, symbols: Mapping[str, int], scratch_bytes: int, where: str) -> None:
    if isinstance(param, TensorMapParam):
        check_tensor_map(param, symbols, scratch_bytes, where)
    elif isinstance(param, (TensorParam, ScratchParam)):
        _check_pointer(param, 0, symbols, scratch_bytes, where)
    elif isinstance(param, Int32Param):
        value = evaluate_at(param.value, symbols, where)
        if not -(2**31) <= value < 2**31:
            raise broken("parameter outside int32", where, value, "a value that int32 holds")
    elif isinstance(param, Int64Param):
        evaluate_at(param.value, symbols, where)
    else:
        assert isinstance(param, FloatParam)  # its hex form is checked when it is decoded


def _check_pointer(
    pointer: Pointer, num_bytes: int, symbols: Mapping[str, int], scratch_bytes: int, where: str
) -> int:
    """Where it points to in the scratch (0 for a tensor); `num_bytes` from there on lie inside."""
    if isinstance(pointer, TensorParam):
        if pointer.index < 0:
            raise broken("argument index out of range", where, pointer.index, "at least 0")
        return 0
    offset = evaluate_extent(pointer.offset, symbols, where)
    if not 0 <= offset <= scratch_bytes - num_bytes:
        found = f"{offset} and {num_bytes} bytes" if num_bytes else str(offset)
        raise broken("parameter outside the scratch", where, found, f"0 to {scratch_bytes}")
    return offset


def _check_transfer(node: CudaCopy | CudaMemset, symbols: Mapping[str, int], scratch_bytes: int, where: str) -> None:
    num_bytes = evaluate_extent(node.bytes, symbols, where)
    most = MAX_COPY_BYTES if isinstance(node, CudaCopy) else MAX_BYTES
    if not 1 <= num_bytes <= most:
        raise broken("bad number of bytes", where, num_bytes, f"1 to {most}")
    target = _check_pointer(node.target, num_bytes, symbols, scratch_bytes, where)
    if isinstance(node, CudaMemset):
        if not 0 <= node.value <= 255:
            raise broken("bad memset value", where, node.value, "0 to 255")
        return
    source = _check_pointer(node.source, num_bytes, symbols, scratch_bytes, where)
    if isinstance(node.target, TensorParam) or isinstance(node.source, TensorParam):
        overlaps = node.target == node.source
    else:
        overlaps = abs(target - source) < num_bytes
    if overlaps:
        raise broken("copy overlaps itself", where, f"bytes {target} and {source}", f"{num_bytes} bytes apart")


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
        raise broken("bad block", where, numbers(launch.block), f"1 to {MAX_BLOCK_THREADS} threads")
    if not 0 <= launch.shared_bytes <= MAX_SHARED_BYTES:
        raise broken("bad shared memory", where, launch.shared_bytes, f"0 to {MAX_SHARED_BYTES} bytes")
