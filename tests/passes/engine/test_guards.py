"""Each guard alone keeps a program as it is: with it the pass refuses, without it the pass would go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dsv41c.passes.base import Match
from dsv41c.passes.engine import fusion, guards
from dsv41c.passes.engine.fusion import Fusion
from dsv41c.passes.fuse.mega_attention import MegaAttention
from dsv41c.passes.fuse.merge_projections import MergeProjections
from dsv41c.passes.fuse.norm_cast import NormCast
from tests.passes.programs import F32, OPS, Small, Values, angles, apply, fp8, normal, refusal, row_table, small

HEADS, WIDTH = 2, 32


@dataclass(frozen=True)
class Case:
    step: Fusion
    program: Callable[[], Small]
    reason: str


def window_values() -> Values:
    return {"q": normal(1, 5, HEADS, WIDTH), "kv": normal(2, 5, WIDTH), "window": normal(3, 3, 12, WIDTH),
            "sink": normal(4, HEADS), "rows": row_table(), "table": angles(5, 8), "second": normal(6, 5, WIDTH)}


def attention(v: dict[str, torch.Tensor], q: torch.Tensor) -> torch.Tensor:
    return OPS.window_attention(q, v["kv"], v["window"], v["sink"], v["rows"], 8, 0.2)


def turned(v: dict[str, torch.Tensor], x: torch.Tensor, inverse: bool) -> torch.Tensor:
    return OPS.rotary(x, v["rows"], v["table"], 1, inverse)


def commit(v: dict[str, torch.Tensor], keys: str = "kv") -> None:
    OPS.window_commit(v[keys], v["rows"], v["window"])


def read_outside() -> Small:
    def body(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        normed = OPS.rms_norm(x, w, 1e-6)
        return [normed, OPS.quantize_fp8(normed)]
    return small(body, {"x": normal(1, 5, 64), "w": normal(2, 64)})


def no_whole_groups() -> Small:
    return small(lambda x, w: [OPS.quantize_fp8(OPS.rms_norm(x, w, 1e-6))],
                 {"x": normal(1, 5, 48), "w": normal(2, 48)})


def late_source() -> Small:
    weights = {name: t for i, n in enumerate("ab") for name, t in zip((n, f"{n}_scale"), fp8(i, 32, 64), strict=True)}

    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        first = OPS.linear(v["x"], v["a"], v["a_scale"], F32)
        scale = OPS.quantize_fp8(first)
        return [scale, OPS.linear(v["x"], v["b"], scale, F32)]
    return small(body, {"x": normal(3, 5, 64), **weights})


def crossed(down: bool) -> Small:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        o = attention(v, turned(v, v["q"], False))
        if down:  # the attention would move behind a commit of other keys
            commit(v, "second")
            commit(v)
        o = turned(v, o, True).view(-1, HEADS, WIDTH)
        if not down:  # the commit would move before another reader of the ring, which reads the result
            o = attention(v, o)
            commit(v)
        return [o]
    return small(body, window_values(), ("window",))


def reordered() -> Small:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        q = turned(v, v["q"], False)
        commit(v)
        return [turned(v, attention(v, q), True).view(-1, HEADS, WIDTH)]
    return small(body, window_values(), ("window",))


def other_shape() -> Small:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        o = attention(v, turned(v, v["q"], False))
        commit(v)
        return [turned(v, o, True).view(10, 1, WIDTH)]
    return small(body, window_values(), ("window",))


CASES = {
    guards.inner_value_escapes: [Case(NormCast(), read_outside, "%rms_norm inside is read by %output outside")],
    guards.source_comes_too_late: [Case(MergeProjections(), late_source, "is made behind %quantize_fp8")],
    guards.state_access_is_crossed: [
        Case(MegaAttention(), lambda: crossed(True), "cannot pass %window_commit: both use window"),
        Case(MegaAttention(), lambda: crossed(False), "cannot pass %window_attention_1: both use window")],
    guards.effects_are_reordered: [Case(MegaAttention(), reordered, "%window_commit comes before %window_attention")],
    guards.shapes_differ: [Case(MegaAttention(), other_shape, "result 0 of mega_window_attention is")],
    guards.constraint_fails: [Case(NormCast(), no_whole_groups, "a cast of 48 columns")],
}
ALL = [(guard, case) for guard, cases in CASES.items() for case in cases]


def test_no_guard_is_without_a_case() -> None:
    assert list(CASES) == list(fusion.GUARDS)


@pytest.mark.parametrize(("guard", "case"), ALL)
def test_a_guard_refuses(guard: Any, case: Case) -> None:
    assert case.reason in refusal(case.step, case.program())


@pytest.mark.parametrize(("guard", "case"), ALL)
def test_no_other_guard_refuses_the_same(guard: Any, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the pass rewrites the program: to a wrong one, or to one that cannot be."""
    monkeypatch.setattr(fusion, "GUARDS", tuple(g for g in guards.GUARDS if g is not guard))
    try:
        notes = case.step.apply(case.program().program).notes
    except RuntimeError:  # torch: the graph would use a call that is gone, or one that comes later
        return
    assert any(isinstance(note, Match) for note in notes)


def test_the_search_goes_on_behind_a_binding_that_a_guard_refuses() -> None:
    """The product without a scale comes first among the readers and cannot be paired."""
    def body(x: torch.Tensor, w: torch.Tensor, other: torch.Tensor, scale: torch.Tensor) -> list[torch.Tensor]:
        return [OPS.linear(x, w, scale, F32), OPS.linear(x, other, None, F32), OPS.linear(x, w, scale, F32)]
    weight, scale = fp8(1, 32, 64)
    given = small(body, {"x": normal(1, 5, 64), "w": weight, "other": normal(2, 32, 64), "scale": scale})
    after, matches, _ = apply(MergeProjections(), given)
    assert len(matches) == 1 and sorted(after.ops()) == ["linear", "linear_pair"]


def test_a_pattern_with_an_anchor_of_another_op_is_not_tried() -> None:
    """mega_attention has three anchors; each op is tried at its own."""
    given = small(lambda **v: [attention(v, v["q"])], window_values(), ("window",))
    assert refusal(MegaAttention(), given) == "%q is the input q, not a call of rotary"
