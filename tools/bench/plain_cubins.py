"""The cubins of all cases in one folder with an index, built where nvcc is and read where it is not."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dsv41c.compiler.kernels.plain import cuda_source
from dsv41c.compiler.kernels.signature import CudaSource
from dsv41c.compiler.kernels.source import KernelSource, LaunchRecord
from dsv41c.tools.bench.op_case import Case

INDEX = "plain_kernels.json"
_INCLUDE = re.compile(r'^#include "([\w.]+)"', re.MULTILINE)


def source_of(case: Case) -> CudaSource:
    source = cuda_source(case.spec, case.shapes())
    if source is None:
        raise LookupError(f"{case.op} has no plain kernel for {case.name}")
    return source


def text_digest(kernel: KernelSource) -> str:
    """Digest of the kernel's text and of every project header below it: a cubin of another text is refused."""
    digest, waiting, seen = hashlib.sha256(), [kernel.path], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8")
        digest.update(f"{path.name}\0{text}\0".encode())
        waiting += [path.parent / name for name in _INCLUDE.findall(text)]
    return digest.hexdigest()


def build_cubins(cases: Iterable[Case], target: str, directory: Path, cache: Path, told: Callable[[str], None]) -> None:
    """Builds every kernel of the cases once and writes cubins and index."""
    from dsv41c.compiler.kernels.build import build_kernel  # a GPU machine reads the index and builds nothing

    directory.mkdir(parents=True, exist_ok=True)
    kernels: dict[str, Any] = {}
    wanted = {k.description(): k for case in cases for k in source_of(case).kernels}
    for number, (description, kernel) in enumerate(wanted.items(), 1):
        built = build_kernel(kernel, target, cache)
        (directory / f"{built.digest}.cubin").write_bytes(built.cubin)
        kernels[description] = {"cubin": built.digest, "text": text_digest(kernel), "record": built.record.to_json()}
        told(f"{number}/{len(wanted)} {kernel.file} {built.record.registers} registers")
    index = {"target": target, "kernels": kernels}
    (directory / INDEX).write_text(json.dumps(index, sort_keys=True), encoding="ascii")


class Cubins:
    """A folder that `build_cubins` wrote."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        index = json.loads((directory / INDEX).read_text(encoding="ascii"))
        self._kernels: Mapping[str, Any] = index["kernels"]

    def find(self, kernel: KernelSource) -> tuple[Path, LaunchRecord]:
        """Cubin file and launch record of a kernel."""
        entry = self._kernels.get(kernel.description())
        if entry is None or entry["text"] != text_digest(kernel):
            raise LookupError(f"no cubin of {kernel.file} with {dict(kernel.constants)}: build the cubins again")
        return self._directory / f"{entry['cubin']}.cubin", LaunchRecord.from_json(entry["record"])
