"""compress_store: each cache that a KV source layer fills is filled by one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class CompressStore(Fusion):
    """One call for the compressed entries and one for the index keys of a KV source layer."""

    name = "compress_store"
    commutes = True
    # The index key comes first: without casts, that of ratio 1 looks like an entry whose latent nothing reads.
    ops = ("index_key_store", "compress_pairs_store", "compress_store")
    anchor = "entry_store"
