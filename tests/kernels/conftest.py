"""Kernel tests need nvcc and TileLang; where one is missing they do not run, and the summary says so."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

NEEDS = {"kernels": ("nvcc", "tilelang"), "nvcc": ("nvcc",)}  # by marker
_left_out: dict[str, list[str]] = {}


def missing_tools(marker: str) -> list[str]:
    found = {"nvcc": shutil.which("nvcc") is not None, "tilelang": importlib.util.find_spec("tilelang") is not None}
    return [tool for tool in NEEDS[marker] if not found[tool]]


def pytest_configure(config: pytest.Config) -> None:
    for marker, tools in NEEDS.items():
        config.addinivalue_line("markers", f"{marker}: compiles kernels; needs {' and '.join(tools)}, no GPU")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker in NEEDS:
        missing = missing_tools(marker)
        for item in items if missing else ():
            if item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=f"not here: {', '.join(missing)}"))
                _left_out.setdefault(marker, []).append(item.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for marker, tests in _left_out.items():
        tools = ", ".join(missing_tools(marker))
        terminalreporter.write_line(f"NOT RUN: {len(tests)} {marker} tests; missing: {tools}")


@pytest.fixture(scope="session")
def kernel_cache() -> Path:
    """The cache that `make gpu-artifacts` fills, so that an unchanged kernel is not built twice."""
    return Path(__file__).parents[2] / "build/kernel-cache"
