"""The executor on a GPU: launches, counters, graph against eager against poisoned, host cost, graph building.

    python tools/bench/gpu_executor.py [--only NAME]

Prints a short table last and writes gpu_executor.json to $OUT when that is set. Exit 1 when a check fails, 3 without
a device. It makes its checkpoints and artifacts itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

START = 1
SMALL = {"max_model_len": 128, "block_size": 8, "max_num_seqs": 4, "max_num_batched_tokens": 96}
MODES = {"max_num_seqs": 32, "max_num_batched_tokens": 64, "max_model_len": 64, "block_size": 8}
MANY = {"max_num_seqs": 512, "max_num_batched_tokens": 512, "max_model_len": 128, "block_size": 128}
Check = Callable[[Path, str], dict[str, Any]]


def artifact_of(folder: Path, config: str, counter: int | None, **options: Any) -> Path:
    """A compiled checkpoint of seed 0 in `folder`, made on first use."""
    from dsv41c.compiler.checkpoint.make import make_checkpoint
    from dsv41c.compiler.driver import compile_checkpoint
    from dsv41c.compiler.options import CompileOptions

    checkpoint = folder / f"{config}-{counter}"
    if not checkpoint.exists():
        make_checkpoint(config, checkpoint, seed=0, counter=counter)
    name = "-".join(f"{k}={v}" for k, v in options.items()).replace("/", "_").replace(" ", "")
    output = folder / f"art-{config}-{counter}-{abs(hash(name))}"
    if not output.exists():
        compile_checkpoint(checkpoint, output, CompileOptions(**options), lambda _: None)
    return output


def check_launches(folder: Path, target: str) -> dict[str, Any]:
    """Per launch with the reference's inputs: exact formats byte-equal, the others within their bounds."""
    from dsv41c.tools.bench.gpu_launches import check_launches as check

    found: dict[str, Any] = {"ok": True}
    cases = (("tiny", ("float32", "off", "auto")), ("tiny", ("bfloat16", "fake", "auto")),
             ("demo", ("bfloat16", "fake", "auto")), ("tiny", ("bfloat16", "fake", "packed")))
    for config, numerics in cases:
        artifact_of(folder, config, None, target=target)
        verdicts = check(folder / f"{config}-None", target, numerics, (9, 6))
        found[f"{config} {' '.join(numerics)}"] = {"launches": verdicts.launches, "kernels": verdicts.kernels,
                                                   "wrong": verdicts.wrong[:5],
                                                   "worst": verdicts.worst}
        found["ok"] = found["ok"] and not verdicts.wrong
    return found


def counter_rows(folder: Path, config: str, target: str, **options: Any) -> dict[str, Any]:
    """512 requests in one decode step, three steps: every token is its predecessor plus one."""
    from dsv41c.runtime.load import load

    artifact, rows = artifact_of(folder, config, 1, target=target, **MANY, **options), MANY["max_num_seqs"]
    with load(artifact) as runtime:
        upload = np.zeros((rows, 5), dtype=np.int32)
        upload[:, 0], upload[:, 4] = np.arange(rows), np.arange(rows)
        upload[:, 2] = (np.arange(rows) * 7 + 3) % 90
        everything, expected, right = np.arange(rows, dtype=np.int32), upload[:, 2].copy(), []
        for step in range(3):
            upload[:, 3] = START if step == 0 else 0
            upload[:, 4] = np.arange(rows) if step == 0 else -1
            runtime.step(upload, everything, everything)
            tokens = runtime.output("tokens").copy()
            vocab = runtime.output("logits").shape[1]
            expected = (expected + 1) % vocab
            right.append(int((tokens == expected).sum()))
            upload[:, 2] = -1  # the device's own token
        report = runtime.report()
    launches = report["methods"]["decode"]["launches"]
    return {"ok": right == [rows] * 3, "rows": rows, "right": right, "launches": launches}


def check_counters(folder: Path, target: str) -> dict[str, Any]:
    found: dict[str, Any] = {name: counter_rows(folder, name, target) for name in ("tiny", "demo")}
    found["tiny through ATen"] = counter_rows(folder, "tiny", target,
                                              fallback=("rms_norm", "rotary", "quantize_fp8", "mhc_post"))
    return {"ok": all(f["ok"] for f in found.values())} | found


def run_schedule(runtime: Any, vocab: int, options: Any) -> list[bytes]:
    """Ragged prefill in chunks and decode steps of three requests; logits and live state as bytes."""
    from dsv41c.compiler.eager import request_rows

    tokens = np.random.default_rng(3).integers(0, vocab, (3, 40))
    done, seen = [0, 0, 0], []
    for takes in ((7, 0, 13), (1, 9, 3), (5, 2, 1), (1, 1, 1), (1, 1, 1), (0, 1, 1), (1, 0, 0)):
        parts = [request_rows(s, tokens[s, done[s] : done[s] + n], done[s], options) for s, n in enumerate(takes) if n]
        done = [d + n for d, n in zip(done, takes, strict=True)]
        upload = np.concatenate(parts)
        everything = np.arange(len(upload), dtype=np.int32)
        runtime.step(upload, everything, everything)
        seen.append(runtime.output("logits").tobytes())
    for name in ("window_0", "window_4", "compressed_4", "index_key_4", "token_ring", "slot_position"):
        state = runtime.state(name)
        seen.append(state[:3].tobytes())
    return seen


