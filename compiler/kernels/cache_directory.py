"""Where compiled kernels are kept between compilations; the environment may only say where."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path | None:
    """DSV41C_CACHE_DIR, else `dsv41c` in the user's cache directory; None for a user without a home."""
    if chosen := os.environ.get("DSV41C_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "dsv41c" if os.path.isabs(base) else None
