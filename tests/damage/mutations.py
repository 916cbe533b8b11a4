"""Changes of a plan that keep its form: each is drawn from a seed and says what it did."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Mutation = Callable[[Any, random.Random], str]


def launches(method: Any) -> list[Any]:
    return [launch for step in method["steps"] for launch in next(iter(step.values()))["launches"]]


def some_launch(plan: Any, rng: random.Random) -> tuple[Any, Any]:
    method = rng.choice(plan["methods"])
    return method, rng.choice(launches(method))


def some_value(plan: Any, rng: random.Random, *kinds: str) -> tuple[Any, Any]:
    method = rng.choice(plan["methods"])
    return method, rng.choice([v for v in method["values"] if not kinds or next(iter(v["storage"])) in kinds])


def other_kernel(plan: Any, rng: random.Random) -> str:
    _, launch = some_launch(plan, rng)
    op = plan["kernels"][launch["kernel"]]["op"]
    launch["kernel"] = rng.choice([i for i, k in enumerate(plan["kernels"]) if k["op"] != op])
    return f"{launch['name']} runs kernel {launch['kernel']}"


def other_shape_of_kernel(plan: Any, rng: random.Random) -> str:
    """The same op for other sizes or attributes."""
    ops: dict[str, list[int]] = {}
    for index, kernel in enumerate(plan["kernels"]):
        ops.setdefault(kernel["op"], []).append(index)
    method = rng.choice([m for m in plan["methods"] if m["name"] != "head"])
    launch = rng.choice([x for x in launches(method) if len(ops[plan["kernels"][x["kernel"]]["op"]]) > 1])
    launch["kernel"] = rng.choice([i for i in ops[plan["kernels"][launch["kernel"]]["op"]] if i != launch["kernel"]])
    return f"{launch['name']} runs kernel {launch['kernel']}"


def swapped_launches(plan: Any, rng: random.Random) -> str:
    method = rng.choice(plan["methods"])
    (step,) = method["steps"]
    order = next(iter(step.values()))["launches"]
    at = rng.randrange(len(order) - 1)
    order[at], order[at + 1] = order[at + 1], order[at]
    return f"{order[at]['name']} before {order[at + 1]['name']}"


def lost_launch(plan: Any, rng: random.Random) -> str:
    method = rng.choice(plan["methods"])
    (step,) = method["steps"]
    lost = next(iter(step.values()))["launches"]
    return f"without {lost.pop(rng.randrange(len(lost)))['name']}"


def other_argument(plan: Any, rng: random.Random) -> str:
    method, launch = some_launch(plan, rng)
    at = rng.randrange(len(launch["tensors"]))
    ((role, old),) = launch["tensors"][at].items()
    launch["tensors"][at] = {role: rng.choice([i for i in range(len(method["values"])) if i != old])}
    return f"{launch['name']} argument {at}: {launch['tensors'][at]}"


def other_role(plan: Any, rng: random.Random) -> str:
    _, launch = some_launch(plan, rng)
    at = rng.randrange(len(launch["tensors"]))
    ((role, value),) = launch["tensors"][at].items()
    launch["tensors"][at] = {rng.choice([r for r in ("in", "out", "inout") if r != role]): value}
    return f"{launch['name']} argument {at}: {launch['tensors'][at]}"


def lost_argument(plan: Any, rng: random.Random) -> str:
    _, launch = some_launch(plan, rng)
    return f"{launch['name']} without {launch['tensors'].pop(rng.randrange(len(launch['tensors'])))}"


def lost_scratch(plan: Any, rng: random.Random) -> str:
    method = rng.choice(plan["methods"])
    launch = rng.choice([x for x in launches(method) if x["scratch"] is not None])
    launch["scratch"] = None
    return f"{launch['name']} without scratch"


def other_dtype(plan: Any, rng: random.Random) -> str:
    _, value = some_value(plan, rng)
    value["dtype"] = rng.choice([d for d in ("float32", "bfloat16", "int8", "int64") if d != value["dtype"]])
    return f"{value['name']} of {value['dtype']}"


def other_size(plan: Any, rng: random.Random) -> str:
    _, value = some_value(plan, rng)
    at = rng.randrange(len(value["sizes"]))
    value["sizes"][at] = ["+", value["sizes"][at], rng.choice([1, 7, 64, 2**40])]
    return f"{value['name']} size {at} = {value['sizes'][at]}"


def other_stride(plan: Any, rng: random.Random) -> str:
    _, value = some_value(plan, rng)
    at = rng.randrange(len(value["strides"]))
    value["strides"][at] = ["*", value["strides"][at], rng.choice([0, 2, 3])]
    return f"{value['name']} stride {at} = {value['strides'][at]}"


def moved_value(plan: Any, rng: random.Random) -> str:
    method, value = some_value(plan, rng, "arena")
    value["storage"]["arena"] = rng.choice([-64, 1, method["arena_bytes"], 2**50, 64 * rng.randrange(1, 9)])
    return f"{value['name']} at {value['storage']['arena']}"


def other_table_entry(plan: Any, rng: random.Random) -> str:
    method, value = some_value(plan, rng, "weight", "state")
    ((kind, index),) = value["storage"].items()
    size = len(plan["weights" if kind == "weight" else "state"])
    value["storage"][kind] = rng.choice([-1, size, rng.randrange(size), rng.randrange(size)])
    return f"{method['name']}: {value['name']} is {kind} {value['storage'][kind]}, was {index}"


def other_region(plan: Any, rng: random.Random) -> str:
    key = rng.choice(list(plan["memory"]))
    plan["memory"][key] = rng.choice([0, 64, plan["memory"][key] - 64, plan["memory"][key] + 1, 2**60])
    return f"{key} = {plan['memory'][key]}"


def other_state(plan: Any, rng: random.Random) -> str:
    state = rng.choice(plan["state"])
    kind = rng.choice(["offset", "sizes", "dtype"])
    if kind == "offset":
        state["offset"] = rng.choice([0, state["offset"] + 64, state["offset"] + 4, 2**40])
    elif kind == "sizes":
        state["sizes"][rng.randrange(len(state["sizes"]))] *= rng.choice([2, 1000])
    else:
        state["dtype"] = "int8" if state["dtype"] != "int8" else "float32"
    return f"state {state['name']}: {kind} {state[kind]}"


def other_bridge(plan: Any, rng: random.Random) -> str:
    bridge = rng.choice(plan["bridges"])
    if rng.random() < 0.5:
        bridge["offset"] += rng.choice([64, -64, 2**40])
    else:
        bridge["sizes"][0] = rng.choice([1, 23, 25, 2**30])
    return f"bridge {bridge['name']}: {bridge['sizes']} at {bridge['offset']}"


def other_buckets(plan: Any, rng: random.Random) -> str:
    method = rng.choice(plan["methods"])
    method["buckets"] = rng.choice([[0, 1], [2, 1], [1, 1], [1, 10**6], [-1]])
    return f"{method['name']} buckets {method['buckets']}"


def other_ladder(plan: Any, rng: random.Random) -> str:
    method = rng.choice(plan["methods"])
    key, value = rng.choice([("policy", "luck"), ("above", "drop"), ("replay_ns", -1), ("eager_ns", 2**62),
                             ("block_rows", -1), ("block_rows", 2**62)])
    method["ladder"][key] = value
    return f"{method['name']} ladder {key} {value}"


def other_bound(plan: Any, rng: random.Random) -> str:
    symbol = rng.choice(plan["symbols"])
    symbol[rng.choice(["hi", "lo"])] = rng.choice([0, -5, 100, 2**40])
    return f"symbol {symbol}"


def other_flow(plan: Any, rng: random.Random) -> str:
    flow = rng.choice([f for f in plan["flows"] if len(f["methods"]) > 1])
    flow["methods"] = rng.choice([flow["methods"][::-1], flow["methods"][1:], ["nothing"], flow["methods"] * 2, []])
    return f"flow {flow['name']}: {flow['methods']}"


def other_weight(plan: Any, rng: random.Random) -> str:
    weight = rng.choice(plan["weights"])
    kind = rng.choice(["name", "dtype", "sizes"])
    if kind == "name":
        weight["name"] += "x"
    elif kind == "dtype":
        weight["dtype"] = "int8" if weight["dtype"] != "int8" else "uint8"
    else:
        weight["sizes"] = [*weight["sizes"][:-1], weight["sizes"][-1] * 2]
    return f"weight {weight}"


def other_native_body(plan: Any, rng: random.Random) -> str:
    kernel = rng.choice([k for k in plan["kernels"] if k["body"]["kind"] == "native"])
    kernel["body"]["entry"] = rng.choice(["", "nothing", "greedy_token", "row_table"])
    return f"{kernel['op']} by {kernel['body']['entry']!r}"


def other_attribute(plan: Any, rng: random.Random) -> str:
    kernel = rng.choice([k for k in plan["kernels"] if k["body"]["kind"] == "native" and k["attributes"]])
    name = rng.choice(list(kernel["attributes"]))
    old = kernel["attributes"][name]
    kernel["attributes"][name] = rng.choice([-1, 0, 2**31, 2**62, "x", {"f": "nan"}, {"dtype": "int64"}])
    return f"{kernel['op']} {name} = {kernel['attributes'][name]}, was {old}"


def lost_attribute(plan: Any, rng: random.Random) -> str:
    kernel = rng.choice([k for k in plan["kernels"] if k["body"]["kind"] == "native" and k["attributes"]])
    name = rng.choice(list(kernel["attributes"]))
    del kernel["attributes"][name]
    return f"{kernel['op']} without {name}"


def other_scratch(plan: Any, rng: random.Random) -> str:
    kernel = rng.choice([k for k in plan["kernels"] if k["scratch_bytes"] != 0])
    kernel["scratch_bytes"] = rng.choice([0, 1, -8, ["*", "rows", 2**40]])
    return f"{kernel['op']} scratch {kernel['scratch_bytes']}"


def other_call(plan: Any, rng: random.Random) -> str:
    kernel = rng.choice([k for k in plan["kernels"] if k["body"]["kind"] == "composite"])
    call = rng.choice(kernel["body"]["calls"])
    kind = rng.choice(["op", "overload", "args", "locals"])
    if kind == "op":
        call["op"] = rng.choice(["aten::nothing", "aten::matmul", "c10d::x", "", "aten::resize_"])
    elif kind == "overload":
        call["overload"] = "nothing"
    elif kind == "args":
        call["args"].pop(rng.randrange(len(call["args"])))
    else:
        at = rng.randrange(len(call["args"]))
        call["args"][at] = rng.choice([{"t": 999}, {"m": 0}, {"i": 2**40}, {"none": True}, {"s": "x"}, {"t": 0}])
    return f"{kernel['op']} {kind}: {json.dumps(call)[:80]}"


def other_local(plan: Any, rng: random.Random) -> str:
    kernel = rng.choice([k for k in plan["kernels"] if k["body"]["kind"] == "composite"])
    local = rng.choice([x for x in kernel["body"]["locals"] if "sizes" in x])
    at = rng.randrange(max(len(local["sizes"]), 1))
    key = rng.choice(["sizes", "strides"])
    if at < len(local[key]):
        local[key][at] = ["+", local[key][at], rng.choice([1, 64, 2**40])]
    return f"{kernel['op']} local {local['kind']} {key} {local[key]}"


def other_port(plan: Any, rng: random.Random) -> str:
    method = rng.choice(plan["methods"])
    port = rng.choice(method["inputs"])
    if rng.random() < 0.5:
        port["pad"] = rng.choice([[], port["pad"] * 2, [2**40]])
    else:
        port["value"] = rng.choice([-1, 10**6, rng.randrange(len(method["values"]))])
    return f"{method['name']} port {port}"


def other_output(plan: Any, rng: random.Random) -> str:
    method = rng.choice([m for m in plan["methods"] if m["outputs"]])
    port = rng.choice(method["outputs"])
    port["value"] = rng.randrange(len(method["values"]))
    return f"{method['name']} output {port}"


MUTATIONS: tuple[Mutation, ...] = (
    other_kernel, other_shape_of_kernel, swapped_launches, lost_launch, other_argument, other_role, lost_argument,
    lost_scratch, other_dtype, other_size, other_stride, moved_value, other_table_entry, other_region, other_state,
    other_bridge, other_buckets, other_ladder, other_bound, other_flow, other_weight, other_native_body,
    other_attribute, lost_attribute, other_scratch, other_call, other_local, other_port, other_output,
)
