"""Lowers a method's launches to steps: cuts them, proves the cut, and finds what its breaks leave to later steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.graphs.bridges import BridgeLife, Effects, find_bridges
from dsv41c.graphs.coverage import check_coverage
from dsv41c.graphs.cut import Call, NamedBreak, cut
from dsv41c.runtime.plan import schema


@dataclass(frozen=True)
class LoweredSteps:
    """`bridges`: values that a break makes and a later step reads, with the steps they live through."""

    steps: tuple[schema.Step, ...]
    bridges: Mapping[int, BridgeLife]


def lower_steps(launches: Sequence[schema.Launch], specs: Sequence[OpSpec], breaks: Collection[str],
                owner: Callable[[int], int]) -> LoweredSteps:
    """`specs`: of each launch; `breaks`: ops that break although they could be captured; `owner(value)`: the value
    whose memory it looks into. E0202 for an op of the host."""
    calls = [Call(launch.name, spec.name, spec.capture, spec.name in breaks)
             for launch, spec in zip(launches, specs, strict=True)]
    cut_set = cut(calls)
    check_coverage(calls, cut_set)
    steps = tuple(
        schema.Break(step.op, step.reason, (launches[step.call],)) if isinstance(step, NamedBreak)
        else schema.Segment(tuple(launches[call] for call in step.calls)) for step in cut_set.steps)
    return LoweredSteps(steps, find_bridges(cut_set, [_effects(launch, owner) for launch in launches]))


def _effects(launch: schema.Launch, owner: Callable[[int], int]) -> Effects:
    """Of its tensors; nothing outlives the launch in its scratch."""
    reads = (t.value for t in launch.tensors if isinstance(t, schema.In | schema.InOut))
    makes = (t.value for t in launch.tensors if isinstance(t, schema.Out))
    return Effects(frozenset(map(owner, reads)), frozenset(map(owner, makes)))
