"""Root of the package: public names, resolved on first use so that `import dsv41c` stays light (no torch)."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "compile", "load"]

_EXPORTS = {
    "compile": ("dsv41c.compiler.driver", "compile_checkpoint"),
    "load": ("dsv41c.runtime.load", "load"),
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'dsv41c' has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
