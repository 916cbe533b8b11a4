"""Runs one case of a plain kernel on the GPU and compares it with the torch reference on the CPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv41c.tools.bench.driver import launch, load
from dsv41c.tools.bench.op_case import Case, judge, results, same_bits
from dsv41c.tools.bench.plain_cubins import Cubins, source_of
from dsv41c.tools.bench.plain_launch import Bound, Call, bind

PADS = 3


@dataclass(frozen=True)
class Verdict:
    op: str
    case: str
    error: float
    wrong: str  # "" when the kernel is right


def run_on_gpu(case: Case, cubins: Cubins) -> Bound:
    source = source_of(case)
    found = [cubins.find(k) for k in source.kernels]
    bound = bind(case, source, [record.params for _, record in found], "cuda")
    cubins_of = iter(found)

    def start(call: Call) -> None:
        cubin, record = next(cubins_of)
        launch(load(cubin, record.symbol, record.shared_bytes), call)

    bound.run(start)
    torch.cuda.synchronize()
    return bound


def check_case(case: Case, cubins: Cubins) -> Verdict:
    """Against the reference, then with more pad rows: live rows and state must not change by a bit."""
    reference = case.copied()
    want = results(case.spec.reference(*reference))
    got = run_on_gpu(case, cubins)
    outputs, written = [x.cpu()[case.live_of(x)] for x in got.outputs], [x.cpu() for x in got.written]
    error, wrong = judge(case, [*outputs, *written], [*(x[case.live_of(x)] for x in want), *case.written(reference)])
    if not wrong:
        wrong = _alone(case, cubins, outputs, written)
    if not wrong and not got.guards_hold():
        wrong = "wrote outside a tensor"
    return Verdict(case.op, case.name, error, wrong)


def _alone(case: Case, cubins: Cubins, outputs: list[torch.Tensor], written: list[torch.Tensor]) -> str:
    padded = run_on_gpu(case.with_pads(PADS), cubins)
    rows = [case.live_of(x) for x in results(case.spec.fake(*case.args))]
    found = [b.cpu()[: len(live)][live] for b, live in zip(padded.outputs, rows, strict=True)]
    if not all(same_bits(a, b) for a, b in zip(outputs, found, strict=True)):
        return "rows change when pads are added"
    if not all(same_bits(a, b.cpu()) for a, b in zip(written, padded.written, strict=True)):
        return "state changes when pads are added"
    return "" if padded.guards_hold() else "pads write outside a tensor"
