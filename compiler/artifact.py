"""Writes an artifact directory: manifest, plan, packed weights, config and tokenizer, self-test; renamed at the end."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.output_directory import new_directory
from dsv41c.compiler.pass_driver import PassRecord
from dsv41c.compiler.pass_records import PASSES, encode_records
from dsv41c.compiler.weight_map import FEATURE, MAPPING, WeightMap
from dsv41c.runtime.plan import codec, schema

MANIFEST, PLAN = "dsv41c.json", "plan.json"
COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
SHARD_BYTES = 4 * 1024**3


class Source(Protocol):
    """What an artifact records of where its weights come from; a CheckpointView is one."""

    @property
    def path(self) -> Path: ...

    @property
    def model_digest(self) -> str: ...

    def content_digest(self) -> str: ...


@dataclass(frozen=True)
class SelfTest:
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Packed:
    """What goes in beside the plan: cubins by digest, what the passes did, weights by plan name and the self-test;
    None is plan-only. Weights that `mapping` names stay in the checkpoint."""

    cubins: Mapping[str, bytes]
    passes: tuple[PassRecord, ...] = ()
    weights: Mapping[str, torch.Tensor] | None = None
    self_test: SelfTest | None = None
    mapping: WeightMap | None = None


def write_artifact(output: Path, plan: schema.Plan, view: Source, options: CompileOptions,
                   packed: Packed) -> None:
    """Nothing appears under `output` before all of it is on disk."""
    weights, self_test = packed.weights, packed.self_test
    # Without weights only the headers are known; with them the digest covers every byte that was packed.
    model_digest = view.model_digest if weights is None else view.content_digest()
    plan = replace(plan, provenance=replace(plan.provenance, model_digest=model_digest))
    if self_test is not None:
        plan = replace(plan, checks=(schema.Check(self_test.prompt, self_test.tokens),))
    with new_directory(output, "DSV41C-E0605") as folder:
        (folder / PLAN).write_bytes(codec.encode(plan))
        (folder / PASSES).write_bytes(encode_records(packed.passes))
        for name in COPIED:
            if (view.path / name).is_file():
                shutil.copyfile(view.path / name, folder / name)
        for digest, cubin in packed.cubins.items():
            (folder / "kernels").mkdir(exist_ok=True)
            (folder / "kernels" / f"{digest}.cubin").write_bytes(cubin)
        if weights is not None:
            elsewhere = packed.mapping.names if packed.mapping else frozenset()
            _write_weights(folder, {w.name: weights[w.name] for w in plan.weights if w.name not in elsewhere})
        if packed.mapping is not None:
            (folder / MAPPING).write_bytes(packed.mapping.data)
        manifest = _manifest(folder, plan, view, options, weights is None)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")


def _manifest(folder: Path, plan: schema.Plan, view: Source, options: CompileOptions,
              plan_only: bool) -> dict[str, object]:
    files = {str(p.relative_to(folder)): {"bytes": p.stat().st_size, "sha256": file_digest(p)}
             for p in sorted(folder.rglob("*")) if p.is_file()}
    # What only an executor with this feature can load is no part of the plan.
    features = {*plan.required_features, *([FEATURE] if MAPPING in files else [])}
    return {
        "format_version": schema.FORMAT_VERSION, "producer": plan.provenance.producer, "target": plan.target,
        "plan_only": plan_only, "required_features": sorted(features),
        "model_digest": plan.provenance.model_digest, "header_digest": view.model_digest,
        "options": options.to_json(), "options_digest": options.digest(),
        "plan_digest": codec.digest(plan), "files": files,
    }


def _write_weights(folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Shards of at most SHARD_BYTES in plan order, with the index that Hugging Face tools read."""
    shards: list[dict[str, torch.Tensor]] = [{}]
    filled = 0
    for name, tensor in weights.items():
        if filled and filled + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            filled = 0
        shards[-1][name] = tensor.contiguous()
        filled += tensor.nbytes
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        (folder / file).touch()
        mode = (folder / file).stat().st_mode
        _save(shard, folder / file)
        (folder / file).chmod(mode)  # the library leaves a file that only its owner may read
        weight_map |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": sum(t.nbytes for t in weights.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")


def _save(shard: Mapping[str, torch.Tensor], path: Path) -> None:
    """The library reports a full disk by an error of its own, with the number of the system in its text."""
    try:
        save_file(dict(shard), path, metadata={"format": "pt"})
    except SafetensorError as error:
        found = re.search(r"(?:code: |os error )(\d+)", str(error))
        raise OSError(int(found.group(1)) if found else errno.EIO, str(error), str(path)) from error


def file_digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
