"""Clients that go away: their requests stop, nothing is left, the next request is right."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from tests.triton_server.server import Server
from tests.triton_server.streams import EventStream, GrpcStream

PHASES = ("at once", "queued", "at the first token", "later", "after the end", "by its deadline")


def _drop_one(server: Server, model: str, seed: int) -> None:
    """One request that is dropped in some phase, over HTTP or gRPC."""
    draw = random.Random(seed)
    phase, over_http = PHASES[seed % len(PHASES)], seed // len(PHASES) % 2 == 0
    ids = [draw.randrange(50) for _ in range(draw.randrange(1, 60))]
    asked: dict[str, Any] = {"max_tokens": 3 if phase == "after the end" else 60, "ignore_eos": True}
    if phase == "by its deadline":
        asked["deadline_ms"] = draw.randrange(1, 30)
    count = {"at the first token": 1, "later": draw.randrange(2, 8), "after the end": 4, "by its deadline": 99}
    wait = draw.random() / 50 if phase == "queued" else 0.0
    if over_http:
        with EventStream(server, model, input_ids=ids, **asked) as events:
            _read(iter(events), count.get(phase, 0), wait)
        return
    stream = GrpcStream(server)
    stream.ask(model, ids, **asked)
    _read(stream.parts(), count.get(phase, 0), wait)
    if phase in ("after the end", "by its deadline"):
        # This server keeps a response, and with it the model, of a client that cancels while the last one is written.
        time.sleep(0.1)
    stream.cancel()


def _read(parts: Iterator[object], count: int, wait: float) -> None:
    time.sleep(wait)
    for _ in islice(parts, count):
        pass


@pytest.mark.parametrize("engine", ["real", "counting"])
def test_three_hundred_dropped_requests_leave_nothing(request: pytest.FixtureRequest, engine: str) -> None:
    server: Server = request.getfixturevalue("serving" if engine == "real" else "counting")
    model = "tiny" if engine == "real" else server.add("dropped", step_us=1_000, max_batch=8)
    asked = {"input_ids": [5, 6, 7], "max_tokens": 20, "ignore_eos": True}
    before = server.numbers_when(model, requests_active=0, requests_queued=0)
    alone = server.generate(model, **asked).body["output_ids"]
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda seed: _drop_one(server, model, seed), range(300)))
    after = server.numbers_when(model, requests_active=0, requests_queued=0, kv_pages_used=before["kv_pages_used"],
                                slots_used=before["slots_used"])
    ended = ("requests_done_total", "requests_cancelled_total", "requests_failed_total")
    # Some never came to the engine: the server drops what is cancelled before it is executed.
    assert 200 <= sum(after[name] - before[name] for name in ended) <= 301
    assert after["requests_failed_total"] == before["requests_failed_total"]
    assert after["requests_cancelled_total"] - before["requests_cancelled_total"] >= 100
    assert server.generate(model, **asked).body["output_ids"] == alone


@pytest.mark.parametrize("over_http", [True, False], ids=["http", "grpc"])
def test_the_engine_stops_within_half_a_second(counting: Server, over_http: bool) -> None:
    model = counting.add(f"stops_{over_http}", step_us=5_000)
    if over_http:
        with EventStream(counting, model, input_ids=[1], max_tokens=4_000) as events:
            next(iter(events))
    else:
        stream = GrpcStream(counting)
        stream.ask(model, [1], max_tokens=4_000)
        stream.responses.get(timeout=60)
        stream.cancel()
    start = time.monotonic()
    counting.numbers_when(model, requests_cancelled_total=1, requests_active=0)
    assert time.monotonic() - start < 0.5 + 0.5  # the metrics lag by up to half a second themselves


def test_a_queued_request_is_cancelled_without_an_event(counting: Server) -> None:
    """Over gRPC. An HTTP connection that was closed is noticed by the server when it writes the first response."""
    model = counting.add("queued", max_batch=1, step_us=5_000)
    with EventStream(counting, model, input_ids=[1], max_tokens=2_000) as first:
        next(iter(first))
        waiting = GrpcStream(counting)
        waiting.ask(model, [2], max_tokens=5)
        counting.numbers_when(model, requests_queued=1)
        waiting.cancel()
        counting.numbers_when(model, requests_queued=0, requests_cancelled_total=1, requests_active=1)
    counting.numbers_when(model, requests_active=0, requests_cancelled_total=2)


def test_a_deadline_ends_a_request_with_an_error(counting: Server) -> None:
    model = counting.add("late", step_us=20_000)
    with GrpcStream(counting) as stream:
        stream.ask(model, [1], max_tokens=1_000, deadline_ms=100)
        answers = stream.answers()
        assert "deadline" in str(answers["error"].error)
    assert stream.responses.empty()


def test_a_storm_of_two_hundred_clients_that_disconnect(counting: Server) -> None:
    model = counting.add("storm", step_us=1_000, max_batch=16)

    def client(seed: int) -> None:
        with EventStream(counting, model, input_ids=[seed], max_tokens=500) as events:
            _read(iter(events), seed % 4, 0.0)

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(client, range(200)))
    numbers = counting.numbers_when(model, requests_active=0, requests_queued=0, kv_pages_used=0, slots_used=0)
    assert numbers["requests_cancelled_total"] == 200
    assert counting.generate(model, input_ids=[1], max_tokens=2).body["output_ids"] == [2, 3]
