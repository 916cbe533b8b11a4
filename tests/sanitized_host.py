"""The loader in a process of its own that is built with sanitizers: what Python opens is opened there too."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SETTINGS = {
    # A plan may ask for more than there is: mmap and malloc then say no, as they do without sanitizers.
    "ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=4096:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass
class SanitizedHost:
    """One process for all questions; a report of a sanitizer ends it and fails the test that asked."""

    path: Path
    _processes: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    def ask(self, artifact: str | Path, verify_full: bool = False, weights: str | Path = "") -> dict[str, Any]:
        """`refused`: the error of opening, or null; `steps`: errors of the steps, null when it was not opened."""
        process = self._process()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{artifact}\t{int(verify_full)}\t{weights}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            report = self._end(self._processes.pop(os.geteuid()))
            raise AssertionError(f"the sanitized loader ended at {artifact}:\n{report}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """The last report is that of leaks."""
        while self._processes:
            process = self._processes.popitem()[1]
            report = self._end(process)
            assert process.returncode == 0, report

    def _process(self) -> subprocess.Popen[str]:
        """Of the present user: tests take rights away from themselves. The real user is set too: while the two differ,
        the system finds no library beside the executable."""
        user = os.geteuid()
        if user not in self._processes:
            self._processes[user] = subprocess.Popen(
                [self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="surrogateescape", env=os.environ | _SETTINGS, user=user)
        return self._processes[user]

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> str:
        return process.communicate(timeout=60)[1][-6000:]


def through(host: SanitizedHost, real: Callable[..., int]) -> Callable[..., int]:
    """`dsv41c_open` that asks the host as well and compares. What ATen refuses is its own matter: there is a stub."""

    def both(path: bytes, options: Any, handle: Any, error: Any) -> int:
        status = real(path, options, handle, error)
        given = options._obj
        answer = host.ask(os.fsdecode(path), bool(given.verify_full), os.fsdecode(given.weights or b""))
        there = answer["refused"] and answer["refused"]["code"]
        refusal = json.loads(ctypes.string_at(error._obj.text)) if status else None
        here = refusal and refusal["code"]
        by_aten = refusal is not None and any("aten" in str(refusal[k]) for k in ("where", "found", "subject"))
        assert there == here or by_aten or here == "DSV41C-E0802", (refusal, answer)
        return status

    return both
