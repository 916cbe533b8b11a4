"""A memory budget on a device: regions as the driver aligns them, and the executable graphs of all buckets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.format import GRAPH_NODE_BYTES
from dsv41c.runtime.plan.memory_classes import memory_by_class, num_graph_nodes
from tests.unit.runtime.cuda.cuda_plan import toy, transferred
from tests.unit.runtime.cuda.fake_driver import Driver

Opened = Callable[..., Runtime]
PLANS = {"toy": toy, "fallback": lambda: toy(with_fallback=True), "transferred": transferred}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("mode", ["graphs", "eager"])
def test_both_sides_count_the_same_bytes(opened: Opened, driver: Driver, name: str, mode: str) -> None:
    """The executor's limit is what `dsv41c plan` prints; without graphs their class is not counted."""
    built, plan = PLANS[name]()
    classes = memory_by_class(plan)
    total = sum(classes.values()) - (classes["graphs"] if mode == "eager" else 0)
    with pytest.raises(Dsv41cError, match="DSV41C-E0707") as caught:
        opened(built, plan, cuda_mode=mode, memory_budget=total - 1)
    assert caught.value.needed == f"a budget of at least {total} bytes"
    assert not [call for call in driver.report()["executed"] if call.startswith("cuMemAlloc")]


def test_the_nodes_are_those_of_the_graphs(opened: Opened) -> None:
    built, plan = toy(with_fallback=True)
    nodes = sum(num_graph_nodes(plan, m) * len(m.buckets) for m in plan.methods)
    runtime = opened(built, plan, memory_budget=sum(memory_by_class(plan).values()))
    assert runtime.report()["cuda"]["nodes"] == nodes > 0
    assert memory_by_class(plan)["graphs"] == nodes * GRAPH_NODE_BYTES
