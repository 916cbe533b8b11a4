"""Digests of a changed artifact computed again, so that only its meaning is wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def seal(artifact: Path, **fields: Any) -> None:
    """The manifest lists the files as they are now; `fields` replace others of it."""
    path = artifact / "dsv41c.json"
    manifest = json.loads(path.read_text())
    for name in manifest["files"]:
        data = (artifact / name).read_bytes()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["plan_digest"] = manifest["files"]["plan.json"]["sha256"]
    path.unlink()
    path.write_text(json.dumps(manifest | fields))


def change_plan(artifact: Path, change: Callable[[Any], object]) -> None:
    plan = json.loads((artifact / "plan.json").read_text())
    change(plan)
    write_plan(artifact, plan)


def write_plan(artifact: Path, plan: Any) -> None:
    """In the canonical form, as the compiler writes it."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":")) + "\n"
    (artifact / "plan.json").unlink()
    (artifact / "plan.json").write_text(text)
    seal(artifact)
