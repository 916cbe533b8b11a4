"""Python model of a Triton server: text_input to token ids. Stands alone: `dsv41c export-triton` copies it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer


class TritonPythonModel:
    """text_input BYTES [1] to input_ids INT64 [n]; no special tokens are added."""

    def initialize(self, args: dict[str, str]) -> None:
        directory = Path(args["model_repository"]) / args["model_version"]
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        raw = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            refusal = pb_utils.TritonError(f"text_input: found {error}, needed UTF-8", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refusal)
        ids = np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
        return pb_utils.InferenceResponse([pb_utils.Tensor("input_ids", ids)])
