"""Replay on prefix hits (equivalence E): against the float64 model, and bit for bit over engines, modes and chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.model.draft import Drafts
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.requests import Request
from dsv41c.runtime.step_rows import HIT, ActiveRequest, Part, step_rows
from laws.engines import CHECKED, Engine, ExecutorEngine, Subject, TorchEngine
from laws.hit_runs import (
    HISTORY,
    POOLS,
    WINDOW,
    Hit,
    differences,
    fill_cache,
    place,
    run_hit,
    whole_run,
)
from laws.suffix_runs import state_names
from oracle.model import OracleModel, Replay

OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 96, "max_num_seqs": 48,
           "max_num_batched_tokens": 48, "block_size": 4}
CACHED, DECODED = 40, 5
PREFIXES = range(2, CACHED + 1, 2)
RNG = np.random.default_rng(11)
CACHE = tuple(int(t) for t in RNG.integers(0, 96, CACHED))
BEHIND = tuple(int(t) for t in RNG.integers(0, 96, 40))
ENGINES = ("torch", "bucketed", "exact", "poisoned")
KEEPS = (WINDOW + 4, WINDOW + 12)


def hit_of(prefix: int, new: int, keep: int | None, compact: bool = True) -> Hit:
    """`new` rows of the prompt lie behind the prefix; of prompts that the cache holds whole, none."""
    return Hit(CACHE[:prefix] + BEHIND[: new + DECODED], prefix + new, prefix, keep, compact)


def subject_of(checkpoint: Path, compiled: Callable[..., Path], mode: str) -> Subject:
    options = {**OPTIONS, "suffix_mode": mode}
    return Subject.build(checkpoint, compiled("tiny", 0, **options), CompileOptions(**options))


@pytest.fixture(scope="module", params=["off", "mask"])
def subject(request: pytest.FixtureRequest, tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> Subject:
    """Compiled without a suffix; and for masks, whose decoder may be handed fewer rows."""
    return subject_of(tiny_checkpoint, compiled_artifact, request.param)


@pytest.fixture(scope="module")
def engines(subject: Subject) -> dict[str, Engine]:
    """Slot 0 of each has filled the pages that all hits share."""
    opened: dict[str, Engine] = {k: subject.torch_engine() if k == "torch" else subject.executor(k) for k in ENGINES}
    for engine in opened.values():
        fill_cache(engine, subject, CACHE)
    return opened


@pytest.fixture(scope="module")
def oracle(tiny_checkpoint: Path) -> OracleModel:
    return OracleModel(tiny_checkpoint)


def keeps(subject: Subject, length: int) -> tuple[int | None, ...]:
    return (None,) if subject.options.suffix_mode == "off" else (*KEEPS, length)


def oracle_rows(oracle: OracleModel, hit: Hit) -> dict[int, np.ndarray]:
    cold = oracle.new_state()
    oracle.forward(cold, hit.tokens[: hit.prefix])
    state = cold.prefix(hit.prefix)
    replay = None if hit.keep is None else Replay("compact", hit.length, hit.keep)
    rows = [*oracle.forward(state, hit.tokens[hit.first : hit.length], start=hit.first, replay=replay)]
    rows += [oracle.forward(state, [t])[0] for t in hit.tokens[hit.length :]]
    return dict(zip(range(len(hit.tokens) - len(rows), len(hit.tokens)), rows, strict=True))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_rows_are_those_of_the_float64_model(engines: dict[str, Engine], subject: Subject, oracle: OracleModel,
                                             prefix: int) -> None:
    for new in (0, 1, 10, 17):
        for keep in keeps(subject, prefix + new):
            want = oracle_rows(oracle, hit_of(prefix, new, keep))
            for compact in (True, False) if keep else (True,):
                got = run_hit(engines["bucketed"], subject, hit_of(prefix, new, keep, compact), 1)
                assert got.logits.keys() == want.keys()
                for position, row in got.logits.items():
                    error = np.linalg.norm(row - want[position]) / np.linalg.norm(want[position])
                    assert error <= 1e-5, (new, keep, compact, position, error)


@pytest.mark.parametrize("kind", ["torch", "bucketed"])
@pytest.mark.parametrize("prefix", range(2, WINDOW + 1, 2))
def test_a_hit_inside_the_window_is_exact(engines: dict[str, Engine], subject: Subject, kind: str, prefix: int) -> None:
    for new in (0, 1, 9, 30):
        for keep in keeps(subject, prefix + new):
            hit = hit_of(prefix, new, keep)
            whole = whole_run(engines[kind], subject, hit, 2)
            assert differences(whole, run_hit(engines[kind], subject, hit, 1)) == []


@pytest.mark.parametrize("prefix", [10, 18, 24, 40])
def test_windows_are_exact_from_a_position_on_that_rises_with_the_layer(engines: dict[str, Engine], subject: Subject,
                                                                        prefix: int) -> None:
    """Layer 0 for all replayed rows, an encoder layer for those that see replayed rows which are exact only."""
    hit = hit_of(prefix, 0, keeps(subject, prefix)[0])
    hit = Hit(hit.tokens[:prefix], prefix, prefix, hit.keep)
    whole, replayed = (run(engines["bucketed"], subject, hit, slot).state
                       for run, slot in ((whole_run, 2), (run_hit, 1)))
    for layer in range(subject.view.config.decoder_start):
        for position in range(hit.first, prefix):
            if position >= hit.first + layer * (WINDOW - 1):
                assert whole[f"window_{layer}", position] == replayed[f"window_{layer}", position]
    assert whole["window_1", hit.first] != replayed["window_1", hit.first], "or the floor hides nothing"


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_chunks_on_any_engine_give_the_same_bits(engines: dict[str, Engine], subject: Subject,
                                                     data: st.DataObject) -> None:
    """Replayed rows folded in front of the new ones, in steps of their own, or one by one."""
    prefix, new = data.draw(st.sampled_from(PREFIXES)), data.draw(st.integers(0, 30))
    hit = hit_of(prefix, new, data.draw(st.sampled_from(keeps(subject, prefix + new))), data.draw(st.booleans()))
    inside = range(hit.first + 1, hit.length)
    cuts = data.draw(st.one_of(st.just([*inside]), st.just([prefix] if prefix in inside else []),
                               st.sets(st.sampled_from(inside), max_size=6).map(sorted) if inside else st.just([])))
    expected = run_hit(engines["torch"], subject, hit, 1)
    for kind in ENGINES[1:]:
        got = run_hit(engines[kind], subject, hit, data.draw(st.integers(1, 4)), cuts)
        assert differences(expected, got) == [], kind


@pytest.mark.parametrize("prefix", [4, 14, 26, 40])
def test_compact_equals_mask(engines: dict[str, Engine], subject: Subject, prefix: int) -> None:
    for new in (0, 1, 11, 30):
        for keep in keeps(subject, prefix + new):
            mask, compact = (run_hit(engines["bucketed"], subject, hit_of(prefix, new, keep, is_compact), 1)
                             for is_compact in (False, True))
            assert differences(mask, compact) == []


@pytest.mark.parametrize("kind", ["torch", "bucketed"])
def test_what_the_hit_holds_stays_byte_for_byte(engines: dict[str, Engine], subject: Subject, kind: str) -> None:
    pools = [name for name in state_names(subject) if name.startswith(POOLS)]
    pairs = [name for name in state_names(subject) if name.startswith("pair")]
    shared = slice(0, subject.options.pages_per_slot)
    before = {name: engines[kind].state(name)[shared].copy() for name in pools}
    for prefix in (8, 16, 22, 40):
        held = {name: engines[kind].state(name)[3].copy() for name in pairs}
        hit = hit_of(prefix, 0, keeps(subject, prefix)[0])
        run_hit(engines[kind], subject, Hit(hit.tokens[:prefix], prefix, prefix, hit.keep), 3)
        for name in pairs:
            np.testing.assert_array_equal(engines[kind].state(name)[3], held[name], err_msg=name)
        got = run_hit(engines[kind], subject, hit_of(prefix, 9, hit.keep), 3).state
        cached = whole_run(engines[kind], subject, hit_of(prefix, 9, hit.keep), 2).state
        for name in pools:
            np.testing.assert_array_equal(engines[kind].state(name)[shared], before[name], err_msg=name)
            for j in range(prefix * before[name].shape[1] // 4):
                assert got[name, j] == cached[name, j], (name, j)


@pytest.mark.parametrize(("prefix", "new", "keep", "cuts"), [
    (6, 5, 12, ()), (22, 3, 12, (15, 17)), (40, 20, 20, (41,))])
def test_full_checks_trap_nothing(engines: dict[str, Engine], subject: Subject, prefix: int, new: int, keep: int,
                                  cuts: tuple[int, ...]) -> None:
    """No row reads below its floor, and no replayed row a partner that nobody keeps."""
    hit = hit_of(prefix, new, keep if keeps(subject, 99)[0] else None)
    checked = subject.executor(CHECKED)
    fill_cache(checked, subject, CACHE)
    got = run_hit(checked, subject, hit, 1, cuts)
    assert differences(run_hit(engines["torch"], subject, hit, 1), got) == []


@pytest.mark.parametrize("kind", ["torch", "bucketed", "exact"])
def test_slots_that_share_pages_run_in_one_step(engines: dict[str, Engine], subject: Subject, kind: str) -> None:
    """Two hits on the same pages beside a request that starts: the bits that each has alone."""
    engine, keep = engines[kind], keeps(subject, 99)[0]
    hits = {1: hit_of(16, 6, keep), 3: hit_of(24, 2, keep)}
    alone = {slot: run_hit(engine, subject, hit, slot) for slot, hit in hits.items()}
    plain = Hit(BEHIND[:9], 9, 0, keep)
    want = whole_run(engine, subject, plain, 2)
    for slot, hit in hits.items():
        place(engine, subject, hit, slot)
    steps = [hit.rows(slot, hit.first, hit.length - hit.first, subject.options.pages_per_slot)
             for slot, hit in (*hits.items(), (2, plain))]
    upload = np.concatenate([rows for rows, _ in steps])
    kept = np.flatnonzero(np.concatenate([kept for _, kept in steps])).astype(np.int32)
    logits, _ = engine.step(upload, kept, np.arange(len(kept), dtype=np.int32))
    for row, (slot, offset) in zip(logits, upload[kept, :2].tolist(), strict=True):
        run, first = (want, 0) if slot == 2 else (alone[slot], hits[slot].first)
        assert row.tobytes() == run.logits[first + offset].tobytes(), (slot, offset)


def test_a_slot_forgets_the_hit_when_it_starts_again(engines: dict[str, Engine], subject: Subject) -> None:
    keep = keeps(subject, 99)[0]
    want = whole_run(engines["bucketed"], subject, Hit(BEHIND[:20], 20, 0, keep), 2)
    run_hit(engines["bucketed"], subject, hit_of(40, 8, keep), 1)
    got = whole_run(engines["bucketed"], subject, Hit(BEHIND[:20], 20, 0, keep), 1)
    assert differences(want, got) == []


@pytest.mark.parametrize("mode", ["off", "mask", "compact"])
@pytest.mark.parametrize(("prefix", "new"), [(6, 3), (16, 1), (24, 20), (40, 0)])
def test_step_rows_of_a_request_with_a_hit(tiny_checkpoint: Path, compiled_artifact: Callable[..., Path], mode: str,
                                           prefix: int, new: int) -> None:
    """The generation side's own rows, in chunks of 7, give what the laws' rows give."""
    keep = None if mode == "off" else WINDOW + 4
    options = {**OPTIONS, "suffix_mode": mode} | ({"suffix_keep_tokens": keep} if keep else {})
    artifact = compiled_artifact("tiny", 0, **options)
    subject = Subject.build(tiny_checkpoint, artifact, CompileOptions(**options))
    limits, engine = Limits.read(artifact), subject.executor("bucketed")
    hit = Hit(CACHE[:prefix] + BEHIND[:new], prefix + new, prefix, keep, mode == "compact")
    fill_cache(engine, subject, CACHE)
    want = run_hit(engine, subject, hit, 1)
    place(engine, subject, hit, 2)
    assert (limits.first_replayed(prefix), limits.history) == (hit.first, HISTORY)
    active = ActiveRequest(Request(hit.tokens, 4), 0, 2, hit.first, prefix)
    logits = np.zeros((0, 1), np.float32)
    while active.num_prompt_rows_left:
        part = Part(active, min(active.num_prompt_rows_left, 7))
        logits, _ = engine.step(*step_rows([part], limits))
        active.position += part.count
    assert logits[-1].tobytes() == want.logits[hit.length - 1].tobytes()


Drafting = tuple[Subject, TorchEngine, ExecutorEngine]


@pytest.fixture(scope="module")
def drafting(tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> Drafting:
    options = CompileOptions(**OPTIONS, draft_len=2)
    view = CheckpointView.open(tiny_checkpoint, draft=True)
    options = options.resolved(view.config)
    weights = load_weights(view, weight_recipes(view, options))
    subject = Subject(tiny_checkpoint, compiled_artifact("tiny", 0, **OPTIONS, draft_len=2), options, view, weights)
    torch, executor = subject.torch_engine(), subject.executor("bucketed")
    for engine in (torch, executor):
        fill_cache(engine, subject, CACHE)
    return subject, torch, executor


@pytest.mark.parametrize(("prefix", "new"), [(6, 0), (6, 9), (8, 1), (24, 0), (24, 3), (40, 20)])
def test_drafts_behind_a_hit(drafting: Drafting, prefix: int, new: int) -> None:
    """Kept rows leave features for the draft, replayed ones too: whole windows of them, whatever the slot held."""
    subject, torch, executor = drafting
    hit = hit_of(prefix, new, subject.options.suffix_keep_tokens or None)
    runs = [run_hit(engine, subject, hit, 1) for engine in (torch, executor)]
    assert differences(*runs) == []
    want = torch.model.draft([1], [5])
    drafts_are(executor, 1, want)
    if prefix <= WINDOW:
        assert differences(whole_run(executor, subject, hit, 2), runs[0]) == []
        drafts_are(executor, 2, want)


def drafts_are(executor: ExecutorEngine, slot: int, want: Drafts) -> None:
    executor.runtime.draft(np.array([[slot, 0, 5, 0, -1]], np.int32))
    assert executor.runtime.output("draft_tokens").tolist() == want.tokens.tolist()
    assert executor.runtime.output("confidence").tobytes() == want.confidence.numpy().tobytes()


@pytest.mark.parametrize(("prefix", "new"), [(6, 0), (24, 1), (40, 9)])
def test_rollback_behind_a_hit(drafting: Drafting, prefix: int, new: int) -> None:
    """Rows of wrong drafts leave nothing, behind the prefix and inside it, where rows are replayed again."""
    subject, _, executor = drafting
    hit = hit_of(prefix, new, subject.options.suffix_keep_tokens or None)
    want = run_hit(executor, subject, hit, 1)
    place(executor, subject, hit, 3)
    position, length = hit.first, len(hit.tokens)
    for end, back in ((prefix + 1, prefix - 2), (length, length - 3), (length, length)):
        logits = rows_up_to(executor, subject, hit, position, end)
        assert logits == {p: want.logits[p].tobytes() for p in range(position, end)}
        executor.runtime.rollback(np.array([3], np.int32), np.array([back], np.int32))
        position = back


def rows_up_to(executor: ExecutorEngine, subject: Subject, hit: Hit, position: int, end: int) -> dict[int, bytes]:
    """Slot 3 runs positions up to `end`."""
    upload, _ = hit.rows(3, position, end - position, subject.options.pages_per_slot)
    if position > hit.first:
        upload[:, 3] &= ~HIT
    every = np.arange(end - position, dtype=np.int32)
    logits, _ = executor.step(upload, every, every)
    return {position + i: row.tobytes() for i, row in enumerate(logits)}
