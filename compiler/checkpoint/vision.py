"""The image tower of the published checkpoint: known by name and shape, read by nothing here."""

from __future__ import annotations

from collections.abc import Iterator

from dsv41c.compiler.checkpoint.layout import Entry, TensorSpec

_BLOCKS, _WIDTH, _INNER, _PATCH, _MERGED = 32, 1024, 2816, 3 * 14 * 14, 3 * 3


def vision_tensors(hidden_size: int) -> dict[str, TensorSpec]:
    """Every tensor of tower and aligner; the aligner ends in the text model's width."""
    tensors = dict(_affine("vision.patch_embed.proj", _WIDTH, _PATCH))
    for block in range(_BLOCKS):
        tensors.update(_block(f"vision.blocks.{block}."))
    tensors.update([_norm("vision.norm")])
    tensors.update(_affine("aligner.w1", hidden_size, _WIDTH * _MERGED))
    tensors.update(_affine("aligner.w2", hidden_size, hidden_size))
    return tensors


def _block(prefix: str) -> Iterator[Entry]:
    for name in ("norm1", "norm2"):
        yield _norm(prefix + name)
    yield from _affine(prefix + "attn.wqkv", 3 * _WIDTH, _WIDTH)
    yield from _affine(prefix + "attn.wo", _WIDTH, _WIDTH)
    yield _matrix(prefix + "mlp.w1.weight", 2 * _INNER, _WIDTH)
    yield _matrix(prefix + "mlp.w2.weight", _WIDTH, _INNER)


def _affine(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield _matrix(f"{name}.weight", rows, columns)
    yield f"{name}.bias", TensorSpec("BF16", (rows,), "gate_bias")


def _matrix(name: str, rows: int, columns: int) -> Entry:
    return name, TensorSpec("BF16", (rows, columns), "matrix")


def _norm(name: str) -> Entry:
    return f"{name}.weight", TensorSpec("BF16", (_WIDTH,), "norm")
