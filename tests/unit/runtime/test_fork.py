"""A forked child that uses its parent's runtime gets an error at once; it may load its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dsv41c.compiler.eager import request_rows
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.errors import Dsv41cError

OPTIONS = {"max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 16}


def step(runtime: Runtime) -> list[int]:
    one = np.zeros(1, dtype=np.int32)
    runtime.step(request_rows(0, [5], 0, CompileOptions(**OPTIONS)), one, one)
    return runtime.output("tokens").tolist()


def in_child(work: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_is_refused_and_can_load_its_own(compiled_artifact: Callable[..., Path]) -> None:
    artifact = compiled_artifact("tiny", 0, **OPTIONS)
    with load(artifact) as runtime:
        expected = step(runtime)

        def work() -> int:
            try:
                step(runtime)
            except Dsv41cError as error:
                refused = error.code == "DSV41C-E0801"
            else:
                refused = False
            with load(artifact) as own:
                return 0 if refused and step(own) == expected else 1

        assert in_child(work) == 0
        assert step(runtime) == expected
