"""The cubins of all cases in one folder with an index, built where nvcc is and read where it is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dsv41c.compiler.kernels.build import build_kernel
from dsv41c.compiler.kernels.plain import cuda_source
from dsv41c.compiler.kernels.signature import CudaSource
from dsv41c.compiler.kernels.source import ROOT, KernelSource, LaunchRecord
from tools.bench.op_case import Case

INDEX = "plain_kernels.json"


def source_of(case: Case) -> CudaSource:
    source = cuda_source(case.spec, case.shapes())
    if source is None:
        raise LookupError(f"{case.op} has no plain kernel for {case.name}")
    return source


def sources_digest() -> str:
    """Digest of everything below cuda/: an index of other sources is refused."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "cuda").iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def build_cubins(cases: Iterable[Case], target: str, directory: Path, told: Callable[[str], None]) -> None:
    """Builds every kernel of the cases once and writes cubins and index."""
    directory.mkdir(parents=True, exist_ok=True)
    kernels: dict[str, Any] = {}
    wanted = {k.description(): k for case in cases for k in source_of(case).kernels}
    for number, (description, kernel) in enumerate(wanted.items(), 1):
        built = build_kernel(kernel, target, directory / "cache")
        (directory / f"{built.digest}.cubin").write_bytes(built.cubin)
        kernels[description] = {"cubin": built.digest, "record": built.record.to_json()}
        told(f"{number}/{len(wanted)} {kernel.file} {built.record.registers} registers")
    index = {"target": target, "sources": sources_digest(), "kernels": kernels}
    (directory / INDEX).write_text(json.dumps(index, sort_keys=True), encoding="ascii")


class Cubins:
    """A folder that `build_cubins` wrote."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        index = json.loads((directory / INDEX).read_text(encoding="ascii"))
        if index["sources"] != sources_digest():
            raise LookupError(f"{directory / INDEX} belongs to other kernel sources: build the cubins again")
        self._kernels: Mapping[str, Any] = index["kernels"]

    def find(self, kernel: KernelSource) -> tuple[Path, LaunchRecord]:
        """Cubin file and launch record of a kernel."""
        entry = self._kernels.get(kernel.description())
        if entry is None:
            raise LookupError(f"no cubin of {kernel.file} with {dict(kernel.constants)}: build the cubins again")
        return self._directory / f"{entry['cubin']}.cubin", LaunchRecord.from_json(entry["record"])
