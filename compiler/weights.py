"""Weight recipes: how each plan weight comes from checkpoint tensors or from the config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.rotary import rotary_table
from dsv41c.compiler.model.scope import TensorTree
from dsv41c.compiler.options import CompileOptions

TORCH_DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn,
                "F8_E8M0": torch.float8_e8m0fnu, "I8": torch.int8, "U8": torch.int8}


@dataclass(frozen=True)
class Constant:
    """A tensor that follows from the config. Its shape is known without making it: a table may be large."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    make: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Recipe:
    """`sources` are checkpoint names: one is copied, experts are stacked along a new first dim; none: `constant`."""

    sources: tuple[str, ...] = ()
    constant: Constant | None = None

    @property
    def is_stack(self) -> bool:
        return bool(self.sources) and ".experts." in self.sources[0]


def weight_recipes(view: CheckpointView, options: CompileOptions) -> dict[str, Recipe]:
    """Plan weight name -> recipe, experts of a layer stacked; `mtp.*` only with drafts."""
    recipes: dict[str, Recipe] = {}
    stacks: dict[str, dict[int, str]] = {}
    for name in view.tensors:
        if name.startswith("mtp.") and not options.draft_len:
            continue
        if ".experts." in name:
            before, after = name.split(".experts.")
            expert, rest = after.split(".", 1)
            stacks.setdefault(f"{before}.experts.{rest}", {})[int(expert)] = name
        else:
            recipes[name] = Recipe((name,))
    for name, members in stacks.items():
        recipes[name] = Recipe(tuple(members[e] for e in range(len(members))))
    return recipes | {f"constants.{n}": Recipe(constant=c) for n, c in _constants(view, options).items()}


def _constants(view: CheckpointView, options: CompileOptions) -> Mapping[str, Constant]:
    config = view.config
    positions = (options.max_model_len or 0) + config.dspark_block_size
    layers, heads = len(config.engram_layer_ids), config.engram_n_heads
    grams = config.engram_max_ngram_size
    table = (positions, config.qk_rope_head_dim // 2, 2)
    return {
        "rotary_plain": Constant(torch.float32, table, lambda: rotary_table(config, False, positions)),
        "rotary_compressed": Constant(torch.float32, table, lambda: rotary_table(config, True, positions)),
        "engram_token_map": Constant(torch.int32, (config.vocab_size,),
                                     lambda: torch.from_numpy(view.token_map().astype(np.int32))),
        "engram_multipliers": Constant(torch.int64, (layers, grams), lambda: _int64(config.engram_multipliers())),
        "engram_moduli": Constant(torch.int64, (layers, grams - 1, heads), lambda: _int64(config.engram_primes())),
        "engram_offsets": Constant(torch.int64, (layers, (grams - 1) * heads), lambda: _engram_offsets(config)),
    }


def _int64(values: object) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.int64))


def _engram_offsets(config: ModelConfig) -> torch.Tensor:
    """First table row of every (n, head) part: running sums of the moduli, int64 `[layers, (n-1)*heads]`."""
    moduli = np.array(config.engram_primes(), dtype=np.int64).reshape(len(config.engram_layer_ids), -1)
    return torch.from_numpy(np.cumsum(moduli, axis=1) - moduli)


def load_weight(view: CheckpointView, recipe: Recipe) -> torch.Tensor:
    if recipe.constant is not None:
        return recipe.constant.make()
    parts = [view.read_torch(name) for name in recipe.sources]
    if not recipe.is_stack:
        return parts[0]
    raw = torch.stack([p.view(torch.uint8) for p in parts])
    return raw.view(parts[0].dtype)


def load_weights(view: CheckpointView, recipes: Mapping[str, Recipe]) -> dict[str, torch.Tensor]:
    return {name: load_weight(view, recipe) for name, recipe in recipes.items()}


class WeightsOnDemand(TensorTree):
    """Weights of a model that are made when an op asks for them: one that lies together stays where the checkpoint is
    mapped, and a stack of experts lives as long as its op. Constants are held."""

    def __init__(self, view: CheckpointView, recipes: Mapping[str, Recipe]) -> None:
        super().__init__(load_weights(view, {name: recipe for name, recipe in recipes.items() if recipe.constant}))
        self._view, self._recipes = view, recipes

    def get_buffer(self, target: str) -> torch.Tensor:
        """The tensor under its plan name."""
        recipe = self._recipes[target]
        return super().get_buffer(target) if recipe.constant else load_weight(self._view, recipe)


def weight_shapes(view: CheckpointView, recipes: Mapping[str, Recipe]) -> dict[str, torch.Tensor]:
    """The same weights as meta tensors: shapes and dtypes from headers, no bytes read."""
    return {name: _meta(view, recipe) for name, recipe in recipes.items()}


def _meta(view: CheckpointView, recipe: Recipe) -> torch.Tensor:
    if recipe.constant is not None:
        return torch.empty(recipe.constant.sizes, dtype=recipe.constant.dtype, device="meta")
    header = view.tensors[recipe.sources[0]]
    stacked = (len(recipe.sources),) if recipe.is_stack else ()
    return torch.empty(*stacked, *header.shape, dtype=TORCH_DTYPES[header.dtype], device="meta")
