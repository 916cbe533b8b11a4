"""`dsv41c passes`: what the compiler rewrites: a list, one pass in full, or passes run on program text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsv41c.compiler.pass_driver import Piped
    from dsv41c.passes.base import Pass

passes_app = typer.Typer(no_args_is_help=True, help="List the passes, show one, or run some on program text.")
_JSON = typer.Option("--json", help="Print one JSON object on stdout.")


@passes_app.command("list")
def list_command(as_json: Annotated[bool, _JSON] = False) -> None:
    """The passes in the order in which compile runs them."""
    from dsv41c.compiler.pass_facts import overview
    from dsv41c.compiler.pipeline import PIPELINE

    found = [overview(step) for step in PIPELINE]
    if as_json:
        print(json.dumps({"schema_version": 1, "passes": found}))
        return
    width = max(len(entry["name"]) for entry in found)
    for entry in found:
        requires = f" (requires {', '.join(entry['requires'])})" if entry["requires"] else ""
        print(f"{entry['name']:{width}}  {entry['stage']:12}  {entry['summary']}{requires}")


@passes_app.command("show")
def show_command(name: Annotated[str, typer.Argument(metavar="PASS", help="Name of a pass.")],
                 as_json: Annotated[bool, _JSON] = False) -> None:
    """A pass in full: its docstring, the ops it puts in, what they replace, and when it refuses."""
    from dsv41c.compiler.pass_facts import details

    (step,) = _named([name])
    found = details(step)
    print(json.dumps({"schema_version": 1, **found}) if as_json else "\n".join(_details(found)))


@passes_app.command("run")
def run_command(
    names: Annotated[list[str], typer.Argument(metavar="PASS...", help="Names of passes, in the order to run them.")],
    done: Annotated[list[str] | None, typer.Option(metavar="PASS", help="A pass that has rewritten this text already; "
                                                       "may be repeated.")] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Program text in on stdin, rewritten text out on stdout, matches and refusals on stderr."""
    from dsv41c.compiler.pass_driver import run_passes
    from dsv41c.compiler.pass_records import record_fields
    from dsv41c.compiler.program_text.parser import parse_program
    from dsv41c.compiler.program_text.printer import print_program

    steps, before = _named(names), [step.name for step in _named(done or [])]
    piped = run_passes(parse_program(_stdin()), steps, left_out=before)
    text = print_program(piped.program)
    if as_json:
        print(json.dumps({"schema_version": 1, "program": text, "passes": [record_fields(r) for r in piped.records]}))
        return
    print("\n".join(_notes(piped)), file=sys.stderr)
    print(text, end="")


def _stdin() -> str:
    """E0306 for bytes that are no UTF-8 text."""
    from dsv41c.runtime.plan.errors import Dsv41cError

    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise Dsv41cError("DSV41C-E0306", "program text", found=str(error), needed="UTF-8 text on stdin",
                          do="pass the text of a program") from error


def _named(names: Sequence[str]) -> list[Pass]:
    """E0901 with the nearest name for one that no pass has."""
    from dsv41c.compiler.pass_driver import unknown_name
    from dsv41c.compiler.pipeline import PIPELINE

    known = {step.name: step for step in PIPELINE}
    for name in names:
        if name not in known:
            raise unknown_name("name of a pass", name, list(known))
    return [known[name] for name in names]


def _details(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['name']} (stage {found['stage']}, requires {', '.join(found['requires']) or 'nothing'})"
    yield from ("", found["module"], "", found["docstring"])
    for op in found["ops"]:
        yield from ("", f"op {op['schema']}")
        for pattern in op["patterns"]:
            yield from ("  replaces", *(f"    {line}" for line in pattern.splitlines()))
        yield from (f"  only if {text}" for text in op["constraints"])
    if found["anchor"]:
        yield from ("", f"tried at every call of {found['anchor']}; refused when")
        yield from (f"  {guard['name']}: {guard['meaning']}" for guard in found["guards"])


def _notes(piped: Piped) -> Iterator[str]:
    from dsv41c.passes.base import Match

    for record in piped.records:
        refusals = len(record.notes) - record.num_matches
        yield f"{record.name}: {record.num_matches} matches, {refusals} refusals"
        for note in record.notes:
            if isinstance(note, Match):
                yield f"  {note.method} %{note.made} replaces {', '.join(f'%{n}' for n in note.replaced)}"
            else:
                yield f"  {note.method} %{note.site} stays: {note.reason}"
