"""find_kernels: which arguments have kernels, and that every other argument is refused instead of guessed at."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from dsv41c.compiler.kernels.catalog import find_kernels
from dsv41c.compiler.ops.catalog import OPS

BF16, F32, I32 = torch.bfloat16, torch.float32, torch.int32


@dataclass(frozen=True)
class Shape:
    dtype: torch.dtype
    sizes: tuple[object, ...]


def shape(*sizes: object, dtype: torch.dtype = BF16) -> Shape:
    return Shape(dtype, sizes)


def gate(hidden: int = 128, experts: int = 16, dtype: torch.dtype = BF16) -> list[object]:
    bias = shape(experts, dtype=F32)
    return [shape("rows", hidden, dtype=dtype), shape(experts, hidden), bias, bias, shape("rows", 8, dtype=I32), 2, 1.5]


def mhc(hidden: int, dtype: torch.dtype = BF16) -> list[object]:
    mix = shape("rows", 4, dtype=F32)
    return [shape("rows", hidden, dtype=dtype), shape("rows", 4, hidden, dtype=dtype), mix, mix,
            shape("rows", 4, 4, dtype=F32), shape(hidden // 64, 48, 256), shape(3, dtype=F32), shape(24, dtype=F32),
            shape(hidden), 20, 1e-20, 1e-6]


def store(width: int, rope: int) -> list[object]:
    return [shape("rows", width), shape(width), shape("rows", 8, dtype=I32), shape(4096, rope // 2, 2, dtype=F32),
            shape(9, 38, width + width // 32, dtype=torch.uint8), 1e-20]


FOUND = {
    "gate": ("mega_gate", gate()), "gate of the model": ("mega_gate", gate(5120, 384)), "mhc": ("mega_mhc", mhc(128)),
    "norm": ("rmsnorm_mxfp8", [shape("rows", 1280), shape(1280), 1e-20]), "store": ("norm_rope_store", store(512, 64)),
    "small store": ("norm_rope_store", store(64, 32)),
    "embed": ("embed_expand", [shape("rows", 8, dtype=I32), shape(129280, 128), 4, BF16]),
}
REFUSED = {
    "float32 gate": ("mega_gate", gate(dtype=F32)), "gate of odd width": ("mega_gate", gate(hidden=96)),
    "gate of odd experts": ("mega_gate", gate(experts=12)), "float32 mhc": ("mega_mhc", mhc(128, F32)),
    "mhc of odd width": ("mega_mhc", mhc(96)), "store of 96 columns": ("norm_rope_store", store(96, 32)),
    "float32 streams": ("embed_expand", [shape("rows", 8, dtype=I32), shape(129280, 128), 4, F32]),
    "an op without kernels": ("rotary", []),
}


@pytest.mark.parametrize("case", FOUND)
def test_every_tensor_of_the_op_has_at_most_one_index(case: str) -> None:
    """Bindings point at inputs in schema order, then outputs; nothing points past them."""
    op, args = FOUND[case]
    found = find_kernels(op, args, "sm_90a")
    assert found is not None and found.op == op
    schema = OPS[op].parsed()
    tensors = sum("Tensor" in str(a.type) for a in schema.arguments) + len(schema.returns)
    used = {p.index for s in found.launches for _, p in s.bindings if hasattr(p, "index")}
    outputs = range(tensors - len(schema.returns), tensors)
    assert max(used) < tensors
    assert used.issuperset(outputs)


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_kernel_takes_is_refused(case: str) -> None:
    op, args = REFUSED[case]
    assert find_kernels(op, args, "sm_90a") is None
