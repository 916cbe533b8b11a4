"""The kernel cache: what is kept comes back, what is broken is built again, a cache that fails changes nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dsv41c.compiler.kernels.cache import keep, read_kept
from dsv41c.compiler.kernels.source import CompiledKernel, Int32, LaunchRecord, Tensor

BUILT = CompiledKernel.of(b"cubin", LaunchRecord("k", (Tensor(0), Int32(7)), ("rows", 1, 1), (32, 1, 1), 0, 8, 0))


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    keep(tmp_path / "kernels" / "key", BUILT)
    keep(tmp_path / "kernels" / "key", BUILT)
    assert read_kept(tmp_path / "kernels" / "key") == BUILT
    assert sorted(p.name for p in (tmp_path / "kernels").iterdir()) == ["key.cubin", "key.json"]


def test_nothing_kept(tmp_path: Path) -> None:
    assert read_kept(tmp_path / "key") is None


@pytest.mark.parametrize(("name", "content"), [
    ("key.cubin", b"cubi"), ("key.cubin", b""), ("key.json", b""), ("key.json", b"{}"), ("key.json", b"[]"),
    ("key.json", b'{"record": 1}'), ("key.json", b'{"record": {"grid": [1]}}'), ("key.json", b"\xff"),
])
def test_a_broken_entry_is_not_used(name: str, content: bytes, tmp_path: Path) -> None:
    keep(tmp_path / "key", BUILT)
    (tmp_path / name).write_bytes(content)
    assert read_kept(tmp_path / "key") is None
    keep(tmp_path / "key", BUILT)
    assert read_kept(tmp_path / "key") == BUILT


def test_a_cache_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        keep(tmp_path / "file" / "kernels" / "one", BUILT)
        keep(tmp_path / "file" / "kernels" / "two", BUILT)
    assert [r.message for r in caplog.records] == [
        f"kernel cache {tmp_path}/file/kernels cannot be written: Not a directory"]
    assert read_kept(tmp_path / "file" / "kernels" / "one") is None
