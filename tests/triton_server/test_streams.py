"""Answers as they come: one response for each part, in order, one of them the last."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.triton_server.server import Server
from tests.triton_server.streams import EventStream, GrpcStream


@pytest.fixture(scope="module")
def model(counting: Server) -> str:
    return counting.add("counter_of_streams")


def test_the_first_token_arrives_before_the_second_is_computed(counting: Server, tmp_path: Path) -> None:
    """The engine computes no second token until the client has the first one and says so."""
    gate = tmp_path / "gate"
    model = counting.add("gated", gate=str(gate))
    with EventStream(counting, model, input_ids=[7], max_tokens=3) as stream:
        events = iter(stream)
        assert next(events)["output_ids"] == 8
        assert counting.numbers(model)["steps_total"] <= 1
        gate.touch()
        assert [event["output_ids"] for event in events] == [9, 10, []]


def test_every_request_of_a_grpc_stream_ends_once(counting: Server, model: str) -> None:
    with GrpcStream(counting) as stream:
        for i in range(32):
            stream.ask(model, [i], name=str(i), max_tokens=1 + i % 5)
        answers = stream.answers(32)
        for i in range(32):
            answer = answers[str(i)]
            assert answer.tokens == [i + 1 + k for k in range(1 + i % 5)]
            assert (answer.final, answer.reason, answer.error) == (1, "length", None)
    assert stream.responses.empty()


def test_one_response_holds_what_the_parts_hold(counting: Server, model: str) -> None:
    asked = {"input_ids": [3, 4], "sampling_parameters": json.dumps({"max_tokens": 6, "logprobs": 2})}
    whole = counting.generate(model, **asked).body
    with EventStream(counting, model, **asked) as stream:
        parts = list(stream)

    def joined(name: str) -> list[Any]:
        values = (part.get(name, []) for part in parts)
        return [v for value in values for v in (value if isinstance(value, list) else [value])]

    for name in ("output_ids", "output_logprobs", "top_ids", "top_logprobs"):
        assert joined(name) == whole[name]
    assert [part["first_index"] for part in parts] == list(range(7))
    assert parts[-1]["finish_reason"] == whole["finish_reason"] == "length"


def test_parameters_may_come_either_way_but_once(counting: Server, model: str) -> None:
    both = counting.generate(model, input_ids=[1], sampling_parameters='{"seed": 1}', max_tokens=2)
    assert both.body["output_ids"] == [2, 3]
    twice = counting.generate(model, input_ids=[1], sampling_parameters='{"max_tokens": 1}', max_tokens=2)
    assert twice.status == 400 and "max_tokens: found two values" in twice.error


def test_requests_at_the_same_time_share_steps(counting: Server) -> None:
    model = counting.add("shared_steps", max_batch=6, step_us=20_000)
    with GrpcStream(counting) as stream:
        for i in range(6):
            stream.ask(model, [i], name=str(i), max_tokens=20)
        stream.answers(6)
    numbers = counting.numbers_when(model, requests_done_total=6)
    assert numbers["step_requests_total"] == 120
    assert numbers["step_requests_total"] / numbers["steps_total"] > 1


def test_each_client_gets_its_own_answer_from_two_instances(counting: Server) -> None:
    """Five A, five B, four A, four B at the same time over two instances."""
    two = 'backend: "dsv41c"\ninstance_group [{ kind: KIND_MODEL count: 2 }]\n'
    model = counting.add("two_instances", two, step_us=2_000)
    prompts = [[10]] * 5 + [[500]] * 5 + [[10]] * 4 + [[500]] * 4

    def ask(prompt: list[int]) -> list[int]:
        return list(counting.generate(model, input_ids=prompt, max_tokens=8).body["output_ids"])

    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(ask, prompts))
    assert answers == [[prompt[0] + 1 + k for k in range(8)] for prompt in prompts]
    counting.numbers_when(model, requests_done_total=len(prompts), requests_active=0)


def test_text_comes_whole_in_parts_and_at_once(serving: Server) -> None:
    recited = "The quick brown fox — déjà vu, 狐狸 🦊 jumps over a lazy dog."
    asked = {"text_input": "Recite\n", "sampling_parameters": '{"max_tokens": 60}'}
    whole = serving.generate("talk_text", **asked).body
    assert (whole["text_output"], whole["finish_reason"]) == (recited, "stop")
    with EventStream(serving, "talk_text", **asked) as stream:
        parts = [event["text_output"] for event in stream]
    assert "".join(parts) == recited
    assert len(parts) > 10 and not any("\ufffd" in part for part in parts)


def test_text_that_is_not_utf8_is_refused(serving: Server) -> None:
    body = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}
    assert serving.post("v2/models/talk_tokenize/infer", body).status == 200
    raw = b"\x02\x00\x00\x00\xff\xfe"
    head = json.dumps({"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1],
                                   "parameters": {"binary_data_size": len(raw)}}]}).encode()
    refused = serving.post_binary("v2/models/talk_tokenize/infer", head, raw)
    assert refused.status == 400 and "needed UTF-8" in refused.error
