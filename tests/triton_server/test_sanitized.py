"""The backend in the server's library, in one process built with sanitizers; and a check that they would notice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.triton_server.server import environment

SUPPRESSIONS = Path(__file__).parents[1] / "native/triton/tsan.supp"
OPTIONS = {"asan": {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
           "tsan": {"TSAN_OPTIONS": f"report_mutex_bugs=0:suppressions={SUPPRESSIONS}"}}


@pytest.mark.parametrize("build", OPTIONS)
def test_requests_cancels_reloads_and_a_dying_engine(prepared: Path, tmp_path: Path, build: str) -> None:
    done = _run(prepared, tmp_path, build)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    assert done.stdout.endswith("every request ended once\n")
    assert "Sanitizer" not in done.stderr


@pytest.mark.parametrize(("build", "fault", "report"), [("tsan", "race", "ThreadSanitizer: data race"),
                                                        ("asan", "overflow", "heap-buffer-overflow")])
def test_faults_are_noticed(prepared: Path, tmp_path: Path, build: str, fault: str, report: str) -> None:
    done = _run(prepared, tmp_path, build, fault=fault)
    assert done.returncode != 0 and report in done.stderr


def _run(prepared: Path, repository: Path, build: str, **facts: str) -> subprocess.CompletedProcess[str]:
    two = 'instance_group [{ kind: KIND_MODEL count: 2 }]\n'
    _add(repository, "steady", two, {"step_us": 500, **facts})
    _add(repository, "dying", "", {"step_us": 500, "fail_at_step": 20})
    host = [str(prepared / build / "host"), str(repository), str(prepared / build / "backends")]
    if build == "tsan":
        host = ["setarch", "x86_64", "-R", *host]  # its memory layout takes no randomised addresses
    return subprocess.run(host, env=environment(prepared) | OPTIONS[build], capture_output=True, text=True, timeout=180)


def _add(repository: Path, model: str, config: str, facts: dict[str, Any]) -> None:
    folder = repository / model
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(f'backend: "dsv41c"\n{config}')
    (folder / "1/fake.json").write_text(json.dumps(facts))
