"""Weight recipes: how each plan weight comes from checkpoint tensors or from the config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.rotary import rotary_table
from dsv41c.compiler.options import CompileOptions

TORCH_DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn,
                "F8_E8M0": torch.float8_e8m0fnu, "I8": torch.int8, "U8": torch.int8}


@dataclass(frozen=True)
class Recipe:
    """`sources` are checkpoint names: one is copied, several are stacked along a new first dim; none: `make`."""

    sources: tuple[str, ...] = ()
    make: Callable[[], torch.Tensor] | None = None


def weight_recipes(view: CheckpointView, options: CompileOptions, draft: bool = False) -> dict[str, Recipe]:
    """Plan weight name -> recipe, experts of a layer stacked; `mtp.*` only when the draft is wanted."""
    recipes: dict[str, Recipe] = {}
    stacks: dict[str, dict[int, str]] = {}
    for name in view.tensors:
        if name.startswith("mtp.") and not draft:
            continue
        if ".experts." in name:
            before, after = name.split(".experts.")
            expert, rest = after.split(".", 1)
            stacks.setdefault(f"{before}.experts.{rest}", {})[int(expert)] = name
        else:
            recipes[name] = Recipe((name,))
    for name, members in stacks.items():
        recipes[name] = Recipe(tuple(members[e] for e in range(len(members))))
    return recipes | {f"constants.{n}": Recipe(make=m) for n, m in _constants(view, options).items()}


def _constants(view: CheckpointView, options: CompileOptions) -> Mapping[str, Callable[[], torch.Tensor]]:
    config = view.config
    positions = (options.max_model_len or 0) + config.dspark_block_size
    return {
        "rotary_plain": lambda: rotary_table(config, False, positions),
        "rotary_compressed": lambda: rotary_table(config, True, positions),
        "engram_token_map": lambda: torch.from_numpy(view.token_map().astype(np.int32)),
        "engram_multipliers": lambda: torch.from_numpy(np.array(config.engram_multipliers(), dtype=np.int64)),
        "engram_moduli": lambda: torch.from_numpy(np.array(config.engram_primes(), dtype=np.int64)),
        "engram_offsets": lambda: _engram_offsets(config),
    }


def _engram_offsets(config: ModelConfig) -> torch.Tensor:
    """First table row of every (n, head) part: running sums of the moduli, int64 `[layers, (n-1)*heads]`."""
    moduli = np.array(config.engram_primes(), dtype=np.int64).reshape(len(config.engram_layer_ids), -1)
    return torch.from_numpy(np.cumsum(moduli, axis=1) - moduli)


def load_weight(view: CheckpointView, recipe: Recipe) -> torch.Tensor:
    if recipe.make is not None:
        return recipe.make()
    parts = [view.read_torch(name) for name in recipe.sources]
    if len(parts) == 1 and not _is_expert(recipe.sources[0]):
        return parts[0]
    raw = torch.stack([p.view(torch.uint8) for p in parts])
    return raw.view(parts[0].dtype)


def _is_expert(name: str) -> bool:
    return ".experts." in name


def load_weights(view: CheckpointView, recipes: Mapping[str, Recipe]) -> dict[str, torch.Tensor]:
    return {name: load_weight(view, recipe) for name, recipe in recipes.items()}


def weight_shapes(view: CheckpointView, recipes: Mapping[str, Recipe]) -> dict[str, torch.Tensor]:
    """The same weights as meta tensors: shapes and dtypes from headers, no bytes read."""
    shapes = {}
    for name, recipe in recipes.items():
        if recipe.make is not None:
            shapes[name] = recipe.make().to("meta")
            continue
        header = view.tensors[recipe.sources[0]]
        stacked = (len(recipe.sources),) if _is_expert(recipe.sources[0]) else ()
        shapes[name] = torch.empty(*stacked, *header.shape, dtype=TORCH_DTYPES[header.dtype], device="meta")
    return shapes
