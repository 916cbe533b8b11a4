"""Finds what the build of the C++ part installs in this package, and opens the library of executor and engine."""

from __future__ import annotations

import ctypes
import functools
from importlib import resources
from pathlib import Path

from dsv41c.runtime.plan.errors import Dsv41cError

PUBLIC = "libdsv41c.so.1"  # what C programs link; Python uses the same engine in libdsv41c_executor


def library_path(name: str) -> Path:
    """Path of `lib<name>.so` as installed beside this package; E0702 when it was not built."""
    return installed_file(f"lib/lib{name}.so")


def installed_file(name: str) -> Path:
    """A file that the build of the C++ part installs, by its path in this package; E0702 when it is not there."""
    for base in _bases():
        path = base / name
        if path.is_file():
            return path
    raise Dsv41cError(
        "DSV41C-E0702", name.removeprefix("lib/"), found="no such library in the installed package",
        needed="a build of the C++ part" + (" against this environment's torch" if "aten" in name else ""),
        do="run `make install` (it builds with --no-build-isolation, so that CMake sees torch)",
    )


def _bases() -> list[Path]:
    root = resources.files("dsv41c.runtime")
    paths = getattr(root, "_paths", None)  # a MultiplexedPath when editable: sources and built files apart
    return [Path(str(p)) for p in paths] if paths else [Path(str(root))]


@functools.cache
def core_library() -> ctypes.CDLL:
    """Executor and engine with the cpu provider; it does not link torch."""
    return ctypes.CDLL(str(library_path("dsv41c_executor")))
