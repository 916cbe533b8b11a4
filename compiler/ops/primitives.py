"""The primitive ops by name: every declared op that is not itself a composition of others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dsv41c.compiler.ops import (
    attention,
    dense,
    draft,
    engram,
    hyper_connection,
    index,
    mega,
    moe,
    quantize,
    rows,
    store,
)
from dsv41c.compiler.ops.spec import OpSpec

FAMILIES = (rows, dense, hyper_connection, quantize, attention, store, index, moe, engram, draft, mega)
PRIMITIVES: Mapping[str, OpSpec] = MappingProxyType({spec.name: spec for family in FAMILIES for spec in family.SPECS})
