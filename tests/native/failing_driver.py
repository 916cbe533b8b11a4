"""The library in front of a CUDA driver that fails its n-th allocation: built against the driver's name alone."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import dataclass
from pathlib import Path

OUT_OF_MEMORY = 2
_SOURCE = Path(__file__).parent / "failing_cuda.cc"


@dataclass(frozen=True)
class FailingDriver:
    path: Path
    library: ctypes.CDLL

    @staticmethod
    def build(directory: Path) -> Path:
        """The stub gives the linker a library of the driver's name; at run time the real one is found instead."""
        stub, path = directory / "stub" / "libcuda.so.1", directory / "libfailing_cuda.so"
        stub.parent.mkdir(parents=True)
        shared = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC"]
        subprocess.run([*shared, "-x", "c++", "/dev/null", "-Wl,-soname,libcuda.so.1", "-o", str(stub)], check=True)
        subprocess.run([*shared, "-fvisibility=hidden", str(_SOURCE), "-Wl,--no-as-needed", str(stub), "-ldl", "-o",
                        str(path)], check=True)
        return path

    @classmethod
    def open(cls, path: Path) -> FailingDriver:
        """Where a driver is."""
        library = ctypes.CDLL(str(path))
        library.failing_cuda_calls.restype = ctypes.c_int64
        return cls(path, library)

    def fail(self, n: int, result: int = OUT_OF_MEMORY) -> None:
        """The n-th allocation from here fails; 0 none."""
        self.library.failing_cuda_set(ctypes.c_int64(n), result)

    def calls(self) -> int:
        """Allocations since the last fail()."""
        count: int = self.library.failing_cuda_calls()
        return count
