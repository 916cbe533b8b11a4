"""OpSpec: the declaration every op of the captured program must have, and the checks a declaration passes."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dsv41c.runtime.plan.errors import Dsv41cError

_NAME = re.compile(r"^[a-z][a-z0-9_]*$")


class CaptureClass(enum.Enum):
    """Whether an op may sit inside a captured segment. There is no default."""

    CAPTURE = "capture"  # pure device work whose addresses and launch shape the bucket fixes
    BREAK = "break"  # device work that needs live host data; runs between segments
    HOST = "host"  # touches host state


class PadRule(enum.Enum):
    """What an op guarantees about pad rows (rows whose FLAGS carry PAD)."""

    ROW = "row"  # every output row depends on its own input row only; pads compute harmless rows
    SKIP = "skip"  # pad rows never write state; their output rows are defined
    TABLE = "table"  # the op makes pad rows: valid slot (trash), position 0, token 0


@dataclass(frozen=True)
class NativeBody:
    """A C++ kernel of the cpu provider. `scratch_bytes` takes the op's arguments (shapes only are read)."""

    entry: str
    scratch_bytes: Callable[..., int] | None = None


@dataclass(frozen=True)
class Constraint:
    """What the arguments must be for an op to apply; `check` takes them and gives the reason when they are not."""

    text: str
    check: Callable[..., str | None]


@dataclass(frozen=True, kw_only=True)
class OpSpec:
    """One op. `fake` allocates outputs from input shapes; `reference` is the torch definition of the maths.

    `schema` is the torch schema after the name, with `(a!)` on every mutated argument: effects are read from
    it and from nowhere else. `tie_order` states how equal keys are ordered, or None for ops without choice.
    `composition(ops, *args)` computes a fused op from primitive ones (compiler/ops/fused.py); such an op has no
    native body, its launches run the bodies of the primitives.
    `constraints` are checked where a pass would put the op.
    """

    name: str
    schema: str
    capture: CaptureClass
    pads: PadRule
    fake: Callable[..., Any]
    reference: Callable[..., Any]
    tie_order: str | None
    native: NativeBody | None = None
    composition: Callable[..., Any] | None = None
    constraints: tuple[Constraint, ...] = ()

    def parsed(self) -> torch._C.FunctionSchema:
        return torch._C.parse_schema(f"dsv41c::{self.name}{self.schema}")

    @property
    def mutates(self) -> tuple[str, ...]:
        """Names of the arguments that the op writes, from the schema."""
        arguments = self.parsed().arguments
        return tuple(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)


def check_spec(spec: OpSpec) -> None:
    """Refuse a declaration that later stages could not trust (E0301)."""
    if not _NAME.match(spec.name):
        raise _bad(spec, f"name {spec.name!r}", "a lower-case noun phrase", "rename the op")
    try:
        schema = spec.parsed()
    except RuntimeError as error:
        raise _bad(spec, str(error), "a torch schema", "correct the schema text") from error
    if not isinstance(spec.capture, CaptureClass):
        raise _bad(spec, f"capture class {spec.capture!r}", "a CaptureClass", "state the capture class")
    if not isinstance(spec.pads, PadRule):
        raise _bad(spec, f"pad rule {spec.pads!r}", "a PadRule", "state the pad rule")
    if not callable(spec.fake) or not callable(spec.reference):
        raise _bad(spec, "no fake or no reference", "both", "write the missing function")
    if spec.composition is not None:
        if not callable(spec.composition):
            raise _bad(spec, "a composition that is no function", "composition(ops, *args)", "write the function")
        if spec.native is not None:
            raise _bad(spec, "a composition and a native body", "one of them", "drop the native body")
        if spec.capture is not CaptureClass.CAPTURE:
            raise _bad(spec, f"a composition of capture class {spec.capture.value}", "capture",
                       "leave what needs the host out of the composition")
    chooses = any(word in spec.name for word in ("topk", "gate", "route", "greedy", "sort", "select"))
    if chooses and spec.name.startswith(("index_", "moe_", "greedy")) and not spec.tie_order:
        raise _bad(spec, "no tie order", "how equal keys are ordered", "set tie_order")
    for argument in schema.arguments:
        if argument.kwarg_only:
            raise _bad(spec, f"keyword-only argument {argument.name}", "positional arguments", "drop the *")


def _bad(spec: OpSpec, found: str, needed: str, do: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0301", f"op {spec.name}", found=found, needed=needed, do=do)
