"""Where each method's graph is cut: its segments, its breaks, and the bridges that carry what the breaks write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsv41c.runtime.plan.explain import bridge_map
from dsv41c.runtime.plan.schema import Break, Method, Plan, StepsLife


def break_facts(plan: Plan) -> dict[str, Any]:
    """Plain data for JSON, in the plan's order; `step` counts the method's steps from 0, `bytes` are of the bound."""
    return {"methods": [_method(plan, method) for method in plan.methods],
            "memory": {"bridge_bytes": plan.memory.bridge_bytes, "bridges": bridge_map(plan)}}


def _method(plan: Plan, method: Method) -> dict[str, Any]:
    segments, breaks = [], []
    for number, step in enumerate(method.steps):
        if isinstance(step, Break):
            breaks.append({"step": number, "op": step.op, "reason": step.reason,
                           "launches": [launch.name for launch in step.launches],
                           "bridges": _bridges_of(plan, method.name, number)})
        else:
            segments.append({"step": number, "launches": len(step.launches)})
    return {"name": method.name, "segments": segments, "breaks": breaks}


def _bridges_of(plan: Plan, method: str, step: int) -> list[dict[str, Any]]:
    """Those that the break at this step writes for later steps."""
    lives = {bridge.name: bridge.life for bridge in plan.bridges}
    found = []
    for entry in bridge_map(plan):
        life = lives[entry["name"]]
        if isinstance(life, StepsLife) and (life.method, life.first) == (method, step):
            found.append({"name": entry["name"], "offset": entry["offset"], "bytes": entry["bytes"],
                          "first_step": life.first, "last_step": life.last})
    return found


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The same as text."""
    for method in facts["methods"]:
        launches = sum(s["launches"] for s in method["segments"]) + sum(len(b["launches"]) for b in method["breaks"])
        yield (f"method    {method['name']}: {len(method['segments'])} segments, {len(method['breaks'])} breaks, "
               f"{launches} launches")
        for step in sorted([*method["segments"], *method["breaks"]], key=lambda each: each["step"]):
            if "op" not in step:
                yield f"  {step['step']:5}  segment of {step['launches']} launches"
                continue
            yield f"  {step['step']:5}  break {step['op']} ({step['reason']}): {', '.join(step['launches'])}"
            for bridge in step["bridges"]:
                yield (f"         bridge {bridge['name']}: {bridge['bytes']:,} bytes at {bridge['offset']}, steps "
                       f"{bridge['first_step']} to {bridge['last_step']}")
    yield f"bridges   {facts['memory']['bridge_bytes']:,} bytes, {len(facts['memory']['bridges'])} entries"
