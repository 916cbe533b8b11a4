"""A decoder above its largest bucket: replays in the order of the rows, and the same bits as one eager run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime, heap_allocations, load
from tests.unit.runtime.toy_artifact import identity, rows_of, upload_of, write_artifact
from tests.unit.runtime.toy_plan import MAX_ROWS, SLOTS, toy_plan

TOP = 3


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The decoder has buckets 1 and 3: up to 16 rows take up to 6 replays."""
    plan = toy_plan("split")
    methods = tuple(replace(m, buckets=(1, TOP)) if m.name == "decoder" else m for m in plan.methods)
    return write_artifact(tmp_path_factory.mktemp("toy") / "artifact", replace(plan, methods=methods))


def slots_of(count: int) -> np.ndarray:
    """Rows of three requests of uneven lengths, the first one without any below 3."""
    cuts = (count // 5, count // 2, count)
    tokens = [(7 * i + 3) % 24 for i in range(count)]
    groups = [rows_of(slot, tokens[begin:end])
              for slot, begin, end in zip((2, 0, 1), (0, *cuts), cuts, strict=False) if end > begin]
    return upload_of(*groups)


def results(runtime: Runtime, upload: np.ndarray, logit_rows: np.ndarray, eager: bool) -> list[bytes]:
    runtime.step(upload, identity(len(upload)), logit_rows, eager)
    state = [runtime.state(name)[:SLOTS].tobytes() for name in ("slot_position", "slot_token", "page_table")]
    return [runtime.output("logits").tobytes(), runtime.output("tokens").tobytes(), *state]


@pytest.mark.parametrize("count", range(2, MAX_ROWS + 1))
@pytest.mark.parametrize("poison", [0, 0xFF])
def test_split_is_eager_bit_for_bit(artifact: Path, count: int, poison: int) -> None:
    """For logits of any rows; not all, or the step would be a decode."""
    for logit_rows in (identity(count)[1:], identity(count)[::2][-count + 1:], identity(count)[-1:]):
        with load(artifact) as one, load(artifact, poison=poison) as other:
            assert results(one, slots_of(count), logit_rows, True) == results(other, slots_of(count), logit_rows, False)


def test_records_name_the_parts(artifact: Path) -> None:
    with load(artifact) as runtime:
        results(runtime, slots_of(8), identity(8)[1:], False)
        facts = [(r.bucket, r.rows, r.pad_rows, r.mode, r.reason) for r in runtime.records() if r.method == "decoder"]
    assert facts == [(3, 2, 1, "bucketed", "part 1 of 3 of a split"), (3, 3, 0, "bucketed", "part 2 of 3 of a split"),
                     (3, 3, 0, "bucketed", "part 3 of 3 of a split")]


def test_what_fits_a_bucket_is_not_split(artifact: Path) -> None:
    with load(artifact) as runtime:
        results(runtime, slots_of(TOP), identity(TOP)[1:], False)
        assert [r.reason for r in runtime.records()] == ["bucket"] * 3


def test_eager_on_request_runs_once_at_the_exact_size(artifact: Path) -> None:
    with load(artifact) as runtime:
        results(runtime, slots_of(7), identity(7)[1:], True)
        assert [(r.bucket, r.reason) for r in runtime.records() if r.method == "decoder"] == [(7, "requested")]


def test_a_split_step_makes_no_heap_allocation(artifact: Path) -> None:
    with load(artifact) as runtime:
        upload, rows, logit_rows = slots_of(8), identity(8), identity(8)[1:]
        runtime.step(upload, rows, logit_rows)
        before = heap_allocations()
        runtime.step(upload, rows, logit_rows)
        assert heap_allocations() == before


def test_the_report_says_what_happens_above_the_buckets(artifact: Path) -> None:
    with load(artifact) as runtime:
        above = {name: method["above"] for name, method in runtime.report()["methods"].items()}
    assert above == {"decode": "eager", "encoder": "eager", "decoder": "split", "head": "eager"}
