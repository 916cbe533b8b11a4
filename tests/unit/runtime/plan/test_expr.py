"""Expressions mean the same in Python and C++, errors included."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Binary, Expr, evaluate, from_json, symbols_of, to_json
from tests.unit.runtime.plan import native_plan
from tests.unit.runtime.plan.plan_strategies import expressions

INT64 = st.integers(-(2**63), 2**63 - 1)


def outcome(call: object, *arguments: object) -> object:
    try:
        return call(*arguments)  # type: ignore[operator]
    except Dsv41cError as error:
        return error.to_json()


@settings(max_examples=500, deadline=None)
@given(expressions(), st.one_of(st.integers(-9, 70), INT64), st.one_of(st.integers(-9, 70), INT64))
def test_cpp_equals_python(expr: Expr, t: int, r: int) -> None:
    symbols = {"T": t, "R": r}
    text = json.dumps(to_json(expr)).encode()
    assert outcome(native_plan.evaluate, text, symbols) == outcome(evaluate, expr, symbols)


@given(expressions())
def test_json_round_trip(expr: Expr) -> None:
    assert from_json(json.loads(json.dumps(to_json(expr)))) == expr


@pytest.mark.parametrize(("op", "a", "b", "result"), [
    ("floordiv", -7, 2, -4), ("ceildiv", -7, 2, -3), ("floordiv", 7, 2, 3), ("ceildiv", 7, 2, 4),
    ("min", -1, 1, -1), ("max", -1, 1, 1), ("-", 1, 3, -2), ("*", -3, 3, -9),
    ("+", 2**62, 2**62 - 1, 2**63 - 1),
])
def test_values(op: str, a: int, b: int, result: int) -> None:
    assert evaluate(Binary(op, a, b), {}) == result
    assert native_plan.evaluate(json.dumps([op, a, b]).encode(), {}) == result


@pytest.mark.parametrize("text", [
    '["+", 1, 2, 3]', '["%", 1, 2]', "1.0", "true", "null", '""', "{}", "[]", '["+", 1, [2]]',
    '["max", 1, false]',
    "9223372036854775808", "-9223372036854775809", '["+", 1, "Q"]', '["floordiv", 1, 0]',
    '["ceildiv", 1, -1]',
    '["*", 4294967296, 4294967296]', "[[]", "x",
])
def test_refused_by_both(text: str) -> None:
    def python() -> int:
        try:
            node = json.loads(text)
        except ValueError:
            raise Dsv41cError("DSV41C-E0501", "not JSON", found="", needed="", do="") from None
        return evaluate(from_json(node), {"T": 1})

    with pytest.raises(Dsv41cError) as mine:
        python()
    with pytest.raises(Dsv41cError) as theirs:
        native_plan.evaluate(text.encode(), {"T": 1})
    assert (mine.value.code, mine.value.subject) == (theirs.value.code, theirs.value.subject)


def test_depth_is_bounded() -> None:
    deep: object = 1
    for _ in range(70):
        deep = ["+", deep, 1]
    for call in (lambda: from_json(deep), lambda: native_plan.evaluate(json.dumps(deep).encode(), {})):
        with pytest.raises(Dsv41cError) as error:
            call()
        assert error.value.subject == "expression too deep"


def test_symbols() -> None:
    assert symbols_of(Binary("+", "T", Binary("*", 2, "R"))) == {"T", "R"}
    assert symbols_of(3) == frozenset()
