"""Writes the toy plan as an artifact directory, and the NumPy truth of the toy model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from dsv41c.runtime.plan.codec import encode
from dsv41c.runtime.plan.schema import Plan
from tests.unit.runtime.toy_plan import BLOCK, EPS, PAGES_PER_SLOT, VOCAB, WIDTH, toy_plan

START = 1


def toy_weights() -> dict[str, np.ndarray]:
    draws = np.random.default_rng(7)
    return {name: draws.standard_normal(shape).astype(np.float32)
            for name, shape in (("embed", (VOCAB, WIDTH)), ("head", (VOCAB, WIDTH)), ("norm", (WIDTH,)))}


def expected_logits(tokens: Sequence[int]) -> np.ndarray:
    weights = {name: array.astype(np.float64) for name, array in toy_weights().items()}
    x = weights["embed"][list(tokens)]
    normed = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weights["norm"]
    logits: np.ndarray = normed @ weights["head"].T
    return logits


def write_artifact(directory: Path, plan: Plan | None = None, **manifest_changes: Any) -> Path:
    plan = plan or toy_plan()
    directory.mkdir(parents=True)
    weights, names = toy_weights(), ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    save_file({name: weights[name] for name in ("embed", "norm")}, directory / names[0])
    save_file({"head": weights["head"]}, directory / names[1])
    index = {"weight_map": {"embed": names[0], "norm": names[0], "head": names[1]}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "plan.json").write_bytes(encode(plan))
    (directory / "config.json").write_text("{}")
    write_manifest(directory, plan, **manifest_changes)
    return directory


def write_manifest(directory: Path, plan: Plan, **changes: Any) -> None:
    contents = {path.name: path.read_bytes() for path in sorted(directory.iterdir())
                if path.name != "dsv41c.json"}
    files = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
             for name, data in contents.items()}
    manifest = {"format_version": 1, "producer": "test", "target": "cpu", "plan_only": False,
                "required_features": list(plan.required_features),
                "model_digest": plan.provenance.model_digest,
                "options": {}, "options_digest": "", "plan_digest": files["plan.json"]["sha256"],
                "header_digest": None, "files": files}
    (directory / "dsv41c.json").write_text(json.dumps(manifest | changes))


def rows_of(slot: int, tokens: Sequence[int], base: int = 0) -> list[list[int]]:
    """Upload rows of one slot; each page is mapped on its first position. Slot s owns pages 2s and up."""
    def page(position: int) -> int:
        return (slot * 2 + position // BLOCK) % (2 * PAGES_PER_SLOT) if position % BLOCK == 0 else -1

    return [[slot, i, token, START if base == 0 else 0, page(base + i)] for i, token in enumerate(tokens)]


def upload_of(*slots: list[list[int]]) -> np.ndarray:
    return np.array([row for rows in slots for row in rows], np.int32)


def identity(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)
