"""The contract of a pass: a declared rewrite of a program that says what it changed and why it left the rest alone."""

from __future__ import annotations

import dataclasses
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import fx

from dsv41c.compiler.program import Program
from dsv41c.runtime.pass_notes import Match as Match  # what a note is, the file of notes says
from dsv41c.runtime.pass_notes import Refusal as Refusal


class Stage(enum.Enum):
    """Stages run in this order; a pass may only require passes of its own stage or an earlier one."""

    RAISE = "raise"  # foreign spellings of an op become the op
    CANONICALIZE = "canonicalize"  # one spelling for each thing, nothing twice, nothing unused
    FUSE = "fuse"  # several calls become one


Note = Match | Refusal


@dataclass(frozen=True)
class PassResult:
    """A new program; the one that was given is left as it was."""

    program: Program
    num_matches: int
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Pass(ABC):
    """One rewrite. Options are constructor arguments; name, source and arguments enter the artifact's digest.

    `requires` names passes that come earlier in every pipeline that holds them. A pass with `commutes` gives the same
    program in any order among its neighbours that say so too. A pass reads effects from op schemas and may never
    drop a call that writes state, nor move it across another call on that state: the driver checks the count, the
    engine the order.
    """

    name: ClassVar[str]
    stage: ClassVar[Stage]
    requires: ClassVar[tuple[str, ...]] = ()
    commutes: ClassVar[bool] = False

    @abstractmethod
    def apply(self, program: Program) -> PassResult: ...

    def check(self, program: Program) -> None:  # noqa: B027  not abstract: most passes have nothing to add
        """Raise E0305 when the program is not what `apply` needs. Most passes take every valid program."""

    def verify(self, program: Program) -> None:  # noqa: B027
        """Raise E0305 when the result breaks what this pass promises, beyond a valid program."""

    def arguments(self) -> Mapping[str, object]:
        """The constructor's arguments by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (cls.__doc__ or "").strip().splitlines()[0]


@dataclass(frozen=True)
class GraphResult:
    """What a rewrite of one method's graph found."""

    graph: fx.Graph
    num_matches: int
    notes: tuple[Note, ...] = ()


def per_method(program: Program, rewrite: Callable[[str, fx.Graph], GraphResult],
               is_site: Callable[[fx.Node], bool] = lambda node: True) -> PassResult:
    """Apply `rewrite` to the graph of every method that has a site, in order; it returns a new graph. Without a match
    the result is the given program itself, which the driver need not check again."""
    methods, matches = dict(program.methods), 0
    notes: list[Note] = []
    for name, method in program.methods.items():
        if not any(map(is_site, method.graph.nodes)):
            continue
        result = rewrite(name, method.graph)
        methods[name] = dataclasses.replace(method, graph=result.graph)
        matches += result.num_matches
        notes += result.notes
    return PassResult(Program(methods) if matches else program, matches, tuple(notes))
