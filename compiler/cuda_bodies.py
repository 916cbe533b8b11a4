"""CudaBodies: compiled CUDA bodies of the kernels of one plan, and the cubins that the artifact must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsv41c.compiler.kernels import source as built
from dsv41c.compiler.kernels.build import build_kernel
from dsv41c.compiler.kernels.catalog import find_kernels
from dsv41c.compiler.kernels.plain import cuda_source
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.expr import Expr

Launch = built.KernelSource | built.Copy | built.Memset
FUSED_OPS = frozenset({"mega_mhc", "rmsnorm_mxfp8", "norm_rope_store", "mega_sparse_attention",
                       "mega_window_attention"})


@dataclass(frozen=True)
class BuiltBody:
    body: schema.CudaBody
    scratch_bytes: Expr


@dataclass
class CudaBodies:
    """Builds on first use, without a GPU. `fallback` names composite ops that stay with ATen. `is_invariant`: a row has
    the same bits at every number of rows, at a price where there are few."""

    target: str
    cache: Path | None
    fallback: frozenset[str] = frozenset()
    is_invariant: bool = True
    fused: frozenset[str] = FUSED_OPS
    cubins: dict[str, bytes] = field(default_factory=dict)

    def build(self, spec: OpSpec, args: Sequence[Any]) -> BuiltBody | None:
        """None when the op has no CUDA kernel for these arguments, or is left to ATen."""
        found = None if spec.name in self.fallback else self._sources(spec, args)
        if found is None:
            return None
        launches, scratch_bytes = found
        return BuiltBody(schema.CudaBody(tuple(self._node(launch) for launch in launches)), scratch_bytes)

    def _node(self, launch: Launch) -> schema.CudaNode:
        match launch:
            case built.Copy():
                return schema.CudaCopy(_pointer(launch.target), _pointer(launch.source), launch.bytes)
            case built.Memset():
                return schema.CudaMemset(_pointer(launch.target), launch.value, launch.bytes)
        compiled = build_kernel(launch, self.target, self.cache)
        self.cubins[compiled.digest] = compiled.cubin
        return _launch(compiled)

    def _sources(self, spec: OpSpec, args: Sequence[Any]) -> tuple[tuple[Launch, ...], Expr] | None:
        """The fused kernels of the Mega ops, and the plain kernel of every other op: plain ones give a row the same
        bits in every bucket, which the fused gate, whose splits depend on the rows, does not."""
        fused = find_kernels(spec.name, args, self.target, self.is_invariant) if spec.name in self.fused else None
        if fused is not None:
            return fused.launches, fused.scratch_bytes
        plain = cuda_source(spec, args)
        return None if plain is None else (plain.launches, plain.scratch_bytes)


class UnbuiltBodies(CudaBodies):
    """Bodies of the right number of nodes and scratch, without a compiler: to plan memory, never to be written."""

    def _node(self, launch: Launch) -> schema.CudaNode:
        return schema.CudaMemset(schema.ScratchParam(0), 0, 0)


def _launch(kernel: built.CompiledKernel) -> schema.CudaLaunch:
    record = kernel.record
    params = tuple(_param(p) for p in record.params)
    return schema.CudaLaunch(kernel.digest, record.symbol, params, record.grid, record.block, record.shared_bytes)


def _param(param: built.Param) -> schema.CudaParam:
    match param:
        case built.Tensor(index=index):
            return schema.TensorParam(index)
        case built.Scratch(offset=offset):
            return schema.ScratchParam(offset)
        case built.Int32(value=value):
            return schema.Int32Param(value)
        case built.Int64(value=value):
            return schema.Int64Param(value)
        case built.Float(value=number):
            return schema.FloatParam(number.hex())
        case built.TensorMap():
            return schema.TensorMapParam(_pointer(param.tensor), **vars(param.layout))


def _pointer(pointer: built.Pointer) -> schema.Pointer:
    if isinstance(pointer, built.Tensor):
        return schema.TensorParam(pointer.index)
    return schema.ScratchParam(pointer.offset)
