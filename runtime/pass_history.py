"""Answers from an artifact's pass notes: matches by method, refusals by reason, and what became of one node."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dsv41c.runtime.pass_notes import Match, NotedPass
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.schema import Plan

_NODE = re.compile(r"%(\w+?)(?:_\d+)?\b")


def overview(passes: Sequence[NotedPass]) -> list[dict[str, Any]]:
    """One entry for each pass, matches counted by method."""
    return [{"name": p.name, "stage": p.stage, "num_matches": p.num_matches, "num_refusals": len(p.refusals),
             "matches_by_method": dict(Counter(m.method for m in p.matches)),
             "refusals_by_method": dict(Counter(r.method for r in p.refusals))} for p in passes]


def pass_named(passes: Sequence[NotedPass], name: str, option: str) -> NotedPass:
    """E0901 with the nearest name of a pass that ran."""
    found = next((p for p in passes if p.name == name), None)
    if found is None:
        raise _unknown(option, name, [p.name for p in passes], "a pass that ran while the artifact was compiled")
    return found


def matches(step: NotedPass) -> list[dict[str, Any]]:
    return [dataclasses.asdict(m) for m in step.matches]


def refusals(step: NotedPass) -> list[dict[str, Any]]:
    """Reasons with their sites, the most frequent first. Reasons that differ in numbers of nodes only are one."""
    groups: dict[str, list[dict[str, str]]] = {}
    for refusal in step.refusals:
        site = {"method": refusal.method, "site": refusal.site, "reason": refusal.reason}
        groups.setdefault(_NODE.sub(r"%\1", refusal.reason), []).append(site)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [{"reason": reason, "count": len(sites), "sites": sites} for reason, sites in ordered]


def node_history(passes: Sequence[NotedPass], plan: Plan, name: str) -> list[dict[str, Any]]:
    """What is known of a node, by method: `made` says by which pass and from what (None: it was captured so), `became`
    which rewrites took it in, `launch` where it ended, `refused` where passes left it alone. `name` may be that of a
    launch. E0901 when nothing is known of it."""
    node = name.rsplit("/", 1)[-1].removeprefix("%")
    launches = {method.name: {launch.name.rsplit("/", 1)[-1]: launch.name for step in method.steps
                              for launch in step.launches} for method in plan.methods}
    found = []
    for method, by_node in launches.items():
        rewrites = list(_rewrites(passes, method))
        refused = [{"pass": p.name, "reason": r.reason} for p in passes for r in p.refusals
                   if (r.method, r.site) == (method, node)]
        known = {n for _, m in rewrites for n in (m.made, *m.replaced)}
        if node in known or node in by_node or refused:
            became = _became(rewrites, node)
            last = became[-1]["into"] if became else node
            found.append({"method": method, "node": node, "made": _made(rewrites, node, len(rewrites)),
                          "became": became, "launch": by_node.get(last), "refused": refused})
    if not found:
        known = {n for by_node in launches.values() for n in by_node}
        known |= {n for p in passes for m in p.matches for n in (m.made, *m.replaced)}
        raise _unknown("--node", name, sorted(known), "a call of the program or a launch")
    return found


def _rewrites(passes: Sequence[NotedPass], method: str) -> Iterator[tuple[NotedPass, Match]]:
    return ((p, m) for p in passes for m in p.matches if m.method == method)


def _made(rewrites: Sequence[tuple[NotedPass, Match]], node: str, before: int) -> dict[str, Any] | None:
    """The last rewrite before that position which made the node, and in the same way what it took in."""
    for position in reversed(range(before)):
        step, match = rewrites[position]
        if match.made == node:
            parts = [{"node": part, "made": None if part == node else _made(rewrites, part, position)}
                     for part in match.replaced]
            return {"pass": step.name, "site": match.site, "replaced": parts,
                    "before": _made(rewrites, node, position)}
    return None


def _became(rewrites: Sequence[tuple[NotedPass, Match]], node: str) -> list[dict[str, str]]:
    """The rewrites that took the node in, one after another."""
    steps = []
    for step, match in rewrites:
        if node in match.replaced:
            steps.append({"pass": step.name, "into": match.made})
            node = match.made
    return steps


def _unknown(option: str, name: str, known: Sequence[str], needed: str) -> Dsv41cError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return Dsv41cError("DSV41C-E0901", f"option {option}", found=repr(name), needed=needed,
                       do=f"did you mean {near[0]}?" if near else "compile with the passes that you ask for")
