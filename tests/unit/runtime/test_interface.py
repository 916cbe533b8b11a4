"""The C interface as another host calls it: any options, any error buffer, any operator new."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dsv41c.runtime.load as loading
from dsv41c.runtime.binding import Error, LoadOptions, interface
from dsv41c.runtime.library import core_library
from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.conftest import OncePerRun
from tests.unit.runtime.toy_artifact import write_artifact

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("changes", "subject"), [
    ({"num_providers": -1}, "num_providers"), ({"num_providers": 1}, "providers"), ({"poison": -1}, "poison"),
    ({"poison": 256}, "poison"), ({"reserved": 1}, "reserved"), ({"cuda_mode": 2}, "cuda_mode"),
    ({"verify_full": 2}, "verify_full"), ({"memory_budget": -1}, "memory_budget"),
])
def test_bad_load_option_is_named(changes: dict[str, int], subject: str) -> None:
    options, handle = LoadOptions(**changes), ctypes.c_void_p()
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as failure:
        loading._Caller()(interface().open, b"/nowhere", ctypes.byref(options), ctypes.byref(handle))
    assert failure.value.subject == subject and not handle


def test_null_provider_is_refused() -> None:
    options, handle = LoadOptions(num_providers=1, providers=(ctypes.c_void_p * 1)(None)), ctypes.c_void_p()
    with pytest.raises(Dsv41cError, match="DSV41C-E0901"):
        loading._Caller()(interface().open, b"/nowhere", ctypes.byref(options), ctypes.byref(handle))


@pytest.mark.parametrize("poison", [-1, 256, 2**31 - 1])
def test_poison_is_a_byte(tmp_path: Path, poison: int) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0901"):
        load(write_artifact(tmp_path / "a"), poison=poison)


def reported(capacity: int, path: str) -> tuple[int, bytes]:
    text = ctypes.create_string_buffer(b"\xff" * capacity, capacity + 8)
    error, handle = Error(ctypes.addressof(text), capacity), ctypes.c_void_p()
    status = interface().open(path.encode(), None, ctypes.byref(handle), ctypes.byref(error))
    assert text.raw[capacity:] == bytes(8)
    return status, text.value


@pytest.mark.parametrize("path", ["/nowhere/" + "é" * 300, '/nowhere/"\\' * 60, "/no"])
def test_report_is_valid_json_at_any_capacity(path: str) -> None:
    """Fields are cut, never the document, and never inside a character."""
    lengths = []
    for capacity in [1, 8, 40, *range(90, 500, 7), 1000, 4096]:
        status, text = reported(capacity, path)
        assert status == 1
        lengths.append(len(text))
        if text:
            document = json.loads(text.decode())
            assert document["code"] == "DSV41C-E0601" and "\ufffd" not in json.dumps(document)
        else:
            assert capacity < 120
    assert lengths[-1] == max(lengths)


@pytest.mark.parametrize("text", [b'{"code": "DSV41C-E08', b"plain text", b"", b"[]", b"{}", b'{"code": "X"}', b"\xff"])
def test_text_of_another_form_is_a_typed_error(text: bytes) -> None:
    def failing(error: Any) -> int:
        ctypes.memmove(error._obj.text, text + b"\0", len(text) + 1)
        return 1

    with pytest.raises(Dsv41cError, match="DSV41C-E0802") as failure:
        loading._Caller()(failing)
    assert failure.value.found


def build_host(directory: Path) -> object:
    directory.mkdir(parents=True)
    subprocess.run(["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", f"-I{ROOT / 'runtime/cpp/include'}",
                    str(ROOT / "tests/native/marking_host.cc"), "-ldl", "-rdynamic", "-o",
                    str(directory / "host")], check=True)
    return None


def test_host_with_its_own_operator_new(once_per_run: OncePerRun, tmp_path: Path) -> None:
    """Blocks cross between this library, the compiled part of libstdc++ and the host: one allocator serves all."""
    source = (ROOT / "tests/native/marking_host.cc").read_text()
    host = once_per_run("marking_host", {"source": source}, build_host) / "host"
    artifact = write_artifact(tmp_path / "a")
    done = subprocess.run([host, core_library()._name, "/nowhere", artifact, artifact], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing, first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (missing["error"]["code"], second["error"]["code"]) == ("DSV41C-E0601", "DSV41C-E0702")
    for call in (missing, first, second):
        assert 0 < call["counted"] <= call["seen"]
    assert second["left"] == 0
