"""Kernel tests need nvcc and TileLang; where one is missing they do not run, and the summary says so."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

MARKER = "kernels"
_left_out: list[str] = []


def missing_tools() -> list[str]:
    found = {"nvcc": shutil.which("nvcc") is not None, "tilelang": importlib.util.find_spec("tilelang") is not None}
    return [tool for tool, here in found.items() if not here]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}: compiles kernels; needs nvcc and tilelang, no GPU")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = missing_tools()
    for item in items:
        if missing and item.get_closest_marker(MARKER) is not None:
            item.add_marker(pytest.mark.skip(reason=f"not here: {', '.join(missing)}"))
            _left_out.append(item.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_out:
        tools = ", ".join(missing_tools())
        terminalreporter.write_line(f"NOT RUN: {len(_left_out)} kernel tests; missing: {tools}")


@pytest.fixture(scope="session")
def kernel_cache() -> Path:
    """The cache that `make gpu-artifacts` fills, so that an unchanged kernel is not built twice."""
    return Path(__file__).parents[2] / "build/kernel-cache"
