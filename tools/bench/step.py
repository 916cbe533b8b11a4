"""bench step: frozen executor steps against the Python eager model on the same bodies, in one run."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
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

SLOTS, CONTEXT, MIN_BLOCK_SECONDS = 64, 40, 0.2


@dataclass(frozen=True)
class StepResult:
    """Medians in microseconds of one decode step; ops: native launches and ATen calls of one step."""

    config: str
    rows: int
    executor_us: float
    eager_us: float
    speedup: float
    executor_ops: dict[str, int]
    eager_ops: dict[str, int]


def run_bench_step(configs: Sequence[str], *, repeat: int, as_json: bool, row_counts: Sequence[int] = (1, 64)) -> None:
    """Prints one table (or JSON object) on stdout; progress on stderr."""
    results = [r for config in configs for r in _bench_config(config, row_counts, repeat)]
    _report(results, CompileOptions(), repeat, as_json)


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
    _report(results, options, repeat, as_json)


def _need(holds: bool, found: str, needed: str) -> None:
    if not holds:
        raise Dsv41cError("DSV41C-E0901", "bench step", found=found, needed=needed,
                          do="compile another artifact for it")


def _report(results: Sequence[StepResult], options: CompileOptions, repeat: int, as_json: bool) -> None:
    experts = bench_experts(rows=64, repeat=repeat)
    settings = {"threads": torch.get_num_threads(), "dtype": options.dtype, "quantizers": options.quantizers,
                "mode": "inference_mode on both sides", "repeat": repeat}
    if as_json:
        steps = [asdict(r) for r in results]
        print(json.dumps({"schema_version": 1, "settings": settings, "steps": steps, "experts": asdict(experts)}))
    else:
        _print(results, experts, settings)


def _bench_config(config: str, row_counts: Sequence[int], repeat: int) -> list[StepResult]:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, artifact = Path(folder) / "checkpoint", Path(folder) / "artifact"
        print(f"making and compiling {config}", file=sys.stderr)
        make_checkpoint(config, checkpoint, seed=0)
        options = CompileOptions(max_model_len=256, max_num_seqs=SLOTS, max_num_batched_tokens=512)
        compile_checkpoint(checkpoint, artifact, options, lambda _: None)
        view = CheckpointView.open(checkpoint)
        options = options.resolved(view.config)
        model = EagerModel(view.config, options, load_weights(view, weight_recipes(view, options)))
        with load(artifact) as runtime:
            _fill(model, runtime, options, SLOTS)
            sides = _Sides(config, model, runtime, options, _composite_calls(artifact))
            return [_bench_rows(sides, n, repeat) for n in row_counts]


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
    upload = np.concatenate([request_rows(slot, [5], CONTEXT, sides.options) for slot in range(num_rows)])
    everything = np.arange(num_rows, dtype=np.int32)
    positions, state = runtime.state("slot_position"), model.state["slot_position"]

    def executor_step() -> None:
        positions[:num_rows] = CONTEXT  # the same step again and again
        runtime.step(upload, everything, everything)

    def eager_step() -> None:
        state[:num_rows] = CONTEXT
        model.step(upload, everything, everything)

    executor_us, eager_us = _medians(executor_step, eager_step, repeat)
    record = runtime.records()[-1]
    if record.method != "decode" or record.eager or record.pad_rows:
        raise RuntimeError(f"the step to be measured ran as {record}")
    kernels = runtime.report()["methods"]["decode"]["kernels"]
    executor_ops = {"native": kernels["cpu"], "composites": kernels["aten"],
                    "aten_calls": sides.composite_calls["decode"]}
    eager_ops = _eager_ops(eager_step)
    return StepResult(sides.config, num_rows, executor_us, eager_us, eager_us / executor_us, executor_ops, eager_ops)


def _medians(first: Callable[[], None], second: Callable[[], None], repeat: int) -> tuple[float, float]:
    """Medians over `repeat` blocks of each side, the sides taking turns; microseconds a call."""
    counts = [max(1, int(MIN_BLOCK_SECONDS / _block(f, 1))) for f in (first, second) if _block(f, 2)]
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeat):
        for side, function, count in zip(samples, (first, second), counts, strict=True):
            side.append(_block(function, count) / count * 1e6)
    return statistics.median(samples[0]), statistics.median(samples[1])


def _block(function: Callable[[], None], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function()
    return time.perf_counter() - start


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


def _print(results: Sequence[StepResult], experts: ExpertsResult, settings: dict[str, Any]) -> None:
    table = Table(title=f"decode step, medians of {settings['repeat']}, {settings['threads']} threads, "
                        f"{settings['dtype']}, {settings['quantizers']}")
    for column in ("config", "rows", "executor µs", "eager µs", "eager / executor", "executor ops", "eager ops"):
        table.add_column(column)
    for r in results:
        table.add_row(r.config, str(r.rows), f"{r.executor_us:.0f}", f"{r.eager_us:.0f}", f"{r.speedup:.2f}",
                      str(r.executor_ops), str(r.eager_ops))
    console = Console(width=160)
    console.print(table)
    console.print(f"routed experts, {experts.rows} rows: {experts.base_us:.0f} µs with {experts.base_experts} experts, "
                  f"{experts.doubled_us:.0f} µs with {2 * experts.base_experts}: ratio {experts.ratio:.2f}")
