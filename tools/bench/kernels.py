"""Checks and times the prebuilt kernels on the GPU of this machine; a short table last, all figures as JSON in $OUT."""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from pathlib import Path
from typing import Any

from package import ROOT, make_importable

make_importable()

import torch  # noqa: E402

from dsv41c.tools.bench import checks, peers, timings  # noqa: E402
from dsv41c.tools.bench.comparing import Mismatch  # noqa: E402
from dsv41c.tools.bench.launching import load_cases  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifacts", type=Path, default=ROOT / "build/gpu")
    parser.add_argument("--only", help="cases whose name starts with this")
    parser.add_argument("--no-timings", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    major, minor = torch.cuda.get_device_capability()
    target = f"sm_{major}{minor}a"
    cases = {n: c for n, c in load_cases(options.artifacts, target).items() if n.startswith(options.only or "")}
    failures, reports = check_all(cases)
    taken = [] if options.no_timings else time_all(cases, failures)
    report(target, failures, reports, taken)
    return 1 if failures else 0


def check_all(cases: dict[str, Any]) -> tuple[list[str], dict[str, dict[str, float]]]:
    failures, reports = [], {}
    for name, case in cases.items():
        begin, worst = time.perf_counter(), dict[str, float]()
        for rows in checks.ROWS:
            try:
                for key, value in checks.CHECKS[name](case, rows).items():
                    worst[key] = max(worst.get(key, 0.0), value)
            except Mismatch as mismatch:
                failures.append(f"{name} at {rows} rows: {mismatch}")
            torch.cuda.empty_cache()
        reports[name] = worst
        print(f"check {name}: {worst} in {time.perf_counter() - begin:.1f} s", flush=True)
    return failures, reports


def time_all(cases: dict[str, Any], failures: list[str]) -> list[timings.Timing]:
    taken = []
    for name, sizes, measure in timings.TIMINGS:
        for rows in sizes if name in cases else ():
            try:
                taken.append(measure(cases[name], rows))
                print(taken[-1].line(), flush=True)
            # A peer that refuses a size is a finding, not the end of the run.
            except (RuntimeError, AssertionError, ValueError, TypeError) as error:
                traceback.print_exc()
                failures.append(f"timing of {name} at {rows} rows: {error!r}"[:300])
            torch.cuda.empty_cache()
    return taken


def report(
    target: str, failures: list[str], reports: dict[str, dict[str, float]], taken: list[timings.Timing]
) -> None:
    node = {"device": torch.cuda.get_device_name(), "target": target, "torch": torch.__version__,
            "failures": failures, "checks": reports, "timings": [t.to_json() for t in taken],
            "missing_peers": peers.MISSING}
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "kernels.json").write_text(json.dumps(node, indent=1) + "\n", encoding="utf-8")
    rows = ", ".join(map(str, checks.ROWS))
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, checked at {rows} rows")
    for name, worst in reports.items():
        print(f"{name:22} " + ", ".join(f"{k} {v:.1e}" for k, v in worst.items()))
    for timing in taken:
        print(timing.line())
    for package, why in peers.MISSING.items():
        print(f"peer {package}: {why}")
    for failure in failures:
        print(f"FAILED {failure}")


if __name__ == "__main__":
    raise SystemExit(main())
