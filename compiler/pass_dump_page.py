"""One page about what every pass changed: program text side by side, equal parts left out, and why passes refused."""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsv41c.passes.base import Match, Note, Refusal

_CONTEXT = 2  # equal lines around a change
_SITES = 20  # of one reason
_NODE = re.compile(r"%(\w+?)(?:_\d+)?\b")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1800px; padding: 0 1em; color: #1d2329; }
h2 { border-top: 1px solid #ccd2d8; padding-top: .6em; font-size: 1.15em; } summary { cursor: pointer; }
.same { color: #67717b; margin: .2em 0; } code { font: 12px/1.45 ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; margin: .5em 0 1em; }
td { vertical-align: top; padding: 0 .5em; width: 50%; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 12px/1.45 ui-monospace, monospace; }
td.del { background: #fdecea; } td.add { background: #e8f5e9; } td.none { background: #f5f6f7; }
td.skip { color: #67717b; text-align: center; background: #eef1f4; }
"""


@dataclass(frozen=True)
class Section:
    """One pass: program text before and after it, and what it noted."""

    name: str
    before: str
    after: str
    notes: tuple[Note, ...]


def page(sections: Sequence[Section]) -> str:
    """A whole HTML document without any reference to something outside of it."""
    body = "\n".join(_section(number, section) for number, section in enumerate(sections, start=1))
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>What the passes changed</title>'
            f"<style>{_STYLE}</style></head>\n<body><h1>What the passes changed</h1>\n"
            f"<p>Program text before each pass on the left, behind it on the right.</p>\n"
            f"{body or '<p>No pass ran.</p>'}\n</body></html>\n")


def _section(number: int, section: Section) -> str:
    refusals = [n for n in section.notes if isinstance(n, Refusal)]
    title = f"{number:02d} {html.escape(section.name)}"
    counts = f"{sum(isinstance(n, Match) for n in section.notes)} matches, {len(refusals)} refusals"
    reasons = _reasons(refusals)
    if section.before == section.after:
        return f'<div class="same"><b>{title}</b>: {counts}; nothing changed {reasons}</div>'
    pairs = zip(_by_method(section.before).items(), _by_method(section.after).items(), strict=True)
    tables = "\n".join(_method(name, before, after) for (name, before), (_, after) in pairs)
    return f"<h2>{title}</h2>\n<p>{counts}</p>\n{reasons}\n{tables}"


def _by_method(text: str) -> dict[str, list[str]]:
    """Lines by the first line of their method without its bounds."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("method "):
            lines = found.setdefault(line.split()[1], [])
        lines.append(line)
    return found


def _reasons(refusals: Sequence[Refusal]) -> str:
    """A list of reasons with counts; those that differ in numbers of nodes only are one."""
    groups: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault(_NODE.sub(r"%\1", refusal.reason), []).append(refusal)
    if not groups:
        return ""
    items = []
    for reason, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        sites = ", ".join(f"{m.method} %{m.site}" for m in members[:_SITES])
        more = f" and {len(members) - _SITES} more" if len(members) > _SITES else ""
        items.append(f"<li>{len(members)} times {html.escape(reason)}<br><code>{html.escape(sites)}{more}</code></li>")
    return f"<details><summary>why it refused</summary><ul>{''.join(items)}</ul></details>"


def _method(name: str, before: list[str], after: list[str]) -> str:
    if before == after:
        return f'<p class="same">method {html.escape(name)}: nothing changed</p>'
    rows = "".join(_rows(before, after))
    return (f"<details open><summary>method {html.escape(name)}: {len(before)} lines, then {len(after)}</summary>"
            f"<table>{rows}</table></details>")


def _rows(before: list[str], after: list[str]) -> Iterator[str]:
    """Changed lines side by side; of equal ones only those next to a change."""
    end = 0
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT):
        if group[0][1] > end:
            yield _skipped(group[0][1] - end)
        for tag, i, i_end, j, j_end in group:
            left, right = before[i:i_end], after[j:j_end]
            for place in range(max(len(left), len(right))):
                yield f"<tr>{_cell(left, place, tag, 'del')}{_cell(right, place, tag, 'add')}</tr>\n"
        end = group[-1][2]
    if len(before) > end:
        yield _skipped(len(before) - end)


def _cell(lines: list[str], place: int, tag: str, changed: str) -> str:
    if place >= len(lines):
        return '<td class="none"></td>'
    kind = "" if tag == "equal" else f' class="{changed}"'
    return f"<td{kind}>{html.escape(lines[place].strip())}</td>"


def _skipped(count: int) -> str:
    return f'<tr><td class="skip" colspan="2">{count} equal lines</td></tr>\n'
