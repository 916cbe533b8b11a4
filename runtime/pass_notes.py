"""Reads passes.json of an artifact: what each pass matched and refused while it was compiled. Needs no compiler."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dsv41c.runtime.manifest import Manifest, missing
from dsv41c.runtime.plan.errors import Dsv41cError

PASSES = "passes.json"
SCHEMA_VERSION = 1
_T = TypeVar("_T")


@dataclass(frozen=True)
class Match:
    """`made` replaces the calls `replaced`; `site` is the call at which the pass tried."""

    method: str
    site: str
    made: str
    replaced: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """The pass tried at `site` and changed nothing; `reason` is the first thing that stood against it."""

    method: str
    site: str
    reason: str


@dataclass(frozen=True)
class NotedPass:
    """One pass of the pipeline, in its order. `source`: SHA-256 of the module that defined it."""

    name: str
    stage: str
    arguments: Mapping[str, Any]
    source: str
    num_matches: int
    matches: tuple[Match, ...]
    refusals: tuple[Refusal, ...]


def read_pass_notes(artifact: Path) -> tuple[NotedPass, ...]:
    """E0601 when the file is missing, E0602 when it is not the one that the manifest lists, E0604 for another version,
    E0703 for everything else that the compiler does not write."""
    path = artifact / PASSES
    listed = Manifest.read(artifact).fields.get("files")
    entry = listed.get(PASSES) if isinstance(listed, dict) else None
    needed = entry.get("sha256") if isinstance(entry, dict) else None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise missing(path, error) from error
    found = hashlib.sha256(data).hexdigest()
    if found != needed:
        raise Dsv41cError("DSV41C-E0602", f"file {path}", found=f"digest {found}", needed=f"digest {needed}",
                          do="copy or compile the artifact again")
    return decode_pass_notes(data, str(path))


def decode_pass_notes(data: bytes, where: str) -> tuple[NotedPass, ...]:
    """Every key must be there, and no other."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _malformed(where, str(error)) from error
    if not isinstance(fields, dict):
        raise _malformed(where, f"a JSON {type(fields).__name__}")
    if fields.get("schema_version") != SCHEMA_VERSION:
        raise Dsv41cError("DSV41C-E0604", f"form of {where}", found=f"schema version {fields.get('schema_version')!r}",
                          needed=f"schema version {SCHEMA_VERSION}", do="compile it with this version of dsv41c")
    reader = _Reader(where)
    reader.keys(fields, {"schema_version", "passes"}, "$")
    passes = reader.list(fields["passes"], "$.passes")
    return tuple(reader.noted_pass(entry, f"$.passes[{i}]") for i, entry in enumerate(passes))


@dataclass(frozen=True)
class _Reader:
    where: str

    def noted_pass(self, fields: Any, path: str) -> NotedPass:
        self.keys(fields, {f.name for f in dataclasses.fields(NotedPass)}, path)
        self.types(fields, {"name": str, "stage": str, "arguments": dict, "source": str, "num_matches": int}, path)
        notes = {key: tuple(self._note(cls, n, f"{path}.{key}[{i}]")
                            for i, n in enumerate(self.list(fields[key], f"{path}.{key}")))
                 for key, cls in (("matches", Match), ("refusals", Refusal))}
        if len(notes["matches"]) != fields["num_matches"]:
            raise self.bad(path, f"{len(notes['matches'])} matches and num_matches {fields['num_matches']}")
        return NotedPass(**{**fields, **notes})

    def _note(self, cls: type[_T], fields: Any, path: str) -> _T:
        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        self.keys(fields, set(names), path)
        values = dict(fields)
        if "replaced" in values:
            values["replaced"] = tuple(self.list(fields["replaced"], f"{path}.replaced"))
            for index, name in enumerate(values["replaced"]):
                self.types({"it": name}, {"it": str}, f"{path}.replaced[{index}]")
        self.types(fields, {name: str for name in names if name != "replaced"}, path)
        return cls(**values)

    def keys(self, fields: Any, needed: set[str], path: str) -> None:
        if not isinstance(fields, dict):
            raise self.bad(path, f"a JSON {type(fields).__name__}")
        if fields.keys() != needed:
            raise self.bad(path, f"keys {sorted(fields)} instead of {sorted(needed)}")

    def types(self, fields: Mapping[str, Any], needed: Mapping[str, type], path: str) -> None:
        for key, kind in needed.items():
            if type(fields[key]) is not kind:
                raise self.bad(path, f"{key} = {fields[key]!r}")

    def list(self, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.bad(path, f"a JSON {type(value).__name__}")
        return value

    def bad(self, path: str, found: str) -> Dsv41cError:
        return _malformed(self.where, f"{found} at {path}")


def _malformed(where: str, found: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0703", f"bad artifact file {where}", found=found, needed="the JSON that compile writes",
                       do="compile the artifact again")
