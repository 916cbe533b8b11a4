"""Finds the first pass that changes a bit: runs the program after each pass beside the program before all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dsv41c.compiler.bits import Mismatch, first_mismatch
from dsv41c.compiler.blame import Inputs, MakeModel, Site, first_site
from dsv41c.compiler.interpret import ProgramModel
from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.program import Program
from dsv41c.compiler.program_text.printer import print_program
from dsv41c.passes.base import Match, Pass, PassResult

Drive = Callable[["Lockstep"], object]  # runs the self-tests on an executor for the generation loop


@dataclass(frozen=True)
class Difference:
    """`step` counts from 0; `what` is an output or `state NAME`."""

    step: int
    what: str
    mismatch: Mismatch


@dataclass(frozen=True)
class Checked:
    """`is_equal` is None for a pass behind the first one that differs; `steps` is 0 where it changed nothing."""

    name: str
    num_matches: int
    is_equal: bool | None
    steps: int


@dataclass(frozen=True)
class Verdict:
    passes: tuple[Checked, ...]
    first: str | None = None
    difference: Difference | None = None
    site: Site | None = None


class _Differs(Exception):
    """Ends the generation loop at the first difference."""


class Lockstep:
    """Two programs behind the interface of an executor: every step on both, with equal bits in outputs and state."""

    def __init__(self, reference: ProgramModel, subject: ProgramModel) -> None:
        self._reference, self._subject = reference, subject
        self._outputs: dict[str, torch.Tensor] = {}
        self.inputs: list[Inputs] = []  # of the steps so far, the one that differs included
        self.difference: Difference | None = None

    def step(self, upload: Any, keep_rows: Any, logit_rows: Any, eager: bool = False) -> None:
        given = upload.copy(), keep_rows.copy(), logit_rows.copy()
        self.inputs.append(given)
        self._outputs = self._reference.step(*given)
        found = self._subject.step(*given)
        state = self._reference.state
        pairs = [*((name, found[name], needed) for name, needed in self._outputs.items()),
                 *((f"state {name}", self._subject.state[name], needed) for name, needed in state.items())]
        for what, one, other in pairs:
            mismatch = first_mismatch(one, other)
            if mismatch is not None:
                self.difference = Difference(len(self.inputs) - 1, what, mismatch)
                raise _Differs

    def output(self, name: str) -> np.ndarray:
        return self._outputs[name].numpy()


def bisect(program: Program, passes: Sequence[Pass], make_model: MakeModel, drive: Drive,
           left_out: Iterable[str] = ()) -> Verdict:
    """`program` is the one before all passes; every prefix of `passes` must compute the same on what `drive` runs.
    E0304 and E0305 as `run_passes` raises them."""
    results: list[PassResult] = []
    run_passes(program, passes, lambda step, before, result: results.append(result), left_out)
    checked: list[Checked] = []
    before = program
    for number, (step, result) in enumerate(zip(passes, results, strict=True)):
        lockstep = None
        if print_program(before) != print_program(result.program):
            lockstep = _compared(make_model(program, None), make_model(result.program, None), drive)
        difference = lockstep.difference if lockstep else None
        steps = len(lockstep.inputs) if lockstep else 0
        checked.append(Checked(step.name, result.num_matches, difference is None, steps))
        if lockstep is not None and difference is not None:
            matches = [note for note in result.notes if isinstance(note, Match)]
            site = first_site(before, result.program, matches, make_model, lockstep.inputs)
            rest = [Checked(s.name, r.num_matches, None, 0)
                    for s, r in zip(passes[number + 1:], results[number + 1:], strict=True)]
            return Verdict((*checked, *rest), step.name, difference, site)
        before = result.program
    return Verdict(tuple(checked))


def _compared(reference: ProgramModel, subject: ProgramModel, drive: Drive) -> Lockstep:
    lockstep = Lockstep(reference, subject)
    try:
        drive(lockstep)
    except _Differs:
        return lockstep
    return lockstep
