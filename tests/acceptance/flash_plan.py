"""The plan of the published model from headers, compiled once a run and target, with what the compilation took."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from dsv41c.compiler.checkpoint.make import make_checkpoint
from tests.unit.tools.command_line import MAIN


@dataclass(frozen=True)
class FlashPlan:
    """`result`: what `compile --json` printed; `peak_bytes`: of the whole process, upper bound."""

    checkpoint: Path
    artifact: Path
    result: dict[str, object]
    seconds: float
    peak_bytes: int

    @classmethod
    def read(cls, folder: Path) -> FlashPlan:
        taken = json.loads((folder / "taken.json").read_text())
        return cls(folder / "ckpt", folder / "art", json.loads((folder / "result.json").read_text()), **taken)


def write_flash_plan(folder: Path, target: str) -> None:
    """As a user compiles it, with an empty kernel cache. `folder` appears when all is written."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        new = Path(temporary) / "plan"
        make_checkpoint("flash", new / "ckpt", headers_only=True)
        arguments = ["compile", new / "ckpt", "-o", new / "art", "--plan-only", "--target", target, "--json"]
        started = time.perf_counter()
        with (new / "result.json").open("w") as out:
            process = subprocess.Popen([*MAIN, *map(str, arguments)], stdout=out,
                                       env={**os.environ, "DSV41C_CACHE_DIR": str(new / "cache")})
            _, status, usage = os.wait4(process.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        taken = {"seconds": time.perf_counter() - started, "peak_bytes": usage.ru_maxrss * 1024}
        (new / "taken.json").write_text(json.dumps(taken))
        new.rename(folder)
