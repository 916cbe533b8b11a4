"""Splits program text into tokens with their places; every complaint about the text is made here (E0306)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dsv41c.runtime.plan.errors import Dsv41cError

_TOKEN = re.compile(r"""
    (?P<space>[ \t\r]+|\#[^\n]*)
  | (?P<line>\n)
  | (?P<ref>%[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>-?(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+|inf\b|nan\b))
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<mark>\.\.|[{}()\[\],=:*+-])
""", re.VERBOSE)
_LINE, END = "line", "end"


@dataclass(frozen=True)
class Token:
    """`kind`: ref, number, word, string, mark, line (a line break outside of brackets) or end."""

    kind: str
    text: str
    line: int
    column: int

    def __str__(self) -> str:
        return {_LINE: "the end of the line", END: "the end of the text"}.get(self.kind, self.text)


def scan(text: str) -> list[Token]:
    """Line breaks inside of ( and [ do not count; comments run from # to the end of the line."""
    tokens: list[Token] = []
    position, line, start, depth = 0, 1, 0, 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        here = Token("mark", text[position], line, position - start + 1)
        if found is None:
            raise refuse(here, repr(text[position]), "a name, %value, number, \"string\" or one of {}()[],=:")
        kind, word = str(found.lastgroup), found.group()
        depth += (kind == "mark" and word in "([") - (kind == "mark" and word in ")]")
        if kind == _LINE:
            if depth <= 0:
                tokens.append(Token(_LINE, word, here.line, here.column))
            line, start = line + 1, found.end()
        elif kind != "space":
            tokens.append(Token(kind, word, here.line, here.column))
        position = found.end()
    return [*tokens, Token(END, "", line, position - start + 1)]


def refuse(token: Token, found: str, needed: str, do: str = "correct the text") -> Dsv41cError:
    return Dsv41cError("DSV41C-E0306", "program text", where=f"line {token.line}, column {token.column}", found=found,
                       needed=needed, do=do)


def unknown(token: Token, what: str, name: str, known: Iterable[str]) -> Dsv41cError:
    """E0306 that proposes the nearest of the known names."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return refuse(token, f"{what} {name}", f"a known {what}",
                  f"did you mean {near[0]}?" if near else "correct the text")
