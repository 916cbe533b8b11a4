"""Manifest: what dsv41c.json says about an artifact. Full checks of the files are the executor's at load."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv41c.runtime.plan import codec
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.format import FORMAT_VERSION
from dsv41c.runtime.plan.schema import Plan

NAME, PLAN = "dsv41c.json", "plan.json"


@dataclass(frozen=True)
class Manifest:
    """`fields` is the object as written; `options` are the compile options in it."""

    path: Path
    fields: Mapping[str, Any]

    @classmethod
    def read(cls, artifact: Path) -> Manifest:
        """E0601 when there is no artifact, E0703 when it is not readable, E0604 when it is of another version."""
        fields = read_json(artifact / NAME)
        version = fields.get("format_version")
        if version != FORMAT_VERSION:
            raise Dsv41cError("DSV41C-E0604", f"artifact format of {artifact}", found=f"format version {version}",
                              needed=f"format version {FORMAT_VERSION}", do="compile it with this version of dsv41c")
        return cls(artifact, fields)

    def read_plan(self) -> Plan:
        """E0601 without plan.json, E0602 when it is not the one that this manifest names, else the codec's errors."""
        path = self.path / PLAN
        try:
            data = path.read_bytes()
        except OSError as error:
            raise missing(path, error) from error
        found, needed = hashlib.sha256(data).hexdigest(), self.fields.get("plan_digest")
        if found != needed:
            raise Dsv41cError("DSV41C-E0602", f"plan {path}", found=f"digest {found}", needed=f"digest {needed}",
                              do="copy or compile the artifact again")
        return codec.decode(data)

    @property
    def options(self) -> Mapping[str, Any]:
        options = self.fields.get("options")
        if not isinstance(options, dict):
            raise _malformed(self.path / NAME, "no object under options")
        return options

    def integer_option(self, name: str, least: int = 1) -> int:
        value = self.options.get(name)
        if type(value) is not int or value < least:
            raise _malformed(self.path / NAME, f"option {name} = {value!r}")
        return value


def read_json(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file of an artifact."""
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise missing(path, error) from error
    except (ValueError, RecursionError) as error:
        raise _malformed(path, str(error)) from error
    if not isinstance(fields, dict):
        raise _malformed(path, f"a JSON {type(fields).__name__}")
    return fields


def missing(path: Path, error: OSError) -> Dsv41cError:
    """E0601: a file of an artifact cannot be read."""
    return Dsv41cError("DSV41C-E0601", f"artifact file {path}", found=error.strerror or str(error),
                       needed="what `dsv41c compile` wrote", do="check the path, or compile again")


def _malformed(path: Path, found: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0703", f"bad artifact file {path}", found=found, needed="the JSON that compile writes",
                       do="compile the artifact again")
