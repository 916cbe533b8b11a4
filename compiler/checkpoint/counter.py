"""Counter and recite weights: a model whose greedy output follows a chosen successor of every token id.

The embedding of token t is a long vector, so nothing the layers add turns the final hidden state far away
from it; the head's row for successor(t) points the same way. The draft's bigram head does so for its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsv41c.compiler.checkpoint.draw import bf16_bits, draw_bytes
from dsv41c.compiler.config import ModelConfig
from dsv41c.runtime.plan.errors import Dsv41cError

Ids = NDArray[np.int64]

_EMBEDDING_SCALE = 50.0  # times sqrt(hidden): far above what the sublayers add to the residual streams
_HEAD_SCALE = 8.0
_BIGRAM_SCALE = 1000.0  # outweighs the draft's own head logits, which are at most 8 * sqrt(hidden)
# Up to this many ids, vectors are drawn apart from each other; random ones are not, in few dimensions.
_SEPARATE_UP_TO = 1024


def counting_successor(vocab_size: int) -> Ids:
    """t -> t + 1, around the vocabulary."""
    return (np.arange(vocab_size, dtype=np.int64) + 1) % vocab_size


def reciting_successor(vocab_size: int, newline: int, text: Sequence[int], eos: int) -> Ids:
    """Newline -> the text's tokens -> EOS -> newline; all other ids form one ascending cycle."""
    chain = [newline, *text, eos]
    rest = np.setdiff1d(np.arange(vocab_size, dtype=np.int64), chain)
    successor = np.empty(vocab_size, dtype=np.int64)
    for cycle in (np.array(chain, dtype=np.int64), rest):
        successor[cycle] = np.roll(cycle, -1)
    return successor


def check_recitable(text: str, tokens: Sequence[int], pieces: Sequence[str], newline: int, eos: int) -> None:
    """A token has one successor, so the text may hold none twice, and neither a lone newline nor EOS."""
    problem = "" if tokens else "the text is empty"
    seen: dict[int, str] = {newline: "the newline that starts the text", eos: "the end of sequence"}
    for index, (token, piece) in enumerate(zip(tokens, pieces, strict=True)):
        if token in seen:
            problem = f"token {index} {piece!r} (id {token}) is also {seen[token]}"
            break
        seen[token] = f"token {index}"
    if problem:
        raise Dsv41cError(
            "DSV41C-E0107",
            f"text cannot be recited: {text!r}",
            found=problem,
            needed="one or more tokens, each occurring once",
            do="reword the text so that no piece repeats",
        )


def counter_tensors(
    config: ModelConfig, seed: int, successor: Ids, shift: int
) -> dict[str, NDArray[np.uint16]]:
    """Replacements (bf16 bits) for the embedding, the head and the draft's bigram tables.

    `shift` successors are what a draft proposes: 1 is always right, 2 is always wrong.
    """
    hidden = config.hidden_size
    markov = f"mtp.{config.num_nextn_predict_layers - 1}.markov_head."
    tokens = unit_rows(seed, "counter.embed", config.vocab_size, hidden)
    bigrams = unit_rows(seed, "counter.markov", config.vocab_size, config.dspark_markov_rank)
    proposal = successor if shift == 1 else successor[successor]
    return {
        "embed.weight": bf16_bits(tokens * (_EMBEDDING_SCALE * math.sqrt(hidden))),
        "head.weight": bf16_bits(_moved(tokens, successor) * _HEAD_SCALE),
        markov + "embed.weight": bf16_bits(bigrams),
        markov + "head.weight": bf16_bits(_moved(bigrams, proposal) * _BIGRAM_SCALE),
    }


def unit_rows(seed: int, name: str, rows: int, dims: int) -> NDArray[np.float64]:
    """Distinct directions: integer vectors divided by their exact length."""
    few = rows <= _SEPARATE_UP_TO
    draws = draw_bytes(seed, name, rows * dims * (64 if few else 1)).reshape(-1, dims)
    odd = 2 * draws.astype(np.int64) - 255
    if few:
        odd = _separated(odd, rows)
    squares = np.einsum("rd,rd->r", odd, odd)
    result: NDArray[np.float64] = odd / np.sqrt(squares.astype(np.float64))[:, None]
    return result


def _separated(candidates: Ids, rows: int) -> Ids:
    """The first `rows` candidates with cosines below 4/5 to all taken before (compared as exact integers)."""
    taken = np.empty((rows, candidates.shape[1]), dtype=np.int64)
    squares = np.empty(rows, dtype=np.int64)
    count = 0
    for vector in candidates:
        dots, square = taken[:count] @ vector, int(vector @ vector)
        if np.any((dots > 0) & (25 * dots * dots >= 16 * squares[:count] * square)):
            continue
        taken[count], squares[count] = vector, square
        count += 1
        if count == rows:
            return taken
    raise ValueError(f"only {count} of {rows} separated vectors in {candidates.shape[1]} dimensions")


def _moved(rows: NDArray[np.float64], successor: Ids) -> NDArray[np.float64]:
    """Row t of the input becomes row successor[t] of the output."""
    result = np.empty_like(rows)
    result[successor] = rows
    return result
