"""Lowers a TileLang builder to CUDA C++ on a machine without a GPU, with its launch sizes as plan expressions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from dsv41c.compiler.kernels.source import Block, Grid, KernelSource, MapLayout
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Binary, Expr
from dsv41c.runtime.plan.format import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES

# No producer warps, and no tensor maps unless the source asks. Row indices are clamped by the builders.
_PASSES = {"tl.disable_warp_specialized": True, "tl.disable_safe_memory_legalize": True}
_NO_MAPS = {"tl.disable_tma_lower": True}
_MANUAL = {"tl.disable_thread_storage_sync": True}
_BINARY = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "floordiv", "Min": "min", "Max": "max"}
# The headers of the generated text warn about themselves.
HEADER_WARNINGS = ("-diag-suppress", "1046,177,20012,1444,3287")


# CUtensorMapDataType to the dtype of the plan whose elements are as wide and as special.
_MAP_DTYPES = {0: "uint8", 3: "int32", 4: "int64", 5: "int64", 7: "float32", 8: "float64", 9: "bfloat16"}


@dataclass(frozen=True)
class LoweredMap:
    """A tensor map that the kernel takes: which tensor of the builder it describes, and how."""

    tensor: str
    layout: MapLayout


@dataclass(frozen=True)
class Lowered:
    """Generated CUDA C++ and what it is launched with; expressions use the kernel's own integer parameters. `maps`: by
    parameter name."""

    text: str
    grid: Grid
    block: Block
    shared_bytes: int
    maps: Mapping[str, LoweredMap]


def tilelang_version() -> str:
    """The installed version; E0303 when the `kernels` extra is missing."""
    try:
        return metadata.version("tilelang")
    except metadata.PackageNotFoundError as error:
        raise Dsv41cError("DSV41C-E0303", "TileLang", found="not installed", needed="the package tilelang",
                          do="pip install 'dsv41c[kernels]'") from error


def include_directories() -> tuple[Path, ...]:
    import tilelang

    root = Path(tilelang.__file__).parent
    return root / "src", root / "3rdparty/cutlass/include"


def lower(source: KernelSource, target: str) -> Lowered:
    """Run the builder and TileLang's compiler."""
    import tilelang
    from tilelang import tvm
    from tvm.target import Target

    function = _load(source.path).build(**dict(source.constants))
    # Strings are refused as targets, and plain sm_90 lacks the matrix instructions.
    device = Target({"kind": "cuda", "arch": target})
    config = _PASSES | (_MANUAL if source.manual_sync else {}) | ({} if source.tensor_maps else _NO_MAPS)
    with device, tvm.transform.PassContext(opt_level=3, config=config):
        result = tilelang.lower(function, target=device)
    ((_, kernel),) = result.device_mod.functions.items()
    attributes = dict(kernel.attrs)
    extents: Mapping[str, Any] = attributes["thread_extent"]
    grid = [_expression(extents[f"blockIdx.{axis}"]) if f"blockIdx.{axis}" in extents else 1 for axis in "xyz"]
    block = [int(extents[f"threadIdx.{axis}"]) if f"threadIdx.{axis}" in extents else 1 for axis in "xyz"]
    return Lowered(result.kernel_source, (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]),
                   int(attributes.get("dyn_shared_memory_buf", 0)), _maps(result.host_mod))


def _maps(host: Any) -> dict[str, LoweredMap]:
    """What TileLang's own host code passes to cuTensorMapEncodeTiled, by the name of the map."""
    found: dict[str, LoweredMap] = {}
    for _, function in host.functions.items():
        for name, given in dict(function.attrs).get("tma_descriptor_args", {}).items():
            found[str(name.name)] = _map(list(given))
    return found


def _map(given: list[Any]) -> LoweredMap:
    """[function, map, data type, rank, tensor, sizes, strides in bytes with the element's own first, box, element
    strides, interleave, swizzle, promotion, fill]."""
    function, dtype, rank = str(given[0]).strip('"'), int(given[2]), int(given[3])
    if function != "__tvm_tensormap_create_tiled" or len(given) != 5 + 4 * rank + 4 or dtype not in _MAP_DTYPES:
        raise Dsv41cError("DSV41C-E0302", "tensor map of TileLang", do="copy without a tensor map",
                          found=f"{function} of data type {dtype}, rank {rank}",
                          needed="a tiled map of integers, bfloat16, float32 or float64")
    sizes, strides, box, steps = (tuple(given[5 + i * rank : 5 + (i + 1) * rank]) for i in range(4))
    modes = [int(mode) for mode in given[5 + 4 * rank :]]
    return LoweredMap(str(given[4].name), MapLayout(
        _MAP_DTYPES[dtype], tuple(_expression(e) for e in sizes), tuple(_expression(e) for e in strides[1:]),
        tuple(int(n) for n in box), tuple(int(n) for n in steps),
        INTERLEAVES[modes[0]], SWIZZLES[modes[1]], L2_PROMOTIONS[modes[2]], OOB_FILLS[modes[3]]))


def _load(path: Path) -> Any:
    """The builder's module from its file: TileLang reads the source text back, so there has to be one."""
    spec = importlib.util.spec_from_file_location(f"dsv41c_kernel_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _expression(node: Any) -> Expr:
    kind = type(node).__name__
    if kind == "int" or kind == "IntImm":
        return int(node)
    if kind == "Var":
        return str(node.name)
    if kind == "Cast":
        return _expression(node.value)
    if kind in _BINARY:
        return Binary(_BINARY[kind], _expression(node.a), _expression(node.b))
    raise Dsv41cError("DSV41C-E0302", "launch size", found=f"{kind}: {node}",
                      needed=f"integers, parameters and {', '.join(_BINARY)}", do="simplify the builder's grid")
