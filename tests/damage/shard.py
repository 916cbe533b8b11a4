"""Safetensors files taken apart and put together byte by byte, so that they can be broken on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Tensor:
    dtype: str
    shape: list[int]
    data: bytes


Change = Callable[[dict[str, Tensor]], object]


def header_of(path: Path) -> tuple[dict[str, Any], int]:
    """The header and where the data starts."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), 8 + length


def read_shard(path: Path) -> dict[str, Tensor]:
    header, start = header_of(path)
    header.pop("__metadata__", None)
    data = path.read_bytes()[start:]
    return {name: Tensor(e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in header.items()}


def write_shard(path: Path, tensors: dict[str, Tensor]) -> None:
    """In the given order; data without gaps."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape,
                        "data_offsets": [len(data), len(data) + len(tensor.data)]}
        data += tensor.data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.unlink(missing_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def change_shard(path: Path, change: Change) -> None:
    tensors = read_shard(path)
    change(tensors)
    write_shard(path, tensors)


def cuts(path: Path) -> dict[str, int]:
    """Names and lengths: where a download can end, and one that goes too far."""
    size = path.stat().st_size
    if path.suffix != ".safetensors":
        return {"empty": 0, "first byte": 1, "middle": size // 2, "last byte": size - 2, "appended": size + 7}
    header, start = header_of(path)
    header.pop("__metadata__", None)
    ranges = sorted(e["data_offsets"] for e in header.values())
    inside = {name: start + (begin + end) // 2
              for name, (begin, end) in (("first tensor", ranges[0]), ("middle tensor", ranges[len(ranges) // 2]),
                                         ("last tensor", ranges[-1]))}
    return {"empty": 0, "length": 5, "header": 8 + (start - 8) // 2, "header end": start, **inside,
            "last byte": size - 1, "appended": size + 1, "appended much": size + 4096}


def cut(path: Path, length: int) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:length] + b"\x20" * (length - len(data)))


CUTS = ("empty", "length", "header", "header end", "first tensor", "middle tensor", "last tensor", "last byte",
        "appended", "appended much")
