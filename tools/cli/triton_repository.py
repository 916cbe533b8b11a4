"""A model repository of the Triton Inference Server that serves an artifact: its models and their config.pbtxt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dsv41c.compiler.output_directory import new_directory, refuse_existing
from dsv41c.compiler.weight_map import FEATURE
from dsv41c.runtime.library import installed_file
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.tokenizer import NAME as TOKENIZER

EXISTS = "DSV41C-E0605"
_TEXT = ("tokenize", "detokenize", "text")  # models of an artifact with a tokenizer, by the end of their name

_OUTPUTS = (("output_ids", "INT64", "-1"), ("finish_reason", "STRING", "1"), ("output_logprobs", "FP32", "-1"),
            ("top_ids", "INT64", "-1, -1"), ("top_logprobs", "FP32", "-1, -1"), ("context_ids", "INT64", "-1"))
_TEXT_OUTPUTS = (("text_output", "STRING", "1"), ("finish_reason", "STRING", "1"))


@dataclass(frozen=True)
class Export:
    """`weights` is the checkpoint of an artifact that maps its weights. With `link` the repository points to the
    artifact, else it holds a copy."""

    artifact: Path
    repository: Path
    name: str
    link: bool = False
    weights: Path | None = None

    def write(self) -> list[str]:
        """The names of the models. E0603 for an artifact without weights, E0901 when their checkpoint is not named,
        E0605 when a model of a name exists; then and on any other error nothing is left of what was written."""
        self._check()
        models = self._models()
        for name in models:
            refuse_existing(self.repository / name, EXISTS)
        written: list[Path] = []
        try:
            for name, write in models.items():
                with new_directory(self.repository / name, EXISTS) as folder:
                    write(folder)
                written.append(self.repository / name)
        except BaseException:
            for folder in written:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return list(models)

    def _check(self) -> None:
        manifest = Manifest.read(self.artifact)
        if manifest.fields.get("plan_only"):
            raise Dsv41cError("DSV41C-E0603", f"artifact {self.artifact}", found="a plan without weights",
                              needed="an artifact to run", do="compile it without --plan-only")
        if (maps := FEATURE in manifest.fields.get("required_features", ())) != (self.weights is not None):
            found, needed = "no checkpoint", "that of an artifact which maps its weights"
            raise Dsv41cError("DSV41C-E0901", "--weights", found=found if maps else str(self.weights),
                              needed=needed if maps else "none: the artifact holds its weights",
                              do="name the directory it was compiled from" if maps else "leave it out")

    def _models(self) -> dict[str, Callable[[Path], None]]:
        models: dict[str, Callable[[Path], None]] = {self.name: self._write_engine}
        if (self.artifact / TOKENIZER).is_file():
            writers = (self._write_tokenize, self._write_detokenize, self._write_text)
            models |= {f"{self.name}_{end}": write for end, write in zip(_TEXT, writers, strict=True)}
        return models

    def _write_engine(self, folder: Path) -> None:
        if self.link:
            (folder / "1").mkdir()
        else:
            shutil.copytree(self.artifact, folder / "1")
        chosen = {"artifact": self.artifact if self.link else None, "weights": self.weights}
        parameters = {name: str(path.absolute()) for name, path in chosen.items() if path is not None}
        outputs = _tensors("output", *_OUTPUTS) if (self.artifact / TOKENIZER).is_file() else ""
        _write_config(folder, 'backend: "dsv41c"\n' + outputs + _parameters(parameters))

    def _write_tokenize(self, folder: Path) -> None:
        self._write_python(folder, "tokenize", _tensors("input", ("text_input", "STRING", "1"))
                           + _tensors("output", ("input_ids", "INT64", "-1")))

    def _write_detokenize(self, folder: Path) -> None:
        ends = sorted(Limits.read(self.artifact).eos_ids)
        inputs = (one for one in _OUTPUTS if one[0] in ("output_ids", "context_ids", "finish_reason"))
        self._write_python(folder, "detokenize", _tensors("input", *inputs) + _tensors("output", *_TEXT_OUTPUTS)
                           + _parameters({"eos_ids": json.dumps(ends)}))

    def _write_python(self, folder: Path, model: str, config: str) -> None:
        (folder / "1").mkdir()
        shutil.copyfile(installed_file(f"triton/{model}.py"), folder / "1/model.py")
        shutil.copyfile(self.artifact / TOKENIZER, folder / "1" / TOKENIZER)
        # One instance: parts of an answer keep their order.
        _write_config(folder, f'backend: "python"\ninstance_group [{{ kind: KIND_CPU count: 1 }}]\n{config}')

    def _write_text(self, folder: Path) -> None:
        (folder / "1").mkdir()
        given = (("stream", "BOOL", "1", "optional: true"), ("sampling_parameters", "STRING", "1", "optional: true"))
        steps = (
            _step(f"{self.name}_tokenize", {"text_input": "text_input"}, {"input_ids": "prompt_ids"}),
            _step(self.name, {"input_ids": "prompt_ids"} | {name: name for name, *_ in given},
                  {"output_ids": "ids", "context_ids": "context", "finish_reason": "reason"}),
            _step(f"{self.name}_detokenize", {"output_ids": "ids", "context_ids": "context", "finish_reason": "reason"},
                  {name: name for name, *_ in _TEXT_OUTPUTS}))
        _write_config(folder, 'platform: "ensemble"\n'
                      + _tensors("input", ("text_input", "STRING", "1"), *given) + _tensors("output", *_TEXT_OUTPUTS)
                      + f"ensemble_scheduling {{ step [\n{','.join(steps)}\n] }}\n")


def _write_config(folder: Path, text: str) -> None:
    (folder / "config.pbtxt").write_text(text)


def _tensors(side: str, *tensors: tuple[str, ...]) -> str:
    lines = (f"  {{ name: {json.dumps(name)} data_type: TYPE_{kind} dims: [{dims}] {' '.join(more)}".rstrip() + " }"
             for name, kind, dims, *more in tensors)
    return f"{side} [\n" + ",\n".join(lines) + "\n]\n"


def _parameters(values: Mapping[str, str]) -> str:
    return "".join(f"parameters {{ key: {json.dumps(key)} value {{ string_value: {json.dumps(value)} }} }}\n"
                   for key, value in sorted(values.items()))


def _step(model: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    maps = [f"    {side} {{ key: {json.dumps(key)} value: {json.dumps(value)} }}"
            for side, pairs in (("input_map", inputs), ("output_map", outputs)) for key, value in pairs.items()]
    return f"  {{\n    model_name: {json.dumps(model)} model_version: -1\n" + "\n".join(maps) + "\n  }"
