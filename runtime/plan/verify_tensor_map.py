"""Rules of tensor maps: what cuTensorMapEncodeTiled takes, and bytes inside the tensor or the scratch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsv41c.runtime.plan.cuda_bodies import CudaBody, CudaLaunch, ScratchParam, TensorMapParam, TensorParam
from dsv41c.runtime.plan.format import (
    DTYPES,
    MAX_BOX,
    MAX_BYTES,
    MAX_ELEMENT_STRIDE,
    MAX_MAP_DIMS,
    MAX_MAP_SIZE,
    MAX_MAP_STRIDE,
)
from dsv41c.runtime.plan.verify_geometry import broken, evaluate_extent, numbers

_FLOATS = ("float32", "bfloat16", "float64")
_SWIZZLE_BYTES = {"32b": 32, "64b": 64, "128b": 128}


def map_alignment(param: TensorMapParam) -> int:
    """Bytes that the address and every stride are a multiple of."""
    return 32 if param.interleave == "32b" else 16


def map_alignments(body: CudaBody) -> Iterator[tuple[int, int]]:
    """Index of each tensor that a tensor map of the body looks into, and what its address is a multiple of."""
    for node in body.launches:
        for param in node.params if isinstance(node, CudaLaunch) else ():
            if isinstance(param, TensorMapParam) and isinstance(param.tensor, TensorParam):
                yield param.tensor.index, map_alignment(param)


def check_tensor_map(param: TensorMapParam, symbols: Mapping[str, int], scratch_bytes: int, where: str) -> None:
    """At one number of rows."""
    _check_form(param, where)
    _check_box(param, where)
    span = map_span(param, symbols, where)
    if isinstance(param.tensor, ScratchParam):
        begin = evaluate_extent(param.tensor.offset, symbols, where)
        if not 0 <= begin <= scratch_bytes - span:
            raise broken("parameter outside the scratch", where, f"{begin} and {span} bytes", f"0 to {scratch_bytes}")
        check_map_address(param, begin, where)
    elif param.tensor.index < 0:
        raise broken("argument index out of range", where, param.tensor.index, "at least 0")


def check_map_address(param: TensorMapParam, begin: int, where: str) -> None:
    if begin % map_alignment(param):
        raise broken("tensor map is not aligned", where, f"byte {begin}", f"a multiple of {map_alignment(param)}")


def map_span(param: TensorMapParam, symbols: Mapping[str, int], where: str) -> int:
    """Bytes from the first element to the end of the last one."""
    sizes = [evaluate_extent(size, symbols, where) for size in param.sizes]
    strides = [evaluate_extent(stride, symbols, where) for stride in param.strides]
    unit = map_alignment(param)
    if not all(1 <= size <= MAX_MAP_SIZE for size in sizes):
        raise broken("bad tensor map size", where, numbers(sizes), f"1 to {MAX_MAP_SIZE} elements")
    if not all(unit <= stride <= MAX_MAP_STRIDE and stride % unit == 0 for stride in strides):
        raise broken("bad tensor map stride", where, numbers(strides),
                     f"multiples of {unit} from {unit} to {MAX_MAP_STRIDE} bytes")
    outer = sum((size - 1) * stride for size, stride in zip(sizes[1:], strides, strict=True))
    span = sizes[0] * DTYPES[param.dtype].item_bytes + outer
    if span > MAX_BYTES:
        raise broken("tensor is too large", where, numbers(sizes), f"at most {MAX_BYTES} bytes")
    return span


def _check_form(param: TensorMapParam, where: str) -> None:
    rank = len(param.sizes)
    least = 1 if param.interleave == "none" else 3
    if not least <= rank <= MAX_MAP_DIMS:
        raise broken("bad tensor map", where, f"{rank} dimensions", f"{least} to {MAX_MAP_DIMS} dimensions")
    lengths = (len(param.strides) + 1, len(param.box), len(param.element_strides))
    if lengths != (rank, rank, rank):
        raise broken("bad tensor map", where, f"lists for {numbers(lengths)} dimensions", f"{rank} dimensions")
    if param.interleave == "32b" and param.swizzle != "32b":
        raise broken("bad tensor map swizzle", where, param.swizzle, "32b with interleave 32b")
    if param.oob_fill == "nan" and param.dtype not in _FLOATS:
        raise broken("bad tensor map fill", where, f"nan with {param.dtype}", "nan with " + " ".join(_FLOATS))


def _check_box(param: TensorMapParam, where: str) -> None:
    if not all(1 <= size <= MAX_BOX for size in param.box):
        raise broken("bad tensor map box", where, numbers(param.box), f"1 to {MAX_BOX} elements")
    if not all(1 <= step <= MAX_ELEMENT_STRIDE for step in param.element_strides):
        raise broken("bad tensor map element stride", where, numbers(param.element_strides),
                     f"1 to {MAX_ELEMENT_STRIDE}")
    inner = param.box[0] * DTYPES[param.dtype].item_bytes
    if param.interleave != "none":
        return
    if inner % 16:
        raise broken("bad tensor map box", where, f"{inner} inner bytes", "a multiple of 16")
    if param.swizzle != "none" and inner > _SWIZZLE_BYTES[param.swizzle]:
        raise broken("bad tensor map box", where, f"{inner} inner bytes",
                     f"at most {_SWIZZLE_BYTES[param.swizzle]} with swizzle {param.swizzle}")
