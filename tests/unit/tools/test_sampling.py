"""draw_token: a function of its arguments, with the frequencies that the logits ask for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dsv41c.runtime.sampling import draw_token


def logits_of(probabilities: list[float]) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities)).astype(np.float32)


def frequencies(logits: np.ndarray, temperature: float, top_p: float, draws: int = 4000) -> np.ndarray:
    counts = Counter(draw_token(logits, temperature, top_p, 5, position) for position in range(draws))
    return np.array([counts[i] / draws for i in range(len(logits))])


def test_frequencies_follow_the_softmax() -> None:
    assert frequencies(logits_of([0.5, 0.3, 0.15, 0.05]), 1.0, 1.0) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)


def test_temperature_flattens() -> None:
    assert frequencies(logits_of([0.8, 0.2]), 2.0, 1.0) == pytest.approx([2 / 3, 1 / 3], abs=0.03)


def test_top_p_keeps_the_smallest_set_that_holds_it() -> None:
    assert frequencies(logits_of([0.15, 0.5, 0.05, 0.3]), 1.0, 0.7) == pytest.approx([0, 0.625, 0, 0.375], abs=0.03)


def test_top_p_prefers_lower_ids_on_ties() -> None:
    assert set(np.flatnonzero(frequencies(logits_of([0.25] * 4), 1.0, 0.45))) == {0, 1}


def test_an_impossible_id_is_never_drawn() -> None:
    drawn = frequencies(logits_of([0.0, 0.5, 0.0, 0.5, 0.0]), 1.0, 1.0)
    assert drawn[[0, 2, 4]].sum() == 0


def test_nan_never_wins() -> None:
    logits = np.array([np.nan, 1.0, np.nan, -np.inf], dtype=np.float32)
    assert {draw_token(logits, 1.0, 0.9, 0, position) for position in range(50)} == {1}


def test_nothing_to_choose_from_gives_the_first_id() -> None:
    assert draw_token(np.full(4, np.nan, np.float32), 1.0, 1.0, 0, 0) == 0


def test_seed_and_position_both_matter() -> None:
    logits = np.zeros(1000, np.float32)
    assert len({draw_token(logits, 1.0, 1.0, seed, position) for seed in range(5) for position in range(5)}) > 20
    assert draw_token(logits, 1.0, 1.0, 3, 4) == draw_token(logits, 1.0, 1.0, 3, 4)
