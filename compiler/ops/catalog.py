"""The catalog of declared ops; importing it registers them with torch as `torch.ops.dsv41c.*`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from dsv41c.compiler.ops import (
    fused_attention,
    fused_compressor,
    fused_dense,
    fused_draft,
    fused_engram,
    fused_head,
    fused_index,
    fused_mhc,
    fused_moe,
    norm,
    primitives,
)
from dsv41c.compiler.ops.fused import dispatched
from dsv41c.compiler.ops.native import native_call
from dsv41c.compiler.ops.spec import OpSpec, check_spec
from dsv41c.runtime.plan.errors import Dsv41cError

# Fused ops stand behind what they are composed of.
_FAMILIES = (*primitives.FAMILIES, norm, fused_attention, fused_dense, fused_mhc, fused_moe, fused_compressor,
             fused_index, fused_engram, fused_head, fused_draft)


def build_catalog(specs: tuple[OpSpec, ...]) -> Mapping[str, OpSpec]:
    """Check every declaration and refuse a name declared twice (E0301)."""
    catalog: dict[str, OpSpec] = {}
    for spec in specs:
        check_spec(spec)
        if spec.name in catalog:
            raise Dsv41cError("DSV41C-E0301", f"op {spec.name}", found="two declarations of one name",
                              needed="one", do="rename or remove one of them")
        catalog[spec.name] = spec
    return MappingProxyType(catalog)


def implementation(spec: OpSpec) -> Callable[..., Any]:
    """What runs on CPU tensors: the native body where the op has one, the bodies of its parts, or the reference."""
    if spec.composition is not None:
        return dispatched(spec.name, spec.composition)
    return native_call(spec) if spec.native is not None else spec.reference


def _register(catalog: Mapping[str, OpSpec]) -> torch.library.Library:
    library = torch.library.Library("dsv41c", "DEF")  # type: ignore[no-untyped-call]
    for spec in catalog.values():
        library.define(spec.name + spec.schema)  # type: ignore[no-untyped-call]
        library.impl(spec.name, implementation(spec), "CPU")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"dsv41c::{spec.name}", spec.fake, lib=library)
    return library


OPS: Mapping[str, OpSpec] = build_catalog(tuple(spec for family in _FAMILIES for spec in family.SPECS))
_LIBRARY = _register(OPS)  # torch drops the registrations when the Library object dies
