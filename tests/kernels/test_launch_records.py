"""The committed launch records are what the sources build to, and are launchable at every number of rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dsv41c.compiler.kernels.source import Int32, LaunchRecord, Scratch
from dsv41c.runtime.plan import expr

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools/gen"))

import gpu_artifacts  # noqa: E402

TABLE: dict[str, Any] = json.loads(gpu_artifacts.RECORDS.read_text(encoding="ascii"))
LAUNCHES = [key for key in TABLE if key != "tools" and not key.endswith(" scratch")]
ROWS = (1, 31, 32, 33, 127, 128, 129, 192, 193, 512, 513, 2048, 8192, 65536)
MAX_SHARED = 227 * 1024


@pytest.mark.parametrize("key", LAUNCHES)
def test_record_is_launchable(key: str) -> None:
    """Grids stay within the device's limits and scratch pointers within the scratch."""
    record = LaunchRecord.from_json(TABLE[key])
    scratch = expr.from_json(TABLE[key.rsplit(" ", 1)[0] + " scratch"])
    assert record.shared_bytes <= MAX_SHARED and record.block[0] <= 1024
    for rows in ROWS:
        symbols = {"rows": rows}
        x, y, z = (expr.evaluate(e, symbols) for e in record.grid)
        assert 1 <= x < 2**31 and 1 <= y < 2**16 and 1 <= z < 2**16
        for param in record.params:
            if isinstance(param, Scratch):
                assert 0 <= expr.evaluate(param.offset, symbols) < expr.evaluate(scratch, symbols)
            if isinstance(param, Int32):
                assert 1 <= expr.evaluate(param.value, symbols) < 2**31


@pytest.mark.parametrize("case", ["mega_gate", "mega_gate_draft", "mega_gate_demo"])
def test_gate_splits_cover_k_once(case: str) -> None:
    """`splits` pieces of `blocks` K blocks reach the end of K, and the last piece is not empty."""
    blocks, rows_param, splits = (p for p in LaunchRecord.from_json(TABLE[f"sm_90a {case} gate_product_kernel"]).params
                                  if isinstance(p, Int32))
    k_blocks = dict(gpu_artifacts.CASES[case].launches[0].constants)["hidden"] // 64
    assert rows_param == Int32("rows")
    for rows in range(1, 9000, 61):
        b, s = (expr.evaluate(p.value, {"rows": rows}) for p in (blocks, splits))
        assert (s - 1) * b < k_blocks <= s * b


def test_mix_splits_share_the_columns_out() -> None:
    """Every split has a piece of 64 columns, and above 512 rows the blocks fit one wave where rows allow it."""
    record = LaunchRecord.from_json(TABLE["sm_90a mega_mhc mhc_post_mix_kernel"])
    for rows in range(1, 9000, 61):
        blocks, tiles = (expr.evaluate(e, {"rows": rows}) for e in record.grid[:2])
        assert 1 <= blocks <= 80
        assert tiles == -(-rows // 64)
        assert Int32(record.grid[0]) in record.params
        if 512 < rows <= 2048:
            assert 132 < blocks * tiles <= 264


@pytest.mark.parametrize("case", ["mega_mhc", "mega_mhc_demo", "mega_gate", "mega_gate_draft", "mega_gate_demo"])
def test_scratch_never_shrinks_with_more_rows(case: str) -> None:
    """An arena is laid out at the bound of the rows, and its offsets serve every smaller number of them."""
    scratch = expr.from_json(TABLE[f"sm_90a {case} scratch"])
    sizes = [expr.evaluate(scratch, {"rows": rows}) for rows in range(1, 9000)]
    assert sizes == sorted(sizes)


@pytest.mark.kernels
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_records_are_those_of_a_build(target: str, kernel_cache: Path) -> None:
    """Registers and spills are the compiler's: they are compared when the tools are the ones of the table."""
    built = gpu_artifacts.build_all([target], kernel_cache, 2)
    same_tools = TABLE["tools"] == gpu_artifacts.tool_versions()
    for name, case in gpu_artifacts.index(target, built).items():
        assert TABLE[f"{target} {name} scratch"] == case["scratch_bytes"]
        for launch in case["launches"]:
            known = dict(TABLE[f"{target} {name} {launch['symbol']}"])
            for field in () if same_tools else ("registers", "spill_bytes"):
                known[field] = launch[field]
            assert {"cubin": launch["cubin"], **known} == launch
