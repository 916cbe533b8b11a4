"""Makes build/typing/dsv41c, links that look like the installed package: what mypy and import-linter read."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FARM = ROOT / "build/typing"


def main() -> int:
    """The mapping is the wheel's own, so that the two cannot differ."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["scikit-build"]["wheel"]["packages"]
    for name, source in packages.items():
        if name == "dsv41c":
            # A folder of links to files, because the rooms are linked into it.
            for file in (ROOT / source).iterdir():
                if file.is_file():
                    link(FARM / name / file.name, file)
        else:
            link(FARM / name, ROOT / source)
    # A package without __init__.py is invisible to the import graph; only the links need the file.
    (FARM / "dsv41c/tools/__init__.py").touch()
    return 0


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and path.resolve() == target.resolve():
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)


if __name__ == "__main__":
    sys.exit(main())
