"""`make demo` ends here: runs an artifact, shows what it says, and compares it with the eager model token by token."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.eager import EagerModel
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import load
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.requests import Completion, Request
from dsv41c.runtime.tokenizer import Tokenizer, require
from dsv41c.tools.cli.run_result import summarise_steps

MISMATCH = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--prompt", default="Recite\n")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    arguments = parser.parse_args()
    limits = Limits.read(arguments.artifact)
    tokenizer = require(Tokenizer.read(arguments.artifact, limits.eos_ids), arguments.artifact)
    request = Request(tokenizer.encode(arguments.prompt), arguments.max_new_tokens)
    with load(arguments.artifact) as runtime:
        (completion,) = generate(runtime, limits, [request])
        steps = summarise_steps(runtime.records())
    print(f"prompt    {arguments.prompt!r}\ntext      {tokenizer.decode(completion.tokens)!r}\nsteps     {steps}")
    return compare(completion, reference_tokens(arguments.checkpoint, arguments.artifact, completion))


def reference_tokens(checkpoint: Path, artifact: Path, completion: Completion) -> list[int]:
    """As many greedy tokens of the eager model, under the options that the artifact was compiled with."""
    view = CheckpointView.open(checkpoint)
    options = CompileOptions.from_json(Manifest.read(artifact).options).resolved(view.config)
    model = EagerModel(view.config, options, load_weights(view, weight_recipes(view, options)))
    return model.generate(completion.prompt_ids, len(completion.tokens))


def compare(completion: Completion, reference: list[int]) -> int:
    if list(completion.tokens) == reference:
        print(f"reference: equal ({len(reference)} tokens)")
        return 0
    first = next(i for i, (a, b) in enumerate(zip(completion.tokens, reference, strict=True)) if a != b)
    print(f"reference: different from token {first} on: executor {completion.tokens[first]}, "
          f"reference {reference[first]}", file=sys.stderr)
    return MISMATCH


if __name__ == "__main__":
    sys.exit(main())
