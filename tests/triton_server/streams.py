"""Clients that stream: server-sent events over a socket, and gRPC. Both can go away at any time."""

from __future__ import annotations

import json
import queue
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.triton_server.server import Server

SECONDS = 60.0  # no part of an answer takes longer


class EventStream:
    """POST generate_stream; iterates over the JSON of each event. Closing it closes the connection."""

    def __init__(self, server: Server, model: str, **fields: Any) -> None:
        body = json.dumps({"stream": True, **fields}).encode()
        self._socket = socket.create_connection(("127.0.0.1", server.http_port), timeout=SECONDS)
        head = (f"POST /v2/models/{model}/generate_stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
                f"\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n")
        self._socket.sendall(head.encode() + body)
        self._file = self._socket.makefile("rb")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self._file:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


@dataclass
class Answer:
    """All responses of a request. `final` is the number of responses that were marked as the last one."""

    parts: list[list[int]] = field(default_factory=list)
    reason: str = ""
    logprobs: list[float] = field(default_factory=list)
    top_ids: list[int] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)
    error: InferenceServerException | None = None
    final: int = 0

    @property
    def tokens(self) -> list[int]:
        return [token for part in self.parts for token in part]


class GrpcStream:
    """A bidirectional gRPC stream that serves many requests at a time. `responses` are (request id, result, error)."""

    def __init__(self, server: Server) -> None:
        self.client = grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        self.responses: queue.Queue[tuple[Any, InferenceServerException | None]] = queue.Queue()
        self.client.start_stream(lambda result, error: self.responses.put((result, error)))

    def ask(self, model: str, ids: list[int], name: str = "", stream: bool = True, **parameters: Any) -> None:
        self.client.async_stream_infer(
            model, tensors(ids, stream), request_id=name, enable_empty_final_response=True, parameters=parameters)

    def answers(self, count: int = 1) -> dict[str, Answer]:
        """Until so many requests have ended, by request id."""
        done: dict[str, Answer] = {}
        while sum(answer.final for answer in done.values()) < count:
            result, error = self.responses.get(timeout=SECONDS)
            # An error of a stream does not say whose it is.
            name = "error" if error is not None else result.get_response().id
            take(done.setdefault(name, Answer()), result, error)
        return done

    def parts(self) -> Iterator[list[int]]:
        """Token ids of each response of the only request, until its last one."""
        answer = Answer()
        while not answer.final:
            take(answer, *self.responses.get(timeout=SECONDS))
            yield answer.parts[-1] if answer.error is None else []

    def cancel(self) -> None:
        self.client.stop_stream(cancel_requests=True)
        self.client.close()

    def __enter__(self) -> GrpcStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.client.stop_stream()
        self.client.close()


def tensors(ids: list[int], stream: bool, sampling: str | None = None) -> list[grpcclient.InferInput]:
    inputs = [_tensor("input_ids", np.array(ids, dtype=np.int64), "INT64"),
              _tensor("stream", np.array([stream]), "BOOL")]
    if sampling is not None:
        inputs.append(_tensor("sampling_parameters", np.array([sampling.encode()], dtype=np.object_), "BYTES"))
    return inputs


def take(answer: Answer, result: Any, error: InferenceServerException | None) -> None:
    """Adds one response to an answer."""
    if error is not None:
        answer.error = error
        answer.final += 1
        return
    answer.final += result.get_response().parameters["triton_final_response"].bool_param
    ids = result.as_numpy("output_ids")
    if ids is not None:
        answer.parts.append(ids.tolist())
        answer.reason += result.as_numpy("finish_reason")[0].decode()
    for name, to in (("output_logprobs", answer.logprobs), ("top_ids", answer.top_ids),
                     ("top_logprobs", answer.top_logprobs)):
        if (values := result.as_numpy(name)) is not None:
            to.extend(values.reshape(-1).tolist())


def _tensor(name: str, data: np.ndarray[Any, Any], kind: str) -> grpcclient.InferInput:
    tensor = grpcclient.InferInput(name, list(data.shape), kind)
    tensor.set_data_from_numpy(data)
    return tensor
