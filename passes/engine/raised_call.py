"""Puts the call of a declared op where ATen calls spell it, through views where shapes differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from dsv41c.passes.engine.aten_calls import AtenCalls
from dsv41c.passes.engine.aten_values import same_shape
from dsv41c.passes.engine.guards import Site, call_arguments, value_of
from dsv41c.passes.engine.insertion import insert_call
from dsv41c.passes.engine.search import call_name
from dsv41c.passes.engine.spelling import follows_rows


def view_behind(source: fx.Node, sizes: Sequence[Any]) -> fx.Node:
    """The value in that shape, by a view right behind it where it has another one."""
    if same_shape(source.meta["val"].shape, sizes):
        return source
    with source.graph.inserting_after(source):
        return AtenCalls(source.graph, follows_rows).viewed(source, sizes)


def _put(old: fx.Node, new: fx.Node) -> None:
    """`new` for every reader of `old`, through a view where the shapes differ."""
    if same_shape(old.meta["val"].shape, new.meta["val"].shape):
        old.replace_all_uses_with(new)
        return
    calls = AtenCalls(new.graph, follows_rows)
    with new.graph.inserting_before(new.next):
        view = calls.viewed(new, old.meta["val"].shape)
        for user in list(old.users):
            if call_name(user) == "view":
                user.replace_all_uses_with(calls.viewed(new, user.meta["val"].shape))
                user.graph.erase_node(user)
        old.replace_all_uses_with(view, delete_user_cb=lambda user: user is not view)
    if not view.users:
        view.graph.erase_node(view)


def put_call(graph: fx.Graph, site: Site) -> tuple[fx.Node, tuple[str, ...]]:
    """Put the op's call into the graph; it and the names of the calls that went. Calls that others read stay: they are
    pure."""
    call, replaced = insert_call(graph, site, site.spec.fake(*map(value_of, call_arguments(site))))
    for old, new in replaced:
        _put(old, new)
    taken = []
    for node in sorted(site.taken, key=site.position.__getitem__, reverse=True):
        if not node.users:
            taken.append(node.name)
            graph.erase_node(node)
    return call, tuple(reversed(taken))
