"""A packed cache changes no bit of a step: windows, entries and index keys come back as the quantizers left them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.ops.packed import format_of
from dsv41c.compiler.options import CompileOptions
from laws.engines import CHECKED, Subject
from laws.schedules import requests, run_workload, schedules

SLOTS, ROWS = 48, 64


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def subjects(request: pytest.FixtureRequest, tiny_checkpoint: Path,
             compiled_artifact: Callable[..., Path]) -> dict[str, Subject]:
    options = {"dtype": request.param, "max_model_len": 64, "max_num_seqs": SLOTS, "max_num_batched_tokens": ROWS,
               "block_size": 4}
    return {kind: Subject.build(tiny_checkpoint, compiled_artifact("tiny", 0, kv_cache_dtype=kind, **options),
                                CompileOptions(kv_cache_dtype=kind, **options)) for kind in ("auto", "packed")}


@pytest.fixture(scope="module")
def engines(subjects: dict[str, Subject]) -> dict[str, object]:
    packed = subjects["packed"]
    return {"plain": subjects["auto"].torch_engine(), "torch": packed.torch_engine(),
            **{kind: packed.executor(kind) for kind in ("bucketed", "poisoned", CHECKED)}}


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_packed_cache_gives_the_same_bits(subjects: dict[str, Subject], engines: dict[str, object],
                                            data: st.DataObject) -> None:
    subject = subjects["packed"]
    workload = data.draw(schedules(data.draw(requests(subject.view.config.vocab_size)), SLOTS, SLOTS))
    state = engines["torch"].model.state  # type: ignore[attr-defined]
    plain = tuple(name for name, tensor in state.items() if tensor.dtype != torch.uint8)
    run = lambda engine, names: run_workload(engine, workload, 4, subject.options.pages_per_slot, names)  # noqa: E731
    expected, own = run(engines["plain"], plain), run(engines["torch"], tuple(state))
    assert own.logits == expected.logits
    assert {k: v for k, v in own.state.items() if k in expected.state} == expected.state
    for kind in ("bucketed", "poisoned", CHECKED):
        found = run(engines[kind], tuple(state))
        assert (found.logits, found.state) == (own.logits, own.state), f"{kind} differs from eager torch"


def test_the_packed_rows_hold_the_same_numbers(subjects: dict[str, Subject]) -> None:
    """Of one request, in every state."""
    models = {kind: subject.torch_engine().model for kind, subject in subjects.items()}
    tokens = {kind: model.generate(list(range(3, 30)), 12) for kind, model in models.items()}
    assert tokens["auto"] == tokens["packed"]
    for name, plain in models["auto"].state.items():
        found = models["packed"].state[name]
        if found.dtype == torch.uint8:
            width = plain.shape[-1]
            found = format_of(found.shape[-1], width).unpack(found, width).to(plain.dtype)
        assert torch.equal(found, plain), name
