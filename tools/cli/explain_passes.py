"""The parts of `dsv41c explain` that tell what the passes did; they read passes.json and plan.json only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsv41c.runtime import pass_history
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.pass_notes import read_pass_notes

Answer = tuple[dict[str, Any], list[str]]  # plain data for JSON, and the same as lines of text


def table(artifact: Path) -> Answer:
    found = pass_history.overview(read_pass_notes(artifact))
    return {"passes": found}, [_row(entry) for entry in found] or ["no passes ran"]


def one(artifact: Path, name: str) -> Answer:
    step = pass_history.pass_named(read_pass_notes(artifact), name, "--pass")
    found = pass_history.matches(step)
    lines = [f"{m['method']} %{m['made']} replaces {', '.join('%' + n for n in m['replaced'])}" for m in found]
    return {"pass": name, "num_matches": len(found), "matches": found}, [f"{name}: {len(found)} matches", *lines]


def why_not(artifact: Path, name: str) -> Answer:
    step = pass_history.pass_named(read_pass_notes(artifact), name, "--why-not")
    groups = pass_history.refusals(step)
    count = len(step.refusals)
    return ({"pass": name, "num_refusals": count, "reasons": groups},
            [f"{name}: {count} refusals, {step.num_matches} matches", *_reasons(groups)])


def node(artifact: Path, name: str) -> Answer:
    found = pass_history.node_history(read_pass_notes(artifact), Manifest.read(artifact).read_plan(), name)
    return {"node": name, "methods": found}, [line for entry in found for line in _history(entry)]


def _row(entry: Mapping[str, Any]) -> str:
    methods = ", ".join(f"{method} {count}" for method, count in entry["matches_by_method"].items())
    refusals = f"{entry['num_refusals']} refusals"
    return f"{entry['name']:24} {entry['num_matches']:5} matches ({methods or 'none'}), {refusals}"


def _reasons(groups: list[dict[str, Any]]) -> Iterator[str]:
    for group in groups:
        yield f"{group['count']:5}  {group['reason']}"
        yield from (f"         {s['method']} %{s['site']}: {s['reason']}" for s in group["sites"])


def _history(entry: Mapping[str, Any]) -> Iterator[str]:
    yield f"{entry['method']} %{entry['node']}"
    yield from _origin(entry["made"], 1)
    for step in entry["became"]:
        yield f"  {step['pass']} took it into %{step['into']}"
    for refused in entry["refused"]:
        yield f"  {refused['pass']} left it alone: {refused['reason']}"
    yield f"  launch {entry['launch']}" if entry["launch"] else "  no launch of its own"


def _origin(made: Mapping[str, Any] | None, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if made is None:
        yield f"{pad}as captured"
        return
    yield f"{pad}made by {made['pass']} from {', '.join('%' + part['node'] for part in made['replaced'])}"
    for part in made["replaced"]:
        if part["made"] is not None:
            yield f"{pad}  %{part['node']}"
            yield from _origin(part["made"], depth + 2)
    if made["before"] is not None:
        yield f"{pad}before that"
        yield from _origin(made["before"], depth + 1)
