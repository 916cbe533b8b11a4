"""What the public C header says: its rules, constants, structs and functions with their comments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

HEADER = Path(__file__).parents[2] / "runtime/cpp/include/dsv41c/dsv41c.h"


@dataclass
class Entry:
    """A field, a constant or a function: its declaration without comment, and the comment."""

    name: str
    declaration: str
    comment: str


@dataclass
class Block:
    """A struct or an enum."""

    name: str
    comment: str
    entries: list[Entry] = field(default_factory=list)


def rules(text: str) -> list[str]:
    """R1, R2, ... each as one line."""
    head = text[text.index("RULES") : text.index("*/")]
    plain = " ".join(line.strip(" *") for line in head.splitlines()[1:])
    return [rule.strip() for rule in re.split(r"(?=\bR\d+ +[A-Z])", plain) if rule.strip()]


def structs(text: str) -> list[Block]:
    """In the order of the header, the table `dsv_api` included."""
    pattern = re.compile(r"((?:^/\*[^;{}]*?\*/\n)?)^typedef struct (\w+) \{\n(.*?)\n\} \2;", re.DOTALL | re.MULTILINE)
    return [Block(name, _plain(comment), _entries(body)) for comment, name, body in pattern.findall(text)]


def enums(text: str) -> list[Block]:
    """An enum is called after what its constants have in common."""
    found = []
    for body, comment in re.findall(r"^enum \{(.*?)\};[ ]*((?:/\*.*?\*/)?)", text, re.DOTALL | re.MULTILINE):
        entries = [Entry(name, f"{name} = {value}", _plain(note)) for name, value, note in
                   re.findall(r"(DSV_\w+) = (\d+),?[ ]*((?:/\*.*?\*/)?)", body, re.DOTALL)]
        found.append(Block(_common(entries), _plain(comment), entries))
    return found


def _common(entries: list[Entry]) -> str:
    """`DSV_EV` of DSV_EV_TOKENS and its like; the last one counts, because DSV_OK is one of DSV_E."""
    return "_".join(entries[-1].name.split("_")[:2])


def _entries(body: str) -> list[Entry]:
    """A comment belongs to the declaration on its line, or else to the next one."""
    entries, waiting = [], ""
    for declaration, comment in re.findall(r"([^;/]*;)?[ ]*((?:/\*.*?\*/)?)\n?", body, re.DOTALL):
        plain = _plain(comment)
        if not declaration.strip():
            waiting = f"{waiting} {plain}".strip()
            continue
        text = re.sub(r"\s+", " ", declaration).strip().rstrip(";")
        entries.append(Entry(_name(text), text, f"{waiting} {plain}".strip()))
        waiting = ""
    return entries


def _name(declaration: str) -> str:
    function = re.search(r"\(\*(\w+)\)", declaration)
    return function.group(1) if function else re.findall(r"\w+", declaration)[-1]


def _plain(comment: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\n\s*\*", " ", comment.strip().removeprefix("/*").removesuffix("*/"))).strip()
