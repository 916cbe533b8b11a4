"""Steps of the toy artifact: results, buckets against eager, pads, flows, records, device-side tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.toy_artifact import expected_logits, identity, rows_of, upload_of, write_artifact
from tests.unit.runtime.toy_plan import SLOTS, VOCAB

NONE = np.zeros(0, np.int32)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("toy") / "artifact")


@pytest.fixture
def runtime(artifact: Path) -> Iterator[Runtime]:
    with load(artifact) as opened:
        yield opened


def decode(runtime: Runtime, *slots: list[list[int]], eager: bool = False) -> np.ndarray:
    upload = upload_of(*slots)
    runtime.step(upload, identity(len(upload)), identity(len(upload)), eager)
    return runtime.output("logits").copy()


def state_bytes(runtime: Runtime) -> list[bytes]:
    """Of live slots: the trash slot, which is last, may hold anything."""
    return [runtime.state(name)[:SLOTS].tobytes() for name in ("slot_position", "slot_token", "page_table")]


def test_step_computes_the_model(runtime: Runtime) -> None:
    tokens = [3, 4, 5, 7]
    logits = decode(runtime, rows_of(0, tokens[:3]), rows_of(2, tokens[3:]))
    np.testing.assert_allclose(logits, expected_logits(tokens), rtol=2e-6, atol=2e-6)
    assert runtime.output("tokens").tolist() == expected_logits(tokens).argmax(-1).tolist()


def test_step_moves_the_state_of_its_slots(runtime: Runtime) -> None:
    decode(runtime, rows_of(0, [3, 4, 5]), rows_of(2, [7]))
    assert runtime.state("slot_position")[:SLOTS].tolist() == [3, 0, 1]
    best = expected_logits([5, 7]).argmax(-1).tolist()
    assert runtime.state("slot_token")[:SLOTS].tolist() == [best[0], -1, best[1]]
    assert runtime.state("page_table")[:SLOTS, 0].tolist() == [0, 8, 4]


def test_device_side_token_continues_the_slot(runtime: Runtime) -> None:
    decode(runtime, rows_of(1, [9]))
    first = int(runtime.output("tokens")[0])
    logits = decode(runtime, rows_of(1, [-1], base=1))
    np.testing.assert_allclose(logits, expected_logits([first]), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("count", range(1, 9))
def test_bucketed_is_eager_bit_for_bit(artifact: Path, count: int) -> None:
    results = []
    for eager in (False, True):
        with load(artifact) as runtime:
            logits = decode(runtime, rows_of(0, list(range(count))), eager=eager)
            assert runtime.records()[-1].eager is eager
            results.append((logits.tobytes(), runtime.output("tokens").tobytes(), state_bytes(runtime)))
    assert results[0] == results[1]


@pytest.mark.parametrize("poison", [0x01, 0x7F, 0xFF])
def test_poisoned_memory_changes_no_bit(artifact: Path, poison: int) -> None:
    """Neither dead arena bytes nor pad rows reach a real row or the state of a live slot."""
    results = []
    for byte in (0, poison):
        with load(artifact, poison=byte) as runtime:
            logits = [decode(runtime, rows_of(0, [1, 2, 3])),
                      decode(runtime, rows_of(0, [4], base=3), rows_of(1, [5, 6]))]
            results.append(([each.tobytes() for each in logits], state_bytes(runtime)))
    assert results[0] == results[1]


def test_row_has_the_same_bits_in_every_bucket(artifact: Path) -> None:
    with load(artifact) as runtime:
        alone = decode(runtime, rows_of(0, [11]))[0]
        together = decode(runtime, rows_of(1, [2, 3]), rows_of(0, [11]), rows_of(2, [4, 5]))[2]
        assert alone.tobytes() == together.tobytes()


def test_split_flow_runs_when_some_rows_give_no_logits(runtime: Runtime) -> None:
    upload = upload_of(rows_of(0, [3, 4, 5]), rows_of(2, [7]))
    runtime.step(upload, identity(4), np.array([1, 3], np.int32))
    np.testing.assert_allclose(runtime.output("logits"), expected_logits([4, 7]), rtol=2e-6, atol=2e-6)
    assert [(r.method, r.bucket, r.rows, r.pad_rows) for r in runtime.records()] == [
        ("encoder", 4, 4, 0), ("decoder", 4, 4, 0), ("head", 4, 2, 2)]


def test_methods_without_rows_are_skipped(runtime: Runtime) -> None:
    runtime.step(upload_of(rows_of(0, [3, 4])), identity(2), NONE)
    assert [r.method for r in runtime.records()] == ["encoder", "decoder"]
    assert runtime.output("logits").shape == (0, VOCAB)


def test_split_flow_equals_decode_bit_for_bit(artifact: Path) -> None:
    upload = upload_of(rows_of(0, [3, 4, 5]))
    with load(artifact) as runtime:
        runtime.step(upload, identity(3), np.array([0, 2], np.int32))
        split = runtime.output("logits").tobytes()
        runtime.step(upload, identity(3), identity(3))
        assert split == runtime.output("logits")[[0, 2]].tobytes()


def test_records_say_what_ran(runtime: Runtime) -> None:
    decode(runtime, rows_of(0, [1, 2, 3]))
    decode(runtime, rows_of(0, [1, 2, 3]), eager=True)
    decode(runtime, rows_of(0, list(range(9))))
    facts = [(r.method, r.bucket, r.rows, r.pad_rows, r.mode, r.reason) for r in runtime.records()]
    assert facts == [("decode", 4, 3, 1, "bucketed", "bucket"), ("decode", 3, 3, 0, "eager", "requested"),
                     ("decode", 9, 9, 0, "eager", "above the largest bucket")]
    assert all(r.us > 0 for r in runtime.records())
    assert len(runtime.records(since=2)) == 1


def test_record_ring_keeps_the_newest(artifact: Path) -> None:
    with load(artifact) as runtime:
        upload, one = upload_of(rows_of(0, [1])), identity(1)
        for _ in range(65537):
            runtime.step(upload, one, one)
        assert runtime.num_records() == 65537
        for since, count in ((-5, 65536), (0, 65536), (1, 65536), (2, 65535), (65000, 537), (70000, 0)):
            assert len(runtime.records(since)) == count
        with pytest.raises(Dsv41cError, match="E0801") as failure:
            runtime._record(0)
        assert "an index from 1 below 65537" in failure.value.needed


def test_outputs_and_state_have_names(runtime: Runtime) -> None:
    with pytest.raises(Dsv41cError, match="no step has run yet"):
        runtime.output("logits")
    decode(runtime, rows_of(0, [1]))
    with pytest.raises(Dsv41cError, match="one of: logits, tokens"):
        runtime.output("logit")
    with pytest.raises(Dsv41cError, match="one of: slot_position, slot_token, page_table"):
        runtime.state("ring")


def test_closed_runtime_refuses(artifact: Path) -> None:
    runtime = load(artifact)
    runtime.close()
    runtime.close()
    with pytest.raises(Dsv41cError, match="a closed runtime"):
        runtime.report()
