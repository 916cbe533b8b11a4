"""Rules of the tensors that a CUDA body is given, by a launch or by a sequence: those that its nodes name are there,
large enough and writable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dsv41c.runtime.plan.arguments import Absent, Argument, InOut, Out
from dsv41c.runtime.plan.cuda_bodies import CudaBody, CudaCopy, CudaLaunch, CudaMemset, TensorMapParam, TensorParam
from dsv41c.runtime.plan.format import ROWS
from dsv41c.runtime.plan.verify_arguments import Operand
from dsv41c.runtime.plan.verify_cuda import tensors_of
from dsv41c.runtime.plan.verify_geometry import Range, broken, check_index, evaluate_extent
from dsv41c.runtime.plan.verify_tensor_map import check_map_address, map_span


@dataclass(frozen=True)
class CudaArgumentRules:
    """`operand(value)` describes the tensor behind an argument; `symbol` is what the numbers of rows are of."""

    tensors: Sequence[Argument]
    operand: Callable[[int], Operand]
    symbol: str
    where: str

    def check(self, body: CudaBody) -> None:
        """Every output is named, and by a node that may write it before a copy reads it."""
        named: set[int] = set()
        for node in body.launches:
            for index in tensors_of(node):
                check_index(index, len(self.tensors), "argument", self.where)
            if isinstance(node, CudaLaunch):
                for param in node.params:
                    if isinstance(param, TensorMapParam):
                        self._check_map(param)
                named.update(tensors_of(node))
            else:
                self._check_transfer(node, named)
        outs = {i for i, argument in enumerate(self.tensors) if isinstance(argument, Out)}
        for index in sorted(outs - named):
            raise broken("out is no parameter", self.where, f"argument {index}", "a parameter that points to it")

    def _check_map(self, param: TensorMapParam) -> None:
        if not isinstance(param.tensor, TensorParam):
            return
        for rows, found in self._tensor(param.tensor.index).ranges.items():
            self._check_size(param.tensor.index, found, map_span(param, {ROWS: rows}, self.where), rows)
            check_map_address(param, found.begin, self.where)

    def _check_transfer(self, node: CudaCopy | CudaMemset, named: set[int]) -> None:
        if isinstance(node, CudaCopy) and isinstance(node.source, TensorParam):
            source = node.source.index
            if isinstance(self.tensors[source], Out) and source not in named:
                raise broken("out is not written first", self.where, f"argument {source}",
                             "a body that writes it before reading")
        if isinstance(node.target, TensorParam):
            named.add(node.target.index)
            if not isinstance(self.tensors[node.target.index], (Out, InOut, Absent)):
                raise broken("body writes an input", self.where, f"argument {node.target.index}", "out or inout")
        for index in tensors_of(node):
            for rows, found in self._tensor(index).ranges.items():
                self._check_size(index, found, evaluate_extent(node.bytes, {ROWS: rows}, self.where), rows)

    def _tensor(self, index: int) -> Operand:
        argument = self.tensors[index]
        if isinstance(argument, Absent):
            raise broken("body uses an absent argument", self.where, f"argument {index}", "a tensor")
        return self.operand(argument.value)

    def _check_size(self, index: int, found: Range, needed: int, rows: int) -> None:
        if needed > found.end - found.begin:
            raise broken("argument is too small", self.where, f"argument {index}, {found.end - found.begin} bytes",
                         f"{needed} bytes at {self.symbol} = {rows}")
