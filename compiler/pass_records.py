"""passes.json: what each pass did while an artifact was compiled, every match and the reason of every refusal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from dsv41c.compiler.pass_driver import PassRecord
from dsv41c.passes.base import Match, Note
from dsv41c.runtime.pass_notes import PASSES, SCHEMA_VERSION

__all__ = ["PASSES", "encode_records", "record_fields"]


def encode_records(records: Sequence[PassRecord]) -> bytes:
    """Canonical JSON: {"schema_version", "passes": [{"name", "stage", "arguments", "source", "num_matches", "matches":
    [{"method", "site", "made", "replaced"}], "refusals": [{"method", "site", "reason"}]}]}."""
    fields = {"schema_version": SCHEMA_VERSION, "passes": [record_fields(r) for r in records]}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def record_fields(record: PassRecord) -> Mapping[str, Any]:
    """One entry of `passes`."""
    notes: tuple[Note, ...] = record.notes
    return {
        "name": record.name, "stage": record.stage, "arguments": record.arguments, "source": record.source,
        "num_matches": record.num_matches,
        "matches": [dataclasses.asdict(n) for n in notes if isinstance(n, Match)],
        "refusals": [dataclasses.asdict(n) for n in notes if not isinstance(n, Match)],
    }
