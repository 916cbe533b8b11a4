"""Lowers a TileLang builder to CUDA C++ on a machine without a GPU, with its launch sizes as plan expressions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from dsv41c.compiler.kernels.source import Block, Grid, KernelSource
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Binary, Expr

# Plain pointers and integers as parameters: no tensor maps, no producer warps. Row indices are clamped by the builders.
_PASSES = {"tl.disable_tma_lower": True, "tl.disable_warp_specialized": True, "tl.disable_safe_memory_legalize": True}
_MANUAL = {"tl.disable_thread_storage_sync": True}
_BINARY = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "floordiv", "Min": "min", "Max": "max"}
# The headers of the generated text warn about themselves.
HEADER_WARNINGS = ("-diag-suppress", "1046,177,20012,1444,3287")


@dataclass(frozen=True)
class Lowered:
    """Generated CUDA C++ and what it is launched with; grid expressions use the kernel's own integer parameters."""

    text: str
    grid: Grid
    block: Block
    shared_bytes: int


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
    config = _PASSES | (_MANUAL if source.manual_sync else {})
    with device, tvm.transform.PassContext(opt_level=3, config=config):
        result = tilelang.lower(function, target=device)
    ((_, kernel),) = result.device_mod.functions.items()
    attributes = dict(kernel.attrs)
    extents: Mapping[str, Any] = attributes["thread_extent"]
    grid = [_expression(extents[f"blockIdx.{axis}"]) if f"blockIdx.{axis}" in extents else 1 for axis in "xyz"]
    block = [int(extents[f"threadIdx.{axis}"]) if f"threadIdx.{axis}" in extents else 1 for axis in "xyz"]
    return Lowered(result.kernel_source, (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]),
                   int(attributes.get("dyn_shared_memory_buf", 0)))


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
