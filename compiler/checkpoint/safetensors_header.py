"""Header reader for safetensors files: names, dtypes, shapes and byte ranges, checked against the size."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dsv41c.compiler.checkpoint.layout import DTYPE_BYTES
from dsv41c.runtime.plan.errors import Dsv41cError

_PREFIX_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class TensorHeader:
    """One stored tensor; `begin` and `end` are offsets into the file. `stored_name` may carry a prefix."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    end: int
    stored_name: str


def read_header(path: Path) -> list[TensorHeader]:
    """Every tensor of a file in the order of its data; refuses gaps, overlaps and truncated files."""
    size = _file_size(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_PREFIX_BYTES), "little")
        limit = min(size - _PREFIX_BYTES, _MAX_HEADER_BYTES)
        if not 2 <= length <= limit:
            _refuse(path, f"a header of {length} bytes in a file of {size}", f"2 to {limit} bytes")
        try:
            entries = json.loads(file.read(length), object_pairs_hook=_unique_keys)
        except ValueError as error:
            _refuse(path, f"a header that is no JSON: {error}", "a JSON object with unique keys")
    if not isinstance(entries, dict):
        _refuse(path, "a header that is no JSON object", "a JSON object")
    entries.pop("__metadata__", None)
    start = _PREFIX_BYTES + length
    headers = sorted(
        (_tensor(path, name, entry, start) for name, entry in entries.items()), key=lambda h: (h.begin, h.end)
    )
    position = start
    for header in headers:
        if header.begin != position:
            _refuse(
                path, f"{header.name} at byte {header.begin}", f"byte {position}, where its predecessor ends"
            )
        position = header.end
    if position != size:
        _refuse(path, f"{size} bytes", f"{position} bytes, as the header says")
    return headers


def _tensor(path: Path, name: str, entry: Any, start: int) -> TensorHeader:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        _refuse(path, f"{name}: {entry!r}", "an object with dtype, shape and data_offsets")
    if dtype not in DTYPE_BYTES:
        _refuse(path, f"{name}: dtype {dtype!r}", f"one of {', '.join(DTYPE_BYTES)}")
    if not all(type(value) is int and value >= 0 for value in (*shape, begin, end)):
        _refuse(
            path, f"{name}: shape {list(shape)}, offsets {[begin, end]}", "integers that are not negative"
        )
    if end - begin != math.prod(shape) * DTYPE_BYTES[dtype]:
        needed = math.prod(shape) * DTYPE_BYTES[dtype]
        _refuse(path, f"{name}: {end - begin} bytes", f"{needed} bytes for {dtype} {list(shape)}")
    return TensorHeader(name, dtype, shape, path, start + begin, start + end, name)


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError as error:
        raise Dsv41cError(
            "DSV41C-E0101",
            f"checkpoint file missing: {path.name}",
            where=str(path.parent),
            found="no such file",
            needed="every shard that model.safetensors.index.json names",
            do="fetch the missing shard",
        ) from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _refuse(path: Path, found: str, needed: str) -> NoReturn:
    raise Dsv41cError(
        "DSV41C-E0105",
        f"bad safetensors file: {path.name}",
        where=str(path),
        found=found,
        needed=needed,
        do="fetch the file again",
    )
