"""The float64 model agrees with itself: chunking, decode, replay, candidates, drafts (A to H)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oracle.model import OracleModel, Replay
from oracle.state import State

LENGTH = 45
EXACT = 1e-11  # logits are O(1); BLAS rounds differently for other batch shapes
WINDOW_REACH = 7  # tiny: sliding_window - 1


@pytest.fixture(scope="module")
def model(tiny_checkpoint: Path) -> OracleModel:
    return OracleModel(tiny_checkpoint)


@pytest.fixture(scope="module", params=["off", "fake"])
def either_model(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> OracleModel:
    return OracleModel(tiny_checkpoint, request.param)


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 95, LENGTH)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Largest absolute difference; unwritten rows must be unwritten on both sides."""
    assert a.shape == b.shape
    assert np.array_equal(np.isnan(a), np.isnan(b))
    return float(np.nanmax(np.abs(a - b), initial=0))


def cache_distance(a: State, b: State) -> float:
    """Largest difference over every stored array of two requests."""
    left, right = a.caches(), b.caches()
    assert list(left) == list(right)
    return max(distance(left[name], right[name]) for name in left)


def run(
    model: OracleModel, tokens: np.ndarray, cuts: list[int], **options: object
) -> tuple[np.ndarray, State]:
    """Prefill in chunks cut at `cuts`; all rows' logits and the final state."""
    state = model.new_state()
    parts = [model.forward(state, part, **options) for part in np.split(tokens, cuts)]
    return np.concatenate(parts), state


def decoder_layers(model: OracleModel) -> range:
    return range(model.config.decoder_start, model.config.num_hidden_layers)


@pytest.mark.parametrize("cuts", [[7, 20, 33], [1, 2, 3, 44], [44], [13]])
def test_a_chunked_prefill_equals_one_shot(
    either_model: OracleModel, tokens: np.ndarray, cuts: list[int]
) -> None:
    whole, state = run(either_model, tokens, [])
    chunked, other = run(either_model, tokens, cuts)
    assert distance(whole, chunked) < EXACT
    assert cache_distance(state, other) < EXACT


def test_b_token_by_token_equals_one_shot(either_model: OracleModel, tokens: np.ndarray) -> None:
    whole, state = run(either_model, tokens, [])
    single, other = run(either_model, tokens, list(range(1, LENGTH)))
    assert distance(whole, single) < EXACT
    assert cache_distance(state, other) < EXACT


@pytest.mark.parametrize("keep", [8, 12, 28, 29, LENGTH, LENGTH + 10])
def test_c_compact_replay_equals_masked_replay(model: OracleModel, tokens: np.ndarray, keep: int) -> None:
    compact, state = run(model, tokens, [], replay=Replay("compact", LENGTH, keep))
    masked, other = run(model, tokens, [], replay=Replay("mask", LENGTH, keep))
    assert distance(compact, masked[-len(compact) :]) < EXACT
    for token in (5, 17, 88):
        assert distance(model.forward(state, [token]), model.forward(other, [token])) < EXACT


@pytest.mark.parametrize("keep", [8, 12])
def test_c_replay_leaves_encoder_and_global_entries_exact(
    model: OracleModel, tokens: np.ndarray, keep: int
) -> None:
    full = run(model, tokens, [])[1].caches()
    cut = run(model, tokens, [], replay=Replay("compact", LENGTH, keep))[1].caches()
    first_decoder = model.config.decoder_start
    exact = [f"window.{layer}" for layer in range(first_decoder)]
    exact += [name for name in full if name.startswith(("compressed", "index_key", "pair"))]
    assert max(distance(full[name], cut[name]) for name in exact) == 0
    boundary = f"window.{first_decoder}"
    assert distance(full[boundary][LENGTH - keep :], cut[boundary][LENGTH - keep :]) < EXACT


def test_c_last_row_is_exact_from_the_window_cone_on_only(model: OracleModel, tokens: np.ndarray) -> None:
    full, _ = run(model, tokens, [])
    exact_keep = len(decoder_layers(model)) * WINDOW_REACH + 1
    errors = {
        keep: distance(run(model, tokens, [], replay=Replay("compact", LENGTH, keep))[0][-1], full[-1])
        for keep in (exact_keep - 1, exact_keep, LENGTH)
    }
    assert errors[exact_keep] < EXACT
    assert errors[LENGTH] < EXACT
    assert errors[exact_keep - 1] > 100 * EXACT


@pytest.mark.parametrize("cuts", [[20], [30, 40], [38], [5, 11, 34]])
def test_d_chunked_compact_replay_equals_one_shot(
    model: OracleModel, tokens: np.ndarray, cuts: list[int]
) -> None:
    replay = Replay("compact", LENGTH, 12)
    whole, state = run(model, tokens, [], replay=replay)
    chunked, other = run(model, tokens, cuts, replay=replay)
    assert distance(whole, chunked) < EXACT
    assert cache_distance(state, other) < EXACT


def test_e_encoder_replay_inside_the_window_is_exact(model: OracleModel, tokens: np.ndarray) -> None:
    hit_length = model.config.sliding_window
    _, cold = run(model, tokens[:hit_length], [])
    hit = cold.prefix(hit_length)
    model.forward(hit, tokens[:hit_length], start=0)
    expected = model.forward(cold, tokens[hit_length:])
    assert distance(model.forward(hit, tokens[hit_length:]), expected) < EXACT


