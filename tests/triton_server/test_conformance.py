"""The conformance vectors over HTTP and gRPC: tokens, finish reasons and log-probability bits of the reference."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.triton_server.server import Server
from tests.triton_server.streams import Answer, GrpcStream, tensors

FIELDS = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "n_logprobs": "logprobs",
          "stop_ids": "stop_token_ids"}  # what vLLM calls what the engine calls


def _sampling(request: dict[str, Any]) -> str:
    return json.dumps({FIELDS.get(name, name): value for name, value in request.items() if name != "prompt"})


def _outcome(tokens: list[int], reason: str, logprobs: list[float], top_ids: list[int],
             top_logprobs: list[float]) -> dict[str, Any]:
    """As tests/conformance/vectors.py has it, in JSON."""
    bits, top_bits = (np.array(v, dtype=np.float32).view(np.uint32).tolist() for v in (logprobs, top_logprobs))
    width = len(top_ids) // len(tokens)
    pairs = [list(pair) for pair in zip(top_ids, top_bits, strict=True)]
    return {"tokens": tokens, "finish_reason": reason, "logprobs": bits,
            "top": [pairs[i : i + width] for i in range(0, len(pairs), width or 1)]}


@pytest.fixture(params=["tiny", "demo", "counter"])
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def vectors(prepared: Path) -> dict[str, Any]:
    return json.loads((prepared / "expected.json").read_text())


def test_grpc_streams_all_at_once(serving: Server, vectors: dict[str, Any], model: str) -> None:
    requests = vectors["requests"]
    with GrpcStream(serving) as stream:
        for i, request in enumerate(requests):
            stream.client.async_stream_infer(model, tensors(request["prompt"], True, _sampling(request)),
                                             request_id=str(i), enable_empty_final_response=True)
        answers = stream.answers(len(requests))
    assert [_of(answers[str(i)]) for i in range(len(requests))] == vectors["answers"][model]


def test_http_all_at_once(serving: Server, vectors: dict[str, Any], model: str) -> None:
    requests = vectors["requests"]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(lambda r: _ask_http(serving, model, r), requests))
    assert answers == vectors["answers"][model]


def _of(answer: Answer) -> dict[str, Any]:
    assert answer.error is None and answer.final == 1
    return _outcome(answer.tokens, answer.reason, answer.logprobs, answer.top_ids, answer.top_logprobs)


def _ask_http(server: Server, model: str, request: dict[str, Any]) -> dict[str, Any]:
    body = server.generate(model, input_ids=request["prompt"], sampling_parameters=_sampling(request)).body

    def listed(name: str) -> list[Any]:
        value = body.get(name, [])
        return value if isinstance(value, list) else [value]

    return _outcome(listed("output_ids"), body["finish_reason"], listed("output_logprobs"), listed("top_ids"),
                    listed("top_logprobs"))
