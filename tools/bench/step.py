"""bench step: frozen steps against the same launches bound for the call and against the Python eager model, in one
run."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode

from dsv41c.compiler.artifact_weights import WeightSource
from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.ops.catalog import OPS, implementation
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.codec import decode
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.tools.bench.experts import ExpertsResult, bench_experts
from dsv41c.tools.bench.suffix_step import SuffixResult, bench_suffix
from dsv41c.tools.bench.turns import medians

SLOTS, CONTEXT = 64, 40


@dataclass(frozen=True)
class StepResult:
    """Medians in microseconds of one step. Up to the slots it is a decode row of each; above, a prompt of so many rows
    in one slot. `bound_us`: the executor without buckets; `frozen_ratio`: executor over that. `speedup`: Python eager
    over executor. Ops: native launches and ATen calls of one step."""

    config: str
    rows: int
    methods: str
    executor_us: float
    bound_us: float
    eager_us: float
    frozen_ratio: float
    speedup: float
    executor_ops: dict[str, int]
    eager_ops: dict[str, int]


def run_bench_step(configs: Sequence[str], row_counts: Sequence[int], prompt_rows: int, *, repeat: int,
                   as_json: bool) -> None:
    """Prints one table (or JSON object) on stdout; progress on stderr."""
    results = [r for config in configs for r in _bench_config(config, row_counts, repeat)]
    suffix = [bench_suffix(config, prompt_rows, repeat) for config in configs]
    _report(results, suffix, CompileOptions(), repeat, as_json)


def run_bench_artifact(artifact: Path, checkpoint: Path | None, *, repeat: int, as_json: bool) -> None:
    """The same for an artifact, with 1 row and one of every slot; `checkpoint` where it leaves its weights."""
    with load(artifact, weights=checkpoint) as runtime:
        plan = decode((artifact / "plan.json").read_bytes())
        options = CompileOptions.from_json(plan.provenance.options)
        slots = min(SLOTS, options.max_num_seqs)
        _need(options.target == "cpu", f"an artifact for {options.target}", "one for the CPU")
        _need((options.max_model_len or 0) > CONTEXT and options.max_num_batched_tokens >= CONTEXT,
              f"{options.max_model_len} positions and {options.max_num_batched_tokens} rows a step",
              f"more than {CONTEXT} positions and as many rows")
        weights = dict(WeightSource(artifact, checkpoint).read(plan))
        model = EagerModel(ModelConfig.load(artifact), options, weights)
        _fill(model, runtime, options, slots)
        sides = _Sides(artifact.name, model, runtime, options, _composite_calls(artifact))
        results = [_bench_rows(sides, rows, repeat) for rows in sorted({1, slots})]
    _report(results, [], options, repeat, as_json)


def _need(holds: bool, found: str, needed: str) -> None:
    if not holds:
        raise Dsv41cError("DSV41C-E0901", "bench step", found=found, needed=needed,
                          do="compile another artifact for it")


def _report(results: Sequence[StepResult], suffix: Sequence[SuffixResult], options: CompileOptions, repeat: int,
            as_json: bool) -> None:
    experts = bench_experts(rows=64, repeat=repeat)
    settings = {"threads": torch.get_num_threads(), "dtype": options.dtype, "quantizers": options.quantizers,
                "mode": "inference_mode on both sides", "repeat": repeat}
    if as_json:
        steps = [asdict(r) for r in results]
        print(json.dumps({"schema_version": 1, "settings": settings, "steps": steps,
                          "suffix": [asdict(r) for r in suffix], "experts": asdict(experts)}))
    else:
        _print(results, suffix, experts, settings)


def _bench_config(config: str, row_counts: Sequence[int], repeat: int) -> list[StepResult]:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, artifact = Path(folder) / "checkpoint", Path(folder) / "artifact"
        print(f"making and compiling {config}", file=sys.stderr)
        make_checkpoint(config, checkpoint, seed=0)
        most = max(*row_counts, CONTEXT)
        options = CompileOptions(max_model_len=most + CONTEXT, max_num_seqs=SLOTS,
                                 max_num_batched_tokens=max(most, SLOTS), bucket_policy="explicit",
                                 buckets=_buckets(row_counts))
        compile_checkpoint(checkpoint, artifact, options, lambda _: None)
        view = CheckpointView.open(checkpoint)
        options = options.resolved(view.config)
        model = EagerModel(view.config, options, load_weights(view, weight_recipes(view, options)))
        with load(artifact) as runtime:
            _fill(model, runtime, options, SLOTS)
            sides = _Sides(config, model, runtime, options, _composite_calls(artifact))
            return [_bench_rows(sides, n, repeat) for n in row_counts]


def _buckets(row_counts: Sequence[int]) -> tuple[str, ...]:
    """Every size that is timed has a bucket, so that no side has pads."""
    decodes, prompts = ({n for n in row_counts if (n <= SLOTS) == is_decode} for is_decode in (True, False))
    lists = {"decode": decodes | {SLOTS}, "encoder": prompts | {CONTEXT}, "decoder": prompts | {CONTEXT}}
    return tuple(f"{name}={','.join(map(str, sorted(sizes)))}" for name, sizes in lists.items())


def _fill(model: EagerModel, runtime: Runtime, options: CompileOptions, slots: int) -> None:
    """Give every slot a context of CONTEXT tokens on both sides."""
    for slot in range(slots):
        rows = request_rows(slot, [(slot * 31 + i * 7) % 96 for i in range(CONTEXT)], 0, options)
        last = np.array([CONTEXT - 1], dtype=np.int32)
        runtime.step(rows, np.arange(CONTEXT, dtype=np.int32), last)
        model.step(rows, None, last)


@dataclass(frozen=True)
class _Sides:
    """Both sides of one comparison, on the same weights and options."""

    config: str
    model: EagerModel
    runtime: Runtime
    options: CompileOptions
    composite_calls: dict[str, int]


def _bench_rows(sides: _Sides, num_rows: int, repeat: int) -> StepResult:
    model, runtime = sides.model, sides.runtime
    inputs = _inputs(sides, num_rows)
    positions, state = runtime.state("slot_position"), model.state["slot_position"]
    since = runtime.num_records()

    def executor_step(eager: bool = False) -> None:
        positions[:num_rows] = CONTEXT  # the same step again and again
        runtime.step(*inputs, eager)

    def eager_step() -> None:
        state[:num_rows] = CONTEXT
        model.step(*inputs)

    executor_us, bound_us, eager_us = medians(
        (executor_step, functools.partial(executor_step, True), eager_step), repeat)
    records = runtime.records(since)
    if any(record.pad_rows for record in records):
        raise RuntimeError(f"the step to be measured ran as {records[0]}")
    methods = tuple(dict.fromkeys(record.method for record in records))
    kernels = [runtime.report()["methods"][name]["kernels"] for name in methods]
    executor_ops = {"native": sum(k["cpu"] for k in kernels), "composites": sum(k["aten"] for k in kernels),
                    "aten_calls": sum(sides.composite_calls[name] for name in methods)}
    return StepResult(sides.config, num_rows, "+".join(methods), executor_us, bound_us, eager_us,
                      executor_us / bound_us, eager_us / executor_us, executor_ops, _eager_ops(eager_step))


def _inputs(sides: _Sides, num_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One decode row of each slot, or a prompt that is longer than there are slots."""
    options = sides.options
    everything = np.arange(num_rows, dtype=np.int32)
    if num_rows <= options.max_num_seqs:
        rows = [request_rows(slot, [5], CONTEXT, options) for slot in range(num_rows)]
        return np.concatenate(rows), everything, everything
    return request_rows(0, [(i * 7) % 96 for i in range(num_rows)], 0, options), everything, everything[-1:]


