"""The library that gpu tests put in front of the real driver, here in front of the fake one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.native.failing_driver import FailingDriver
from tests.unit.runtime.cuda.cuda_plan import toy, write_artifact
from tests.unit.runtime.cuda.fake_driver import ROOT, Driver

SCRIPT = """
import sys
from pathlib import Path
from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.native.failing_driver import FailingDriver
driver = FailingDriver.open(Path(sys.argv[1]))
driver.fail(0)
load(sys.argv[2], cuda_driver=driver.path).close()
calls = driver.calls()
for n in range(1, calls + 1):
    driver.fail(n)
    try:
        load(sys.argv[2], cuda_driver=driver.path)
    except Dsv41cError as error:
        print(error.code, "(2)" in error.found)
print("calls", calls)
"""


def test_each_allocation_fails_once_and_the_rest_reaches_the_driver(built_driver: Driver, tmp_path: Path) -> None:
    behind = tmp_path / "driver"
    behind.mkdir()
    shutil.copyfile(built_driver.path, behind / "libcuda.so.1")
    failing = FailingDriver.build(tmp_path / "failing")
    artifact = write_artifact(tmp_path / "artifact", *toy())
    run = subprocess.run([sys.executable, "-c", SCRIPT, str(failing), str(artifact)], cwd=ROOT,
                         env={**os.environ, "LD_LIBRARY_PATH": str(behind)}, capture_output=True, text=True,
                         check=False)
    assert run.returncode == 0, run.stderr
    *refusals, last = run.stdout.splitlines()
    count = int(last.removeprefix("calls "))
    assert count >= 10 and refusals == ["DSV41C-E0701 True"] * count
