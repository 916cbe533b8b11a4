"""Opens a page in headless Chromium: its DOM behind the scripts, what it wrote to the console, and a screenshot."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# A shared /dev/shm is small in containers; a test never asks for a GPU.
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
          "--virtual-time-budget=3000", "--enable-logging=stderr", "--v=0", "--window-size=1440,1750")
_CONSOLE = re.compile(r":CONSOLE[(:][^\]]*\] (.*)")


@dataclass(frozen=True)
class Seen:
    out: str
    console: list[str]


def open_page(page: Path, *flags: str) -> Seen:
    """Fails where there is no Chromium: `make browser` installs it."""
    with tempfile.TemporaryDirectory() as profile:
        process = subprocess.run(["chromium", *_FLAGS, f"--user-data-dir={profile}", *flags, page.resolve().as_uri()],
                                 capture_output=True, text=True, timeout=180, check=True)
    return Seen(process.stdout, _CONSOLE.findall(process.stderr))


class Dom(HTMLParser):
    """Attributes of every element, and the `data-method` that each lies in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], str | None]] = []
        self._method: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._method = attributes.get("data-method", self._method)
        self.elements.append((tag, attributes, self._method))

    def values(self, name: str, method: str | None = None) -> list[str | None]:
        return [a[name] for _, a, m in self.elements if name in a and method in (None, m)]


def read_png(path: Path) -> NDArray[np.uint8]:
    """Pixels [height, width, channels] of an 8-bit PNG without interlace."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", data, at + 8)
        packed += data[at + 8: at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    assert depth == 8
    channels = {2: 3, 6: 4}[colour]
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    before = np.zeros((width, channels), np.uint8)
    rows = []
    for line in lines:
        before = _unfiltered(int(line[0]), line[1:].reshape(width, channels), before)
        rows.append(before)
    return np.stack(rows)


def _unfiltered(kind: int, line: NDArray[np.uint8], before: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0, dtype=np.uint8)
    if kind == 2:
        return line + before
    row = np.zeros_like(line)
    for x in range(len(line)):
        for c in range(line.shape[1]):
            left, up = (int(row[x - 1, c]) if x else 0), int(before[x, c])
            corner = int(before[x - 1, c]) if x else 0
            row[x, c] = (int(line[x, c]) + ((left + up) // 2 if kind == 3 else _paeth(left, up, corner))) % 256
    return row


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))
