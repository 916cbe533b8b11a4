"""Bounded replay of the decoder (equivalences C and D): kept rows, what is decoded behind them, and all state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import load
from dsv41c.runtime.requests import Request
from laws.engines import CHECKED, Engine, Subject
from laws.suffix_runs import differences, run_suffix
from oracle.model import OracleModel, Replay

WINDOW, DEPTH = 8, 4  # of tiny: sliding window, decoder layers
OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 96, "max_num_seqs": 48,
           "max_num_batched_tokens": 48, "block_size": 4, "suffix_mode": "mask"}
EXACT_KEEP = DEPTH * (WINDOW - 1) + 1  # 29: from here on the last row sees all that it would see without replay
KEEPS = (WINDOW + 4, WINDOW + 12, EXACT_KEEP)
DECODED = 9  # longer than a window
TOKENS = np.random.default_rng(5).integers(0, 96, 80)
ENGINES = ("torch", "bucketed", "exact", "poisoned")


@pytest.fixture(scope="module")
def subject(tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> Subject:
    """Compiled for masks, whose decoder may see every row; `compact` runs hand it fewer."""
    return Subject.build(tiny_checkpoint, compiled_artifact("tiny", 0, **OPTIONS), CompileOptions(**OPTIONS))


@pytest.fixture(scope="module")
def engines(subject: Subject) -> dict[str, Engine]:
    return {kind: subject.torch_engine() if kind == "torch" else subject.executor(kind) for kind in ENGINES}


@pytest.fixture(scope="module")
def oracle(tiny_checkpoint: Path) -> OracleModel:
    return OracleModel(tiny_checkpoint)


def lengths(keep: int) -> tuple[int, ...]:
    return (1, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW, 37, 38, keep - 1, keep, keep + 1)


CASES = sorted({(keep, n) for keep in KEEPS for n in lengths(keep)} | {(n, n) for n in (WINDOW, 37, 60)})


@pytest.mark.parametrize("kind", ["torch", "bucketed"])
@pytest.mark.parametrize(("keep", "length"), CASES)
def test_c_compact_equals_mask_bit_for_bit(engines: dict[str, Engine], subject: Subject, kind: str, keep: int,
                                           length: int) -> None:
    tokens = TOKENS[: length + DECODED]
    mask, compact = (run_suffix(engines[kind], subject, tokens, length, keep, slot, compact=is_compact)
                     for slot, is_compact in ((0, False), (2, True)))
    assert differences(mask, compact) == []
    assert sorted(compact.logits) == list(range(max(length - keep, 0), length + DECODED))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_d_any_chunks_on_any_engine_give_the_same_bits(engines: dict[str, Engine], subject: Subject,
                                                       data: st.DataObject) -> None:
    """Chunks of 1, and longer than the ring; wholly before the kept rows, across their begin, and behind it."""
    length = data.draw(st.integers(1, 60))
    keep = data.draw(st.sampled_from((WINDOW, *KEEPS, 60)))
    cuts = data.draw(st.one_of(
        st.sets(st.integers(1, max(length - 1, 1)), max_size=6).map(sorted), st.just(list(range(1, length)))))
    cuts = [cut for cut in cuts if cut < length]
    tokens = TOKENS[: length + DECODED]
    expected = run_suffix(engines["torch"], subject, tokens, length, keep, 1, compact=True)
    for kind in ENGINES[1:]:
        got = run_suffix(engines[kind], subject, tokens, length, keep, data.draw(st.integers(0, 2)), compact=True,
                         cuts=cuts)
        assert differences(expected, got) == [], (kind, length, keep, cuts)


@pytest.mark.parametrize(("keep", "length"), CASES)
def test_rows_are_those_of_the_float64_model(engines: dict[str, Engine], subject: Subject, oracle: OracleModel,
                                             keep: int, length: int) -> None:
    tokens = TOKENS[: length + DECODED]
    got = run_suffix(engines["bucketed"], subject, tokens, length, keep, 0, compact=True)
    state = oracle.new_state()
    masked = oracle.forward(state, tokens[:length], replay=Replay("mask", length, keep))
    rows = np.concatenate([masked, *(oracle.forward(state, [t]) for t in tokens[length:])])
    for position, row in got.logits.items():
        error = np.linalg.norm(row - rows[position]) / np.linalg.norm(rows[position])
        assert error <= 1e-5, (position, error)


def test_c_encoder_state_is_that_of_a_run_without_replay(engines: dict[str, Engine], subject: Subject) -> None:
    """Encoder windows, all compressed KV and index keys: to the bit, whatever the decoder leaves out. With the whole
    prompt kept, all state and all rows."""
    tokens, length = TOKENS[:60], 60
    full = run_suffix(engines["bucketed"], subject, tokens, length, 60, 0, compact=True)
    short = run_suffix(engines["bucketed"], subject, tokens, length, WINDOW, 1, compact=True)
    differing = {name for name in full.state if full.state[name] != short.state[name]}
    first = subject.view.config.decoder_start
    # Layer 20's window keys of kept rows are exact too: its input comes from the encoder alone.
    assert differing == {f"window_{layer}" for layer in range(first + 1, subject.view.config.num_hidden_layers)} | {
        "window_floor"}


@pytest.mark.parametrize(("keep", "exact"), [(EXACT_KEEP - 1, False), (EXACT_KEEP, True)])
def test_c_the_last_row_is_exact_from_one_length_on(engines: dict[str, Engine], subject: Subject, keep: int,
                                                    exact: bool) -> None:
    length = 60
    full = run_suffix(engines["bucketed"], subject, TOKENS[:length], length, length, 0, compact=True)
    short = run_suffix(engines["bucketed"], subject, TOKENS[:length], length, keep, 1, compact=True)
    assert (full.logits[length - 1].tobytes() == short.logits[length - 1].tobytes()) == exact


@pytest.mark.parametrize(("keep", "cuts"), [(WINDOW, ()), (WINDOW + 4, (5, 6, 31)), (40, (20,))])
def test_full_checks_trap_nothing(engines: dict[str, Engine], subject: Subject, keep: int,
                                  cuts: tuple[int, ...]) -> None:
    """No row reads what lies below its floor: there the checks keep what nobody has written."""
    expected = run_suffix(engines["torch"], subject, TOKENS[:44], 40, keep, 1, compact=True)
    checked = run_suffix(subject.executor(CHECKED), subject, TOKENS[:44], 40, keep, 1, compact=True, cuts=cuts)
    assert differences(expected, checked) == []


@pytest.mark.parametrize("kind", ["torch", "bucketed"])
def test_a_step_may_keep_no_row(engines: dict[str, Engine], subject: Subject, kind: str) -> None:
    whole = run_suffix(engines["bucketed"], subject, TOKENS[:45], 42, WINDOW, 0, compact=True)
    parts = run_suffix(engines[kind], subject, TOKENS[:45], 42, WINDOW, 1, compact=True, cuts=(5, 20, 34, 41))
    assert differences(whole, parts) == []


def test_a_slot_forgets_the_floor_of_an_earlier_request(engines: dict[str, Engine], subject: Subject) -> None:
    runs = []
    for first in (60, 5):
        run_suffix(engines["bucketed"], subject, TOKENS[:first], first, WINDOW, 1, compact=True)
        runs.append(run_suffix(engines["bucketed"], subject, TOKENS[:20], 20, 20, 1, compact=True))
    assert differences(*runs) == []


def test_the_compiled_bound_is_that_of_the_kept_rows(tiny_checkpoint: Path, compiled_artifact: Callable[..., Path],
                                                     subject: Subject, engines: dict[str, Engine]) -> None:
    """An artifact compiled for compact replay, whose decoder holds 2 x 12 rows, gives the same bits."""
    from dsv41c.runtime.manifest import Manifest

    options = {**OPTIONS, "suffix_mode": "compact", "suffix_keep_tokens": 12, "max_num_seqs": 2}
    artifact = compiled_artifact("tiny", 0, **options)
    plan = Manifest.read(artifact).read_plan()
    assert {s.name: s.hi for s in plan.symbols}["R"] == 24
    small = dataclasses.replace(subject, artifact=artifact, options=CompileOptions(**options).resolved(
        subject.view.config))
    got = run_suffix(small.executor("bucketed"), small, TOKENS[:60], 51, 12, 1, compact=True)
    want = run_suffix(engines["torch"], subject, TOKENS[:60], 51, 12, 1, compact=True)
    assert got.state == want.state and len(got.logits) > DECODED
    assert all(row.tobytes() == want.logits[position].tobytes() for position, row in got.logits.items())


def test_generation_keeps_the_rows_that_were_compiled(tiny_checkpoint: Path,
                                                      compiled_artifact: Callable[..., Path]) -> None:
    """Ragged requests that join at different steps, prompts in chunks: the same tokens and logits under compact and
    mask, as the float64 model's with the same kept rows."""
    rng = np.random.default_rng(3)
    prompts = [[int(t) for t in rng.integers(0, 96, n)] for n in (1, 7, 8, 9, 12, 13, 20, 33, 47, 60)]
    requests = [Request(p, 12, ignore_eos=True, arrival_step=int(rng.integers(0, 6))) for p in prompts]
    done = {}
    for mode in ("mask", "compact"):
        options = {**OPTIONS, "max_num_seqs": 4, "max_num_batched_tokens": 20, "suffix_mode": mode,
                   "suffix_keep_tokens": 12}
        artifact = compiled_artifact("tiny", 0, **options)
        with load(artifact) as runtime:
            done[mode] = generate(runtime, Limits.read(artifact), requests, keep_logits=True)
            records = runtime.records()
        kept = sum(r.rows for r in records if r.method in ("decoder", "decode"))
        assert (kept < sum(r.rows for r in records if r.method in ("encoder", "decode"))) == (mode == "compact")
    oracle = OracleModel(tiny_checkpoint)
    for prompt, mask, compact in zip(prompts, done["mask"], done["compact"], strict=True):
        assert mask.tokens == compact.tokens
        assert mask.logits is not None and compact.logits is not None
        assert mask.logits.tobytes() == compact.logits.tobytes()
        state = oracle.new_state()
        rows = [oracle.forward(state, prompt, replay=Replay("compact", len(prompt), 12))[-1:],
                *(oracle.forward(state, [t]) for t in compact.tokens[:-1])]
        error = np.linalg.norm(compact.logits - np.concatenate(rows), axis=1)
        assert (error / np.linalg.norm(np.concatenate(rows), axis=1)).max() <= 1e-5
