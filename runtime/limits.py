"""Limits: the bounds an artifact puts on requests, as the generation loop and the prompt checks need them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsv41c.runtime.manifest import Manifest, read_json
from dsv41c.runtime.plan.errors import Dsv41cError


@dataclass(frozen=True)
class Limits:
    """Lengths in tokens. `eos_ids` end a request unless it ignores them. Of a prompt, the decoder keeps the last
    `suffix_keep_tokens` rows and sees no window before them (0: all); `runs_all_rows` if it runs on the others too.
    `full_decoder_rows` rows of a step beyond those are planned for requests that keep all of their prompts. A step
    verifies up to `draft_len` drafts of a request. A row's window shows `window` rows, and it looks back at `history`
    tokens before its own."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    vocab_size: int
    eos_ids: frozenset[int]
    suffix_keep_tokens: int = 0
    runs_all_rows: bool = True
    full_decoder_rows: int = 0
    draft_len: int = 0
    window: int = 1
    history: int = 0

    @classmethod
    def read(cls, artifact: Path) -> Limits:
        manifest = Manifest.read(artifact)
        names = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size")
        return cls(*(manifest.integer_option(name) for name in names), _model_size(artifact, "vocab_size"),
                   _eos_ids(artifact), manifest.integer_option("suffix_keep_tokens", least=0),
                   manifest.options.get("suffix_mode") != "compact",
                   manifest.integer_option("full_decoder_rows", least=0), manifest.integer_option("draft_len", least=0),
                   _model_size(artifact, "sliding_window"), _model_size(artifact, "engram_max_ngram_size") - 1)

    def first_replayed(self, prefix_length: int) -> int:
        """The first position that runs again behind a prefix hit; all windows of the request begin there."""
        return max(prefix_length - self.window, 0)

    def first_kept(self, prompt_length: int, prefix_length: int = 0) -> int:
        """The first position whose row the decoder keeps; anchored at the prompt's end, whatever its chunks."""
        replayed = self.first_replayed(prefix_length)
        return max(prompt_length - self.suffix_keep_tokens, replayed) if self.suffix_keep_tokens else replayed

    @property
    def pages_per_slot(self) -> int:
        return -(-self.max_model_len // self.block_size)


def _model_size(artifact: Path, name: str) -> int:
    config = read_json(artifact / "config.json")
    text = config.get("text_config")
    size = (text if isinstance(text, dict) else config).get(name)
    if type(size) is not int:
        raise _malformed(artifact, "config.json", f"{name} = {size!r}")
    return size


def _eos_ids(artifact: Path) -> frozenset[int]:
    """generation_config.json decides where it exists, as in Hugging Face libraries; it may list several ids."""
    name = "generation_config.json" if (artifact / "generation_config.json").is_file() else "config.json"
    value = read_json(artifact / name).get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(i) is int for i in ids):
        raise _malformed(artifact, name, f"eos_token_id = {value!r}")
    return frozenset(ids)


def _malformed(artifact: Path, name: str, found: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0703", f"bad artifact file {artifact / name}", found=found, needed="integers",
                       do="compile the artifact again")
