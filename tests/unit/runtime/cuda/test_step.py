"""Steps on the fake driver: results, buckets, eager, pads, the upload ring, state, records, reports."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime, heap_allocations
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.cuda.cuda_plan import BUCKETS, SLOTS, STATE, WEIGHT, toy, transferred
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.toy_artifact import identity, rows_of, upload_of

Opened = Callable[..., Runtime]
MODES = ["graphs", "eager"]


def decode(runtime: Runtime, *slots: list[list[int]], eager: bool = False) -> np.ndarray:
    upload = upload_of(*slots)
    runtime.step(upload, identity(len(upload)), identity(len(upload)), eager)
    return runtime.output("logits")


def expected(tokens: list[int], plus: int = 0) -> np.ndarray:
    logits: np.ndarray = np.outer([3 * token + plus for token in tokens], WEIGHT).astype(np.float32)
    return logits


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("count", [1, 3, 8, 12])
def test_step_computes_the_model(opened: Opened, mode: str, eager: bool, count: int) -> None:
    runtime = opened(*toy(), cuda_mode=mode)
    tokens = [3 + i for i in range(count)]
    assert np.array_equal(decode(runtime, rows_of(1, tokens), eager=eager), expected(tokens))
    assert runtime.state("slot_position")[:SLOTS].tolist() == [0, count, 0]
    assert runtime.state("page_table")[1, 0] == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(("count", "rows"), [(1, 1), (4, 4), (8, 8)])
def test_copies_memsets_and_maps_do_their_work(opened: Opened, mode: str, eager: bool, count: int, rows: int) -> None:
    runtime = opened(*transferred(), cuda_mode=mode, poison=7)
    tokens = [3 + i for i in range(count)]
    wanted = np.outer([t if i < -(-rows // 2) else 0 for i, t in enumerate(tokens)], WEIGHT)
    assert np.array_equal(decode(runtime, rows_of(1, tokens), eager=eager), wanted.astype(np.float32))


@pytest.mark.parametrize("mode", MODES)
def test_fallback_runs_between_the_graphs(opened: Opened, driver: Driver, mode: str) -> None:
    runtime = opened(*toy(with_fallback=True), cuda_mode=mode)
    before = len(driver.report()["executed"])
    assert np.array_equal(decode(runtime, rows_of(0, [3, 4])), expected([3, 4], plus=1))
    ran = [name for name in driver.report()["executed"][before:] if not name.startswith("cuMem")]
    assert ran.index("test_scale") < ran.index("aten") < ran.index("test_add")
    assert runtime.report()["methods"]["decode"]["launches"] == {"cuda": 5, "aten": 1}


def test_upload_slot_is_reused_only_after_its_copy(opened: Opened) -> None:
    """The driver reads a pinned slot when it runs the copy: a slot that was refilled early gives wrong positions."""
    runtime = opened(*toy())
    sent = [rows_of(slot % SLOTS, [slot] * (1 + slot % 4)) for slot in range(9)]
    for rows in sent:
        upload = upload_of(rows)
        runtime.step(upload, identity(len(upload)), identity(len(upload)))
    assert runtime.state("slot_position")[:SLOTS].tolist() == [1 + (6 + s) % 4 for s in range(SLOTS)]
    assert np.array_equal(runtime.output("logits"), expected([8] * len(sent[-1])))


def test_step_returns_before_its_work_has_run(opened: Opened, driver: Driver) -> None:
    runtime = opened(*toy())
    before = len(driver.report()["executed"])
    runtime.step(upload_of(rows_of(0, [1])), identity(1), identity(1))
    assert driver.report()["executed"][before:] == []
    runtime.synchronize()
    assert driver.report()["executed"][before:] != []


def test_bucketed_step_makes_no_heap_allocation(opened: Opened) -> None:
    runtime = opened(*toy())
    upload, rows = upload_of(rows_of(0, [1, 2, 3])), identity(3)
    runtime.step(upload, rows, rows)
    before = heap_allocations()
    runtime.step(upload, rows, rows)
    assert heap_allocations() == before


def test_pads_leave_the_state_alone(opened: Opened) -> None:
    runtime = opened(*toy(), poison=0xFF)
    decode(runtime, rows_of(2, [7, 8, 9]))
    assert runtime.records()[-1].pad_rows == BUCKETS[1] - 3
    assert runtime.state("slot_position").tolist() == [0, 0, 3, 0]


def test_state_starts_as_filled(opened: Opened) -> None:
    runtime = opened(*toy())
    for entry in STATE:
        values = runtime.state(entry.name)
        fill = 0x4040 if entry.dtype == "bfloat16" else entry.fill
        assert values.shape == entry.sizes and np.all(values == fill), entry.name


def test_written_state_is_what_the_next_step_sees(opened: Opened) -> None:
    runtime = opened(*toy())
    decode(runtime, rows_of(0, [1, 2, 3]))
    position = runtime.state("slot_position").copy()
    position[0] = 1
    runtime.write_state("slot_position", position)
    decode(runtime, rows_of(0, [4], base=1))
    assert runtime.state("slot_position")[0] == 2
    with pytest.raises(Dsv41cError, match="E0801"):
        runtime.write_state("slot_position", position[:1])


def test_upload_is_checked_against_what_the_device_will_hold(opened: Opened) -> None:
    """Positions, pages and tokens are known without waiting for the device."""
    runtime = opened(*toy())
    with pytest.raises(Dsv41cError, match="holds no token yet"):
        decode(runtime, [[0, 0, -1, 1, 0]])
    decode(runtime, rows_of(0, list(range(1, 13))))
    decode(runtime, rows_of(0, [-1], base=12))
    with pytest.raises(Dsv41cError, match="would reach position 28"):
        decode(runtime, rows_of(0, [1] * 16, base=13))
    with pytest.raises(Dsv41cError, match="has none, because the slot starts"):
        decode(runtime, [[1, 0, 1, 1, -1]])


@pytest.mark.parametrize(("mode", "facts"), [
    ("graphs", [(4, False, "bucket"), (3, True, "requested"), (9, True, "above the largest bucket")]),
    ("eager", [(4, True, "bucket, launches one by one"), (3, True, "requested"),
               (9, True, "above the largest bucket")]),
])
def test_records_say_what_ran(opened: Opened, mode: str, facts: list[tuple[int, bool, str]]) -> None:
    runtime = opened(*toy(), cuda_mode=mode)
    decode(runtime, rows_of(0, [1, 2, 3]))
    decode(runtime, rows_of(0, [1, 2, 3]), eager=True)
    decode(runtime, rows_of(0, [1] * 9))
    assert [(r.bucket, r.eager, r.reason) for r in runtime.records()] == facts


def test_report_says_what_was_built(opened: Opened) -> None:
    report = opened(*toy(with_fallback=True)).report()
    cuda = report["cuda"]
    assert (cuda["device"], cuda["compute_capability"], cuda["mode"]) == (0, "9.0", "graphs")
    assert cuda["methods"] == {"decode": {"graphs": 2 * len(BUCKETS), "nodes": 5 * len(BUCKETS),
                                          "fallback_launches": 1}}
    assert (cuda["graphs"], cuda["nodes"], cuda["bytes_per_node"]) == (6, 15, 2500)
    assert min(cuda["add_s"], cuda["instantiate_s"], cuda["upload_s"]) > 0
    assert report["aten"]["decode"] == {"rows": 16, "allocations": 1, "bytes": 512}
    assert cuda["fallback_pool_bytes"] == 4096
    assert report["planned_bytes"] == report["reserved_bytes"]


def test_reserved_is_what_the_driver_gave(opened: Opened, driver: Driver) -> None:
    """A device with one byte less than the report states cannot hold the artifact."""
    runtime = opened(*toy(), cuda_mode="eager")
    reserved = runtime.report()["reserved_bytes"]
    runtime.close()
    driver.reset(memory=reserved)
    opened(*toy(), cuda_mode="eager").close()
    driver.reset(memory=reserved - 1)
    with pytest.raises(Dsv41cError, match="DSV41C-E0701"):
        opened(*toy(), cuda_mode="eager")


def test_captured_copies_and_memsets_are_nodes_too(opened: Opened, driver: Driver) -> None:
    runtime = opened(*transferred())
    before = len(driver.report()["graphs"])
    bench = runtime.graph_bench(replays=1)
    assert bench["built"]["nodes"] == bench["captured"]["nodes"] == 18
    built, captured = driver.report()["graphs"][before : before + 3], driver.report()["graphs"][before + 3 : before + 6]
    for one, other in zip(built, captured, strict=True):
        assert [n["symbol"] for n in one] == [n["symbol"] for n in other]
        assert [n["values"] for n in one if n["symbol"] in ("copy", "memset")] == [
            n["values"] for n in other if n["symbol"] in ("copy", "memset")]


def test_bench_of_graphs_and_steps(opened: Opened) -> None:
    runtime = opened(*toy(with_fallback=True))
    bench = runtime.graph_bench(replays=3)
    assert (bench["built"]["graphs"], bench["built"]["nodes"]) == (6, 15)
    assert (bench["captured"]["graphs"], bench["captured"]["nodes"]) == (6, 15)
    assert [entry["rows"] for entry in bench["replay"]] == list(BUCKETS)
    assert all(entry["built_us"] > 0 and entry["captured_us"] > 0 for entry in bench["replay"])
    assert runtime.state("counter").tolist() == [5] * 4
    upload = upload_of(rows_of(0, [1]))
    assert 0 < runtime.step_bench(upload, identity(1), identity(1), steps=20)["median_us"] < 1e6
