"""Models come and go while the server lives."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.triton_server.server import Reply, Server
from tests.triton_server.streams import EventStream, tensors


def test_a_hundred_loads_and_unloads_leave_memory_flat(serving: Server) -> None:
    """Mean of the last twenty cycles against those after the first twenty, in which caches fill."""
    sizes = []
    for _ in range(100):
        assert serving.load("counter").status == 200
        assert serving.generate("counter", input_ids=[5], max_tokens=2).body["output_ids"] == [6, 7]
        assert serving.unload("counter").status == 200
        _wait_until_gone(serving, "counter")
        sizes.append(serving.resident_bytes())
    assert serving.load("counter").status == 200
    early, late = statistics.mean(sizes[20:40]), statistics.mean(sizes[80:])
    assert late < 1.02 * early


def test_unload_waits_for_streams(counting: Server) -> None:
    model = counting.add("leaving", step_us=10_000)
    with EventStream(counting, model, input_ids=[7], max_tokens=50) as stream:
        events = iter(stream)
        first = next(events)
        assert counting.unload(model).status == 200
        rest = [event["output_ids"] for event in events]
    assert [first["output_ids"], *rest] == [*range(8, 58), []]
    _wait_until_gone(counting, model)
    assert counting.load(model).status == 200
    assert counting.generate(model, input_ids=[1], max_tokens=1).body["output_ids"] == 2


def test_an_engine_that_dies_answers_unavailable(counting: Server) -> None:
    model = counting.add("dies", fail_at_step=5)
    neighbour = counting.add("lives")
    with EventStream(counting, model, input_ids=[7], max_tokens=50) as stream:
        events = list(stream)
    assert "a step failed" in events[-1]["error"]
    assert "failed step" in counting.generate(model, input_ids=[7], max_tokens=2).error
    assert counting.generate(neighbour, input_ids=[1], max_tokens=1).body["output_ids"] == 2


def test_what_may_work_later_is_unavailable(counting: Server) -> None:
    """Codes of /infer and of unary gRPC: this server's generate answers 400 whatever the code."""
    coupled = 'backend: "dsv41c"\nmodel_transaction_policy { decoupled: false }\n'
    model = counting.add("full", coupled, max_batch=1, max_queue=1, kv_pages=3, step_us=20_000)

    def ask(tokens: int) -> Reply:
        ids = {"name": "input_ids", "datatype": "INT64", "shape": [1], "data": [1]}
        return counting.post(f"v2/models/{model}/infer", {"inputs": [ids], "parameters": {"max_tokens": tokens}})

    assert ask(1_000).status == 503  # more pages than there are
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(ask, 100)
        counting.numbers_when(model, requests_active=1)
        waiting = pool.submit(ask, 1)
        counting.numbers_when(model, requests_queued=1)
        refused = ask(1)
        assert refused.status == 503 and "queue: found 1 requests" in refused.error
        client = grpcclient.InferenceServerClient(f"127.0.0.1:{counting.grpc_port}")
        with pytest.raises(InferenceServerException) as error:
            client.infer(model, tensors([1], False))
        client.close()
        assert error.value.status() == "StatusCode.UNAVAILABLE"
        assert (running.result().status, waiting.result().status) == (200, 200)


def test_statistics_count_requests_and_their_time(counting: Server) -> None:
    model = counting.add("counted", step_us=10_000)
    for _ in range(3):
        counting.generate(model, input_ids=[1], max_tokens=5)
    counting.generate(model, input_ids=[1], max_tokens=0)
    stats = counting.get(f"v2/models/{model}/stats").body["model_stats"][0]
    counts = stats["inference_stats"]
    assert (counts["success"]["count"], counts["fail"]["count"]) == (3, 1)
    assert counts["success"]["ns"] >= 3 * 5 * 10_000_000


def _wait_until_gone(server: Server, model: str) -> None:
    limit = time.monotonic() + 30
    while any(entry["name"] == model and entry.get("state") in ("READY", "UNLOADING")
              for entry in server.post("v2/repository/index").body):
        assert time.monotonic() < limit
        time.sleep(0.01)
