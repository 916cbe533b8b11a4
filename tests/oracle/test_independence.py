"""The oracle shares no code with the product: it imports the standard library, NumPy and itself."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

MODULES = [path for path in sorted(Path(__file__).parent.glob("*.py")) if not path.name.startswith("test_")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_module_imports_only_numpy_and_the_standard_library(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(str(node.module).split(".")[0])
    assert imported - set(sys.stdlib_module_names) <= {"numpy"}
