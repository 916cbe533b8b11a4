"""Runs `dsv41c` in a process of its own, as a user does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAIN = [sys.executable, "-m", "dsv41c.tools.cli.main"]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def heed_interrupts() -> None:
    """For preexec_fn: a test run in the background of a shell hands an ignored SIGINT down to its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def dsv41c(*arguments: str | Path) -> Ended:
    process = subprocess.run([*MAIN, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    return Ended(process.returncode, process.stdout, process.stderr)
