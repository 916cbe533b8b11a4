"""Counter weights: successors, separated directions, and heads that point at the successor."""

import numpy as np
import pytest

from dsv41c.compiler.checkpoint.counter import (
    check_recitable,
    counter_tensors,
    counting_successor,
    reciting_successor,
    unit_rows,
)
from dsv41c.compiler.checkpoint.presets import demo, tiny
from dsv41c.runtime.plan.errors import Dsv41cError


def _floats(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def test_directions_of_the_real_vocabulary_are_apart() -> None:
    vectors = unit_rows(0, "counter.embed", demo().vocab_size, demo().hidden_size)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-12)
    sample = vectors[::433]
    cosines = sample @ vectors.T
    cosines[np.arange(len(sample)), np.arange(0, len(vectors), 433)] = -1
    assert cosines.max() < 0.6


def test_few_directions_are_separated_even_in_few_dimensions() -> None:
    vectors = unit_rows(0, "counter.markov", 96, 8)
    cosines = vectors @ vectors.T - 2 * np.eye(96)
    assert cosines.max() < 0.8


def test_reciting_successor_is_a_permutation_through_the_text() -> None:
    successor = reciting_successor(20, 7, [3, 15, 4], 1)
    assert sorted(successor) == list(range(20))
    assert [int(successor[token]) for token in (7, 3, 15, 4, 1)] == [3, 15, 4, 1, 7]
    assert successor[19] == 0 and successor[0] == 2 and successor[2] == 5
    assert not (successor == np.arange(20)).any()


@pytest.mark.parametrize("shift", [1, 2])
def test_heads_point_at_the_successor(shift: int) -> None:
    config = tiny()
    successor = counting_successor(config.vocab_size)
    tensors = {name: _floats(bits) for name, bits in counter_tensors(config, 0, successor, shift).items()}
    embed, head = tensors["embed.weight"], tensors["head.weight"]
    np.testing.assert_allclose(np.linalg.norm(embed, axis=1), 50 * 8, rtol=5e-3)
    assert ((embed @ head.T).argmax(1) == successor).all()
    bigram = tensors["mtp.1.markov_head.embed.weight"] @ tensors["mtp.1.markov_head.head.weight"].T
    assert (bigram.argmax(1) == (np.arange(96) + shift) % 96).all()
    # The bigram decides against any logits of the head, which stay below 8 * sqrt(hidden).
    ordered = np.sort(bigram, axis=1)
    assert (ordered[:, -1] - ordered[:, -2]).min() > 2 * 8 * config.hidden_size**0.5


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ([5, 6, 5], "token 2 'b' (id 5) is also token 0"),
        ([5, 7], "the newline"),
        ([1], "the end of sequence"),
        ([], "empty"),
    ],
)
def test_texts_that_cannot_be_recited(tokens: list[int], found: str) -> None:
    with pytest.raises(Dsv41cError) as caught:
        check_recitable("t", tokens, ["b"] * len(tokens), newline=7, eos=1)
    assert caught.value.code == "DSV41C-E0107"
    assert found in caught.value.found
