"""plan_generated.h is what the schema generates now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dsv41c.runtime.plan import schema

ROOT = Path(__file__).parents[4]
HEADER = ROOT / "runtime/cpp/include/dsv41c/plan_generated.h"


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, root / "tools/gen/plan_header.py", "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_committed_header_is_current() -> None:
    result = check(ROOT)
    assert result.returncode == 0, result.stderr


def test_a_difference_exits_1(tmp_path: Path) -> None:
    script = tmp_path / "tools/gen/plan_header.py"
    header = tmp_path / HEADER.relative_to(ROOT)
    for path, text in ((script, (ROOT / "tools/gen/plan_header.py").read_text()),
                       (header, HEADER.read_text().replace("PLAN_VERSION = 1", "PLAN_VERSION = 9"))):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    result = check(tmp_path)
    assert result.returncode == 1
    assert "plan_header.py" in result.stderr


def test_dtype_codes_are_positions() -> None:
    """C++ indexes its dtype table by code."""
    assert [dtype.code for dtype in schema.DTYPES.values()] == list(range(len(schema.DTYPES)))
