"""Runs import-linter on the link farm: an editable install shows it the root package only."""

from __future__ import annotations

import sys
from pathlib import Path

from importlinter.cli import lint_imports_command

FARM = Path(__file__).parents[2] / "build/typing"

if __name__ == "__main__":
    # The finder of an editable install comes before the path and would hide the rooms from the graph builder.
    sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
    sys.path.insert(0, str(FARM))
    lint_imports_command()
