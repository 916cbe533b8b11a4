"""`dsv41c bench step`: what it times and reports; figures themselves are not asserted but for a loose bound."""

from __future__ import annotations

import pytest

from dsv41c.tools.bench.suffix_step import bench_suffix
from dsv41c.tools.bench.turns import medians
from tests.unit.tools.conftest import Command


def test_rows_are_decodes_or_a_prompt(command: Command) -> None:
    asked = ("bench", "step", "--config", "tiny", "--rows", 1, "--rows", 96, "--prompt-rows", 64, "--repeat", 1)
    result = command(*asked, "--json").json
    assert [(s["config"], s["rows"], s["methods"]) for s in result["steps"]] == [
        ("tiny", 1, "decode"), ("tiny", 96, "encoder+decoder+head")]
    for step in result["steps"]:
        assert step["frozen_ratio"] == pytest.approx(step["executor_us"] / step["bound_us"])
        assert step["executor_ops"]["native"] > 0 and step["eager_ops"]["native"] > 0
    assert result["steps"][0]["frozen_ratio"] < 1
    (suffix,) = result["suffix"]
    assert (suffix["rows"], suffix["keep"]) == (64, 20)


def test_a_bounded_suffix_saves_time() -> None:
    """2,048 rows: about half the layers run on 20 of them. The bar of 0.65 is for a quiet machine."""
    found = bench_suffix("tiny", 2048, repeat=3)
    print(f"compact / off: {found.ratio:.2f}, shares {found.shares}")
    assert found.ratio < 0.9
    assert found.shares["off"]["decoder"] > 0.2 > found.shares["compact"]["decoder"]


def test_functions_take_turns() -> None:
    calls: list[str] = []
    found = medians((lambda: calls.append("a"), lambda: sum(range(10_000))), repeat=3)
    assert len(found) == 2 and 0 < found[0] < found[1]
