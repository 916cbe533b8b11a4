"""Builds C programs against the installed C interface, as its users do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from dsv41c.runtime.library import installed_file

NATIVE = Path(__file__).parent


def build(source: Path, directory: Path, *flags: str) -> Path:
    """With what pkg-config says; warnings are errors."""
    found = subprocess.run(["pkg-config", "--cflags", "--libs", "dsv41c"], capture_output=True, text=True, check=True,
                           env=os.environ | {"PKG_CONFIG_PATH": str(installed_file("lib/pkgconfig/dsv41c.pc").parent)})
    program = directory / source.stem
    subprocess.run(["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", str(source), *flags,
                    *found.stdout.split(), "-o", str(program)], check=True)
    return program
