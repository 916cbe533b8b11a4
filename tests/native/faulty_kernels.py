"""The product's kernels with a fault that a test switches on: what is needed to open an artifact with them."""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dsv41c.runtime.aten import aten_provider
from dsv41c.runtime.binding import Error, LoadOptions, interface
from dsv41c.runtime.library import library_path
from dsv41c.runtime.load import Runtime

ROOT = Path(__file__).parents[2]
FAULTS = ("none", "write_beyond_output", "write_input", "write_elsewhere", "read_output", "read_scratch",
          "read_beyond_input", "read_last_row", "leave_first_row")


@dataclass(frozen=True)
class FaultyKernels:
    library: ctypes.CDLL

    @classmethod
    def build(cls, directory: Path) -> FaultyKernels:
        path, core = directory / "libfaulty_kernels.so", library_path("dsv41c_executor")
        subprocess.run(["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden",
                        f"-I{ROOT / 'runtime/cpp/include'}", str(Path(__file__).with_suffix(".cc")), str(core),
                        f"-Wl,-rpath,{core.parent}", "-o", str(path)], check=True)
        library = ctypes.CDLL(str(path))
        library.faulty_provider.restype = ctypes.c_void_p
        library.faulty_order.restype = ctypes.c_char_p
        return cls(library)

    def open(self, artifact: Path, check: str) -> Runtime:
        """Without a fault yet: loading runs every method once."""
        self.set("none")
        addresses = (ctypes.c_void_p * 2)(aten_provider(), self.library.faulty_provider())
        options = LoadOptions(num_providers=2, providers=addresses, check=check.encode())
        text, handle = ctypes.create_string_buffer(4096), ctypes.c_void_p()
        error = Error(ctypes.addressof(text), len(text))
        failed = interface().open(os.fsencode(artifact), ctypes.byref(options), ctypes.byref(handle),
                                  ctypes.byref(error))
        assert failed == 0, text.value
        return Runtime(handle)

    def set(self, fault: str, entry: str = "", address: int = 0) -> None:
        """From here on, launches of `entry` have the fault. Forgets the order of launches."""
        self.library.faulty_set(entry.encode(), FAULTS.index(fault), ctypes.c_void_p(address))

    def order(self) -> list[str]:
        """Entries of all launches since set()."""
        return self.library.faulty_order().decode().split()
