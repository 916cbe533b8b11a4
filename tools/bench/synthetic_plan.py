"""A synthetic 40-layer decode plan of the fused kernels at the model's real sizes: what the graph bench builds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dsv41c.compiler.artifact import Packed, write_artifact
from dsv41c.compiler.capture import capture
from dsv41c.compiler.cuda_bodies import FUSED_OPS, CudaBodies
from dsv41c.compiler.driver import producer
from dsv41c.compiler.kernels.cache_directory import cache_directory
from dsv41c.compiler.lower import Choices, lower
from dsv41c.compiler.model.scope import Scope, TensorTree
from dsv41c.compiler.model.state import StateSpec, make_state
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.program import Method, Program, Symbol
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.verify import verify

LAYERS, HIDDEN, STREAMS, EXPERTS, TOPK, RING, HEAD, ROPE = 40, 5120, 4, 384, 6, 134, 512, 64
SLOTS, PAGES, BLOCK, MAX_ROWS, POSITIONS = 512, 512, 128, 512, 1024
NORMS = 7  # norms of a site that stand in for what is not fused yet
BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256, 288, 320, 352,
           384, 416, 448, 512)  # 30 rungs
OPS = torch.ops.dsv41c
BF16, F32 = torch.bfloat16, torch.float32
WEIGHTS: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    "embed": ((128, HIDDEN), BF16), "mix": ((24, STREAMS * HIDDEN), F32), "fn": ((HIDDEN // 64, 48, 256), BF16),
    "scale": ((3,), F32), "base": ((24,), F32), "norm": ((HIDDEN,), BF16), "gate": ((EXPERTS, HIDDEN), BF16),
    "bias": ((EXPERTS,), F32), "wkv": ((HEAD, HIDDEN), BF16), "kv_norm": ((HEAD,), BF16),
    "rotary": ((POSITIONS, ROPE // 2, 2), F32),
}
STATE = (
    StateSpec("slot_position", torch.int32, (SLOTS + 1,)), StateSpec("slot_token", torch.int32, (SLOTS + 1,)),
    StateSpec("page_table", torch.int32, (SLOTS + 1, POSITIONS // BLOCK), fill=PAGES),
    StateSpec("replay_floor", torch.int32, (SLOTS + 1,)),
    StateSpec("window", torch.uint8, (SLOTS + 1, RING, HEAD + HEAD // 32)),
)


class _Chain(nn.Module):
    """Two mHC sites a layer, each with norms, one gate and one window store behind it: 26 kernel nodes a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = TensorTree({n: torch.empty(s, dtype=d, device="meta") for n, (s, d) in WEIGHTS.items()})
        self.state = TensorTree(make_state(STATE, "meta"))

    def forward(self, upload: torch.Tensor, keep_rows: torch.Tensor,
                logit_rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        w, state = Scope(self.weights), Scope(self.state)
        rows = OPS.row_table(upload, state("slot_token"), state("slot_position"), state("page_table"),
                             state("replay_floor"), BLOCK)
        trunk, alpha = OPS.embed_expand(rows, w("embed"), STREAMS, BF16)
        y = OPS.mhc_collapse(trunk, alpha)
        alpha, beta, gamma = OPS.mhc_mix(trunk, w("mix"), w("scale"), w("base"), 20, 1e-20, 1e-6)
        key = OPS.linear(y, w("wkv"), None, BF16)
        for _ in range(2 * LAYERS):
            trunk, alpha, beta, gamma, y, _, _ = OPS.mega_mhc(
                y, trunk, alpha, beta, gamma, w("fn"), w("scale"), w("base"), w("norm"), 20, 1e-20, 1e-6)
            for _ in range(NORMS):
                y, _, _ = OPS.rmsnorm_mxfp8(y, w("norm"), 1e-20)
            _, routing = OPS.mega_gate(y, w("gate"), w("bias"), w("bias"), rows, TOPK, 1.5)
            OPS.greedy_token(routing, rows, state("slot_token"))  # a reader, or the gate would be dead code
            OPS.norm_rope_store(key, w("kv_norm"), rows, w("rotary"), state("window"), 1e-20)
        return y, alpha


@dataclass(frozen=True)
class _NoCheckpoint:
    path: Path
    model_digest: str = "0" * 64

    def content_digest(self) -> str:
        return self.model_digest


def write_synthetic_artifact(output: Path, target: str) -> schema.Plan:
    """Compile the chain and write it with random weights; the plan has one method of 30 buckets."""
    captured = capture(_Chain(), MAX_ROWS)  # type: ignore[arg-type]
    for node in list(captured.graph.nodes):
        if node.op == "placeholder" and node.meta["name"] in ("keep_rows", "logit_rows"):
            captured.graph.erase_node(node)
    method = Method("decode", "rows", Symbol("D", 1, MAX_ROWS), captured.graph, ("hidden", "alpha"), ())
    cuda = CudaBodies(target, _kernel_cache(), fused=FUSED_OPS | {"mega_gate", "embed_expand"})
    options = CompileOptions(target=target, max_model_len=POSITIONS, max_num_seqs=SLOTS)
    provenance = schema.Provenance(_NoCheckpoint.model_digest, options.to_json(), producer())
    flows = (schema.Flow("decode", ("decode",), "all_rows_output"),)
    plan = lower(Program({"decode": method}), STATE, SLOTS, provenance, Choices(cuda, flows))
    plan = replace(plan, methods=tuple(replace(m, buckets=BUCKETS) for m in plan.methods))
    verify(plan)
    write_artifact(output, plan, _NoCheckpoint(output.parent / "none"), options,
                   Packed(cuda.cubins, weights={n: _random(n, *spec) for n, spec in WEIGHTS.items()}))
    return plan


def _random(name: str, sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(name))
    values: Any = torch.randn(sizes, generator=generator) * 0.02
    return (values + 1 if "norm" in name else values).to(dtype)


def _kernel_cache() -> Path | None:
    cache = cache_directory()
    return cache and cache / "kernels"
