"""Python model of a Triton server: token ids to text, part by part. Stands alone: `dsv41c export-triton` copies it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

UNFINISHED = "\ufffd"  # what a decoder makes of bytes that are no whole character (yet)


def part_of_text(tokenizer: Tokenizer, skipped: frozenset[int], context: Sequence[int], ids: Sequence[int],
                 is_last: bool) -> str:
    """What `ids` add to the text of `context`, the ids before them. The parts of an answer make its text: a character
    that is not whole yet comes with the part that ends it."""
    def decode(some: Sequence[int]) -> str:
        return str(tokenizer.decode([i for i in some if i not in skipped], skip_special_tokens=False))

    before = decode(context).rstrip(UNFINISHED)
    text = decode([*context, *ids])
    return (text if is_last else text.rstrip(UNFINISHED))[len(before):]


class TritonPythonModel:
    """output_ids INT64 [n], context_ids INT64 [m], finish_reason BYTES [1] to text_output BYTES [1] and the reason."""

    def initialize(self, args: dict[str, str]) -> None:
        directory = Path(args["model_repository"]) / args["model_version"]
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        special = (i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special)
        ends = json.loads(json.loads(args["model_config"])["parameters"]["eos_ids"]["string_value"])
        self.skipped = frozenset(special) | frozenset(ends)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        ids, context, reason = (pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                                for name in ("output_ids", "context_ids", "finish_reason"))
        text = part_of_text(self.tokenizer, self.skipped, context.tolist(), ids.tolist(), bool(reason[0]))
        return pb_utils.InferenceResponse([
            pb_utils.Tensor("text_output", np.array([text.encode()], dtype=np.object_)),
            pb_utils.Tensor("finish_reason", reason),
        ])
