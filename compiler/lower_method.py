"""Lowers one method's graph to a plan method: values with storage, launches, lifetimes and arena offsets."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from dsv41c.compiler.kernel_table import KernelTable
from dsv41c.compiler.lower_steps import lower_steps
from dsv41c.compiler.ops.spec import OpSpec, PadRule
from dsv41c.compiler.program import Method, Origin, argument, op_name
from dsv41c.compiler.tensor_shape import TensorShape, members
from dsv41c.compiler.value_layout import captured_sizes, contiguous, place_in_arena, renamed, static
from dsv41c.graphs.buckets import Chosen
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Expr, evaluate


@dataclass(frozen=True)
class Tables:
    """Plan-wide tables that methods refer to by index; all of them grow while methods are lowered."""

    kernels: KernelTable
    ops: Mapping[str, OpSpec]
    weight: Callable[[str, torch.dtype, tuple[int, ...]], int]
    state: Callable[[str], int]
    bridge: Callable[[str, torch.dtype, tuple[int, ...]], int]
    bridge_shape: Callable[[str], tuple[int, ...]]
    step_bridge: Callable[[schema.Bridge], int]
    io_offset: Callable[[int], int]
    pad_row: Callable[[str], tuple[int, ...]]


@dataclass
class MethodLowering:
    """Working state of one method; `lower()` is the only entry."""

    method: Method
    tables: Tables
    buckets: Chosen
    breaks: Collection[str] = ()
    values: list[schema.Value] = field(default_factory=list)
    launches: list[schema.Launch] = field(default_factory=list)
    inputs: list[schema.Port] = field(default_factory=list)
    _specs: list[OpSpec] = field(default_factory=list)  # of each launch
    _value_of: dict[fx.Node, int | tuple[int, ...]] = field(default_factory=dict)
    _first: dict[int, int] = field(default_factory=dict)
    _last: dict[int, int] = field(default_factory=dict)

    def lower(self) -> schema.Method:
        fixed = self._fixed_storage()
        for node in self.method.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "call_function":
                self._call(node, fixed)
        self._check_results()
        results = _results(self.method)[: len(self.method.outputs)]
        outputs = [schema.Port(name, self._single(node), ())
                   for name, node in zip(self.method.outputs, results, strict=True)]
        steps = self._steps()
        values, arena_bytes = place_in_arena(self.values, self._value_bytes, self._first, self._last)
        m = self.method
        return schema.Method(m.name, m.axis, m.symbol.name, self.buckets.rungs, tuple(self.inputs), tuple(outputs),
                             values, steps, arena_bytes, self.buckets.ladder)

    # --- values ---------------------------------------------------------------------------------------------

    def _fixed_storage(self) -> dict[fx.Node, Callable[[fx.Node], schema.Storage]]:
        """Results go to io, bridge values to their bridge; everything else lives in the arena."""
        results = _results(self.method)
        fixed: dict[fx.Node, Callable[[fx.Node], schema.Storage]] = {}
        for position, node in enumerate(results):
            if position < len(self.method.outputs):
                fixed[node] = self._io_storage
            else:
                name = self.method.bridges_out[position - len(self.method.outputs)]  # a pass may rename the node
                fixed[node] = functools.partial(self._bridge_storage, name)
        return fixed

    def _check_results(self) -> None:
        """A result is the whole output of one launch: a view or a second name of it has no storage of its own."""
        results = _results(self.method)
        for node in results:
            storage = self.values[self._single(node)].storage
            if results.count(node) > 1 or not isinstance(storage, schema.IoStorage | schema.BridgeStorage):
                raise Dsv41cError("DSV41C-E0203", f"result {node.name} of method {self.method.name}",
                                  found="a view, an input or a value that is returned twice",
                                  needed="the output of a launch, once", do="return another value")

    def _io_storage(self, node: fx.Node) -> schema.Storage:
        return schema.IoStorage(self.tables.io_offset(self._bytes_at_bound(node.meta["val"])))

    def _bridge_storage(self, name: str, node: fx.Node) -> schema.Storage:
        sizes = tuple(self._at_bound(s) for s in self._sizes(node.meta["val"]))
        return schema.BridgeStorage(self.tables.bridge(name, node.meta["val"].dtype, sizes))

    def _placeholder(self, node: fx.Node) -> None:
        origin, name, val = node.meta["origin"], node.meta["name"], node.meta["val"]
        sizes = self._sizes(val)
        storage: schema.Storage
        pads = "none"
        if origin is Origin.WEIGHT:
            storage = schema.WeightStorage(self.tables.weight(name, val.dtype, static(sizes)))
        elif origin is Origin.STATE:
            storage = schema.StateStorage(self.tables.state(name))
        elif origin is Origin.BRIDGE:
            sizes = self.tables.bridge_shape(name)
            storage = schema.BridgeStorage(self.tables.bridge(name, val.dtype, static(sizes)))
        else:
            storage, pads = self._io_storage(node), "valid"
        index = self._add(contiguous(name, _dtype(val), sizes, storage, pads))
        self._value_of[node] = index
        if origin is Origin.INPUT:
            self.inputs.append(schema.Port(name, index, self.tables.pad_row(name)))

    def _add(self, value: schema.Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _single(self, node: fx.Node) -> int:
        index = self._value_of[node]
        assert isinstance(index, int)
        return index

    # --- calls ----------------------------------------------------------------------------------------------

    def _call(self, node: fx.Node, fixed: Mapping[fx.Node, Callable[[fx.Node], schema.Storage]]) -> None:
        if node.target is operator.getitem:
            parent, position = node.args
            indices = self._value_of[parent]  # type: ignore[index]
            assert isinstance(indices, tuple) and isinstance(position, int)
            self._value_of[node] = indices[position]
        elif node.target is torch.ops.aten.view.default:
            self._view(node)
        elif op_name(node) is not None:
            self._launch(node, fixed)
        # what is left is sym_size, whose value the view's own shape already carries

    def _view(self, node: fx.Node) -> None:
        index = self._single(node.args[0])  # type: ignore[arg-type]
        base, sizes = self.values[index], self._sizes(node.meta["val"])
        self._value_of[node] = self._add(contiguous(node.name, base.dtype, sizes, schema.ViewStorage(index, 0),
                                                    base.pads))

    def _launch(self, node: fx.Node, fixed: Mapping[fx.Node, Callable[[fx.Node], schema.Storage]]) -> None:
        spec = self.tables.ops[str(op_name(node))]
        declared = spec.parsed().arguments
        actual = [argument(node, d.name) for d in declared]
        shapes = [self._shapes(a) for a in actual]
        kernel = self.tables.kernels.find(spec.name, shapes)
        tensors: list[schema.Argument] = []
        for value, description in zip(actual, declared, strict=True):
            if "Tensor" not in str(description.type):
                continue
            written = description.alias_info is not None and description.alias_info.is_write
            tensors += [self._tensor(member, written) for member in members([value])]
        outputs = self._outputs(node, spec, fixed)
        tensors += [schema.Out(i) for i in outputs]
        scratch = self._scratch(node, kernel)
        self._touch(tensors, scratch)
        self.launches.append(schema.Launch(_launch_name(node), kernel, tuple(tensors), scratch))
        self._specs.append(spec)

    def _tensor(self, value: object, written: bool) -> schema.Argument:
        if not isinstance(value, fx.Node):
            return schema.Absent()
        index = self._single(value)
        return schema.InOut(index) if written else schema.In(index)

    def _steps(self) -> tuple[schema.Step, ...]:
        """The steps; what a break leaves in the arena for a later step moves to a bridge of its own."""
        lowered = lower_steps(self.launches, self._specs, self.breaks, self._owner)
        for index, life in lowered.bridges.items():
            value = self.values[index]
            if isinstance(value.storage, schema.ArenaStorage):  # results have their place
                bridge = schema.Bridge(f"{self.method.name}.{value.name}", value.dtype,
                                       tuple(map(self._at_bound, value.sizes)), 0,
                                       schema.StepsLife(self.method.name, life.first, life.last))
                self.values[index] = replace(value, storage=schema.BridgeStorage(self.tables.step_bridge(bridge)))
        return lowered.steps

    def _owner(self, index: int) -> int:
        while isinstance(storage := self.values[index].storage, schema.ViewStorage):
            index = storage.of
        return index

    def _shapes(self, value: Any) -> Any:
        """What a kernel is found by: an argument with the shapes of its tensors."""
        if isinstance(value, list | tuple):
            return [self._shapes(member) for member in value]
        return self._shape(value) if isinstance(value, fx.Node) else value

    def _shape(self, node: fx.Node) -> TensorShape:
        value = self.values[self._single(node)]
        sizes = tuple(renamed(size, self.method.symbol.name, schema.ROWS) for size in value.sizes)
        return TensorShape(getattr(torch, value.dtype), sizes)

    def _outputs(self, node: fx.Node, spec: OpSpec,
                 fixed: Mapping[fx.Node, Callable[[fx.Node], schema.Storage]]) -> tuple[int, ...]:
        val = node.meta["val"]
        if val is None:
            return ()
        many = isinstance(val, tuple | list)
        pads = "valid" if spec.pads is PadRule.TABLE else "rows"
        indices = []
        for position, result in enumerate(val if many else (val,)):
            owner = _getitem(node, position) if many else node
            storage = fixed[owner](owner) if owner in fixed else schema.ArenaStorage(0)
            sizes = self._sizes(result)
            name = owner.name if owner is not None else f"{node.name}.{position}"
            indices.append(self._add(contiguous(name, _dtype(result), sizes, storage, pads)))
        self._value_of[node] = tuple(indices) if many else indices[0]
        return tuple(indices)

    def _scratch(self, node: fx.Node, kernel: int) -> int | None:
        needed = renamed(self.tables.kernels.kernels[kernel].scratch_bytes, schema.ROWS, self.method.symbol.name)
        if needed == 0:
            return None
        return self._add(contiguous(f"{node.name}.scratch", "uint8", (needed,), schema.ArenaStorage(0), "rows"))

    # --- memory ---------------------------------------------------------------------------------------------

    def _touch(self, tensors: Sequence[schema.Argument], scratch: int | None) -> None:
        launch = len(self.launches)
        touched = [a.value for a in tensors if not isinstance(a, schema.Absent)]
        for owner in map(self._owner, touched if scratch is None else [*touched, scratch]):
            self._first.setdefault(owner, launch)
            self._last[owner] = launch

    def _value_bytes(self, value: schema.Value) -> int:
        count = schema.DTYPES[value.dtype].item_bytes
        for size in value.sizes:
            count *= self._at_bound(size)
        return count

    def _bytes_at_bound(self, val: torch.Tensor) -> int:
        count = val.dtype.itemsize
        for size in self._sizes(val):
            count *= self._at_bound(size)
        return count

    def _at_bound(self, size: Expr) -> int:
        return evaluate(size, {self.method.symbol.name: self.method.symbol.hi})

    def _sizes(self, val: torch.Tensor) -> tuple[Expr, ...]:
        return captured_sizes(val, self.method.symbol.name)


def _results(method: Method) -> tuple[fx.Node, ...]:
    (output,) = (n for n in method.graph.nodes if n.op == "output")
    return tuple(output.args[0])


def _getitem(node: fx.Node, position: int) -> fx.Node | None:
    return next((u for u in node.users if u.target is operator.getitem and u.args[1] == position), None)


def _dtype(val: torch.Tensor) -> str:
    return str(val.dtype).removeprefix("torch.")


def _launch_name(node: fx.Node) -> str:
    """`layers.3.attn.wq_a/linear_17`: the first weight the call reads tells the place in the model."""
    for source in node.all_input_nodes:
        if source.meta.get("origin") is Origin.WEIGHT:
            return f"{source.meta['name'].rsplit('.', 1)[0]}/{node.name}"
    return node.name
