"""Makes the checkout importable as dsv41c where the project is not installed: a folder of links, nothing is copied."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make_importable() -> None:
    try:
        import dsv41c  # noqa: F401
    except ModuleNotFoundError:
        package = Path(tempfile.mkdtemp(prefix="dsv41c-links-")) / "dsv41c"
        (package / "tools").mkdir(parents=True)
        for name in ("compiler", "passes", "graphs", "runtime"):
            (package / name).symlink_to(ROOT / name)
        (package / "tools/bench").symlink_to(ROOT / "tools/bench")
        (package / "__init__.py").symlink_to(ROOT / "tools/dsv41c/__init__.py")
        sys.path.insert(0, str(package.parent))
