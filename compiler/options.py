"""CompileOptions: everything a user may choose at compile time, checked in one place and stored in the artifact."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dsv41c.compiler.bucket_options import (
    DEFAULT_MAX_EAGER_ROWS,
    DEFAULT_MAX_GRAPHS,
    DEFAULT_STEP,
    STEP_POLICIES,
    check_bucket_options,
)
from dsv41c.compiler.config import ModelConfig
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.format import TARGETS

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
QUANTIZERS = ("off", "fake")
KV_CACHE_DTYPES = ("auto", "packed")
BATCH_INVARIANT = ("on", "off")
WEIGHTS = ("packed", "map")
SUFFIX_MODES = ("off", "mask", "compact")
KEEP_BEYOND_WINDOW = 12  # rows that the decoder keeps by default beside a window, where rollback needs no more
# Options of many names, written with blanks between them.
_LISTS = ("fallback", "without", "breaks", "buckets", "histogram")
DEFAULT_MAX_MODEL_LEN = 4096


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """Names are vLLM's where it has the idea. Lengths count tokens, rows count tokens of one step."""

    max_model_len: int | None = None  # None: the model's limit, at most DEFAULT_MAX_MODEL_LEN
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    block_size: int = 128  # tokens of one page of the compressed KV and index keys
    dtype: str = "bfloat16"
    quantizers: str = "fake"
    kv_cache_dtype: str = "auto"  # auto: that of the activations; packed: FP8 windows, FP4 entries and index keys
    target: str = "cpu"
    batch_invariant: str = "on"  # off: kernels of a CUDA target may give a row other bits in another bucket
    fallback: tuple[str, ...] = ()  # ops that a CUDA target leaves to ATen instead of its own kernel
    without: tuple[str, ...] = ()  # passes to leave out
    breaks: tuple[str, ...] = ()  # ops that end a graph although they could be captured
    plan_only: bool = False
    suffix_mode: str = "off"  # compact: the decoder runs on the last rows of a prompt; mask: on all, and sees those
    suffix_keep_tokens: int | None = None  # last rows of a prompt that the decoder keeps; None: window + 12, off: 0
    full_decoder_rows: int = 0  # rows of a step planned beyond those, for log-probabilities of prompts
    draft_len: int = 0  # most drafts of a request that one step verifies; 0: no drafts
    bucket_policy: str = "default"
    buckets: tuple[str, ...] = ()  # explicit: METHOD=1,2,3
    bucket_step: int | None = None  # powers, step; None: DEFAULT_STEP
    histogram: tuple[str, ...] = ()  # histogram: METHOD=ROWS:COUNT,ROWS:COUNT
    max_graphs: int = DEFAULT_MAX_GRAPHS  # buckets of all methods together
    max_eager_rows: int = DEFAULT_MAX_EAGER_ROWS  # of one run without a bucket: larger steps of a prompt run in blocks
    weights: str = "packed"  # map: leave them in the checkpoint's shards, which the executor is then given

    def resolved(self, config: ModelConfig) -> CompileOptions:
        """The same options with every default filled in and cross-checked against the model (E0901)."""
        length = self.max_model_len
        if length is None:
            length = min(config.max_position_embeddings, DEFAULT_MAX_MODEL_LEN)
        step, keep = self.bucket_step, self.suffix_keep_tokens
        if step is None and self.bucket_policy in STEP_POLICIES:
            step = DEFAULT_STEP
        if keep is None:
            beyond = max(KEEP_BEYOND_WINDOW, self.backtrack)
            keep = 0 if self.suffix_mode == "off" else config.sliding_window + beyond
        options = dataclasses.replace(self, max_model_len=length, bucket_step=step, suffix_keep_tokens=keep)
        options.check(config)
        return options

    def check(self, config: ModelConfig) -> None:
        length = self.max_model_len or 0
        _need(self.dtype in DTYPES, "--dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        _need(self.quantizers in QUANTIZERS, "--quantizers", self.quantizers, f"one of {', '.join(QUANTIZERS)}")
        _need(self.target in TARGETS, "--target", self.target, f"one of {', '.join(TARGETS)}")
        _need(self.weights in WEIGHTS, "--weights", self.weights, f"one of {', '.join(WEIGHTS)}")
        _need(not self.fallback or self.target != "cpu", "--fallback", self.fallback, "a CUDA target")
        self._check_drafts(config)
        _need(self.batch_invariant in BATCH_INVARIANT, "--batch-invariant", self.batch_invariant,
              f"one of {', '.join(BATCH_INVARIANT)}")
        _need(self.batch_invariant == "on" or self.target != "cpu", "--batch-invariant", "off", "a CUDA target")
        self._check_cache(config)
        self._check_suffix(config)
        limit = config.max_position_embeddings
        _need(2 <= length <= limit, "--max-model-len", length,
              f"2 (one prompt token and one new one) to {limit} (max_position_embeddings)")
        _need(1 <= self.max_num_seqs <= 4096, "--max-num-seqs", self.max_num_seqs, "1 to 4096")
        _need(self.max_num_seqs <= self.max_num_batched_tokens <= 65536, "--max-num-batched-tokens",
              self.max_num_batched_tokens, f"{self.max_num_seqs} (--max-num-seqs) to 65536")
        _need(0 <= self.full_decoder_rows <= self.max_num_batched_tokens, "--full-decoder-rows", self.full_decoder_rows,
              f"0 to {self.max_num_batched_tokens} (--max-num-batched-tokens)")
        ratios = [r for r in config.compress_ratios if r > 0]
        even = all(self.block_size % r == 0 for r in ratios)
        _need(1 <= self.block_size <= 65536 and even, "--block-size", self.block_size,
              f"a multiple of every compress ratio ({sorted(set(ratios))}), at most 65536")
        check_bucket_options(self)

    def _check_cache(self, config: ModelConfig) -> None:
        _need(self.kv_cache_dtype in KV_CACHE_DTYPES, "--kv-cache-dtype", self.kv_cache_dtype,
              f"one of {', '.join(KV_CACHE_DTYPES)}")
        if self.kv_cache_dtype == "packed":
            _need(self.quantizers == "fake", "--kv-cache-dtype", "packed",
                  "--quantizers fake with it: a packed cache holds what the quantizers round to")
            widths = config.head_dim, config.index_head_dim
            _need(all(w % 32 == 0 for w in widths), "--kv-cache-dtype", "packed",
                  f"heads of whole groups of 32 numbers; the model's have {widths[0]} and {widths[1]}")

    def _check_suffix(self, config: ModelConfig) -> None:
        _need(self.suffix_mode in SUFFIX_MODES, "--suffix-mode", self.suffix_mode, f"one of {', '.join(SUFFIX_MODES)}")
        keep, window = self.suffix_keep_tokens or 0, config.sliding_window
        least = window + self.backtrack
        if self.suffix_mode == "off":
            _need(keep == 0, "--suffix-keep-tokens", keep, "--suffix-mode mask or compact with it")
        else:
            _need(keep >= least, "--suffix-keep-tokens", keep, f"at least {least}: {window} rows of a window, which "
                  f"the token behind the prompt sees, and {self.backtrack} of backtracking (draft_len + 1, 0 without "
                  "drafts)")

    def _check_drafts(self, config: ModelConfig) -> None:
        if self.draft_len == 0:
            return
        block = config.dspark_block_size if config.num_nextn_predict_layers else 0
        needed = f"0 to {block} (dspark_block_size)" if block else "0: the model has no draft layers"
        _need(0 <= self.draft_len <= block, "--draft-len", self.draft_len, needed)

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def pages_per_slot(self) -> int:
        return -(-(self.max_model_len or 0) // self.block_size)

    @property
    def backtrack(self) -> int:
        """Rows that a slot can forget at a time: its rings keep so many more than a window."""
        return self.draft_len + 1 if self.draft_len else 0

    def to_json(self) -> dict[str, str | int | bool]:
        """Without what is not chosen (None)."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values = {name: value for name, value in values.items() if value is not None}
        return values | {name: " ".join(getattr(self, name)) for name in _LISTS}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CompileOptions:
        """The options that `to_json` wrote."""
        return cls(**{**values, **{name: tuple(str(values[name]).split()) for name in _LISTS}})

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def _need(holds: bool, option: str, found: object, needed: str) -> None:
    if not holds:
        raise Dsv41cError("DSV41C-E0901", f"option {option}", found=str(found), needed=needed,
                          do=f"pass a legal value for {option}")
