"""mega_attention: what lies behind the query projection becomes one call, the commit of the window inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dsv41c.passes.fuse.mega_attention import MegaAttention
from tests.passes.programs import (
    BF16,
    F32,
    I32,
    NUMERICS,
    OPS,
    Small,
    Values,
    angles,
    apply,
    assert_fused,
    normal,
    refusal,
    row_table,
    small,
)

STEP = MegaAttention()
HEADS, WIDTH, WINDOW = 4, 32, 8
SCALE = WIDTH ** -0.5
STATE = ("window", "pool", "page_table")


def values(dtype: torch.dtype = F32, heads: int = HEADS, width: int = WIDTH) -> Values:
    selected = torch.tensor([[0, 3], [1, -1], [-1, -1], [2, 0], [0, 0]], dtype=I32)
    return {"q": normal(1, 5, heads, width, dtype=dtype), "kv": normal(2, 5, width, dtype=dtype),
            "window": normal(3, 3, WINDOW + 4, width, dtype=dtype), "pool": normal(4, 7, 4, width, dtype=dtype),
            "page_table": torch.tensor([[0, 1], [2, 3], [6, 6]], dtype=I32), "selected": selected,
            "sink": normal(5, heads), "rows": row_table(), "table": angles(6, 8)}


def attend(kind: str, v: dict[str, torch.Tensor], q: torch.Tensor) -> torch.Tensor:
    if kind == "sparse":
        return OPS.sparse_attention(q, v["kv"], v["window"], v["pool"], v["page_table"], v["selected"], v["sink"],
                                    v["rows"], WINDOW, 2, SCALE)
    op = OPS.window_attention if kind == "window" else OPS.draft_attention
    return op(q, v["kv"], v["window"], v["sink"], v["rows"], WINDOW, SCALE)


def commit(v: dict[str, torch.Tensor]) -> None:
    OPS.window_commit(v["kv"], v["rows"], v["window"])


def layer(kind: str = "sparse", cast: bool = True, ratio: int = 1, first_inverse: bool = False, groups: int = 2,
          order: str = "attend commit", leak: bool = False) -> Callable[..., list[torch.Tensor]]:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        turned = OPS.rotary(v["q"], v["rows"], v["table"], ratio, first_inverse)
        if order == "commit attend":
            commit(v)
        o = attend(kind, v, turned)
        extra = [o] if leak else []
        if order == "attend other commit":
            extra.append(attend("draft", v, v["q"]))
            OPS.window_commit(v["second"], v["rows"], v["window"])
        if kind != "draft" and order != "commit attend":
            commit(v)
        o = OPS.rotary(o, v["rows"], v["table"], 1, True).view(-1, groups, v["q"].shape[1] * v["q"].shape[2] // groups)
        return [OPS.quantize_fp8(o) if cast else o, *extra]
    return body


def program(body: Callable[..., list[torch.Tensor]], given: Values | None = None) -> Small:
    return small(body, values() if given is None else given, STATE)


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("kind", ["sparse", "window", "draft"])
def test_a_layers_attention_becomes_one_call(kind: str, numerics: str) -> None:
    dtype, cast = NUMERICS[numerics]
    wanted = f"mega_{kind}_attention"
    assert assert_fused(STEP, program(layer(kind, cast), values(dtype)), wanted).ops() == [wanted]


@pytest.mark.parametrize(("change", "reason"), [
    ({"ratio": 2}, "argument 3 of %rotary is 2, not 1"),
    ({"first_inverse": True}, "argument 4 of %rotary is True, not False"),
    ({"leak": True}, "%sparse_attention inside is read by %output outside"),
    ({"order": "commit attend"}, "%window_commit comes before %sparse_attention: both use window"),
])
def test_near_misses_stay(change: dict[str, Any], reason: str) -> None:
    assert reason in refusal(STEP, program(layer(**change)))


def test_a_commit_of_others_between_is_not_passed() -> None:
    """attend, commit of other keys, own commit: moved behind, the attention would read the others."""
    given = {**values(), "second": normal(9, 5, WIDTH)}
    assert "both use window" in refusal(STEP, program(layer(order="attend other commit"), given))


def test_a_reader_of_the_result_that_writes_the_window_is_not_passed_either() -> None:
    """The fused call would stand before the reader, and with it the commit that stands behind it."""
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        o = attend("window", v, OPS.rotary(v["q"], v["rows"], v["table"], 1, False))
        o = OPS.rotary(o, v["rows"], v["table"], 1, True).view(-1, HEADS, WIDTH)
        again = attend("draft", v, o)
        commit(v)
        return [again]
    assert "%window_commit cannot pass %draft_attention: both use window" in refusal(STEP, program(body))


def test_keys_of_another_commit_are_not_this_layers() -> None:
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        o = attend("sparse", v, OPS.rotary(v["q"], v["rows"], v["table"], 1, False))
        OPS.window_commit(v["second"], v["rows"], v["window"])
        return [OPS.rotary(o, v["rows"], v["table"], 1, True).view(-1, 2, 64)]
    reason = refusal(STEP, program(body, {**values(), "second": normal(9, 5, WIDTH)}))
    assert "window_commit" in reason


def test_an_output_of_another_shape_is_refused() -> None:
    """Views are compared when the match is complete: [5, 4, 32] as [10, 64] has no groups."""
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        o = attend("sparse", v, OPS.rotary(v["q"], v["rows"], v["table"], 1, False))
        commit(v)
        return [OPS.quantize_fp8(OPS.rotary(o, v["rows"], v["table"], 1, True).view(10, 2, 32))]
    assert "%quantize_fp8 is float32 [10, 2, 32], result 0 of mega_sparse_attention is float32 [5, 2, 64]" in refusal(
        STEP, program(body))


@pytest.mark.parametrize(("name", "reason"), [
    ("kv", "q and window_kv are float32 and bfloat16"), ("window", "q and window are float32 and bfloat16")])
def test_keys_of_another_dtype_are_refused(name: str, reason: str) -> None:
    given = {**values(), name: values()[name].to(BF16)}
    assert reason in refusal(STEP, program(layer(), given))


def test_a_cast_of_no_whole_groups_stays_outside() -> None:
    after, _, _ = apply(STEP, program(layer(groups=2), values(heads=3, width=32)))
    assert after.ops() == ["mega_sparse_attention", "quantize_fp8"]
