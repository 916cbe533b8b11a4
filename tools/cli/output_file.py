"""A file that a command writes at its end: whether it can be written is checked before the work."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True)
class OutputFile:
    """`what` it holds and the `option` that names it, for messages."""

    what: str
    option: str
    path: Path

    def check_writable(self) -> None:
        """Before the work, so that its result is not lost to a path that cannot be written (E0606)."""
        path = self.path
        found = "a directory" if path.is_dir() else None if path.parent.is_dir() else f"no directory {path.parent}"
        if found is None and not os.access(path.parent, os.W_OK):
            found = f"no permission to write in {path.parent}"
        if found is not None:
            raise self._refused(found, "a file name in a writable directory")

    def write(self, fill: Callable[[BinaryIO], object]) -> None:
        """The file appears under its name only when it is whole (E0606 when it cannot)."""
        temporary = self.path.with_name(f"{self.path.name}.tmp-{os.getpid()}")
        try:
            with temporary.open("wb") as handle:
                fill(handle)
            temporary.replace(self.path)
        except OSError as error:
            raise self._refused(str(error), "a writable directory with free space") from error
        finally:
            temporary.unlink(missing_ok=True)

    def _refused(self, found: str, needed: str) -> Exception:
        from dsv41c.runtime.plan.errors import Dsv41cError

        return Dsv41cError("DSV41C-E0606", f"{self.what} cannot be written", where=str(self.path), found=found,
                           needed=needed, do=f"choose another {self.option}")
