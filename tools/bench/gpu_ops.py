"""Plain kernels on a GPU: `build` compiles the cubins of all cases (no GPU), `run` checks each case on the device.

    python tools/bench/gpu_ops.py build --target sm_90a
    python tools/bench/gpu_ops.py run

`run` prints one line a case and ends with the number of wrong ones; with $OUT set it also writes gpu_ops.json there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import types
from dataclasses import asdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def find_packages() -> None:
    """Makes `dsv41c` importable where it is not installed: its rooms are the folders of the repository."""
    if importlib.util.find_spec("dsv41c") is None:
        package = types.ModuleType("dsv41c")
        package.__path__ = [str(REPOSITORY)]
        sys.modules["dsv41c"] = package


def build(directory: Path, target: str) -> int:
    from dsv41c.tools.bench.op_cases import real_cases, small_cases
    from dsv41c.tools.bench.plain_cubins import build_cubins

    cache = REPOSITORY / "build" / "kernel-cache"
    build_cubins([*small_cases(), *real_cases()], target, directory, cache, print)
    return 0


def run(directory: Path, only: str) -> int:
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device, or a torch without CUDA: nothing was run", file=sys.stderr)
        return 3
    from dsv41c.tools.bench.gpu_check import Verdict, check_case
    from dsv41c.tools.bench.op_cases import real_cases, small_cases
    from dsv41c.tools.bench.plain_cubins import Cubins

    cubins = Cubins(directory)
    verdicts: list[Verdict] = []
    print(f"{'op':<20} {'case':<58} {'max error':>10}  ok")
    for case in (c for c in (*small_cases(), *real_cases()) if only in c.op):
        verdict = check_case(case, cubins)
        verdicts.append(verdict)
        print(f"{verdict.op:<20} {verdict.case:<58} {verdict.error:>10.2e}  {verdict.wrong or 'yes'}", flush=True)
    wrong = [v for v in verdicts if v.wrong]
    print(f"{len(verdicts)} cases, {len(wrong)} wrong")
    if "OUT" in os.environ:
        lines = json.dumps([asdict(v) for v in verdicts], indent=1)
        (Path(os.environ["OUT"]) / "gpu_ops.json").write_text(lines + "\n", encoding="utf-8")
    return 1 if wrong or not verdicts else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("build", "run"))
    parser.add_argument("--directory", type=Path, default=REPOSITORY / "build" / "gpu" / "plain")
    parser.add_argument("--target", choices=("sm_90a", "sm_100a"), default="sm_90a")
    parser.add_argument("--only", default="", help="ops whose name holds this text")
    options = parser.parse_args()
    find_packages()
    if options.action == "build":
        return build(options.directory, options.target)
    return run(options.directory, options.only)


if __name__ == "__main__":
    sys.exit(main())
