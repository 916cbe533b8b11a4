"""Runs a command in this process and holds every refusal to the same form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dsv41c.runtime.plan.errors import CODES
from dsv41c.tools.cli.main import run

SCREEN = (24, 2400)  # lines and characters


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ended]


def runner(capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str | Path) -> Ended:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return command


def check_refusal(ended: Ended, code: str, *words: str) -> None:
    """A typed error: its code and exit code, what was found, is needed and to do; one screen, no traceback."""
    text = ended.err
    assert text.startswith(f"DSV41C-{code} "), text
    assert (ended.code, ended.out) == (CODES[f"DSV41C-{code}"].exit_code, ""), text
    assert all(f"\n  {name}" in text for name in ("found ", "needed ", "do ")), text
    assert text.count("\n") <= SCREEN[0] and len(text) <= SCREEN[1], text
    assert "Traceback" not in text
    for word in words:
        assert word in text, text


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder with its content; None for directories and links."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() and not p.is_symlink() else None
            for p in sorted(folder.rglob("*"))}
