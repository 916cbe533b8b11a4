"""Runs an ordered list of passes over a program: order, checks before and after, records, and who is to blame."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import fx

from dsv41c.compiler.program import Program, is_plain
from dsv41c.passes.base import Note, Pass, PassResult, Refusal, Stage
from dsv41c.passes.engine.validity import faults, faults_between, foreign_calls
from dsv41c.runtime.plan.errors import Dsv41cError

Observer = Callable[[Pass, Program, PassResult], None]  # the pass, the program before it, its result


@dataclass(frozen=True)
class PassRecord:
    """What one pass did, for the artifact. `source`: SHA-256 of the module that defines it."""

    name: str
    stage: str
    arguments: dict[str, object]
    source: str
    num_matches: int
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Piped:
    program: Program
    records: tuple[PassRecord, ...]


def run_passes(program: Program, passes: Sequence[Pass], observe: Observer | None = None,
               left_out: Iterable[str] = ()) -> Piped:
    """Every pass over every method, in order. `left_out` names passes that were removed on purpose, which satisfy
    the requirement of a later one. E0304 for a wrong order, E0305 for a pass that fails or breaks the program."""
    check_order(passes, left_out)
    foreign = any(foreign_calls(program))
    _refuse("the captured program", list(faults(program, foreign)), ())
    records: list[PassRecord] = []
    for step in passes:
        if foreign and step.stage is not Stage.RAISE:
            foreign = refuse_foreign_calls(program, records)
        ran = [r.name for r in records]
        result = _run(step, program, ran, foreign)
        if observe is not None:
            observe(step, program, result)
        records.append(PassRecord(step.name, step.stage.value, dict(step.arguments()), source_digest(step),
                                  result.num_matches, result.notes))
        program = result.program
    if foreign:
        refuse_foreign_calls(program, records)
    return Piped(program, tuple(records))


def _run(step: Pass, program: Program, ran: Sequence[str], foreign: bool) -> PassResult:
    subject = f"pass {step.name}"
    try:
        step.check(program)
        result = step.apply(program)
        step.verify(result.program)
    except Dsv41cError:
        raise
    except Exception as error:
        raise _broken(subject, f"{type(error).__name__}: {error}", ran) from error
    if result.program is program:  # nothing found, nothing to check
        return result
    found = [*faults(result.program, foreign)] or [*faults_between(program, result.program)]
    _refuse(subject, found, ran)
    return result


def refuse_foreign_calls(program: Program, records: Sequence[PassRecord]) -> bool:
    """False when every call is declared, E0202 with the first that is not and what the passes said of it."""
    for method, node in foreign_calls(program):
        found = f"a call of {node.target} that no pass of stage raise took{_reason(method, node, records)}"
        raise Dsv41cError("DSV41C-E0202", f"node {node.name}", where=f"method {method}", found=found,
                          needed="declared ops, or ATen calls that spell them",
                          do="write it as one of the spellings in passes/raise_ops, or call the declared op")
    return False


def _reason(method: str, node: fx.Node, records: Sequence[PassRecord]) -> str:
    """The refusal of this call, else of the nearest call that hangs together with it by calls that are not declared."""
    reasons = {n.site: f"{r.name}: {n.reason}" for r in records for n in r.notes
               if isinstance(n, Refusal) and n.method == method}
    seen, queue = {node}, [node]
    for near in queue:
        if near.name in reasons:
            return f"; {reasons[near.name]}"
        following = [n for n in (*near.all_input_nodes, *near.users) if n not in seen and not is_plain(n)]
        seen.update(following)
        queue += following
    return ""


def _refuse(subject: str, found: Sequence[str], ran: Sequence[str]) -> None:
    if found:
        raise _broken(subject, found[0], ran)


def _broken(subject: str, found: str, ran: Sequence[str]) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0305", subject, found=found, where=f"after {', '.join(ran) or 'no other pass'}",
                       needed="a valid program with the same results and state writes",
                       do="leave the pass out with --without, and report this")


def check_order(passes: Sequence[Pass], left_out: Iterable[str] = ()) -> None:
    """Every requirement earlier, stages in order, no name twice (E0304)."""
    seen, stages = set(left_out), list(Stage)
    previous: Pass | None = None
    for step in passes:
        missing = [name for name in step.requires if name not in seen]
        if missing:
            raise _order(step, f"pass {step.name} before pass {missing[0]}, which it requires")
        if previous is not None and stages.index(step.stage) < stages.index(previous.stage):
            raise _order(step, f"pass {step.name} of stage {step.stage.value} behind {previous.name} of stage "
                               f"{previous.stage.value}")
        if step.name in seen:
            raise _order(step, f"two passes called {step.name}")
        seen.add(step.name)
        previous = step


def _order(step: Pass, found: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0304", f"order of pass {step.name}", found=found,
                       needed="each pass once, behind what it requires, in the order of the stages",
                       do="correct the order (that of compile is the tuple in compiler/pipeline.py)")


def select(passes: Sequence[Pass], without: Iterable[str]) -> tuple[Pass, ...]:
    """The passes but those named; E0901 names the nearest when there is no such pass."""
    names = [p.name for p in passes]
    unwanted = set(without)
    for name in sorted(unwanted - set(names)):
        raise unknown_name("option --without", name, names)
    return tuple(p for p in passes if p.name not in unwanted)


def unknown_name(subject: str, name: str, known: Sequence[str]) -> Dsv41cError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return Dsv41cError("DSV41C-E0901", subject, found=repr(name), needed=f"one of {', '.join(known)}",
                       do=f"did you mean {near[0]}?" if near else "name one of these")


def source_digest(step: Pass) -> str:
    """Of the file that defines the pass: a change of it changes the artifact's digest."""
    return hashlib.sha256(inspect.getsource(sys.modules[type(step).__module__]).encode()).hexdigest()
