"""Composite bodies: every composite op of the model lowers to out-variant calls that do not depend on the rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.compiler.affine import PROBE_ROWS, fit, linear_expr, product, round_up, total
from dsv41c.compiler.composite import build_composite
from dsv41c.compiler.kernel_table import KernelTable
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.tensor_shape import TensorShape
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import evaluate


@given(st.integers(-50, 50), st.integers(-1000, 1000), st.integers(0, 10_000))
def test_fit_finds_the_line_through_the_probes(slope: int, base: int, rows: int) -> None:
    expr = fit([slope * n + base for n in PROBE_ROWS], "rows")
    assert expr == linear_expr(slope, base, "rows")
    assert evaluate(expr, {"rows": rows}) == slope * rows + base


def test_fit_refuses_what_is_no_line() -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0201"):
        fit([n * n for n in PROBE_ROWS], "rows")


@given(st.lists(st.one_of(st.integers(1, 9), st.just("rows")), max_size=4), st.integers(1, 50))
def test_sums_and_products_fold_to_the_same_value(factors: list[int | str], rows: int) -> None:
    values = [rows if f == "rows" else f for f in factors]
    expected = 1
    for value in values:
        expected *= value  # type: ignore[operator]
    assert evaluate(product(factors), {"rows": rows}) == expected
    assert evaluate(total(factors), {"rows": rows}) == sum(values)  # type: ignore[arg-type]
    assert evaluate(round_up(total(factors), 64), {"rows": rows}) == -(-sum(values) // 64) * 64  # type: ignore[arg-type]


def test_a_reference_whose_calls_depend_on_the_rows_is_refused() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 4 else x * 2

    with pytest.raises(Dsv41cError, match="other calls at another number of rows"):
        build_composite("test", body, lambda rows: [torch.empty(rows, 4, device="meta")])


def test_a_call_without_an_out_form_is_refused_by_name() -> None:
    with pytest.raises(Dsv41cError, match="which has no out form"):
        build_composite("test", torch.ops.dsv41c.stream_mean,
                        lambda rows: [torch.empty(rows, 4, 4, device="meta")])


def test_scratch_is_reused_between_temporaries_that_never_meet() -> None:
    """A chain of ten elementwise calls needs two temporaries, not ten."""
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = x + 1.0
        return x

    built = build_composite("test", chain, lambda rows: [torch.empty(rows, 16, device="meta")])
    assert evaluate(built.scratch_bytes, {"rows": 4}) == 2 * 256


def test_an_input_returned_as_output_is_copied() -> None:
    """Outputs never alias inputs inside one launch."""
    built = build_composite("test", lambda x: x.view(-1, 2, 2), lambda rows: [torch.empty(rows, 4, device="meta")])
    assert [c.op for c in built.body.calls] == ["aten::copy_"]


@pytest.mark.parametrize(("body", "dtype"), [
    (lambda x: x * (1.0 / x.shape[0]), torch.float32),  # a float that follows the rows
    (lambda x: x + x.shape[0], torch.float32),  # an integer operand that follows them
    (lambda x: x * 0.5, torch.int32),  # a fraction that the operand's dtype does not hold
])
def test_numbers_that_a_body_cannot_hold_are_refused(body: Any, dtype: torch.dtype) -> None:
    """Never the value of one probe baked in, never a number rounded to the operand's dtype."""
    with pytest.raises(Dsv41cError, match="DSV41C-E0201"):
        build_composite("test", body, lambda rows: [torch.empty(rows, 4, dtype=dtype, device="meta")])


def test_an_output_that_is_part_of_a_larger_tensor_is_computed_in_scratch() -> None:
    """The output tensor is never the base of something that reaches past its end."""
    built = build_composite("test", lambda x: (x + x).narrow(1, 0, 2),
                            lambda rows: [torch.empty(rows, 4, device="meta")])
    outputs = [x for x in built.body.locals if isinstance(x, schema.ArgLocal) and x.index == 1]
    assert [x.sizes for x in outputs] == [("rows", 2)]
    assert built.body.calls[-1].op == "aten::copy_" and evaluate(built.scratch_bytes, {"rows": 4}) == 64


def test_views_that_agree_at_one_number_of_rows_only_stay_apart() -> None:
    """x[:3] and x[:rows] are the same tensor in the first recording and different ones in the others."""
    built = build_composite("test", lambda x: x[:, : x.shape[0]] + x[:, :3].amax(-1, keepdim=True),
                            lambda rows: [torch.empty(rows, 16, device="meta")])
    widths = {x.sizes[1] for x in built.body.locals if isinstance(x, schema.ViewLocal)}
    assert {"rows", 3} <= widths


def test_equal_shapes_share_one_kernel_and_floats_differ_by_bits() -> None:
    table = KernelTable(OPS)
    x, w = TensorShape(torch.float32, ("rows", 32)), TensorShape(torch.bfloat16, (32,))
    first = table.find("rms_norm", [x, w, 1e-6])
    assert table.find("rms_norm", [x, w, 1e-6]) == first
    assert table.find("rms_norm", [x, w, 1e-20]) != first
    assert isinstance(table.kernels[first].body, schema.CompositeBody)
