"""Census of a checkpoint: which shard holds which tensor, and whether all that the config implies exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from dsv41c.compiler.checkpoint.layout import DRAFT_PREFIX, VISION_PREFIXES, TensorSpec, expected_tensors
from dsv41c.compiler.checkpoint.safetensors_header import TensorHeader, read_header
from dsv41c.compiler.config import ModelConfig, read_json
from dsv41c.runtime.plan.errors import Dsv41cError

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
_OPTIONAL_PREFIX = "model."
_SHOWN = 10


@dataclass(frozen=True)
class Census:
    """Tensors the model reads, by canonical name, and the names nobody reads."""

    tensors: dict[str, TensorHeader]
    surplus: tuple[str, ...]
    has_draft: bool


@dataclass(frozen=True)
class Stored:
    """What the shards of a checkpoint hold; the index decides which shard a tensor comes from."""

    tensors: dict[str, TensorHeader]  # by canonical name
    stale: tuple[TensorHeader, ...]  # copies in a shard that is not the index's choice
    absent: tuple[str, ...]  # indexed, but not in their shard


def read_stored(path: Path) -> Stored:
    """Headers of all shards. E0101 for a missing shard, E0105 for one that is malformed."""
    if not (path / INDEX_FILE).exists() and (path / SINGLE_FILE).exists():
        return Stored(_canonical(read_header(path / SINGLE_FILE), path), (), ())
    weight_map = _weight_map(path)
    found: dict[str, TensorHeader] = {}
    stale = []
    for file in sorted(set(weight_map.values())):
        for header in read_header(path / file):
            # A tensor that the index places elsewhere is a stale copy; an unknown one becomes surplus.
            if weight_map.get(header.name, file) == file:
                found[header.name] = header
            else:
                stale.append(header)
    absent = tuple(name.removeprefix(_OPTIONAL_PREFIX) for name in weight_map if name not in found)
    return Stored(_canonical(found.values(), path), tuple(stale), absent)


def read_complete(path: Path) -> Stored:
    """Headers of all shards; E0102 when the index names a tensor that its shard lacks."""
    stored = read_stored(path)
    if stored.absent:
        subject = f"{len(stored.absent)} indexed tensors missing from their shards"
        _refuse("DSV41C-E0102", subject, stored.absent, path)
    return stored


def _canonical(headers: Iterable[TensorHeader], path: Path) -> dict[str, TensorHeader]:
    result: dict[str, TensorHeader] = {}
    for header in headers:
        canonical = header.name.removeprefix(_OPTIONAL_PREFIX)
        if canonical in result:
            _bad_index(path, f"both {header.name} and {result[canonical].stored_name}", "one of the two names")
        result[canonical] = replace(header, name=canonical)
    return result


def check_census(
    config: ModelConfig, headers: Mapping[str, TensorHeader], path: Path, *, draft: bool
) -> Census:
    """Every expected tensor must exist with its dtype and shape; the draft layers may be absent together."""
    expected = expected_tensors(config)
    has_draft = any(name.startswith(DRAFT_PREFIX) for name in headers)
    if not (draft or has_draft):
        expected = {name: spec for name, spec in expected.items() if not name.startswith(DRAFT_PREFIX)}
    missing = [name for name in expected if name not in headers]
    if missing:
        _refuse("DSV41C-E0102", f"{len(missing)} of {len(expected)} tensors missing", missing, path)
    wrong = []
    for name, spec in expected.items():
        header = headers[name]
        if not same_storage(header, spec):
            found = f"{header.dtype} {list(header.shape)}"
            wrong.append(f"{name}: {found} instead of {spec.dtype} {list(spec.shape)}")
    if wrong:
        _refuse("DSV41C-E0103", f"{len(wrong)} tensors with another dtype or shape", wrong, path)
    known = expected.keys()
    surplus = tuple(sorted(n for n in headers if n not in known and not n.startswith(VISION_PREFIXES)))
    return Census({name: headers[name] for name in expected}, surplus, has_draft)


def same_storage(header: TensorHeader, spec: TensorSpec) -> bool:
    """Packed FP4 is bytes, whose sign has no meaning: some copies store it as U8."""
    return header.shape == spec.shape and (header.dtype == spec.dtype or (header.dtype, spec.role) == ("U8", "fp4"))


def _weight_map(path: Path) -> dict[str, str]:
    index = read_json(path / INDEX_FILE)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        _bad_index(path, "no weight_map", "an object weight_map from tensor names to shard files")
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file or file in ("", ".."):
            _bad_index(path, f"{name}: {file!r}", "the name of a file in the same directory")
    return weight_map


def _refuse(code: str, subject: str, names: Sequence[str], path: Path) -> NoReturn:
    more = f" (first {_SHOWN} of {len(names)})" if len(names) > _SHOWN else ""
    raise Dsv41cError(
        code,
        subject,
        where=str(path),
        found=("; " if code.endswith("0103") else ", ").join(names[:_SHOWN]) + more,
        needed="every tensor that config.json implies, as published",
        do="fetch the checkpoint again, or correct config.json",
    )


def _bad_index(path: Path, found: str, needed: str) -> NoReturn:
    raise Dsv41cError(
        "DSV41C-E0105",
        f"bad {INDEX_FILE}",
        where=str(path / INDEX_FILE),
        found=found,
        needed=needed,
        do="fetch the index again",
    )
