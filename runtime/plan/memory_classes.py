"""Bytes of a plan by class: what its state is for, its other regions, and executable graphs on a device."""

from __future__ import annotations

import math

from dsv41c.runtime.plan.format import ALIGNMENT, DEVICE_ALIGNMENT, DTYPES, GRAPH_NODE_BYTES
from dsv41c.runtime.plan.schema import CudaBody, Method, Plan, Segment, SequenceBody

STATE_CLASSES = ("pages", "rings", "pairs", "slots", "page_table", "other_state")
CLASSES = (*STATE_CLASSES, "bridges", "io", "arena", "alignment", "graphs")
_BY_PREFIX = (("compressed_", "pages"), ("index_key_", "pages"), ("window_floor", "slots"), ("replay_floor", "slots"),
              ("window_", "rings"), ("draft_window_", "rings"),
              ("token_ring", "rings"), ("pair_", "pairs"), ("slot_", "slots"), ("page_table", "page_table"))


def state_class(name: str) -> str:
    """pages: entries and index keys; rings: windows and token history; pairs: unfinished groups of a compressor."""
    return next((kind for prefix, kind in _BY_PREFIX if name.startswith(prefix)), "other_state")


def memory_by_class(plan: Plan) -> dict[str, int]:
    """Bytes of every class. Without `graphs` the sum is what the executor reserves beside the weights; with it, what a
    memory budget counts. `alignment` is lost between the regions of a device."""
    classes = dict.fromkeys(CLASSES, 0)
    for state in plan.state:
        classes[state_class(state.name)] += _aligned(math.prod(state.sizes) * DTYPES[state.dtype].item_bytes, ALIGNMENT)
    memory = plan.memory
    regions = (memory.state_bytes, memory.bridge_bytes, memory.io_bytes, memory.arena_bytes)
    classes |= dict(zip(("bridges", "io", "arena"), regions[1:], strict=True))
    classes["other_state"] += memory.state_bytes - sum(classes[kind] for kind in STATE_CLASSES)
    if plan.target != "cpu":
        classes["alignment"] = sum(_aligned(r, DEVICE_ALIGNMENT) - r for r in regions)
        classes["graphs"] = sum(graph_bytes(plan, method) * len(method.buckets) for method in plan.methods)
    return classes


def graph_bytes(plan: Plan, method: Method) -> int:
    """Planned device bytes of the executable graphs of one bucket; 0 on the CPU."""
    return num_graph_nodes(plan, method) * GRAPH_NODE_BYTES


def num_graph_nodes(plan: Plan, method: Method) -> int:
    """Nodes of one bucket: those of CUDA bodies in segments. Launches of breaks and of ATen are no nodes."""
    return sum(_nodes(plan, launch.kernel) for step in method.steps if isinstance(step, Segment)
               for launch in step.launches)


def _nodes(plan: Plan, kernel: int) -> int:
    body = plan.kernels[kernel].body
    if isinstance(body, SequenceBody):
        return sum(_nodes(plan, part.kernel) for part in body.parts)
    return len(body.launches) if isinstance(body, CudaBody) else 0


def _aligned(num_bytes: int, unit: int) -> int:
    return -(-num_bytes // unit) * unit
