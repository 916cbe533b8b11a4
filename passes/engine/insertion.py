"""Puts the call of an op into a graph, in front of a site, with a node for each result that somebody reads."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from dsv41c.passes.engine.guards import Site, call_arguments

Replaced = list[tuple[fx.Node, fx.Node]]  # the node that carried a result, the node that carries it now


def insert_call(graph: fx.Graph, site: Site, values: Any) -> tuple[fx.Node, Replaced]:
    """The call and what replaces what; readers are not changed. `values`: what the op gives, as its fake gives it."""
    target = getattr(torch.ops.dsv41c, site.spec.name).default
    with graph.inserting_before(site.at):
        call = graph.create_node("call_function", target, tuple(call_arguments(site)), name=site.spec.name)
        call.meta["val"] = values
        if not isinstance(values, tuple | list):
            return call, [(old, call) for old in site.results if old is not None]
        replaced: Replaced = []
        for number, old in enumerate(site.results):
            if old is None:
                continue
            # Named after the call: a number of its own would depend on the passes that ran before.
            member = graph.create_node("call_function", operator.getitem, (call, number),
                                       name=f"{call.name}_result_{number}")
            member.meta["val"] = values[number]
            replaced.append((old, member))
    return call, replaced
