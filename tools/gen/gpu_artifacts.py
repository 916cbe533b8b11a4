"""Builds every kernel for every target into build/gpu, with an index that says how each one is launched."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsv41c.compiler.kernels import catalog, nvcc, tilelang_lowering
from dsv41c.compiler.kernels.attention_catalog import AttentionShape
from dsv41c.compiler.kernels.build import build_kernel
from dsv41c.compiler.kernels.source import TARGETS, CompiledKernel, KernelSource
from dsv41c.runtime.plan import expr

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "build/gpu"
RECORDS = ROOT / "tests/kernels/launch_records.json"  # what a test holds new builds against

# Shapes of DeepSeek-V4.1-Flash, of its draft, and of the small checkpoints that tests use.
EPS = 1e-20
HC_EPS = 1e-6
ATTENTION = AttentionShape(64, 128, 134, 4096, 512, (8193, 64, 32), 512**-0.5, True)  # pool of tools/bench/inputs.py
UNCAST = replace(ATTENTION, cast=False)


def _attention(shape: AttentionShape, is_invariant: bool) -> catalog.OpKernels:
    name = "mega_sparse_attention" if shape.pool else "mega_window_attention"
    return catalog.mega_attention(name, shape, "sm_90a", is_invariant)


CASES: dict[str, catalog.OpKernels] = {
    "mega_mhc": catalog.mega_mhc(5120, 20, EPS, HC_EPS),
    "mega_mhc_maps": catalog.mega_mhc(5120, 20, EPS, HC_EPS, maps=True),
    "mega_mhc_demo": catalog.mega_mhc(128, 20, EPS, HC_EPS),
    "mega_gate": catalog.mega_gate(5120, 384, 6, 1.5),
    "mega_gate_draft": catalog.mega_gate(5120, 128, 3, 1.5),
    "mega_gate_demo": catalog.mega_gate(128, 16, 2, 1.5),
    "rmsnorm_mxfp8": catalog.rmsnorm_mxfp8(5120, EPS),
    "rmsnorm_mxfp8_query": catalog.rmsnorm_mxfp8(1280, EPS),
    "rmsnorm_mxfp8_demo": catalog.rmsnorm_mxfp8(64, EPS),
    "norm_rope_store": catalog.norm_rope_store(512, 64, 134, EPS),
    "norm_rope_store_demo": catalog.norm_rope_store(64, 32, 38, EPS),
    "mega_attention": _attention(ATTENTION, True),
    "mega_attention_split": _attention(ATTENTION, False),
    "mega_attention_uncast": _attention(UNCAST, False),
    "mega_attention_small": _attention(replace(UNCAST, heads=16, selected=128), True),
    "mega_attention_window": _attention(replace(UNCAST, selected=0, pool=None), True),
    "embed_expand": catalog.embed_expand(5120, 129280),
    "embed_expand_demo": catalog.embed_expand(128, 129280),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--cache", type=Path, default=ROOT / "build/kernel-cache")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--records", action="store_true", help=f"also rewrite {RECORDS.relative_to(ROOT)}")
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: all")
    options = parser.parse_args()
    targets = tuple(options.target or TARGETS)
    built = build_all(targets, options.cache, options.jobs)
    write(options.output, targets, built)
    if options.records:
        RECORDS.write_text(records_text(targets, built), encoding="ascii")
    print(f"{len(built)} kernels for {', '.join(targets)} in {options.output}")
    return 0


def build_all(targets: Iterable[str], cache: Path | None, jobs: int) -> dict[tuple[str, KernelSource], CompiledKernel]:
    """Every distinct source once for each target."""
    sources = dict.fromkeys(s for case in CASES.values() for s in case.launches)
    wanted = [(target, source) for target in targets for source in sources]
    # Lowering holds the interpreter; nvcc does not, so threads overlap the larger part.
    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(wanted, pool.map(lambda w: build_kernel(w[1], w[0], cache), wanted), strict=True))


def index(target: str, built: dict[tuple[str, KernelSource], CompiledKernel]) -> dict[str, Any]:
    """The launches of each case, as a plan holds them."""
    cases = {}
    for name, case in CASES.items():
        kernels = [built[target, s] for s in case.launches]
        launches = [{"cubin": k.digest, **k.record.to_json()} for k in kernels]
        cases[name] = {"op": case.op, "launches": launches, "scratch_bytes": expr.to_json(case.scratch_bytes)}
    return cases


def tool_versions() -> dict[str, str]:
    return {"nvcc": nvcc.nvcc_version(), "tilelang": tilelang_lowering.tilelang_version()}


def records_text(targets: Iterable[str], built: dict[tuple[str, KernelSource], CompiledKernel]) -> str:
    """The index without digests, one launch a line: a change of a launch is one line of a diff."""
    lines = []
    for target in targets:
        for name, case in index(target, built).items():
            lines.append(f'"{target} {name} scratch": {json.dumps(case["scratch_bytes"])}')
            for launch in case["launches"]:
                record = {key: value for key, value in launch.items() if key != "cubin"}
                lines.append(f'"{target} {name} {record["symbol"]}": {json.dumps(record, sort_keys=True)}')
    return "{\n" + ",\n".join([f'"tools": {json.dumps(tool_versions(), sort_keys=True)}', *lines]) + "\n}\n"


def write(output: Path, targets: Iterable[str], built: dict[tuple[str, KernelSource], CompiledKernel]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for kernel in built.values():
        (output / f"{kernel.digest}.cubin").write_bytes(kernel.cubin)
    node = {"tools": tool_versions(), "targets": {t: index(t, built) for t in targets}}
    (output / "index.json").write_text(json.dumps(node, indent=1, sort_keys=True) + "\n", encoding="ascii")


if __name__ == "__main__":
    raise SystemExit(main())