class _Counter(TorchDispatchMode):
    """Counts what runs: native calls, composite calls and the ATen calls inside them (views and allocations free)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = {"native": 0, "composites": 0, "aten_calls": 0}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "dsv41c":
            result = func(*args, **(kwargs or {}))
            self.calls["aten_calls"] += _computes(func, args, result)
            return result
        spec = OPS[func._schema.name.removeprefix("dsv41c::")]
        if spec.composition is not None:
            with self:  # its primitives count
                return implementation(spec)(*args)
        if spec.native is not None:
            self.calls["native"] += 1
            return func(*args)
        self.calls["composites"] += 1
        with self:  # a mode is off inside its own handler
            return spec.reference(*args)


def _computes(func: Any, args: Any, result: Any) -> bool:
    """False for views, for casts that return their input and for plain allocations."""
    if func._schema.is_mutable or not isinstance(result, torch.Tensor):
        return True
    storages = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
    return result.untyped_storage().data_ptr() not in storages and "empty" not in func.__name__


def _eager_ops(step: Callable[[], None]) -> dict[str, int]:
    with _Counter() as counter:
        step()
    return counter.calls


def _composite_calls(artifact: Path) -> dict[str, int]:
    """ATen calls of one run of each method, from the plan."""
    plan = json.loads((artifact / "plan.json").read_text())
    calls: list[int] = []
    for body in (kernel["body"] for kernel in plan["kernels"]):  # parts of a sequence come before it
        calls.append(len(body.get("calls", ())) + sum(calls[part["kernel"]] for part in body.get("parts", ())))
    return {m["name"]: sum(calls[launch["kernel"]] for s in m["steps"] for launch in next(iter(s.values()))["launches"])
            for m in plan["methods"]}


def _print(results: Sequence[StepResult], suffix: Sequence[SuffixResult], experts: ExpertsResult,
           settings: dict[str, Any]) -> None:
    table = Table(title=f"step, medians of {settings['repeat']}, {settings['threads']} threads, "
                        f"{settings['dtype']}, {settings['quantizers']}")
    for column in ("config", "rows", "methods", "executor µs", "bound for the call µs", "frozen / bound", "eager µs",
                   "eager / executor", "executor ops", "eager ops"):
        table.add_column(column)
    for r in results:
        table.add_row(r.config, str(r.rows), r.methods, f"{r.executor_us:.0f}", f"{r.bound_us:.0f}",
                      f"{r.frozen_ratio:.3f}", f"{r.eager_us:.0f}", f"{r.speedup:.2f}",
                      str(r.executor_ops), str(r.eager_ops))
    console = Console(width=200)
    console.print(table)
    for s in suffix:
        encoder = ", ".join(f"{mode} {s.shares[mode]['encoder']:.0%}" for mode in s.shares)
        console.print(f"{s.config}, prompt of {s.rows} rows: {s.off_us:.0f} µs with all rows in the decoder, "
                      f"{s.compact_us:.0f} µs with the last {s.keep}: ratio {s.ratio:.2f}; share of the encoder: "
                      f"{encoder}")
    console.print(f"routed experts, {experts.rows} rows: {experts.base_us:.0f} µs with {experts.base_experts} experts, "
                  f"{experts.doubled_us:.0f} µs with {2 * experts.base_experts}: ratio {experts.ratio:.2f}")
