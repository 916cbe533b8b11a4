"""build_kernel: source and target -> cubin and launch record, cached by digest; needs no GPU."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dsv41c.compiler.kernels import nvcc, tilelang_lowering
from dsv41c.compiler.kernels.cache import keep, read_kept
from dsv41c.compiler.kernels.source import (
    ROOT,
    TARGETS,
    CompiledKernel,
    Float,
    Grid,
    Int32,
    Int64,
    KernelSource,
    LaunchRecord,
    Param,
    Scratch,
    Tensor,
    TensorMap,
)
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Binary, Expr

_KINDS: dict[str, tuple[type, ...]] = {
    "pointer": (Tensor, Scratch), "int": (Int32,), "int32_t": (Int32,), "int64_t": (Int64,), "float": (Float,),
    "__grid_constant__ const CUtensorMap": (TensorMap,),
}
_INCLUDE = re.compile(r'^#include "([\w.]+)"', re.MULTILINE)


def build_kernel(source: KernelSource, target: str, cache: Path | None) -> CompiledKernel:
    """The compiled kernel, from the cache when the same source, constants and tools built it before."""
    if target not in TARGETS:
        raise Dsv41cError("DSV41C-E0302", f"kernel source {source.file}", found=f"target {target}",
                          needed=f"one of: {', '.join(TARGETS)}", do="choose a known target")
    key = cache_key(source, target)
    kept = read_kept(cache / key) if cache is not None else None
    if kept is not None:
        return kept
    built = _build(source, target)
    if cache is not None:
        keep(cache / key, built)
    return built


def cache_key(source: KernelSource, target: str) -> str:
    """Digest of all that decides the result: texts, constants, bindings, options and tool versions."""
    tools = [nvcc.nvcc_version()] + ([tilelang_lowering.tilelang_version()] if source.is_tilelang else [])
    parts = [*_texts(source), source.description(), target, *nvcc.OPTIONS, *tools]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _texts(source: KernelSource) -> list[str]:
    """The source and every project header that it reaches, each once."""
    texts: dict[Path, str] = {}
    pending = [source.path]
    while pending:
        path = pending.pop()
        if path not in texts:
            texts[path] = path.read_text(encoding="utf-8")
            pending += [path.parent / name for name in _INCLUDE.findall(texts[path])]
    return [texts[path] for path in sorted(texts)]


def _build(source: KernelSource, target: str) -> CompiledKernel:
    maps: Mapping[str, tilelang_lowering.LoweredMap] = {}
    if source.is_tilelang:
        lowered = tilelang_lowering.lower(source, target)
        text, options = lowered.text, list(tilelang_lowering.HEADER_WARNINGS)
        options += [f"-I{d}" for d in tilelang_lowering.include_directories()]
        sizes, maps = (lowered.grid, lowered.block, lowered.shared_bytes), lowered.maps
    else:
        text = source.path.read_text(encoding="utf-8")
        options = [f"-I{ROOT / 'cuda'}", *(f"-D{name}={value}" for name, value in source.constants)]
        sizes = (source.grid, source.block, source.shared_bytes)
    signature = nvcc.parse_signature(text, source.file)
    bindings = dict(source.bindings)
    params = _bind(source, signature, _with_maps(source, bindings, maps))
    compiled = nvcc.compile_text(text, target, options, source.file)
    if compiled.spill_bytes > source.spill_limit_bytes:
        raise Dsv41cError(
            "DSV41C-E0302", f"kernel {signature.symbol} ({source.file})", where=f"target {target}",
            found=f"{compiled.spill_bytes} bytes of register spills with {compiled.registers} registers",
            needed=f"at most {source.spill_limit_bytes}",
            do="use fewer registers, or state the limit and why it is fine")
    grid, block, shared_bytes = sizes
    record = LaunchRecord(signature.symbol, params, _over_rows(grid, bindings), block, shared_bytes,
                          compiled.registers, compiled.spill_bytes)
    return CompiledKernel.of(compiled.cubin, record)


def _bind(source: KernelSource, signature: nvcc.Signature, bindings: Mapping[str, Param]) -> tuple[Param, ...]:
    """Parameters in the kernel's own order (TileLang sorts them by name)."""
    names = [name for _, name in signature.params]
    if sorted(names) != sorted(bindings):
        needed = f"bindings for exactly these, not {', '.join(bindings)}"
        raise _mismatch(source, f"parameters {', '.join(names)}", needed)
    for kind, name in signature.params:
        if not isinstance(bindings[name], _KINDS.get(kind, ())):
            raise _mismatch(source, f"parameter {name} of type {kind}", f"another binding than {bindings[name]}")
    return tuple(bindings[name] for name in names)


def _with_maps(
    source: KernelSource, bindings: Mapping[str, Param], maps: Mapping[str, tilelang_lowering.LoweredMap]
) -> dict[str, Param]:
    """The bindings with a map in the place of each tensor that the kernel takes by map."""
    result = {name: param for name, param in bindings.items() if name not in {m.tensor for m in maps.values()}}
    for name, lowered in maps.items():
        pointer = bindings.get(lowered.tensor)
        if not isinstance(pointer, Tensor | Scratch):
            raise _mismatch(source, f"tensor map {name} of {lowered.tensor}", f"a pointer, not {pointer}")
        sizes, strides = (tuple(_substitute(e, bindings) for e in each)
                          for each in (lowered.layout.sizes, lowered.layout.strides))
        result[name] = TensorMap(pointer, replace(lowered.layout, sizes=sizes, strides=strides))
    return result


def _mismatch(source: KernelSource, found: str, needed: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0302", f"kernel source {source.file}", found=found, needed=needed,
                       do="correct the bindings in compiler/kernels/catalog.py")


def _over_rows(grid: Sequence[Expr], bindings: Mapping[str, Param]) -> Grid:
    """Launch sizes with the kernel's integer parameters replaced by what they are bound to."""
    x, y, z = (_substitute(e, bindings) for e in grid)
    return x, y, z


def _substitute(expr: Expr, bindings: Mapping[str, Param]) -> Expr:
    if isinstance(expr, Binary):
        return Binary(expr.op, _substitute(expr.a, bindings), _substitute(expr.b, bindings))
    bound = bindings.get(expr) if isinstance(expr, str) else None
    return bound.value if isinstance(bound, Int32 | Int64) else expr
