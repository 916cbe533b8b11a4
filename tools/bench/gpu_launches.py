"""Every launch of a compiled plan on the GPU, fed with the reference's inputs and compared with its results."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import compile_plan
from dsv41c.compiler.eager import request_rows
from dsv41c.compiler.kernels.build import build_kernel
from dsv41c.compiler.kernels.cache_directory import cache_directory
from dsv41c.compiler.kernels.plain import cuda_source
from dsv41c.compiler.kernels.source import CompiledKernel
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.index import _scores
from dsv41c.compiler.ops.rows import read_rows
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.reference import PlanReference
from dsv41c.compiler.weights import load_weights
from dsv41c.runtime.plan import schema
from dsv41c.tools.bench.driver import launch, load
from dsv41c.tools.bench.op_case import Case, judge
from dsv41c.tools.bench.plain_launch import Call, bind

EXACT = frozenset({
    "row_table", "take_row_table", "take_rows", "greedy_token", "embed_expand", "rotary", "quantize_fp8",
    "quantize_fp4_index", "quantize_fp4_kv", "mhc_collapse", "mhc_post", "combine_experts", "window_commit",
    "entry_store", "engram_hash", "engram_lookup", "expert_dispatch", "expert_combine",
})
BOUNDS = {"moe_experts": 1e-3}  # an intermediate rounding to bfloat16 or e4m3 may flip
TIE_TOLERANCE = 1e-5  # relative: scores this near may swap, since two summation orders differ by as much


@dataclass
class LaunchVerdicts:
    """Counts over all launches; `wrong` names the first few that failed."""

    launches: int = 0
    kernels: int = 0  # a launch of a sequence has several
    worst: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class _Observed(PlanReference):
    """Runs the plan by references and repeats each launch on the GPU from the same inputs."""

    def __init__(self, plan: schema.Plan, weights: dict[str, torch.Tensor], target: str, folder: Path) -> None:
        super().__init__(plan, weights)
        self.verdicts = LaunchVerdicts()
        self._target, self._folder = target, folder

    def call(self, method: schema.Method, launched: schema.Launch, spec: OpSpec, arguments: list[Any]) -> Any:
        values = [t for t in launched.tensors if not isinstance(t, schema.Out)]
        tensors = [a for a, d in zip(arguments, spec.parsed().arguments, strict=True) if "Tensor" in str(d.type)]
        moving = {_memory(a) for a, t in zip(tensors, values, strict=True) if not isinstance(t, schema.Absent)
                  and method.values[t.value].sizes and not isinstance(method.values[t.value].sizes[0], int)}
        self.verdicts.launches += 1
        return self._observe(f"{method.name} {launched.name}", spec, arguments, moving)

    def _observe(self, name: str, spec: OpSpec, arguments: Sequence[Any], moving: set[int]) -> Any:
        """A fused op without a kernel of its own is its parts, each fed with the reference's results of those before.

        `moving`: memory of the tensors that have a row for each row of the step.
        """
        case = self._case(name, spec, arguments, moving)
        if spec.composition is not None and cuda_source(spec, case.shapes()) is None:
            def part(primitive: OpSpec, given: tuple[Any, ...]) -> Any:
                return self._observe(f"{name}, {primitive.name}", primitive, given, moving)
            return spec.composition(_Parts(part), *arguments)
        self.verdicts.kernels += 1
        reference_arguments = case.copied()
        expected = spec.reference(*reference_arguments)
        flat = [] if expected is None else list(expected) if isinstance(expected, tuple | list) else [expected]
        error, wrong = self._compare(case, flat, case.written(reference_arguments))
        self.verdicts.worst[spec.name] = max(error, self.verdicts.worst.get(spec.name, 0.0))
        if wrong:
            self.verdicts.wrong.append(f"{name}: {wrong}")
        results = spec.reference(*arguments)  # writes the state
        moving |= {_memory(r) for r in (results if isinstance(results, tuple | list) else [results]) if r is not None}
        return results

    def _case(self, name: str, spec: OpSpec, arguments: Sequence[Any], moving: set[int]) -> Case:
        rows = tuple(d.name for a, d in zip(arguments, spec.parsed().arguments, strict=True)
                     if isinstance(a, torch.Tensor) and _memory(a) in moving)
        return Case(spec.name, name, tuple(arguments), rows, exact=spec.name in EXACT,
                    bound=BOUNDS.get(spec.name, 2e-6))

    def _compare(self, case: Case, expected: list[torch.Tensor], written: list[torch.Tensor]) -> tuple[float, str]:
        source = cuda_source(case.spec, case.shapes())
        if source is None:
            return 0.0, "no CUDA kernel"
        built = [build_kernel(k, self._target, _kernel_cache()) for k in source.kernels]
        bound = bind(case, source, [b.record.params for b in built], "cuda")
        kernels = iter(built)
        bound.run(lambda call: self._start(next(kernels), call))
        torch.cuda.synchronize()
        found = [t.cpu() for t in (*bound.outputs, *bound.written)]
        if case.op.startswith("index_topk"):
            return _compare_selection(case, found[0], expected[0])
        live = case.live() if case.rows == (expected[0].shape[0] if expected else -1) else slice(None)
        error, wrong = judge(case, [*(f[live] for f in found[: len(expected)]), *found[len(expected):]],
                             [*(e[live] for e in expected), *written])
        return error, wrong or ("" if bound.guards_hold() else "wrote outside a tensor")


    def _start(self, kernel: CompiledKernel, call: Call) -> None:
        path = self._folder / f"{kernel.digest}.cubin"
        if not path.exists():
            path.write_bytes(kernel.cubin)
        launch(load(path, kernel.record.symbol, kernel.record.shared_bytes), call)


class _Parts:
    """The namespace of ops of a composition: every call goes to `observe`."""

    def __init__(self, observe: Callable[[OpSpec, tuple[Any, ...]], Any]) -> None:
        self._observe = observe

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self._observe(OPS[name], args)


def _memory(tensor: torch.Tensor) -> int:
    """Equal for views of one tensor."""
    return int(tensor.untyped_storage()._cdata)


def _compare_selection(case: Case, found: torch.Tensor, expected: torch.Tensor) -> tuple[float, str]:
    """Equal, or swapped among scores that two summation orders cannot tell apart."""
    worst = 0.0
    q, weights, keys, pages, rows = (case.argument(n) for n in ("q", "weights", "keys", "page_table", "rows"))
    for i, row in enumerate(read_rows(rows)):
        if torch.equal(found[i], expected[i]) or row.pad:
            continue
        sums = [_scores(q[i], weights[i], keys, pages, row, s[s >= 0].long(), case.argument("weight_scale")).sum()
                for s in (found[i], expected[i])]
        distance = float((sums[0] - sums[1]).abs() / sums[1].abs().clamp_min(1e-30))
        worst = max(worst, distance)
        if (found[i] >= 0).sum() != (expected[i] >= 0).sum() or distance > TIE_TOLERANCE:
            return distance, f"row {i}: another selection, scores differ by {distance:.2g}"
    return worst, ""


def check_launches(checkpoint: Path, target: str, numerics: tuple[str, str, str],
                   lengths: Sequence[int]) -> LaunchVerdicts:
    """Two requests in one prefill step with pads' neighbours, a second chunk, then two decode steps. `numerics`: dtype,
    quantizers, dtype of the cache."""
    dtype, quantizers, cache = numerics
    options = CompileOptions(dtype=dtype, quantizers=quantizers, kv_cache_dtype=cache, target=target,
                             # SMALL of gpu_executor.py
                             max_model_len=128, block_size=8, max_num_seqs=4, max_num_batched_tokens=96)
    compiled = compile_plan(CheckpointView.open(checkpoint), options, lambda _: None)
    vocab = compiled.view.config.vocab_size
    tokens = np.random.default_rng(1).integers(0, vocab, (2, 128))
    with tempfile.TemporaryDirectory() as folder:
        observed = _Observed(compiled.plan, load_weights(compiled.view, compiled.recipes), target, Path(folder))
        done = 0
        for length in (*lengths, 1, 1):
            uploads = [request_rows(s, tokens[s, done : done + length], done, compiled.options) for s in (0, 1)]
            upload, done = np.concatenate(uploads), done + length
            everything = np.arange(len(upload), dtype=np.int32)
            last = np.array([length - 1, 2 * length - 1], dtype=np.int32)
            observed.step(upload, everything, everything if length == 1 else last,
                          "decode" if length == 1 else "prefill")
    return observed.verdicts


def _kernel_cache() -> Path | None:
    cache = cache_directory()
    return cache and cache / "kernels"
