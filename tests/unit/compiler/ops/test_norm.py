"""Fused norms: the composition is what the primitives compute, in torch and in a sequence."""

from __future__ import annotations

import pytest
import torch

from dsv41c.compiler.kernel_table import KernelTable
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.tensor_shape import TensorShape
from dsv41c.runtime.plan import schema as s
from tests.unit.compiler.ops.row_laws import (
    assert_fake_matches,
    assert_row_invariant,
    assert_same_bits,
)

OP = torch.ops.dsv41c


@pytest.mark.parametrize("activation", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(6, 32), (5, 4, 512)])
def test_rms_norm_cast(shape: tuple[int, ...], activation: torch.dtype) -> None:
    draws = torch.Generator().manual_seed(0)
    x, weight = torch.randn(shape, generator=draws).to(activation), torch.randn(shape[-1:], generator=draws).bfloat16()
    for call in (OP.rms_norm_cast, OPS["rms_norm_cast"].reference):
        normed, rounded = call(x, weight, 1e-6)
        assert_same_bits(normed, OP.rms_norm(x, weight, 1e-6), "normed")
        assert_same_bits(rounded, OP.quantize_fp8(normed), "rounded")
    assert_fake_matches(OPS["rms_norm_cast"].fake, OP.rms_norm_cast, x, weight, 1e-6)
    assert_row_invariant(lambda a: OP.rms_norm_cast(a, weight, 1e-6), [x])


def test_its_body_writes_both_outputs_directly() -> None:
    table = KernelTable(OPS)
    x, weight = TensorShape(torch.bfloat16, ("rows", 64)), TensorShape(torch.bfloat16, (64,))
    body = table.kernels[table.find("rms_norm_cast", [x, weight, 1e-6])].body
    assert isinstance(body, s.SequenceBody)
    assert [part.tensors for part in body.parts] == [(s.In(0), s.In(1), s.Out(2)), (s.In(2), s.Out(3))]


def test_a_captured_program_holds_the_fused_op_as_one_call() -> None:
    """Export looks at shapes only: the composition is not traced into, for any number of rows."""
    class Normed(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            normed, rounded = OP.rms_norm_cast(x, weight, 1e-6)
            return OP.combine_experts(normed, rounded, torch.float32)

    example = (torch.zeros(4, 64), torch.ones(64))
    exported = torch.export.export(Normed(), example, dynamic_shapes=({0: torch.export.Dim("rows", min=2)}, None))
    called = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert [name for name in called if name.startswith("dsv41c")] == ["dsv41c.rms_norm_cast.default",
                                                                      "dsv41c.combine_experts.default"]
    assert not [name for name in called if name.startswith("aten.")]
