"""Sizes in bytes as options give them: `123456`, `512MiB`, `8GiB`; anything else is a typed error (E0901)."""

from __future__ import annotations

import difflib
import re

from dsv41c.runtime.plan.errors import Dsv41cError

UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
MOST = 2**62
_SIZE = re.compile(r"([+-]?[0-9]{1,30})(.*)", re.DOTALL)


def parse_bytes(option: str, text: str) -> int:
    """A whole number of bytes, KiB, MiB, GiB or TiB, at least 1 byte; the error names the nearest legal value."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise _bad(option, text, "8GiB, 512MiB or 123456")
    number, unit = int(found.group(1)), found.group(2)
    if unit not in UNITS:
        raise _bad(option, text, f"{max(number, 1)}{_near(unit)}")
    size = number * UNITS[unit]
    if size < 1:
        raise _bad(option, text, "1")
    if size > MOST:
        raise _bad(option, text, str(MOST))
    return size


def _near(unit: str) -> str:
    """GB, gib and G mean GiB; what resembles no unit counts bytes."""
    letter = unit.strip().upper()[:1]
    names = [name for name in UNITS if name.startswith(letter)] if letter else [""]
    return difflib.get_close_matches(unit.strip(), names, n=1, cutoff=0.0)[0] if names else ""


def _bad(option: str, text: str, nearest: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0901", f"option {option}", found=repr(text),
                       needed="a size such as 8GiB, 512MiB or 123456 (bytes), at least 1 byte",
                       do=f"the nearest legal value is {nearest}")
