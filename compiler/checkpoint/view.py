"""CheckpointView: a checkpoint directory, counted against the layout and read by mapping its files."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsv41c.compiler.checkpoint.census import check_census, read_complete
from dsv41c.compiler.checkpoint.safetensors_header import TensorHeader
from dsv41c.compiler.checkpoint.token_map import TOKEN_MAP_FILE, TOKENIZER_FILE, load_token_map
from dsv41c.compiler.config import ModelConfig
from dsv41c.runtime.plan.errors import Dsv41cError

if TYPE_CHECKING:
    import torch

# safetensors dtype -> NumPy storage type, torch type
_STORAGE = {
    "BF16": ("<u2", "bfloat16"),
    "F32": ("<f4", "float32"),
    "F8_E4M3": ("u1", "float8_e4m3fn"),
    "F8_E8M0": ("u1", "float8_e8m0fnu"),
    "I8": ("i1", "int8"),
    "U8": ("i1", "int8"),  # packed FP4
}


@dataclass(frozen=True)
class CheckpointView:
    """Canonical names (without a `model.` prefix) over files that stay where they are."""

    path: Path
    config: ModelConfig
    tensors: dict[str, TensorHeader]
    surplus: tuple[str, ...]
    stale: tuple[str, ...]  # copies that the index does not choose
    has_draft: bool
    model_digest: str  # config bytes and every header; `content_digest` covers the data too
    token_map_path: Path | None
    tokenizer_path: Path | None
    _maps: dict[Path, mmap.mmap] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, directory: Path | str, *, draft: bool = False) -> CheckpointView:
        """Reads config and headers. Without `draft`, the mtp.* tensors may be absent as a whole."""
        path = Path(directory)
        config = ModelConfig.load(path)
        stored = read_complete(path)
        census = check_census(config, stored.tensors, path, draft=draft)
        digest = _header_digest(path, census.tensors.values())
        return cls(
            path,
            config,
            census.tensors,
            census.surplus,
            tuple(f"{copy.name} in {copy.file.name}" for copy in stored.stale),
            census.has_draft,
            digest.hexdigest(),
            token_map_path=_if_present(path / TOKEN_MAP_FILE),
            tokenizer_path=_if_present(path / TOKENIZER_FILE),
        )

    @property
    def headers_only(self) -> bool:
        """True when some shard was written without data."""
        return any(not header.has_data for header in self.tensors.values())

    def read(self, name: str) -> NDArray[Any]:
        """Read-only array over the mapped bytes: BF16 as uint16, F8 as uint8, I8 as int8, F32 as float32."""
        array = self._array(name)
        array.flags.writeable = False
        return array

    def read_torch(self, name: str) -> torch.Tensor:
        """The tensor in its own torch dtype over the mapped bytes; do not write to it."""
        import torch

        stored = torch.from_numpy(self._array(name))
        return stored.view(getattr(torch, _STORAGE[self.tensors[name].dtype][1]))

    def token_map(self) -> NDArray[np.int32]:
        """Engram's token id -> compressed id, int32 [vocab_size]."""
        return load_token_map(self.config, self.path)

    def content_digest(self) -> str:
        """Digest over all that decides the model's answers; reads every tensor, token map and tokenizer."""
        if self.headers_only:
            raise without_data(self.path)
        digest = _header_digest(self.path, self.tensors.values())
        for file in (self.token_map_path, self.tokenizer_path):
            content = b"" if file is None else file.read_bytes()
            digest.update(hashlib.sha256(content).digest())
        for name in sorted(self.tensors):
            header = self.tensors[name]
            digest.update(memoryview(self._mapped(header.file))[header.begin : header.end])
        return digest.hexdigest()

    def _array(self, name: str) -> NDArray[Any]:
        header = self.tensors[name]
        if not header.has_data:
            raise without_data(self.path)
        storage = np.dtype(_STORAGE[header.dtype][0])
        count = (header.end - header.begin) // storage.itemsize
        array = np.frombuffer(self._mapped(header.file), storage, count, header.begin)
        return array.reshape(header.shape)

    def _mapped(self, file: Path) -> mmap.mmap:
        """Private copy-on-write mapping: torch warns about read-only memory, and the file stays untouched."""
        if file not in self._maps:
            with file.open("rb") as handle:
                self._maps[file] = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_COPY)
        return self._maps[file]


def without_data(path: Path) -> Dsv41cError:
    return Dsv41cError(
        "DSV41C-E0105",
        "checkpoint without data",
        where=str(path),
        found="shards that were written with --headers-only",
        needed="shards with data",
        do="compile it with --plan-only, or use a checkpoint with weights",
    )


def _if_present(path: Path) -> Path | None:
    return path if path.is_file() else None


def _header_digest(path: Path, headers: Iterable[TensorHeader]) -> hashlib._Hash:
    digest = hashlib.sha256((path / "config.json").read_bytes())
    for header in sorted(headers, key=lambda h: h.name):
        digest.update(f"\n{header.name} {header.dtype} {list(header.shape)}".encode())
    return digest
