"""Times each case inside graphs beside its peers, and says whether it meets its bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from dsv41c.tools.bench import inputs, peers
from dsv41c.tools.bench.launching import Case, graph_us, rotation

TB = 4.27e6  # bytes a microsecond that a device-to-device copy moves, read and written counted


@dataclass(frozen=True)
class Timing:
    """floor_us: the bytes that must move. bar: what `ratio` is held against, None where only reported."""

    case: str
    rows: int
    us: float
    floor_us: float
    peer: str
    peer_us: float | None
    bar_us: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def line(self) -> str:
        peer = f"{'no peer':21}"
        if self.peer_us is not None:
            peer = f"peer {self.peer_us:7.1f} = {self.peer_us / self.us:5.2f}x"
        bar = "" if self.bar_us is None else f"bar {self.bar_us:7.1f} {'met' if self.us <= self.bar_us else 'MISSED'}"
        floor = f"floor {self.floor_us:6.1f} = {self.floor_us / self.us:4.0%}"
        return f"{self.case:20} {self.rows:5} {self.us:8.1f} us  {floor}  {peer}  {bar}"


def times_of(case: Case, make: Callable[[], list[torch.Tensor]], rows: int, bytes_of_set: int) -> float:
    sets = [(make(), case.scratch(rows)) for _ in range(rotation(bytes_of_set))]
    return graph_us([lambda t=t, s=s: case.launch(t, s, rows) for t, s in sets])


def mega_mhc(case: Case, rows: int, name: str = "mega_mhc") -> Timing:
    hidden = 5120
    weights = inputs.mega_mhc_weights(hidden)
    size = rows * hidden * 23
    us = times_of(case, lambda: inputs.mega_mhc(rows, hidden, weights), rows, size)
    peer_us = peers.mhc_us(rows, hidden, weights["fn"], rotation(size))
    floor = rows * 105e3 / TB
    bars = [peer_us / 2] if peer_us is not None else []
    bars += [floor / 0.6] if rows >= 2048 else []
    return Timing(name, rows, us, floor, "pre+post+TF32 mix", peer_us, min(bars, default=None))


def mega_gate(case: Case, rows: int, experts: int = 384, topk: int = 6) -> Timing:
    hidden = 5120
    weights = inputs.mega_gate_weights(hidden, experts)
    size = rows * hidden * 2 + experts * hidden * 2
    us = times_of(case, lambda: inputs.mega_gate(rows, hidden, experts, topk, weights), rows, size)
    sets = [inputs.mega_gate(rows, hidden, experts, topk, weights) for _ in range(rotation(size))]
    peer_us = peers.gate_us(sets, topk)
    floor = max(size / TB, rows * hidden * experts * 2 / 740e6)
    return Timing("mega_gate" if experts == 384 else "mega_gate_draft", rows, us, floor, "torch", peer_us, peer_us / 3)


def rmsnorm_mxfp8(name: str, case: Case, rows: int, width: int) -> Timing:
    weight = 1 + inputs.normal(width, scale=0.1)
    size = rows * width * 5 + rows * width // 32
    us = times_of(case, lambda: inputs.rmsnorm_mxfp8(rows, width, weight), rows, size)
    peer_us = peers.norm_us(rows, width, weight, rotation(size))
    floor = size / TB
    return Timing(name, rows, us, floor, "tile_kernels norm+cast", peer_us, floor / 0.7 if rows >= 2048 else None)


def norm_rope_store(case: Case, rows: int) -> Timing:
    width, rope, ring = 512, 64, 134
    size = rows * (2 * width + width + width // 32 + 32 + rope * 4)
    us = times_of(case, lambda: inputs.norm_rope_store(rows, width, rope, ring, 4), rows, size + rows * 20000)
    floor = size / TB
    return Timing("norm_rope_store", rows, us, floor, "none", None, floor / 0.7 if rows >= 2048 else None)


def mega_attention(name: str, case: Case, rows: int, selected: int = 512) -> Timing:
    """Decode rows, four a request. Floor: keys, query and result once, or the products at the rate of bfloat16."""
    heads, width = 64, 512
    state = inputs.attention_state(slots=1024)
    keys = 128 * 528 + selected * 288
    size = rows * (keys + 4 * heads * width)
    us = times_of(case, lambda: inputs.mega_attention(rows, heads, selected, state, 4), rows, size)
    floor = max(size / TB, rows * 4 * heads * width * (128 + selected) / 740e6)
    peer = peers.attention_us(rows, selected, rotation(size)) if selected else None
    return Timing(name, rows, us, floor, "FlashMLA, V4 format", peer, peer and peer / 1.3)


def embed_expand(case: Case, rows: int) -> Timing:
    hidden = 5120
    table = inputs.normal(129280, hidden)
    size = rows * hidden * 10
    us = times_of(case, lambda: inputs.embed_expand(rows, hidden, table), rows, size)
    return Timing("embed_expand", rows, us, size / TB, "none", None, None)


TIMINGS: tuple[tuple[str, tuple[int, ...], Callable[[Case, int], Timing]], ...] = (
    ("mega_mhc", (32, 128, 512, 2048, 8192), mega_mhc),
    ("mega_mhc_maps", (32, 128, 512, 2048, 8192), lambda c, n: mega_mhc(c, n, "mega_mhc_maps")),
    ("mega_gate", (32, 256, 1024, 8192), mega_gate),
    ("mega_gate_draft", (32, 256), lambda c, n: mega_gate(c, n, 128, 3)),
    ("rmsnorm_mxfp8", (32, 512, 2048, 8192), lambda c, n: rmsnorm_mxfp8("rmsnorm_mxfp8", c, n, 5120)),
    ("rmsnorm_mxfp8_query", (32, 2048, 8192), lambda c, n: rmsnorm_mxfp8("rmsnorm_mxfp8_query", c, n, 1280)),
    ("norm_rope_store", (1, 32, 2048, 8192), norm_rope_store),
    ("mega_attention", (1, 32, 64, 128, 256, 512, 1024, 4096), lambda c, n: mega_attention("mega_attention", c, n)),
    ("mega_attention_split", (1, 32, 64), lambda c, n: mega_attention("mega_attention_split", c, n)),
    ("mega_attention_window", (32, 1024), lambda c, n: mega_attention("mega_attention_window", c, n, 0)),
    ("embed_expand", (32, 2048), embed_expand),
)
