"""Keeps compiled kernels between compilations: a cache that cannot be used costs time and changes nothing else."""

from __future__ import annotations

import functools
import json
import logging
import os
import tempfile
from pathlib import Path

from dsv41c.compiler.kernels.source import CompiledKernel, LaunchRecord
from dsv41c.runtime.plan.errors import Dsv41cError

_log = logging.getLogger("dsv41c.compiler.kernels")


def read_kept(base: Path) -> CompiledKernel | None:
    """A kept result; None unless both files are there, whole, and the digest is that of the record."""
    try:
        node = json.loads(base.with_suffix(".json").read_text(encoding="ascii"))
        kept = CompiledKernel.of(base.with_suffix(".cubin").read_bytes(), LaunchRecord.from_json(node["record"]))
        return kept if kept.digest == node["digest"] else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, Dsv41cError) as error:
        _log.warning("kernel cache entry %s is not used: %s", base, error)
        return None


def keep(base: Path, built: CompiledKernel) -> None:
    """Both files whole or not at all: several builds may write the same key at once, and the cache may vanish."""
    record = json.dumps({"digest": built.digest, "record": built.record.to_json()}, sort_keys=True)
    try:
        for suffix, content in ((".cubin", built.cubin), (".json", record.encode("ascii"))):
            _write_whole(base.with_suffix(suffix), content)
    except OSError as error:
        _warn_once(base.parent, str(error.strerror or error))


@functools.cache
def _warn_once(cache: Path, reason: str) -> None:
    """The same reason would else be told for each kernel."""
    _log.warning("kernel cache %s cannot be written: %s", cache, reason)


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f"{path.name}.tmp-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
