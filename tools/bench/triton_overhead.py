"""What Triton and the backend add to a request: one response over gRPC against an empty backend plus the engine alone.

Runs in the environment of `make test-triton`, after it: build/triton/venv/bin/python -m tools.bench.triton_overhead
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.triton_server.server import environment, running
from tests.triton_server.streams import GrpcStream

COUNT, TOKENS = 200, 16
EMPTY = """backend: "empty"
input [{ name: "input_ids" data_type: TYPE_INT64 dims: [-1] }, { name: "stream" data_type: TYPE_BOOL dims: [1] }]
output [{ name: "output_ids" data_type: TYPE_INT64 dims: [-1] }]
instance_group [{ kind: KIND_MODEL count: 1 }]
model_transaction_policy { decoupled: true }
"""


def main(prepared: Path) -> None:
    """Each of three rounds measures all three, one after the other; medians of a round make its ratio."""
    with tempfile.TemporaryDirectory(dir=prepared) as folder:
        place = Path(folder)
        repository, backends = _repository(prepared, place), _backends(prepared, place)
        with running(place, backends.name, repository, "--load-model=*") as server, GrpcStream(server) as stream:
            rounds = [_round(prepared, stream) for _ in range(3)]
    for times in rounds:
        times["ratio"] = times["served_us"] / (times["empty_us"] + times["engine_us"])
    print(json.dumps({"schema_version": 1, "tokens": TOKENS, "requests": COUNT, "rounds": rounds,
                      "ratio": statistics.median(times["ratio"] for times in rounds)}, indent=1))


def _round(prepared: Path, stream: GrpcStream) -> dict[str, float]:
    def served() -> None:
        stream.ask("tiny", [5, 6, 7], stream=False, max_tokens=TOKENS, ignore_eos=True)
        assert len(next(stream.parts())) == TOKENS

    def empty() -> None:
        stream.ask("empty", [5, 6, 7], stream=False)
        stream.responses.get(timeout=60)

    return {"served_us": _median(served), "empty_us": _median(empty), "engine_us": _engine(prepared)}


def _median(ask: Callable[[], None]) -> float:
    times = []
    for _ in range(COUNT):
        start = time.perf_counter()
        ask()
        times.append(time.perf_counter() - start)
    return statistics.median(times[COUNT // 10:]) * 1e6


def _engine(prepared: Path) -> float:
    library = (prepared / "real/dsv41c").resolve().parents[1] / "libdsv41c.so.1"
    done = subprocess.run([prepared / "plain/engine_time", library, prepared / "checkpoints/tiny-artifact", str(COUNT),
                           str(TOKENS)], check=True, capture_output=True, text=True, env=environment(prepared))
    return statistics.median(int(line) for line in done.stdout.split()[COUNT // 10:]) / 1e3


def _repository(prepared: Path, place: Path) -> Path:
    repository = place / "repository"
    shutil.copytree(prepared / "repository/tiny", repository / "tiny")
    (repository / "empty/1").mkdir(parents=True)
    (repository / "empty/config.pbtxt").write_text(EMPTY)
    return repository


def _backends(prepared: Path, place: Path) -> Path:
    (place / "link").symlink_to(prepared / "link")
    backends = place / "backends"
    backends.mkdir()
    (backends / "dsv41c").symlink_to((prepared / "real/dsv41c").resolve())
    (backends / "empty").symlink_to(prepared / "plain/backends/empty")
    return backends


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/triton").resolve())
