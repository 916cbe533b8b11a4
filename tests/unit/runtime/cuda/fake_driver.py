"""The fake CUDA driver of tests/native as Python sees it: what to set, what it has recorded."""

from __future__ import annotations

import ctypes
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nlohmann_json

ROOT = Path(__file__).parents[4]
SOURCES = ("fake_cuda.cc", "fake_graphs.cc", "fake_kernels.cc", "fake_world.cc", "stub_aten.cc")


def build(directory: Path) -> object:
    directory.mkdir(parents=True)
    native = ROOT / "tests" / "native"
    subprocess.run(["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden",
                    f"-I{ROOT / 'runtime/cpp/include'}", f"-I{nlohmann_json.get_include()}",
                    *(str(native / name) for name in SOURCES), "-o", str(directory / "libfake_cuda.so")], check=True)
    return None


@dataclass(frozen=True)
class Driver:
    path: Path
    library: ctypes.CDLL

    @classmethod
    def open(cls, path: Path) -> Driver:
        library = ctypes.CDLL(str(path))
        library.fake_cuda_report.restype = ctypes.c_char_p
        library.stub_aten_provider.restype = ctypes.c_void_p
        library.stub_aten_live.restype = ctypes.c_int64
        return cls(path, library)

    def reset(self, devices: int = 1, capability: tuple[int, int] = (9, 0), memory: int = 1 << 30) -> None:
        self.library.fake_cuda_reset()
        self.library.fake_cuda_set(devices, *capability, ctypes.c_int64(memory))
        self.library.stub_aten_reset()

    def fail(self, n: int, result: int = 999) -> None:
        """The n-th call from here returns `result`."""
        self.library.fake_cuda_fail(ctypes.c_int64(n), result)

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.library.fake_cuda_report())
        return report

    def aten_provider(self) -> int:
        address: int = self.library.stub_aten_provider()
        return address

    def assert_clean(self) -> None:
        """Nothing of what was opened lives on, and no rule was broken."""
        report = self.report()
        assert (report["live"], report["retained"], report["depth"]) == ({}, 0, 0)
        assert report["violations"] == []
        assert self.library.stub_aten_live() == 0
