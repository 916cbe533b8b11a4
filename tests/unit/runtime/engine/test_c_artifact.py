"""An artifact without an engine: what it says of itself, and which ones are refused with which code."""

from __future__ import annotations

import ctypes
import json
import shutil
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

import pytest

from dsv41c.runtime.manifest import Manifest
from tests.unit.runtime.engine.c_table import CTable, Failed


class Info(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("model", c_char_p), ("digest", c_char_p), ("compiler", c_char_p),
                ("target", c_char_p), ("n_ports", c_uint32), ("n_segments", c_uint32), ("vocab", c_uint32),
                ("max_batch", c_uint32), ("max_batch_tokens", c_uint32), ("reserved", c_uint32),
                ("max_context", c_uint64), ("block_size", c_uint64), ("kv_pages", c_uint64), ("weight_bytes", c_uint64),
                ("planned_bytes", c_uint64), ("eos_ids", POINTER(c_int32)), ("n_eos_ids", c_size_t)]


class Port(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("dl_code", c_int32), ("dl_bits", c_int32),
                ("dl_lanes", c_int32), ("ndim", c_int32), ("dims", POINTER(c_int64)), ("dim_names", POINTER(c_char_p)),
                ("direction", c_uint32), ("reserved", c_uint32)]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("verify", c_uint32), ("reserved", c_uint32), ("weights", c_char_p)]


@pytest.fixture(scope="module")
def table() -> CTable:
    return CTable()


def opened(table: CTable, path: Path, **options: object) -> c_void_p:
    given = Options(struct_size=ctypes.sizeof(Options), **options)
    return table.made("artifact_open", str(path).encode(), byref(given))


def test_what_it_says_of_itself(table: CTable, engine_artifact: Path) -> None:
    artifact, info = opened(table, engine_artifact, verify=1), Info(struct_size=ctypes.sizeof(Info))
    table.artifact_info(artifact, byref(info))
    manifest = Manifest.read(engine_artifact)
    assert info.digest.decode() == manifest.fields["plan_digest"] and info.target == b"cpu" and info.model
    assert (info.vocab, info.max_batch, info.max_batch_tokens, info.max_context, info.block_size, info.kv_pages) == (
        96, 32, 64, 128, 16, 256)
    assert info.weight_bytes > 0 and info.planned_bytes > 0 and info.n_segments == 4
    assert info.eos_ids[: info.n_eos_ids] == [json.loads((engine_artifact / "config.json").read_text())["eos_token_id"]]
    table.artifact_close(artifact)


def test_ports_name_tensors_of_sessions_and_state(table: CTable, engine_artifact: Path) -> None:
    artifact, info = opened(table, engine_artifact), Info(struct_size=ctypes.sizeof(Info))
    table.artifact_info(artifact, byref(info))
    ports = {}
    for index in range(info.n_ports):
        port = Port(struct_size=ctypes.sizeof(Port))
        table.artifact_port(artifact, index, byref(port))
        ports[port.name.decode()] = (port.direction, port.dl_code, port.dl_bits, port.dims[: port.ndim],
                                     [port.dim_names[i].decode() for i in range(port.ndim)])
    assert ports["tokens"] == (0, 0, 32, [-1], ["tokens"]) and ports["logits"] == (1, 2, 32, [-1, 96], ["rows", ""])
    assert ports["slot_position"] == (2, 0, 32, [33], [""])
    with pytest.raises(Failed, match="INVALID_ARG"):
        table.artifact_port(artifact, info.n_ports, byref(Port(struct_size=ctypes.sizeof(Port))))
    table.artifact_close(artifact)


def test_the_plan_is_there_to_read(table: CTable, engine_artifact: Path) -> None:
    artifact = opened(table, engine_artifact)
    buffer, length = table.made("artifact_plan_json", artifact), c_size_t()
    table.artifact_close(artifact)
    data = table._function("buffer_data", c_void_p, (c_void_p, POINTER(c_size_t)))(buffer, byref(length))
    assert ctypes.string_at(data, length.value) == (engine_artifact / "plan.json").read_bytes()
    table.buffer_free(buffer)


@pytest.mark.parametrize(("name", "change", "verify", "code"), [
    ("dsv41c.json", None, 0, "NOT_FOUND"), ("dsv41c.json", b"{}", 0, "CORRUPT_ARTIFACT"),
    ("plan.json", b"{}", 0, "CORRUPT_ARTIFACT"), ("config.json", b"[]", 0, "CORRUPT_ARTIFACT"),
    ("dsv41c.json", (b'"format_version": 1', b'"format_version": 9'), 0, "VERSION_MISMATCH"),
    ("dsv41c.json", (b'"plan_only": false', b'"plan_only": true'), 0, "UNSUPPORTED"),
])
def test_bad_artifacts(table: CTable, engine_artifact: Path, tmp_path: Path, name: str,
                       change: bytes | tuple[bytes, bytes] | None, verify: int, code: str) -> None:
    copy = tmp_path / "art"
    shutil.copytree(engine_artifact, copy, copy_function=lambda a, b: Path(b).hardlink_to(a))
    data = (copy / name).read_bytes()
    (copy / name).unlink()
    if isinstance(change, tuple):
        assert change[0] in data, data[:300]
        change = data.replace(*change)
    if change is not None:
        (copy / name).write_bytes(change)
    with pytest.raises(Failed) as failed:
        opened(table, copy, verify=verify)
    assert failed.value.code == code and failed.value.fields["do"]


@pytest.mark.parametrize("options", [{"verify": 2}, {"reserved": 1}])
def test_unknown_options(table: CTable, engine_artifact: Path, options: dict[str, int]) -> None:
    with pytest.raises(Failed, match="UNSUPPORTED"):
        opened(table, engine_artifact, **options)


def test_every_digest_is_compared_on_request(table: CTable, engine_artifact: Path, tmp_path: Path) -> None:
    copy = tmp_path / "art"
    shutil.copytree(engine_artifact, copy)
    shard = next(copy.glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    table.artifact_close(opened(table, copy))
    with pytest.raises(Failed, match="CORRUPT_ARTIFACT"):
        opened(table, copy, verify=1)
