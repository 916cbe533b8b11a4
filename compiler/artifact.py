"""Writes an artifact directory: manifest, plan, packed weights, config and tokenizer, self-test; renamed at the end."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.output_directory import new_directory
from dsv41c.runtime.plan import codec, schema
from dsv41c.runtime.plan.errors import Dsv41cError

MANIFEST, PLAN = "dsv41c.json", "plan.json"
COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
SHARD_BYTES = 4 * 1024**3


@dataclass(frozen=True)
class SelfTest:
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


def write_artifact(output: Path, plan: schema.Plan, view: CheckpointView, options: CompileOptions,
                   cubins: Mapping[str, bytes], weights: Mapping[str, torch.Tensor] | None,
                   self_test: SelfTest | None) -> None:
    """`weights` None writes a plan-only artifact. Nothing appears under `output` before all of it is on disk."""
    # Without weights only the headers are known; with them the digest covers every byte that was packed.
    model_digest = view.model_digest if weights is None else view.content_digest()
    plan = replace(plan, provenance=replace(plan.provenance, model_digest=model_digest))
    if self_test is not None:
        plan = replace(plan, checks=(schema.Check(self_test.prompt, self_test.tokens),))
    with new_directory(output, "DSV41C-E0605") as folder:
        (folder / PLAN).write_bytes(codec.encode(plan))
        for name in COPIED:
            if (view.path / name).is_file():
                shutil.copyfile(view.path / name, folder / name)
        for digest, cubin in cubins.items():
            (folder / "kernels").mkdir(exist_ok=True)
            (folder / "kernels" / f"{digest}.cubin").write_bytes(cubin)
        if weights is not None:
            _write_weights(folder, {w.name: weights[w.name] for w in plan.weights})
        manifest = _manifest(folder, plan, view, options, weights is None)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")


def _manifest(folder: Path, plan: schema.Plan, view: CheckpointView, options: CompileOptions,
              plan_only: bool) -> dict[str, object]:
    files = {str(p.relative_to(folder)): {"bytes": p.stat().st_size, "sha256": file_digest(p)}
             for p in sorted(folder.rglob("*")) if p.is_file()}
    return {
        "format_version": schema.FORMAT_VERSION, "producer": plan.provenance.producer, "target": plan.target,
        "plan_only": plan_only, "required_features": list(plan.required_features), "model_digest": plan.provenance.model_digest,
        "header_digest": view.model_digest, "options": options.to_json(), "options_digest": options.digest(),
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
        save_file(shard, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(mode)  # the library leaves a file that only its owner may read
        weight_map |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": sum(t.nbytes for t in weights.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")


def file_digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