def check_modes(folder: Path, target: str) -> dict[str, Any]:
    """Graph replay = launches one by one = replay with poisoned memory, bit for bit; also at the exact size."""
    from dsv41c.compiler.options import CompileOptions
    from dsv41c.runtime.load import load

    found: dict[str, Any] = {"ok": True}
    for config, vocab in (("tiny", 96), ("demo", 129_280)):
        chosen = {"target": target, **MODES}
        artifact = artifact_of(folder, config, None, **chosen)
        options = CompileOptions(**chosen)
        results = {}
        for name, kwargs in {"graphs": {}, "launches": {"cuda_mode": "eager"}, "poisoned": {"poison": 0xFF}}.items():
            with load(artifact, **kwargs) as runtime:
                results[name] = run_schedule(runtime, vocab, options)
        equal = {name: r == results["graphs"] for name, r in results.items()}
        found[config] = equal
        found["ok"] = found["ok"] and all(equal.values())
    return found


def check_forms(folder: Path, target: str) -> dict[str, Any]:
    from dsv41c.tools.bench.gpu_forms import FORMS, check_form

    found = {name: check_form(artifact_of(folder, "tiny", 1, target=target, **form)) for name, form in FORMS.items()}
    return {"ok": all(f["ok"] for f in found.values())} | found


def check_host_cost(folder: Path, target: str) -> dict[str, Any]:
    """Time from call to return of one replayed decode step: one upload, one graph. At most 30 µs."""
    from dsv41c.compiler.eager import request_rows
    from dsv41c.compiler.options import CompileOptions
    from dsv41c.runtime.load import load

    chosen = {"target": target, "max_num_seqs": 32, "max_num_batched_tokens": 64, "max_model_len": 4096}
    artifact, options = artifact_of(folder, "tiny", None, **chosen), CompileOptions(**chosen)
    with load(artifact) as runtime:
        one = np.zeros(1, dtype=np.int32)
        upload = request_rows(0, [5], 0, options)  # the slot starts anew every time, so that it never fills up
        bench = runtime.step_bench(upload, one, one, 1000)
        report = runtime.report()
    return {"ok": bench["median_us"] <= 30, "host": bench, "decode": report["methods"]["decode"]}


def check_graphs(folder: Path, target: str) -> dict[str, Any]:
    """>= 1000 nodes x 30 buckets built in under half a second, and replayed as fast as captured graphs."""
    from dsv41c.runtime.load import load
    from dsv41c.tools.bench.synthetic_plan import write_synthetic_artifact

    write_synthetic_artifact(folder / "synthetic", target)
    start = time.perf_counter()
    with load(folder / "synthetic") as runtime:
        loaded = time.perf_counter() - start
        bench = runtime.graph_bench(21)
        report = runtime.report()
    total = sum(bench["built"][k] for k in ("add_s", "instantiate_s", "upload_s"))
    slowest = max(r["built_us"] / r["captured_us"] for r in bench["replay"])
    return {"ok": total < 0.5 and slowest <= 1.02, "total_s": total, "worst_built_to_captured": slowest,
            "load_s": loaded, "bench": bench, "report": report["cuda"]}


def compile_everything(target: str) -> int:
    """Compiles what the checks compile, so that a machine with a GPU finds every kernel in the cache."""
    from dsv41c.compiler.checkpoint.view import CheckpointView
    from dsv41c.compiler.driver import compile_plan
    from dsv41c.compiler.options import CompileOptions
    from dsv41c.tools.bench.gpu_forms import FORMS
    from dsv41c.tools.bench.synthetic_plan import write_synthetic_artifact

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for config in ("tiny", "demo"):
            artifact_of(folder, config, None, target=target)
            view = CheckpointView.open(folder / f"{config}-None")
            for dtype, quantizers, cache in (("float32", "off", "auto"), ("bfloat16", "fake", "auto"),
                                             ("bfloat16", "fake", "packed")):
                options = CompileOptions(dtype=dtype, quantizers=quantizers, kv_cache_dtype=cache, target=target)
                for chosen in (SMALL,) if cache == "packed" else (SMALL, MODES, MANY):
                    compile_plan(view, replace(options, **chosen), print)
        for form in FORMS.values():
            artifact_of(folder, "tiny", 1, target=target, **form)
        write_synthetic_artifact(folder / "synthetic", target)
    return 0


CHECKS: dict[str, Check] = {"launches": check_launches, "counters": check_counters, "modes": check_modes,
                            "forms": check_forms,
                            "host_cost": check_host_cost, "graphs": check_graphs}


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", choices=tuple(CHECKS))
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--compile-only", action="store_true", help="fill the kernel cache; needs no GPU")
    arguments = parser.parse_args()
    if arguments.compile_only:
        return compile_everything(arguments.target)
    if not torch.cuda.is_available():
        print("no CUDA device, or a torch without CUDA: nothing was run", file=sys.stderr)
        return 3
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only or CHECKS:
            start = time.perf_counter()
            try:
                results[name] = CHECKS[name](Path(folder), arguments.target)
            except Exception:  # the other checks still tell something; the failure is reported and fails the run
                results[name] = {"ok": False, "error": traceback.format_exc()}
            print(f"{name}: {time.perf_counter() - start:.1f} s {json.dumps(results[name])[:3000]}", flush=True)
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "gpu_executor.json").write_text(json.dumps(results, indent=1))
    for name, result in results.items():
        print(f"{name:<10} {'ok' if result['ok'] else 'FAILED'}")
    return 0 if all(r["ok"] for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
