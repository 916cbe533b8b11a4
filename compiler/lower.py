"""Lowers a program to a Plan: plan-wide tables, regions and flows around the lowered methods."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import torch

from dsv41c.compiler.cuda_bodies import CudaBodies
from dsv41c.compiler.kernel_table import KernelTable
from dsv41c.compiler.lower_method import MethodLowering, Tables
from dsv41c.compiler.model.state import StateSpec
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.program import FLOWS, Program
from dsv41c.graphs.buckets import Buckets, MethodBound, choose_buckets
from dsv41c.graphs.memory import Lifetime, aligned, check_layout, plan_layout
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.verify_tables import FEATURE_OF_BODY


@dataclass
class _Regions:
    """Indices and offsets of everything that lives outside the arena."""

    state_specs: tuple[StateSpec, ...]
    num_slots: int
    weights: dict[str, tuple[int, schema.Weight]] = field(default_factory=dict)
    bridges: dict[str, tuple[int, schema.Bridge]] = field(default_factory=dict)
    bridge_bytes: int = 0
    io_bytes: int = 0

    def weight(self, name: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> int:
        index, kept = self.weights.setdefault(name, (len(self.weights), schema.Weight(name, _dtype(dtype), sizes)))
        assert (kept.dtype, kept.sizes) == (_dtype(dtype), sizes), f"weight {name} has two shapes"
        return index

    def state(self, name: str) -> int:
        return [s.name for s in self.state_specs].index(name)

    def bridge(self, name: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> int:
        if name not in self.bridges:
            bridge = schema.Bridge(name, _dtype(dtype), sizes, self.bridge_bytes)
            self.bridges[name] = len(self.bridges), bridge
            self.bridge_bytes += aligned(_num_bytes(dtype, sizes))
        index, kept = self.bridges[name]
        assert (kept.dtype, kept.sizes) == (_dtype(dtype), sizes), f"bridge {name} has two shapes"
        return index

    def step_bridge(self, bridge: schema.Bridge) -> int:
        """Placed behind those of flows, once all of them are known."""
        self.bridges[bridge.name] = len(self.bridges), bridge
        return len(self.bridges) - 1

    def bridge_shape(self, name: str) -> tuple[int, ...]:
        return self.bridges[name][1].sizes

    def io_offset(self, num_bytes: int) -> int:
        offset, self.io_bytes = self.io_bytes, self.io_bytes + aligned(num_bytes)
        return offset

    def pad_row(self, name: str) -> tuple[int, ...]:
        """Pads of the upload name the trash slot at position 0 (START | PAD), pads of row lists are -1."""
        return (self.num_slots, 0, 0, 5, -1) if name == "upload" else (-1,)


@dataclass(frozen=True)
class Choices:
    """What a plan depends on beside its program; the defaults are those of `dsv41c compile`. `breaks`: ops that break
    the graph although they could be captured."""

    cuda: CudaBodies | None = None
    flows: tuple[schema.Flow, ...] = FLOWS
    breaks: Collection[str] = ()
    buckets: Buckets = Buckets()


def lower(program: Program, state_specs: tuple[StateSpec, ...], num_slots: int, provenance: schema.Provenance,
          choices: Choices = Choices()) -> schema.Plan:
    """The plan of every method. Bridges of a flow must be written by an earlier method of the program."""
    cuda = choices.cuda
    regions, kernels = _Regions(state_specs, num_slots), KernelTable(OPS, cuda)
    tables = Tables(kernels, OPS, regions.weight, regions.state, regions.bridge, regions.bridge_shape,
                    regions.step_bridge, regions.io_offset, regions.pad_row)
    chosen = choose_buckets(choices.buckets,
                            {m.name: MethodBound(m.axis, m.symbol.hi, bool(m.outputs))
                             for m in program.methods.values()})
    methods = tuple(MethodLowering(m, tables, chosen[m.name], choices.breaks).lower() for m in program.methods.values())
    states, state_bytes = _place_state(state_specs)
    arena = max(m.arena_bytes for m in methods)
    bridges, bridge_bytes = _place_bridges([b for _, b in regions.bridges.values()], regions.bridge_bytes)
    memory = schema.Memory(state_bytes, bridge_bytes, regions.io_bytes, arena,
                           state_bytes + bridge_bytes + regions.io_bytes + arena)
    symbols = tuple(schema.Symbol(m.symbol.name, m.symbol.lo, m.symbol.hi) for m in program.methods.values())
    kinds = {FEATURE_OF_BODY[type(k.body)] for k in kernels.kernels}
    return schema.Plan(
        version=schema.PLAN_VERSION, required_features=tuple(sorted(kinds)), target=cuda.target if cuda else "cpu",
        provenance=provenance, symbols=symbols, memory=memory,
        weights=tuple(w for _, w in regions.weights.values()), state=states,
        bridges=bridges,
        kernels=tuple(kernels.kernels), methods=methods, flows=choices.flows,
        checks=())


def _place_state(specs: tuple[StateSpec, ...]) -> tuple[tuple[schema.State, ...], int]:
    placed, offset = [], 0
    for spec in specs:
        placed.append(schema.State(spec.name, _dtype(spec.dtype), spec.sizes, offset, spec.fill))
        offset += aligned(_num_bytes(spec.dtype, spec.sizes))
    return tuple(placed), offset


def _place_bridges(bridges: Sequence[schema.Bridge], flow_bytes: int) -> tuple[tuple[schema.Bridge, ...], int]:
    """Those of breaks behind those of flows, by the planner of the arena: methods never run at the same time, so that
    each method's steps are moments of their own."""
    begins: dict[str, int] = {}  # moment of each method's first step
    lives: list[Lifetime] = []
    for bridge in bridges:
        if isinstance(life := bridge.life, schema.StepsLife):
            begin = begins.setdefault(life.method, max((x.last + 1 for x in lives), default=0))
            size = _num_bytes(getattr(torch, bridge.dtype), bridge.sizes)
            lives.append(Lifetime(bridge.name, size, begin + life.first, begin + life.last))
    layout = plan_layout(lives)
    check_layout(lives, layout)
    placed = (replace(b, offset=flow_bytes + layout.offsets[b.name]) if b.name in layout.offsets else b
              for b in bridges)
    return tuple(placed), flow_bytes + layout.total_bytes


def _num_bytes(dtype: torch.dtype, sizes: tuple[int, ...]) -> int:
    count = dtype.itemsize
    for size in sizes:
        count *= size
    return count


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
