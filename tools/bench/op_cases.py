"""All cases of the plain kernels: small ones for every op, and the shapes of the real model."""

from __future__ import annotations

from dsv41c.tools.bench import cases_attention, cases_dense, cases_draft, cases_engram, cases_rows
from dsv41c.tools.bench.op_case import Case

_FAMILIES = (cases_rows, cases_dense, cases_attention, cases_engram, cases_draft)


def small_cases() -> list[Case]:
    return [case for family in _FAMILIES for case in family.small()]


def real_cases() -> list[Case]:
    return [case for family in _FAMILIES for case in family.real()]
