"""normalize_aten: ATen calls get one spelling, and those that change no bit go.

    %a = aten.unsqueeze(%x, 1); %b = aten.squeeze(%a, 1); %c = aten.mul(%b, 1)   →   %x
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from dsv41c.compiler.program import Program, is_plain
from dsv41c.passes.base import GraphResult, Pass, PassResult, Stage, per_method
from dsv41c.passes.engine.aten import normalize
from dsv41c.passes.engine.fusion import copied
from dsv41c.passes.engine.spelling import follows_rows


@dataclass(frozen=True)
class NormalizeAten(Pass):
    """ATen calls get one spelling: shapes, casts, reductions, constants, and what does nothing goes."""

    name = "normalize_aten"
    stage = Stage.RAISE

    def apply(self, program: Program) -> PassResult:
        if all(is_plain(n) for m in program.methods.values() for n in m.graph.nodes):
            return PassResult(program, 0)
        return per_method(program, self._rewrite)

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        copy = copied(graph)
        return GraphResult(copy, normalize(copy, follows_rows))
