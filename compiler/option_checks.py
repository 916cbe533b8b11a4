"""Checks that options about methods share: names, numbers, and the E0901 that they end with."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from dsv41c.runtime.plan.errors import Dsv41cError

METHODS = ("decode", "encoder", "decoder", "head", "draft")
_MOST_DIGITS = 20  # the interpreter refuses to read thousands


def check_method(option: str, name: str, seen: Collection[str] = ()) -> None:
    """E0901 for an unknown one and for one that was `seen`."""
    if name not in METHODS:
        raise unknown(option, name, METHODS)
    if name in seen:
        raise bad(option, f"method {name} twice", "each method once", f"write {name} once")


def check_number(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        near = min(max(value, least), most)
        raise bad(option, str(value), f"{least} to {most}", f"pass {near}")


def integer(option: str, text: str) -> int:
    if not text.strip().removeprefix("-").isdecimal() or not text.isascii() or len(text) > _MOST_DIGITS:
        raise bad(option, repr(text[:40]), f"an integer of at most {_MOST_DIGITS} digits", "correct the number")
    return int(text)


def unknown(option: str, name: str, known: Sequence[str]) -> Dsv41cError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
    return bad(option, repr(name), f"one of {', '.join(known)}", f"did you mean {near}?")


def bad(option: str, found: str, needed: str, do: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0901", f"option {option}", found=found, needed=needed, do=do)
