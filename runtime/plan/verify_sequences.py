"""Rules of sequence bodies: each part is checked as a launch is, on locals in place of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv41c.runtime.plan.schema import (
    ALIGNMENT,
    MAX_DIMS,
    ROWS,
    Absent,
    ArgLocal,
    CudaBody,
    In,
    Out,
    Part,
    Plan,
    SequenceBody,
    SequenceLocal,
    TempLocal,
)
from dsv41c.runtime.plan.verify_arguments import KernelFacts, Operand, check_arguments
from dsv41c.runtime.plan.verify_cuda_arguments import CudaArgumentRules
from dsv41c.runtime.plan.verify_geometry import (
    Range,
    broken,
    check_index,
    check_offset,
    evaluate_extent,
    numbers,
    shape_at,
)
from dsv41c.runtime.plan.verify_lifetimes import Lifetime, check_disjoint_lives
from dsv41c.runtime.plan.verify_locals import PlacedLocal, note_argument, place_local
from dsv41c.runtime.plan.verify_tensor_map import map_alignments


class SequenceRules:
    """One walk over a sequence at one number of rows. `known`: the facts of all kernels before it in the plan."""

    def __init__(self, plan: Plan, known: Sequence[KernelFacts], facts: KernelFacts, rows: int) -> None:
        self._kernels = plan.kernels
        self._known = known
        self._facts = facts
        self._rows = rows
        kernel = plan.kernels[len(known)]
        assert isinstance(kernel.body, SequenceBody)
        self._body = kernel.body
        self._where = f"kernel {len(known)} {kernel.op}"
        self._placed: list[PlacedLocal] = []
        self._written: set[int] = set()  # roots of temporaries
        self._lives: dict[int, Lifetime] = {}
        self._scratches: list[Lifetime] = []

    def check(self) -> None:
        if not self._body.parts:
            raise broken("body without parts", self._where, 0, "at least 1 part")
        symbols = {ROWS: self._rows}
        for index, local in enumerate(self._body.locals):
            self._place(local, symbols, f"{self._where}, local {index}")
        for number, part in enumerate(self._body.parts):
            self._check_part(number, part, symbols)
        check_disjoint_lives([*(self._lives[root] for root in sorted(self._lives)), *self._scratches])

    def _place(self, local: SequenceLocal, symbols: Mapping[str, int], where: str) -> None:
        """A local becomes a tensor of a launch: few dimensions, and a temporary is placed as an arena value is."""
        if len(local.sizes) > MAX_DIMS:
            raise broken("too many dimensions", where, len(local.sizes), f"at most {MAX_DIMS}")
        placed = place_local(local, self._placed, symbols, self._facts.scratch_bytes[self._rows], where)
        if isinstance(local, TempLocal):
            shape = shape_at(local.sizes, local.strides, local.dtype, symbols=symbols, where=where)
            if not shape.is_contiguous:
                raise broken("strides are not contiguous", where,
                             f"{numbers(shape.strides)} for {numbers(shape.sizes)}", "contiguous strides outside views")
            check_offset(placed.bytes.begin, ALIGNMENT, placed.bytes.begin, where)
        self._placed.append(placed)
        note_argument(local, placed, self._rows, self._facts)

    def _check_part(self, number: int, part: Part, symbols: Mapping[str, int]) -> None:
        where = f"{self._where}, part {number}"
        check_index(part.kernel, len(self._known), "kernel", where)
        kernel = self._kernels[part.kernel]
        where = f"{where} {kernel.op}"
        if isinstance(kernel.body, SequenceBody):
            raise broken("sequence inside a sequence", where, f"kernel {part.kernel}", "a kernel of another kind")
        for argument in part.tensors:
            if not isinstance(argument, Absent):
                check_index(argument.value, len(self._body.locals), "local", where)
        scratch = self._scratch(part, symbols, where)
        self._check_overlaps(part, where)
        check_arguments(part.tensors, self._known[part.kernel], self._operand, ROWS, where)
        if isinstance(kernel.body, CudaBody):
            CudaArgumentRules(part.tensors, self._operand, ROWS, where).check(kernel.body)
            self._note_alignments(kernel.body, part)
        self._read_and_write(part, where)
        self._note_lives(number, part, scratch, where)

    def _operand(self, local: int) -> Operand:
        return Operand(self._body.locals[local].dtype, {self._rows: self._placed[local].bytes})

    def _note_alignments(self, body: CudaBody, part: Part) -> None:
        """Where an argument lies is known at the launch only: it must begin as its strictest tensor map needs."""
        for index, unit in map_alignments(body):
            argument = part.tensors[index]
            assert not isinstance(argument, Absent)
            root = self._body.locals[self._placed[argument.value].root]
            if isinstance(root, ArgLocal):
                self._facts.alignments[root.index] = max(unit, self._facts.alignments.get(root.index, 1))

    def _scratch(self, part: Part, symbols: Mapping[str, int], where: str) -> Range:
        offset = evaluate_extent(part.scratch, symbols, where)
        check_offset(offset, ALIGNMENT, offset, where)
        needed, size = self._known[part.kernel].scratch_bytes[self._rows], self._facts.scratch_bytes[self._rows]
        if needed > size - offset:
            raise broken("scratch of a part outside the scratch", where, f"{needed} bytes at {offset}",
                         f"an end of at most {size}")
        return Range("scratch", offset, offset + needed)

    def _check_overlaps(self, part: Part, where: str) -> None:
        """Two arguments of the sequence share no byte where one is written: that is a rule of its launch."""
        used = [argument for argument in part.tensors if not isinstance(argument, Absent)]
        for i, first in enumerate(used):
            for second in used[i + 1:]:
                left, right = self._placed[first.value].bytes, self._placed[second.value].bytes
                if not (isinstance(first, In) and isinstance(second, In)) and left.overlaps(right):
                    raise broken("written tensor overlaps another", where, f"local {first.value} at {left}",
                                 f"no byte of local {second.value} at {right}")

    def _read_and_write(self, part: Part, where: str) -> None:
        """A part reads before it writes."""
        for argument in part.tensors:
            if isinstance(argument, (Absent, Out)):
                continue
            owner = self._placed[argument.value].root
            root = self._body.locals[owner]
            if isinstance(root, TempLocal) and owner not in self._written:
                raise broken("temporary is read before it is written", where, f"local {argument.value}",
                             "an earlier part that writes it")
            if isinstance(root, ArgLocal) and root.index not in self._facts.written:
                self._facts.read_first.add(root.index)
        for argument in part.tensors:
            if isinstance(argument, (Absent, In)):
                continue
            owner = self._placed[argument.value].root
            root = self._body.locals[owner]
            self._written.add(owner)
            if isinstance(root, ArgLocal):
                self._facts.written.add(root.index)

    def _note_lives(self, moment: int, part: Part, scratch: Range, where: str) -> None:
        for argument in part.tensors:
            root = -1 if isinstance(argument, Absent) else self._placed[argument.value].root
            if root >= 0 and isinstance(self._body.locals[root], TempLocal):
                place = f"{self._where}, local {root}"
                life = Lifetime(place, self._placed[root].bytes, moment, moment)
                self._lives.setdefault(root, life).last = moment
        if scratch.begin < scratch.end:
            self._scratches.append(Lifetime(f"{where}, scratch", scratch, moment, moment))
