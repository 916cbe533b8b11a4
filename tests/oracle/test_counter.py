"""Counter checkpoints in float64: greedy output counts upwards, drafts are always right or always wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oracle.model import OracleModel


@pytest.mark.parametrize("quantizers", ["off", "fake"])
@pytest.mark.parametrize("counter", [1, 2])
def test_output_counts_and_drafts_follow_the_shift(
    make_checkpoint: Callable[..., Path], counter: int, quantizers: str
) -> None:
    model = OracleModel(make_checkpoint("tiny", 0, counter), quantizers)
    vocab = model.config.vocab_size
    state = model.new_state()
    prompt = [90, 7, 33]
    token = int(model.forward(state, prompt)[-1].argmax())
    emitted = [token]
    for _ in range(40):
        drafts, _ = model.draft(state, token)
        assert drafts == [(token + counter * (j + 1)) % vocab for j in range(len(drafts))]
        token = int(model.forward(state, [token])[-1].argmax())
        emitted.append(token)
    assert emitted == [(34 + i) % vocab for i in range(41)]
