"""Access to weights by their checkpoint names: a module tree that export sees and scoped views into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

QuantizedWeight = tuple[torch.Tensor, torch.Tensor]


class TensorTree(nn.Module):
    """Holds tensors as buffers under dotted names, so that exported names equal checkpoint names."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self._attach(name.split("."), tensor)

    def _attach(self, path: list[str], tensor: torch.Tensor) -> None:
        module: nn.Module = self
        for part in path[:-1]:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module.get_submodule(part)
        module.register_buffer(path[-1], tensor)


@dataclass(frozen=True)
class Scope:
    """Weights below one prefix, e.g. `layers.3.attn`."""

    tree: TensorTree
    prefix: str = ""

    def __call__(self, name: str) -> torch.Tensor:
        return self.tree.get_buffer(self._full(name))

    def quantized(self, name: str) -> QuantizedWeight:
        """The bytes and the block scales of a quantised weight."""
        return self(f"{name}.weight"), self(f"{name}.scale")

    def below(self, name: str) -> Scope:
        return Scope(self.tree, self._full(name))

    def _full(self, name: str) -> str:
        return f"{self.prefix}.{name}" if self.prefix else name
