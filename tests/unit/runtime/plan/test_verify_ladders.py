"""What a method must be like so that its rows can be split: each rule has a plan that breaks it, for both verifiers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.codec import encode
from tests.unit.runtime.plan.both_verifiers import assert_same_verdict_on_changes, leaves, outcomes
from tests.unit.runtime.toy_plan import TAKE_TABLE, MethodBuilder, add_take, toy_plan

ENCODER, DECODER, HEAD = 1, 2, 3


def with_decoder(change: Callable[[MethodBuilder, s.Port], tuple[s.Port, ...]]) -> s.Plan:
    """The toy plan whose decoder does one thing more; its io lies behind everybody else's."""
    plan = toy_plan("split")
    d = MethodBuilder("R", 4096)
    keep = add_take(d, "keep_rows", 0, 1, d.bridge(2, True), d.bridge(3, True))
    outputs = change(d, keep)
    decoder = replace(d.finish("decoder", "kept_rows", (keep,), outputs), ladder=plan.methods[DECODER].ladder)
    return replace(plan, methods=(*plan.methods[:DECODER], decoder, plan.methods[HEAD]))


def gives_rows_back(d: MethodBuilder, keep: s.Port) -> tuple[s.Port, ...]:
    copy = d.io_value("copy", "int32", 8)
    d.launch("again", TAKE_TABLE, s.In(d.bridge(0, False)), s.In(keep.value), s.Out(copy))
    return (s.Port("copy", copy, ()),)


def writes_what_it_read(d: MethodBuilder, keep: s.Port) -> tuple[s.Port, ...]:
    d.launch("again", TAKE_TABLE, s.In(d.bridge(2, False)), s.In(keep.value), s.Out(d.bridge(0, True)))
    return ()


def changed(plan: s.Plan, change: Callable[[Any], object]) -> Any:
    doc = json.loads(encode(plan))
    change(doc["methods"])
    return doc


def write_whole(methods: Any) -> None:
    value = next(v for v in methods[DECODER]["values"] if v["storage"] == {"bridge": 2})
    value.update(sizes=[16, 8], pads="none")


def split_twice(methods: Any) -> None:
    """The head takes rows as a decoder does: it can be split too, but for the flow."""
    methods[HEAD].update(axis="kept_rows", outputs=[])
    methods[HEAD]["ladder"].update(above="split")


def in_blocks(method: int, rows: int = 8) -> Callable[[Any], object]:
    """The toy's methods have buckets up to 8 rows and a bound of 16."""
    return lambda methods: methods[method]["ladder"].update(block_rows=rows)


def whole_write_in_blocks(methods: Any) -> None:
    write_whole(methods)
    in_blocks(DECODER)(methods)


def reads_together(methods: Any) -> None:
    in_blocks(ENCODER)(methods)
    methods[DECODER].update(axis="rows")


def short_bridge(plan: s.Plan) -> Any:
    """Room for a block, not for all rows of a step."""
    doc = changed(plan, in_blocks(ENCODER, 16))
    doc["symbols"][ENCODER]["hi"] = 32
    return doc


BROKEN: dict[str, tuple[str, str, Any]] = {
    "axis": ("method cannot be split", "axis rows",
             changed(toy_plan(), lambda m: m[ENCODER]["ladder"].update(above="split"))),
    "no buckets": ("method cannot be split", "no buckets",
                   changed(toy_plan("split"), lambda m: m[DECODER].update(buckets=[]))),
    "outputs": ("method cannot be split", "output copy", changed(with_decoder(gives_rows_back), len)),
    "read and written": ("method cannot be split", "bridge rows, read before it is written",
                         changed(with_decoder(writes_what_it_read), len)),
    "not by rows": ("method cannot be split", "a bridge that is not written by rows",
                    changed(toy_plan("split"), write_whole)),
    "twice": ("two methods of a flow are split", "method head", changed(with_decoder(lambda d, keep: ()), split_twice)),
    "old places": ("split rows are read in their old places", "bridge kept_rows on axis rows",
                   changed(toy_plan("split"), lambda m: m[HEAD].update(axis="rows"))),
    "block below a bucket": ("bad block of rows", "7 rows", changed(toy_plan(), in_blocks(ENCODER, 7))),
    "block above the bound": ("bad block of rows", "17 rows", changed(toy_plan(), in_blocks(ENCODER, 17))),
    "negative block": ("bad block of rows", "-1 rows", changed(toy_plan(), in_blocks(ENCODER, -1))),
    "blocks with outputs": ("method cannot run in blocks", "output logits", changed(toy_plan(), in_blocks(HEAD))),
    "blocks of a whole": ("method cannot run in blocks", "a bridge that is not used by rows",
                          changed(toy_plan(), whole_write_in_blocks)),
    "blocks without room": ("method cannot run in blocks", "a bridge of 16 rows", short_bridge(toy_plan())),
    "blocks read together": ("rows of blocks are read together", "bridge rows on axis rows",
                             changed(toy_plan(), reads_together)),
}


def test_the_plan_before_the_changes_is_valid() -> None:
    for plan in (toy_plan(), toy_plan("split"), with_decoder(lambda d, keep: ())):
        assert outcomes(json.loads(encode(plan))) == (None, None)


@pytest.mark.parametrize("name", BROKEN)
def test_both_verifiers_refuse(name: str) -> None:
    subject, found, doc = BROKEN[name]
    mine, theirs = outcomes(doc)
    assert mine is not None and (mine["code"], mine["subject"], mine["found"]) == ("DSV41C-E0502", subject, found)
    assert theirs == mine


def test_what_is_not_split_may_do_all_that() -> None:
    for change in (gives_rows_back, writes_what_it_read):
        doc = changed(with_decoder(change), lambda m: m[DECODER]["ladder"].update(above="eager"))
        assert outcomes(doc) == (None, None)


@pytest.mark.parametrize("method", [ENCODER, DECODER])
def test_blocks_of_rows_are_valid_for_both_verifiers(method: int) -> None:
    for rows in (8, 9, 16):
        assert outcomes(changed(toy_plan("split"), in_blocks(method, rows))) == (None, None)


def test_an_arena_for_one_block_is_enough() -> None:
    """4 bytes of scratch a row: 32 bytes are valid in blocks of 8, and too small for a run of all 16 rows."""
    doc = changed(toy_plan("split"), lambda m: m[DECODER].update(arena_bytes=32))
    mine, theirs = outcomes(doc)
    assert mine is not None and (mine["code"], mine["subject"]) == ("DSV41C-E0502", "range outside its region")
    assert theirs == mine
    in_blocks(DECODER)(doc["methods"])
    assert outcomes(doc) == (None, None)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_change_gets_the_same_verdict(data: st.DataObject) -> None:
    doc = json.loads(encode(toy_plan("split")))
    assert_same_verdict_on_changes(data, doc, [path for path in leaves(doc) if path[:2] == ("methods", DECODER)])
