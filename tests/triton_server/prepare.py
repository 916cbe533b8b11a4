"""Makes what the tests here need and cannot make, for the server's Python has no torch: artifacts, answers, links.

Usage, in the project's environment: python -m tests.triton_server.prepare DIRECTORY PACKAGES_OF_THE_SERVER
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.library import installed_file
from dsv41c.tools.cli.triton_repository import Export
from tests.conformance.vectors import OPTIONS, REQUESTS, Reference

CHECKPOINTS = {"tiny": ("tiny", None), "demo": ("demo", None), "counter": ("tiny", 1)}
RECITED = "The quick brown fox — déjà vu, 狐狸 🦊 jumps over a lazy dog."


def main(directory: Path, packages: Path) -> None:
    for made in ("checkpoints", "repository"):
        shutil.rmtree(directory / made, ignore_errors=True)
    link_backends(directory, packages)
    expected = {}
    for name, (config, counter) in CHECKPOINTS.items():
        checkpoint, artifact = _compile(directory, name, config, counter=counter)
        Export(artifact, directory / "repository", name, link=True).write()
        reference = Reference(checkpoint, artifact, **OPTIONS)
        expected[name] = [asdict(reference.answer(request)) for request in REQUESTS]
    (directory / "expected.json").write_text(json.dumps({"requests": REQUESTS, "answers": expected}))
    _, artifact = _compile(directory, "talk", "demo", recite=RECITED)
    Export(artifact, directory / "repository", "talk").write()


def link_backends(directory: Path, packages: Path) -> None:
    """`real` and `fake`: directories of backends; the second has an engine that counts."""
    triton = packages / "pytriton/tritonserver"
    ours = installed_file("lib/triton/dsv41c/libtriton_dsv41c.so").parent
    shutil.rmtree(directory / "real", ignore_errors=True)
    shutil.copytree(triton / "backends/python", directory / "real/python")
    stub = directory / "real/python/triton_python_backend_stub"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copyfile(triton / "python_backend_stubs" / version / stub.name, stub)
    stub.chmod(0o755)
    (directory / "real/dsv41c").symlink_to(ours.resolve())


def _compile(directory: Path, name: str, config: str, counter: int | None = None,
             recite: str | None = None) -> tuple[Path, Path]:
    checkpoint, artifact = (directory / "checkpoints" / f"{name}-{kind}" for kind in ("weights", "artifact"))
    make_checkpoint(config, checkpoint, seed=0, counter=counter, recite=recite)
    compile_checkpoint(checkpoint, artifact, CompileOptions(**OPTIONS), lambda _: None)
    return checkpoint, artifact


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
