"""raise_embed_expand: rows of the embedding repeated for every stream, and the constant that selects the first stream.

The op gives zeros for ids outside of the table, where the spelling has no value.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from dsv41c.compiler.program import op_name
from dsv41c.passes.engine.raising import Raising
from dsv41c.passes.engine.spelling import Spelling
from dsv41c.passes.raise_ops.examples import FLOATS, rows, weight

_TOKEN = 5
_STREAMS, _PROBE_ROWS = 7, 3


def _examples() -> Iterator[tuple[Any, ...]]:
    for dtype in FLOATS:
        for weight_dtype in FLOATS:
            yield rows(8, dtype=torch.int32), weight(53, 37, dtype=weight_dtype), _STREAMS, dtype


def _expanded(table_rows: Tensor, w: Tensor, streams: int, dtype: torch.dtype) -> Tensor:
    return w[table_rows[:, _TOKEN]].to(dtype).unsqueeze(1).expand(-1, streams, -1)


@dataclass(frozen=True)
class RaiseEmbedExpand(Raising):
    """Embedding and expansion to streams, with the first site's alpha."""

    name = "raise_embed_expand"
    op = "embed_expand"
    shapes = {"rows": "T C", "weight": "V H"}
    spellings = (Spelling(_expanded, "aten.index.Tensor", _examples),)

    def finish(self, graph: fx.Graph, call: fx.Node) -> None:
        """Constants that select the first stream of each row, read beside the expansion, are the op's other result."""
        streams = next(u for u in call.users if u.target is operator.getitem and u.args[1] == 0)
        count = streams.meta["val"].shape[1]
        for reader in list(streams.users):
            for value in reader.all_input_nodes:
                if op_name(reader) == "mhc_collapse" and _is_first_stream(value, count):
                    with graph.inserting_after(call):
                        alpha = graph.call_function(operator.getitem, (call, 1))
                    alpha.meta["val"] = call.meta["val"][1]
                    reader.replace_input_with(value, alpha)
        for node in reversed(list(graph.nodes)):
            if node.op == "call_function" and not node.users and not node.target._schema.is_mutable \
                    if isinstance(node.target, torch._ops.OpOverload) else False:
                graph.erase_node(node)


def _is_first_stream(value: fx.Node, streams: int) -> bool:
    """Whether a value that depends on no tensor is float32 `[rows, streams]`, 1 in the first column and 0 else."""
    found = _evaluated(value, {})
    wanted = torch.zeros(_PROBE_ROWS, streams)
    wanted[:, 0] = 1.0
    return found is not None and found.dtype == wanted.dtype and torch.equal(found, wanted)


def _evaluated(node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    """The value at a few rows; None when it depends on a tensor."""
    if node.target is torch.ops.aten.sym_size.int:
        return _PROBE_ROWS
    if node.op != "call_function" or op_name(node) is not None or node.target is operator.getitem:
        return None
    for source in node.all_input_nodes:
        if source not in known:
            known[source] = _evaluated(source, known)
        if known[source] is None:
            return None
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
    return node.target(*args, **{**kwargs, **({"device": "cpu"} if "device" in kwargs else {})})  # type: ignore
