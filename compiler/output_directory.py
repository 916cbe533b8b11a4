"""new_directory: a directory that appears under its name only when everything in it is on disk."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsv41c.runtime.plan.errors import Dsv41cError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def new_directory(output: Path, exists_code: str) -> Iterator[Path]:
    """A temporary directory beside `output`, renamed to it when the block ends well and removed otherwise.

    Raises `exists_code` when `output` exists, E0606 when the file system refuses. The temporary directory is
    locked while its process lives: whoever writes the same output next removes what a killed process left.
    """
    refuse_existing(output, exists_code)
    parents = [folder for folder in output.absolute().parents if not os.path.lexists(folder)]
    folder, lock, renamed = None, -1, False
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(output)
        folder, lock = _locked_directory(output)
        yield folder
        _sync_tree(folder)
        _rename(folder, output, exists_code)
        renamed = True
        _sync(output.parent)
    except OSError as error:
        raise write_error(output, error) from error
    finally:
        if folder is not None and not renamed:
            shutil.rmtree(folder, ignore_errors=True)
        if lock >= 0:
            os.close(lock)
        if not renamed:
            _remove_empty(parents)


def refuse_existing(output: Path, exists_code: str) -> None:
    """Before any long work: an output that exists is never overwritten."""
    if os.path.lexists(output):
        raise Dsv41cError(exists_code, "output exists", where=str(output), found="a file or directory of this name",
                          needed="a path that does not exist yet", do="remove it, or choose another -o")


def write_error(output: Path, error: OSError) -> Dsv41cError:
    """E0606 that tells a full disk from a missing permission."""
    subject, needed, do = ("output cannot be written", "a directory that can be written", "choose another -o")
    if error.errno in _NO_SPACE:
        subject, needed, do = ("no space for the output", "enough free space, quota and file size limit",
                               "free space or raise the limit, or choose another -o")
    elif error.errno in _NOT_PERMITTED:
        subject, needed, do = ("no permission to write the output", "a directory that this user may write",
                               "change the permissions, or choose another -o")
    return Dsv41cError("DSV41C-E0606", subject, where=str(output), found=str(error), needed=needed, do=do)


def _locked_directory(output: Path) -> tuple[Path, int]:
    """A new directory and its lock, which the kernel releases when this process ends in whatever way."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(output), dir=output.parent))
        lock = _lock(folder)
        if lock is not None and folder.exists():
            folder.chmod(0o777 & ~_umask())
            return folder, lock
        # Another process took the new directory for an abandoned one before it was locked.
        if lock is not None:
            os.close(lock)


def _remove_abandoned(output: Path) -> None:
    """Temporaries for this output that nobody holds any more. What cannot be removed harms nobody."""
    for folder in output.parent.glob(f"{_escaped(_prefix(output))}*"):
        lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the lock; None when another process has it or the directory is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _rename(folder: Path, output: Path, exists_code: str) -> None:
    """Another process may have written the same output meanwhile: the first one wins."""
    try:
        folder.rename(output)
    except OSError:
        refuse_existing(output, exists_code)
        raise


def _prefix(output: Path) -> str:
    return f"{output.name}.tmp-"


def _escaped(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_tree(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(parents: list[Path]) -> None:
    """Directories that were made for an output which then failed, innermost first."""
    for folder in parents:
        try:
            folder.rmdir()
        except OSError:
            return  # another process uses it, or it was never made
