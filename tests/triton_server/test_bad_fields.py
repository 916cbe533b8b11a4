"""Every field that can be wrong, over HTTP and gRPC: a typed error, and the neighbours do not notice."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.triton_server.server import Server
from tests.triton_server.streams import Answer, GrpcStream, take

MODEL = "tiny"
VOCAB = 97
NEIGHBOUR = {"input_ids": [3, 5, 7], "max_tokens": 40, "ignore_eos": True}


@dataclass(frozen=True)
class Bad:
    """`words` are in the error on both ways; `of_server` marks what the server refuses before the backend sees it."""

    words: tuple[str, ...]
    ids: tuple[object, ...] = (1, 2)
    sampling: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    of_server: bool = False


CASES = {
    "id below 0": Bad(("-1",), (1, -1)),
    "id of the vocabulary's size": Bad((str(VOCAB),), (VOCAB,)),
    "id of 2^31": Bad((str(2**31), "input_ids[1]"), (1, 2**31)),
    "id that would wrap around": Bad((str(2**32 + 5), "input_ids[0]"), (2**32 + 5,)),
    "id with a fraction": Bad((), (1.5,), of_server=True),
    "id that is a string": Bad((), ("7",), of_server=True),
    "no ids": Bad((), ()),
    "a prompt over the limit": Bad(("200",), (1,) * 200),
    "max_tokens 0": Bad(("0",), parameters={"max_tokens": 0}),
    "max_tokens below 0": Bad(("max_tokens", "-1"), parameters={"max_tokens": -1}),
    "top_p 0": Bad(("top_p", "0"), parameters={"top_p": 0}),
    "top_p 1.1": Bad(("top_p", "1.1"), parameters={"top_p": 1.1}),
    "temperature below 0": Bad(("temperature", "-0.5"), parameters={"temperature": -0.5}),
    "temperature NaN": Bad(("temperature", "nan"), parameters={"temperature": math.nan}),
    "temperature that is a string": Bad(("temperature", '"hot"'), parameters={"temperature": "hot"}),
    "seed below 0": Bad(("seed", "-1"), parameters={"seed": -1}),
    "seed of 2^64": Bad(("seed", "18446744073709551615"), sampling=json.dumps({"seed": 2**64})),
    "too many logprobs": Bad(("21",), parameters={"logprobs": 21}),
    "unknown parameter": Bad(('"max_new_token"', '"max_tokens"'), parameters={"max_new_token": 3}),
    "unknown field": Bad(('"temprature"', '"temperature"'), sampling='{"temprature": 1}'),
    "sampling_parameters that is no JSON": Bad(("sampling_parameters", "JSON object"), sampling="{"),
    "sampling_parameters that is a list": Bad(("sampling_parameters", "JSON object"), sampling="[]"),
    "stop ids that are no list": Bad(("stop_token_ids", "list"), sampling='{"stop_token_ids": 3}'),
    "stop id with a fraction": Bad(("stop_token_ids", "1.5"), sampling='{"stop_token_ids": [1.5]}'),
    "ignore_eos that is a number": Bad(("ignore_eos", "1"), parameters={"ignore_eos": 1}),
}


@pytest.fixture(scope="module")
def neighbours(serving: Server) -> Iterator[None]:
    """Ten requests that run while the bad ones come, and get the answer that they get alone."""
    alone = serving.generate(MODEL, **NEIGHBOUR).body["output_ids"]
    with GrpcStream(serving) as stream:
        asked = {name: value for name, value in NEIGHBOUR.items() if name != "input_ids"}
        for i in range(10):
            stream.ask(MODEL, NEIGHBOUR["input_ids"], name=str(i), **asked)
        yield
        answers = stream.answers(10)
    assert [answers[str(i)].tokens for i in range(10)] == [alone] * 10


@pytest.mark.parametrize("name", CASES)
def test_http_refuses(serving: Server, neighbours: None, name: str) -> None:
    bad = CASES[name]
    body = {"input_ids": bad.ids, **bad.parameters}
    if bad.sampling is not None:
        body["sampling_parameters"] = bad.sampling
    reply = serving.post(f"v2/models/{MODEL}/generate", body)
    assert reply.status in ((400, 500) if bad.of_server else (400,))
    _assert_typed(reply.error, bad)


@pytest.mark.parametrize("name", CASES)
def test_grpc_refuses(serving: Server, neighbours: None, name: str) -> None:
    bad = CASES[name]
    kinds = {float: ("FP32", np.float32), str: ("BYTES", np.object_), int: ("INT64", np.int64)}
    kind, dtype = kinds[type(bad.ids[0]) if bad.ids else int]
    inputs = [_input("input_ids", np.array(bad.ids, dtype=dtype), kind)]
    if bad.sampling is not None:
        inputs.append(_input("sampling_parameters", np.array([bad.sampling], dtype=np.object_), "BYTES"))
    answer = _ask(serving, inputs, bad.parameters)
    assert answer.final == 1 and answer.parts == []
    assert answer.error is not None
    _assert_typed(answer.error.message(), bad)


def _assert_typed(text: str, bad: Bad) -> None:
    """Ours name what was found and needed; the server's own come before."""
    if not bad.of_server:
        assert ("dsv41c: " in text or "DSV41C-E" in text) and "found " in text and "needed " in text
    for word in bad.words:
        assert word in text, text


def _ask(server: Server, inputs: list[grpcclient.InferInput], parameters: dict[str, Any]) -> Answer:
    answer = Answer()
    with GrpcStream(server) as stream:
        try:
            stream.client.async_stream_infer(MODEL, inputs, enable_empty_final_response=True, parameters=parameters)
        except InferenceServerException as error:
            take(answer, None, error)
            return answer
        take(answer, *stream.responses.get(timeout=60))
    assert stream.responses.empty()
    return answer


def _input(name: str, data: np.ndarray[Any, Any], kind: str) -> grpcclient.InferInput:
    tensor = grpcclient.InferInput(name, list(data.shape), kind)
    tensor.set_data_from_numpy(data)
    return tensor
