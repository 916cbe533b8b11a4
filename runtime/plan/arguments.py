"""How a kernel uses a tensor: the tagged arguments of launches, and of the parts of a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dsv41c.runtime.plan.format import Tag


@dataclass(frozen=True)
class In:
    TAG: ClassVar[Tag] = Tag("in", "value")
    value: int


@dataclass(frozen=True)
class InOut:
    TAG: ClassVar[Tag] = Tag("inout", "value")
    value: int


@dataclass(frozen=True)
class Out:
    TAG: ClassVar[Tag] = Tag("out", "value")
    value: int


@dataclass(frozen=True)
class Absent:
    """An optional tensor that is left out."""

    TAG: ClassVar[Tag] = Tag("none", "value")


Argument = In | InOut | Out | Absent
