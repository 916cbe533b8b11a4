"""The engine's sampler and runtime/sampling.py give the same tokens and the same log-probability bits."""

from __future__ import annotations

from ctypes import POINTER, byref, c_double, c_float, c_int32, c_int64, c_uint64

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.runtime.library import core_library
from dsv41c.runtime.sampling import draw_token, log_probabilities

SEEDS = [0, 1, 5, 2**32, 2**63, 2**64 - 1]


def sample(logits: np.ndarray, temperature: float, top_p: float, top_k: int, seed: int, position: int,
           forbidden: tuple[int, ...] = ()) -> int:
    function = core_library().dsv41c_sample_token
    function.argtypes = [POINTER(c_float), c_int64, c_double, c_double, c_int64, c_uint64, c_uint64, POINTER(c_int32),
                         c_int64]
    return function(logits.ctypes.data_as(POINTER(c_float)), len(logits), temperature, top_p, top_k, seed, position,
                    (c_int32 * len(forbidden))(*forbidden), len(forbidden))


def logprobs(logits: np.ndarray, chosen: int, most: int) -> tuple[np.float32, list[int], np.ndarray]:
    function = core_library().dsv41c_token_logprobs
    function.argtypes = [POINTER(c_float), c_int64, c_int32, c_int64, POINTER(c_float), POINTER(c_int32),
                         POINTER(c_float)]
    function.restype = c_int64
    value, ids, values = c_float(), (c_int32 * most)(), (c_float * most)()
    count = function(logits.ctypes.data_as(POINTER(c_float)), len(logits), chosen, most, byref(value), ids, values)
    return np.float32(value.value), list(ids[:count]), np.array(values[:count], dtype=np.float32)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_random_number_is_that_of_numpy(seed: int) -> None:
    function = core_library().dsv41c_uniform
    function.restype, function.argtypes = c_double, [c_uint64, c_uint64]
    for position in (0, 1, 2, 1000, 2**31):
        key = np.array([seed, position], dtype=np.uint64)
        assert function(seed, position) == np.random.Generator(np.random.Philox(key=key)).random()


@st.composite
def all_logits(draw: st.DrawFn) -> np.ndarray:
    """Normal ones of several scales, some with many ties."""
    count, scale = draw(st.integers(1, 300)), draw(st.sampled_from([0.1, 1.0, 8.0, 90.0]))
    values = np.random.default_rng(draw(st.integers(0, 10_000))).normal(0, scale, count)
    return (np.round(values) if draw(st.booleans()) else values).astype(np.float32)


@given(all_logits(), st.sampled_from([1e-30, 0.3, 1.0, 2.5, 1e6]), st.sampled_from([1e-9, 0.1, 0.5, 0.9, 1.0]),
       st.sampled_from([0, 1, 2, 7, 1000]), st.sampled_from(SEEDS), st.integers(0, 5000))
@settings(max_examples=400, deadline=None)
def test_draws_are_those_of_python(logits: np.ndarray, temperature: float, top_p: float, top_k: int, seed: int,
                                   position: int) -> None:
    expected = draw_token(logits, temperature, top_p, seed, position, top_k)
    assert sample(logits, temperature, top_p, top_k, seed, position) == expected


@given(all_logits(), st.data())
@settings(max_examples=100, deadline=None)
def test_forbidden_ids_are_as_if_impossible(logits: np.ndarray, data: st.DataObject) -> None:
    forbidden = data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=8))
    masked = logits.copy()
    masked[forbidden] = -np.inf
    for temperature in (0.0, 1.0):
        token = sample(logits, temperature, 0.9, 0, 3, 4, tuple(forbidden))
        nothing = np.isneginf(masked).all()
        expected = 0 if nothing else (int(masked.argmax()) if temperature == 0 else draw_token(masked, 1.0, 0.9, 3, 4))
        assert token == expected


@given(all_logits(), st.data())
@settings(max_examples=200, deadline=None)
def test_log_probabilities_have_the_bits_of_python(logits: np.ndarray, data: st.DataObject) -> None:
    chosen = data.draw(st.integers(0, len(logits) - 1))
    value, ids, values = logprobs(logits, chosen, 20)
    expected = log_probabilities(logits)
    assert value.tobytes() == expected[chosen].tobytes()
    assert ids == np.argsort(-logits, kind="stable")[:20].tolist()
    assert values.tobytes() == expected[ids].tobytes()


def test_greedy_takes_the_lower_id_on_ties() -> None:
    assert sample(np.array([1, 3, 3, 2], dtype=np.float32), 0.0, 1.0, 0, 0, 0) == 1
