"""Header reader for safetensors files: names, dtypes, shapes and byte ranges, checked against the size."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from dsv41c.compiler.checkpoint.layout import DTYPE_BYTES
from dsv41c.runtime.plan.errors import Dsv41cError

_PREFIX_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000
# Dtypes that the model has none of may occur in tensors that it does not read.
_ITEM_BYTES = DTYPE_BYTES | {"F16": 2, "F64": 8, "F8_E5M2": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4, "I64": 8,
                             "U64": 8, "BOOL": 1}  # fmt: skip
# Metadata of a shard that was written without data on purpose.
HEADERS_ONLY = {"dsv41c": "headers only"}


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
    has_data: bool = True  # False: the file was written as headers only


def read_header(path: Path) -> list[TensorHeader]:
    """Every tensor of a file in the order of its data; refuses gaps, overlaps and truncated files."""
    size = _file_size(path)
    entries, start = _read_entries(path, size)
    metadata = entries.pop("__metadata__", None)
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
    if isinstance(metadata, dict) and HEADERS_ONLY.items() <= metadata.items() and size == start:
        return [replace(header, has_data=False) for header in headers]
    if position != size:
        _refuse(path, f"{size} bytes", f"{position} bytes, as the header says")
    return headers


def _read_entries(path: Path, size: int) -> tuple[dict[str, Any], int]:
    """The header's JSON object and the offset at which the data starts."""
    if size < _PREFIX_BYTES + 2:
        _refuse(path, f"a file of {size} bytes", f"at least {_PREFIX_BYTES + 2} bytes")
    length, text = _read_text(path, min(size - _PREFIX_BYTES, _MAX_HEADER_BYTES), size)
    try:
        entries = json.loads(text, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"a header that is no JSON: {error}", "a JSON object with unique keys")
    if not isinstance(entries, dict):
        _refuse(path, "a header that is no JSON object", "a JSON object")
    return entries, _PREFIX_BYTES + length


def _read_text(path: Path, limit: int, size: int) -> tuple[int, bytes]:
    """The header's length and its bytes."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_PREFIX_BYTES), "little")
            if not 2 <= length <= limit:
                _refuse(path, f"a header of {length} bytes in a file of {size}", f"2 to {limit} bytes")
            return length, file.read(length)
    except OSError as error:
        _refuse(path, str(error), "a file that can be read")


def _tensor(path: Path, name: str, entry: Any, start: int) -> TensorHeader:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        _refuse(path, f"{name}: {entry!r}", "an object with dtype, shape and data_offsets")
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        _refuse(path, f"{name}: dtype {dtype!r}", f"one of {', '.join(_ITEM_BYTES)}")
    if not all(type(value) is int and value >= 0 for value in (*shape, begin, end)):
        _refuse(
            path, f"{name}: shape {list(shape)}, offsets {[begin, end]}", "integers that are not negative"
        )
    if end - begin != math.prod(shape) * _ITEM_BYTES[dtype]:
        needed = math.prod(shape) * _ITEM_BYTES[dtype]
        _refuse(path, f"{name}: {end - begin} bytes", f"{needed} bytes for {dtype} {list(shape)}")
    return TensorHeader(name, dtype, shape, path, start + begin, start + end, name)


def _file_size(path: Path) -> int:
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise Dsv41cError(
            "DSV41C-E0101",
            f"checkpoint file missing: {path.name}",
            where=str(path.parent),
            found="no such file",
            needed="every shard that model.safetensors.index.json names",
            do="fetch the missing shard",
        ) from error
    except (OSError, ValueError) as error:  # a loop of links, no permission, a NUL byte in the name
        _refuse(path, str(error), "a file that can be read")
    if not path.is_file():
        _refuse(path, "no regular file", "a file")
    return size


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
