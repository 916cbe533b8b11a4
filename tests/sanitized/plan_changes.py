"""Changes of what a native kernel is told: attributes, shapes, row tables, pads, state. Each keeps the plan's form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
INTEGERS = st.sampled_from([-(2**63), -(2**31), -1, 0, 1, 2, 3, 5, 7, 64, 1000, 2**31 - 1, 2**31, 2**40, 2**62,
                            2**63 - 1])
INT32 = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 4, 5, 23, 96, 2**20, 2**31 - 1])
FLOATS = st.sampled_from(["nan", "inf", "-inf", "0x0.0p+0", "0x1.0p-1074", "-0x1.8p+0", "0x1.fffffffffffffp+1023"])
ROW_COLUMNS = 8


def launches(method: Any) -> Iterator[Any]:
    for step in method["steps"]:
        yield from next(iter(step.values()))["launches"]


def native_launch(plan: Any, draw: Draw) -> tuple[Any, Any, Any]:
    """A method, one of its launches of a native kernel, and the kernel."""
    method = draw(st.sampled_from(plan["methods"]))
    kernels = plan["kernels"]
    launch = draw(st.sampled_from([x for x in launches(method) if kernels[x["kernel"]]["body"]["kind"] == "native"]))
    return method, launch, kernels[launch["kernel"]]


def value_of(argument: Any) -> int:
    index: int = next(iter(argument.values()))
    return index


def make_contiguous(sizes: list[Any]) -> list[Any]:
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.insert(0, step)
        if step == 1:
            step = size
        else:
            step = step * size if isinstance(step, int) and isinstance(size, int) else ["*", step, size]
    return strides


def attribute(plan: Any, draw: Draw) -> str:
    kernel = draw(st.sampled_from([k for k in plan["kernels"] if k["body"]["kind"] == "native" and k["attributes"]]))
    name = draw(st.sampled_from(sorted(kernel["attributes"])))
    old = kernel["attributes"][name]
    if isinstance(old, bool):
        new: Any = not old
    elif isinstance(old, int):
        new = draw(st.one_of(INTEGERS, st.sampled_from([old - 1, old + 1, 2 * old])))
    elif isinstance(old, dict) and "f" in old:
        new = {"f": draw(FLOATS)}
    else:
        new = {"dtype": draw(st.sampled_from(["float32", "bfloat16", "int32", "int64"]))}
    kernel["attributes"][name] = new
    return f"{kernel['op']} {name} = {new}, was {old}"


def shape_of_argument(plan: Any, draw: Draw) -> str:
    """Another size of one dimension in every place that shows the same state or bridge, else in this value alone."""
    method, launch, kernel = native_launch(plan, draw)
    value = method["values"][value_of(draw(st.sampled_from([a for a in launch["tensors"] if "none" not in a])))]
    if not value["sizes"]:
        return "nothing"
    at = draw(st.integers(0, len(value["sizes"]) - 1))
    size = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16]))
    ((kind, index),) = value["storage"].items()
    shown = [v for m in plan["methods"] for v in m["values"] if v["storage"] == value["storage"]]
    if kind not in ("state", "bridge"):
        shown = [value]
    elif isinstance(value["sizes"][at], int):
        plan["state" if kind == "state" else "bridges"][index]["sizes"][at] = size
    for one in shown:
        if at < len(one["sizes"]):
            one["sizes"][at] = size
            one["strides"] = make_contiguous(one["sizes"])
    return f"{kernel['op']}: {value['name']} {value['sizes']}"


def other_argument(plan: Any, draw: Draw) -> str:
    """A value of the same dtype and rank."""
    method, launch, kernel = native_launch(plan, draw)
    argument = draw(st.sampled_from([a for a in launch["tensors"] if "none" not in a]))
    ((role, old),) = argument.items()
    form = (method["values"][old]["dtype"], len(method["values"][old]["sizes"]))
    argument[role] = draw(st.sampled_from([i for i, v in enumerate(method["values"])
                                           if (v["dtype"], len(v["sizes"])) == form]))
    return f"{kernel['op']} takes {method['values'][argument[role]]['name']} for {method['values'][old]['name']}"


def state_fill(plan: Any, draw: Draw) -> str:
    state = draw(st.sampled_from([s for s in plan["state"] if s["dtype"] == "int32"]))
    state["fill"] = draw(INT32)
    return f"state {state['name']} is filled with {state['fill']}"


def pad_row(plan: Any, draw: Draw) -> str:
    port = draw(st.sampled_from([p for m in plan["methods"] for p in m["inputs"]]))
    port["pad"][draw(st.integers(0, len(port["pad"]) - 1))] = draw(INT32)
    return f"port {port['name']} pads with {port['pad']}"


def hidden_state(plan: Any, draw: Draw) -> str:
    """Without its name the executor does not know what a state means, and cannot check uploads against it."""
    known = ("slot_position", "slot_token", "page_table")
    state = draw(st.sampled_from([s for s in plan["state"] if s["name"] in known]))
    state["name"] += "x"
    return f"state {state['name']}"


def readers_of_rows(method: Any) -> list[tuple[Any, Any]]:
    """Launches with their argument that is a row table."""
    return [(launch, argument) for launch in launches(method) for argument in launch["tensors"] if "in" in argument
            and method["values"][argument["in"]]["dtype"] == "int32"
            and method["values"][argument["in"]]["sizes"][1:] == [ROW_COLUMNS]]


def forge(plan: Any, method: Any, arguments: list[Any], fill: int) -> None:
    """The arguments, which are row tables, become state that nobody wrote."""
    rows = max(s["hi"] for s in plan["symbols"])
    memory, size = plan["memory"], -(-rows * ROW_COLUMNS * 4 // 64) * 64
    plan["state"].append({"name": f"forged_{method['name']}", "dtype": "int32", "sizes": [rows, ROW_COLUMNS],
                          "offset": memory["state_bytes"], "fill": fill})
    memory["state_bytes"] += size
    memory["total_bytes"] += size
    whole = len(method["values"])
    method["values"].append({"name": "forged", "dtype": "int32", "sizes": [rows, ROW_COLUMNS],
                             "strides": [ROW_COLUMNS, 1], "pads": "none", "storage": {"state": len(plan["state"]) - 1}})
    for argument in arguments:
        table = method["values"][argument["in"]]
        method["values"].append(table | {"name": f"forged {len(method['values'])}", "strides": [ROW_COLUMNS, 1],
                                         "storage": {"view": {"of": whole, "offset": 0}}})
        argument["in"] = len(method["values"]) - 1


def forged_rows(plan: Any, draw: Draw) -> str:
    method = draw(st.sampled_from([m for m in plan["methods"] if readers_of_rows(m)]))
    launch, argument = draw(st.sampled_from(readers_of_rows(method)))
    fill = draw(INT32)
    forge(plan, method, [argument], fill)
    return f"{launch['name']} takes rows of {fill}"


CHANGES = (attribute, attribute, shape_of_argument, other_argument, state_fill, pad_row, hidden_state, forged_rows)
