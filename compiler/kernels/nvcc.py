"""Runs nvcc on one CUDA text and reads the kernel's signature and resource report."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dsv41c.runtime.plan.errors import Dsv41cError

OPTIONS = ("-cubin", "-O3", "-std=c++17", "-Xptxas", "-v")
_SIGNATURE = re.compile(
    r'extern "C" __global__ void\s+__launch_bounds__\([^)]*\)\s*(?P<name>\w+)\((?P<params>[^)]*)\)\s*\{')
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True)
class Signature:
    """Kernel name and its parameters as (type, name), where every pointer type is written "pointer"."""

    symbol: str
    params: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Compiled:
    cubin: bytes
    registers: int
    spill_bytes: int


@cache
def nvcc_version() -> str:
    """The release line of `nvcc --version`; E0303 when there is no nvcc."""
    text = subprocess.run([_nvcc(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release .*", text)
    return found.group(0) if found else text.strip()


def parse_signature(text: str, file: str) -> Signature:
    """The one kernel of a CUDA text."""
    found = [m for m in _SIGNATURE.finditer(text)]
    if len(found) != 1:
        raise Dsv41cError("DSV41C-E0302", f"kernel source {file}", found=f"{len(found)} kernels",
                          needed='one extern "C" __global__ function with launch bounds', do="split the file")
    return Signature(found[0]["name"], tuple(_parameter(p) for p in found[0]["params"].split(",")))


def _parameter(text: str) -> tuple[str, str]:
    kind, name = text.strip().rsplit(maxsplit=1)
    return ("pointer" if "*" in text else kind.strip()), name.lstrip("*")


def compile_text(text: str, target: str, options: Sequence[str], file: str) -> Compiled:
    """cubin of `text`; E0302 with the compiler's words when it does not compile."""
    with tempfile.TemporaryDirectory() as work:
        source, cubin = Path(work) / "kernel.cu", Path(work) / "kernel.cubin"
        source.write_text(text, encoding="utf-8")
        arch = f"-gencode=arch=compute_{target.removeprefix('sm_')},code={target}"
        command = [_nvcc(), *OPTIONS, arch, *options, "-o", cubin.name, source.name]
        # Run inside the folder: a path in the command must not reach the cubin.
        run = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            errors = [line for line in run.stderr.splitlines() if "error" in line]
            raise Dsv41cError("DSV41C-E0302", f"kernel source {file}", where=f"target {target}",
                              found="; ".join(errors[:3]) or run.stderr[-500:], needed="a source that nvcc accepts",
                              do="correct the source or its constants")
        spills = [int(store) + int(load) for store, load in _SPILLS.findall(run.stderr)]
        registers = [int(n) for n in _REGISTERS.findall(run.stderr)]
        return Compiled(cubin.read_bytes(), max(registers), max(spills, default=0))


def _nvcc() -> str:
    path = shutil.which("nvcc")
    if path is None:
        raise Dsv41cError("DSV41C-E0303", "nvcc", found="none on PATH", needed="nvcc 12.8 or newer",
                          do="install the CUDA toolkit, or put its bin folder on PATH")
    return path
