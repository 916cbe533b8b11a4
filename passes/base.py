"""The contract of a pass: a named rewrite of one FX graph that reports how often it matched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import fx


@dataclass(frozen=True)
class PassResult:
    """`graph` is a new graph; the input is left as it was."""

    graph: fx.Graph
    num_matches: int


class Pass(Protocol):
    """A pass reads effects from op schemas and may never drop, merge or move a call that writes state."""

    name: str

    def apply(self, graph: fx.Graph) -> PassResult: ...
