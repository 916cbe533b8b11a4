"""The root package: importing it, or the runtime's loader, does not import torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dsv41c


@pytest.mark.parametrize("statement", ["import dsv41c; dsv41c.__version__", "import dsv41c.runtime.load",
                                       "import dsv41c; dsv41c.load"])
def test_import_is_light(statement: str) -> None:
    program = f"{statement}\nimport sys\nassert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        dsv41c.lode  # noqa: B018
    assert dir(dsv41c) == ["__version__", "compile", "load"]
