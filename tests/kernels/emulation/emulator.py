"""Runs plain CUDA kernels on the host: g++ compiles a source behind the shim, once per set of macros."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from pathlib import Path
from typing import Any

from dsv41c.compiler.kernels.nvcc import parse_signature
from dsv41c.compiler.kernels.signature import CudaSource
from dsv41c.compiler.kernels.source import ROOT, KernelSource
from dsv41c.tools.bench.op_case import Case
from dsv41c.tools.bench.plain_launch import Bound, Call, bind

_HERE = Path(__file__).parent
# Contraction off: the explicit roundings of the kernels are then the plain operators of the host.
_FLAGS = ("-std=c++17", "-O1", "-w", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-shared", "-fPIC")


def emulate(case: Case, source: CudaSource, directory: Path, skewed: bool) -> Bound:
    """Every launch in order; `skewed` lets each warp run ahead of the others."""
    params = [[dict(k.bindings)[name] for _, name in _signature(k).params] for k in source.kernels]
    bound = bind(case, source, params, "cpu")

    def start(call: Call) -> None:
        function = _function(call.kernel, directory)
        function(call.pointers(), (ctypes.c_uint * 3)(*call.grid), ctypes.c_uint(call.kernel.block[0]), int(skewed))

    bound.run(start)
    return bound


def _signature(kernel: KernelSource) -> Any:
    return parse_signature(kernel.path.read_text(encoding="utf-8"), kernel.file)


def _function(kernel: KernelSource, directory: Path) -> Any:
    macros = [f"-D{k}={v}" for k, v in kernel.constants]
    command = ["g++", *_FLAGS, f"-I{ROOT / 'cuda'}", f'-DKERNEL_FILE="{kernel.path.name}"',
               f"-DKERNEL_SYMBOL={_signature(kernel).symbol}", *macros]
    name = hashlib.sha256("\0".join(command).encode()).hexdigest()[:20]
    library = directory / f"{name}.so"
    if not library.exists():
        subprocess.run([*command, str(_HERE / "emulate.cc"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library)).emulate
