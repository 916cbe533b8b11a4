"""new_directory: a directory that appears under its name only when everything in it is on disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsv41c.runtime.plan.errors import Dsv41cError


@contextmanager
def new_directory(output: Path, exists_code: str) -> Iterator[Path]:
    """A temporary directory beside `output`, renamed to it when the block ends well and removed otherwise.

    Raises `exists_code` when `output` exists, E0606 when the file system refuses.
    """
    if output.exists() or output.is_symlink():
        raise Dsv41cError(exists_code, "output exists", where=str(output), found="a file or directory of this name",
                          needed="a path that does not exist yet", do="remove it, or choose another -o")
    folder = output.with_name(f"{output.name}.tmp-{os.getpid()}")
    try:
        folder.mkdir(parents=True)
        yield folder
        for file in folder.rglob("*"):
            if file.is_file():
                _sync(file)
        folder.rename(output)
    except OSError as error:
        raise Dsv41cError("DSV41C-E0606", "output cannot be written", where=str(output), found=str(error),
                          needed="a writable directory with enough free space",
                          do="free space or choose another -o") from error
    finally:
        # After the rename nothing is left under the temporary name.
        shutil.rmtree(folder, ignore_errors=True)


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
