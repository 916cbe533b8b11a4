"""A real tritonserver on loopback, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = Path(sysconfig.get_path("purelib"))  # pytriton itself is not imported: only its server is of use
BINARY = PACKAGES / "pytriton/tritonserver/bin/tritonserver"
LIBRARIES = PACKAGES / "nvidia_pytriton.libs"
START_SECONDS = 60.0


@dataclass(frozen=True)
class Reply:
    """`body` is parsed JSON, or None for an empty one."""

    status: int
    body: Any

    @property
    def error(self) -> str:
        assert isinstance(self.body, dict) and "error" in self.body, self
        return str(self.body["error"])


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    repository: Path
    log: Path
    http_port: int
    grpc_port: int
    metrics_port: int

    def post(self, path: str, body: object = None, raw: str | None = None) -> Reply:
        data = raw if raw is not None else json.dumps({} if body is None else body)
        return self._ask(urllib.request.Request(self.url(path), data.encode()))

    def get(self, path: str) -> Reply:
        return self._ask(urllib.request.Request(self.url(path)))

    def generate(self, model: str, **fields: Any) -> Reply:
        """One response for the whole answer."""
        return self.post(f"v2/models/{model}/generate", fields)

    def load(self, model: str) -> Reply:
        return self.post(f"v2/repository/models/{model}/load")

    def unload(self, model: str) -> Reply:
        """Returns before the model is gone."""
        return self.post(f"v2/repository/models/{model}/unload")

    def add(self, model: str, config: str = 'backend: "dsv41c"\n', **facts: Any) -> str:
        """Writes a model of the fake engine and loads it. Returns its name."""
        folder = self.repository / model
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(config)
        (folder / "1/fake.json").write_text(json.dumps(facts))
        reply = self.load(model)
        assert reply.status == 200, reply
        return model

    def numbers(self, model: str) -> dict[str, float]:
        """The backend's metrics of a model, summed over its instances, by name without dsv41c_."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        sums: dict[str, float] = {}
        for name, labels, value in re.findall(r"^dsv41c_(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
            if f'model="{model}"' in labels:
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def numbers_when(self, model: str, **wanted: float) -> dict[str, float]:
        """The metrics, which lag a little, once they have these values."""
        limit = time.monotonic() + 20.0
        while any((numbers := self.numbers(model)).get(name) != value for name, value in wanted.items()):
            assert time.monotonic() < limit, (wanted, numbers)
            time.sleep(0.05)
        return self.numbers(model)

    def post_binary(self, path: str, head: bytes, tensors: bytes) -> Reply:
        """Tensors as bytes behind their description."""
        request = urllib.request.Request(self.url(path), head + tensors)
        request.add_header("Inference-Header-Content-Length", str(len(head)))
        return self._ask(request)

    def resident_bytes(self) -> int:
        """Anonymous memory: without files that are mapped, such as weights."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.findall(r"^RssAnon:\s*(\d+) kB", status, re.MULTILINE)[0])

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.http_port}/{path}"

    def _ask(self, request: urllib.request.Request) -> Reply:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Reply(answer.status, _json(answer.read()))
        except urllib.error.HTTPError as error:
            return Reply(error.code, _json(error.read()))


def _json(data: bytes) -> Any:
    return json.loads(data) if data else None


@contextmanager
def running(prepared: Path, backends: str, repository: Path, *options: str) -> Iterator[Server]:
    """`backends` is a directory in `prepared`. The server loads what it is told to, and ends well or the test fails."""
    ports = _free_ports(3)
    log = repository.parent / f"{repository.name}.log"
    names = ("http", "grpc", "metrics")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(BINARY), f"--model-repository={repository}", f"--backend-directory={prepared / backends}",
             "--model-control-mode=explicit", *(f"--{name}-address=127.0.0.1" for name in names),
             *(f"--{name}-port={port}" for name, port in zip(names, ports, strict=True)), *options],
            stdout=output, stderr=subprocess.STDOUT, env=environment(prepared))
    server = Server(process, repository, log, *ports)
    try:
        _wait_until_ready(server)
        yield server
        assert process.poll() is None, f"the server has died\n{tail(log)}"
        process.terminate()
        assert process.wait(timeout=60) == 0, tail(log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def environment(prepared: Path) -> dict[str, str]:
    """The library under the name that the backend needs, and this Python for Python models. One arena of malloc: with
    one for each of many threads, memory in use goes up and down by half."""
    return os.environ | {
        "LD_LIBRARY_PATH": f"{prepared / 'link'}:{LIBRARIES}", "PYTHONPATH": str(PACKAGES), "MALLOC_ARENA_MAX": "1",
        "PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"}


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])


def _wait_until_ready(server: Server) -> None:
    limit = time.monotonic() + START_SECONDS
    while time.monotonic() < limit and server.process.poll() is None:
        try:
            if server.get("v2/health/ready").status == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the server is not ready\n{tail(server.log)}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