def test_e_encoder_replay_beyond_the_window(model: OracleModel, tokens: np.ndarray) -> None:
    hit_length, window = 32, model.config.sliding_window
    start = hit_length - window
    _, cold = run(model, tokens[:hit_length], [])
    cached = {name: rows.copy() for name, rows in cold.caches().items()}
    separate, folded = cold.prefix(hit_length), cold.prefix(hit_length)
    model.forward(separate, tokens[start:hit_length], start=start)
    replayed = separate.caches()
    assert distance(replayed["window.0"][start:], cached["window.0"][start:]) < EXACT
    for name in cached:
        if name.startswith(("compressed", "index_key")):
            assert distance(replayed[name], cached[name]) == 0
    suffix = model.forward(separate, tokens[hit_length:])
    together = model.forward(folded, tokens[start:], start=start)
    assert distance(together[window:], suffix) < EXACT
    assert cache_distance(separate, folded) < EXACT


def test_f_candidates_that_cover_everything_equal_plain_selection(
    tiny_checkpoint: Path, model: OracleModel, tokens: np.ndarray
) -> None:
    covering = OracleModel(tiny_checkpoint, overrides={"candidate_topk_blocks": 99})
    plain, _ = run(model, tokens, [], candidates=False)
    limited, _ = run(model, tokens, [])
    assert distance(run(covering, tokens, [])[0], plain) < EXACT
    # The limit must bind on this prompt, or the equality says nothing.
    assert distance(limited, plain) > 100 * EXACT
    config = model.config
    covered = config.candidate_topk_blocks * config.candidate_block_size
    assert distance(limited[:covered], plain[:covered]) < EXACT


def test_g_stream_mixes_stay_in_their_ranges(model: OracleModel) -> None:
    config = model.config
    streams = 3 * np.random.default_rng(3).standard_normal((50, config.hc_mult, config.hidden_size))
    for layer in [*model.layers, *model.draft_model.layers]:
        for mix in (layer.attn_mix, layer.ffn_mix):
            alpha, beta, gamma = mix(streams)
            assert np.abs(gamma.sum(-2) - 1).max() < 1e-5
            assert gamma.min() >= 0
            assert config.hc_eps < alpha.min() and alpha.max() < 1 + config.hc_eps
            assert beta.min() > 0 and beta.max() < 2


@pytest.mark.parametrize("kind", ["model", "adversarial", "oracle", "mixed"])
def test_h_speculation_never_changes_greedy_output(model: OracleModel, tokens: np.ndarray, kind: str) -> None:
    prompt, count = tokens[:21], 24
    plain = model.generate(prompt, count + 8)
    rng = np.random.default_rng(11)
    state = model.new_state()
    emitted = [int(np.argmax(model.forward(state, prompt)[-1]))]
    accepted_total = 0
    while len(emitted) < count:
        block = model.config.dspark_block_size
        true_drafts = plain[len(emitted) : len(emitted) + block]
        choices = {
            "model": model.draft(state, emitted[-1])[0],
            "adversarial": [(token + 1) % 96 for token in true_drafts],
            "oracle": true_drafts,
            "mixed": [t if rng.random() < 0.7 else int(rng.integers(0, 96)) for t in true_drafts],
        }
        drafts = choices[kind][: int(rng.integers(0, block + 1))]
        before = state.length
        best = np.argmax(model.forward(state, [emitted[-1], *drafts]), axis=-1)
        accepted = 0
        while accepted < len(drafts) and drafts[accepted] == best[accepted]:
            accepted += 1
        state.rollback(before + accepted + 1)
        emitted += [int(token) for token in best[: accepted + 1]]
        accepted_total += accepted
    assert emitted[:count] == plain[:count]
    if kind in ("adversarial", "oracle"):
        assert (accepted_total > 0) == (kind == "oracle")
    _, undisturbed = run(model, np.concatenate([prompt, emitted[: state.length - len(prompt)]]), [])
    assert cache_distance(state, undisturbed) < EXACT


def test_continuation_logits_are_those_generate_saw(either_model: OracleModel, tokens: np.ndarray) -> None:
    generated = either_model.generate(tokens[:9], 12)
    rows = either_model.continuation_logits(tokens[:9], generated)
    assert np.argmax(rows, axis=-1).tolist() == generated


def test_image_rows_stop_the_look_back_and_change_the_router_bias(
    model: OracleModel, tokens: np.ndarray
) -> None:
    image = np.zeros(LENGTH, dtype=bool)
    image[10:14] = True
    plain, _ = run(model, tokens, [])
    marked = model.forward(model.new_state(), tokens, image=image)
    assert distance(plain[:10], marked[:10]) < EXACT
    assert distance(plain[10], marked[10]) > 100 * EXACT
    state = model.new_state()
    parts = [
        model.forward(state, tokens[a:b], image=image[a:b]) for a, b in ((0, 12), (12, 15), (15, LENGTH))
    ]
    assert distance(np.concatenate(parts), marked) < EXACT
