"""A declaration that later stages could not trust is refused when the catalog is built."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dsv41c.compiler.ops.catalog import OPS, build_catalog
from dsv41c.compiler.ops.native import native_call
from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule, check_spec
from dsv41c.runtime.plan.errors import Dsv41cError


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def declare(**changes: Any) -> OpSpec:
    """A good declaration with some fields changed."""
    fields: dict[str, Any] = {
        "name": "copy_row", "schema": "(Tensor x) -> Tensor",
        "capture": CaptureClass.CAPTURE, "pads": PadRule.ROW,
        "fake": _identity, "reference": _identity, "tie_order": None,
    }
    return OpSpec(**(fields | changes))


def test_good_declaration_passes() -> None:
    check_spec(declare())


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"name": "CopyRow"}, "CopyRow"),
        ({"name": "copy-row"}, "copy-row"),
        ({"name": ""}, "''"),
        ({"schema": "(Tensor x) -> "}, ""),
        ({"schema": "(Tenser x) -> Tensor"}, ""),
        ({"schema": "(Tensor x, *, int k) -> Tensor"}, "k"),
        ({"capture": "capture"}, "capture"),
        ({"capture": None}, "None"),
        ({"pads": "row"}, "row"),
        ({"pads": None}, "None"),
        ({"fake": None}, "no fake"),
        ({"reference": None}, "no reference"),
        ({"composition": "ops.rms_norm"}, "no function"),
        ({"composition": _identity, "native": NativeBody("linear")}, "a native body"),
        ({"composition": _identity, "capture": CaptureClass.BREAK}, "capture class break"),
        ({"name": "index_topk_test", "tie_order": None}, "tie order"),
        ({"name": "moe_gate_test", "tie_order": ""}, "tie order"),
        ({"name": "greedy_test", "tie_order": None}, "tie order"),
    ],
)
def test_bad_declaration_is_refused(changes: dict[str, Any], found: str) -> None:
    with pytest.raises(Dsv41cError) as caught:
        check_spec(declare(**changes))
    assert caught.value.code == "DSV41C-E0301"
    assert found in caught.value.found


@pytest.mark.parametrize("field", ["capture", "pads", "fake", "reference", "tie_order", "schema"])
def test_no_field_has_a_default(field: str) -> None:
    left_out = (field, "native", "composition")
    fields = {f: getattr(declare(), f) for f in OpSpec.__dataclass_fields__ if f not in left_out}
    with pytest.raises(TypeError, match=field):
        OpSpec(**fields)


def test_a_name_declared_twice_is_refused() -> None:
    with pytest.raises(Dsv41cError, match="two declarations") as caught:
        build_catalog((declare(), declare()))
    assert caught.value.code == "DSV41C-E0301"


def test_effects_are_read_from_the_schema() -> None:
    spec = declare(schema="(Tensor x, Tensor(a!) state, Tensor(b!) table) -> Tensor")
    assert spec.mutates == ("state", "table")
    assert declare().mutates == ()


def test_every_op_of_the_catalog_is_registered_as_declared() -> None:
    for name, spec in OPS.items():
        assert getattr(torch.ops.dsv41c, name).default._schema == spec.parsed()


def test_unknown_native_entry_names_itself() -> None:
    with pytest.raises(Dsv41cError, match="no native kernel named absent") as caught:
        native_call(declare(native=NativeBody("absent")))(torch.zeros(1))
    assert caught.value.code == "DSV41C-E0302"


def test_native_kernel_refuses_a_view_with_gaps() -> None:
    x = torch.zeros(4, 64)[:, :32]
    with pytest.raises(Dsv41cError, match="not contiguous"):
        native_call(OPS["linear"])(x, torch.zeros(3, 32), None, torch.float32)
