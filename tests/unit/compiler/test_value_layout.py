"""Layout of a method's values: names of symbols change alone, and only values of the arena move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsv41c.compiler.affine import linear_expr
from dsv41c.compiler.value_layout import contiguous, place_in_arena, renamed
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.expr import evaluate

ELSEWHERE: list[schema.Storage] = [schema.IoStorage(8), schema.StateStorage(0), schema.ViewStorage(0, 0)]


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 50))
def test_a_renamed_size_has_the_same_value(slope: int, base: int, rows: int) -> None:
    expr = linear_expr(slope, base, "T")
    assert evaluate(renamed(expr, "T", "rows"), {"rows": rows}) == evaluate(expr, {"T": rows}) == slope * rows + base
    assert renamed(renamed(expr, "T", "rows"), "rows", "T") == expr == renamed(expr, "D", "rows")


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[schema.Value, int, int]]:
    """Values with the first and the last launch that touches them."""
    found = []
    for index in range(draw(st.integers(1, 8))):
        storage = draw(st.sampled_from([schema.ArenaStorage(0), *ELSEWHERE]))
        first, last = sorted(draw(st.tuples(st.integers(0, 6), st.integers(0, 6))))
        found.append((contiguous(f"v{index}", "uint8", (draw(st.integers(1, 900)),), storage, "rows"), first, last))
    return found


@given(lives())
def test_values_that_are_alive_together_are_apart(made: list[tuple[schema.Value, int, int]]) -> None:
    sizes = {value.name: evaluate(value.sizes[0], {}) for value, _, _ in made}
    placed, total = place_in_arena([v for v, _, _ in made], lambda v: sizes[v.name],
                                   {i: first for i, (_, first, _) in enumerate(made)},
                                   {i: last for i, (_, _, last) in enumerate(made)})
    spans = []
    for value, (before, first, last) in zip(placed, made, strict=True):
        if isinstance(value.storage, schema.ArenaStorage):
            spans.append((value.storage.offset, value.storage.offset + sizes[value.name], first, last))
        else:
            assert value == before
    assert all(end <= total for _, end, _, _ in spans)
    assert all(a[1] <= b[0] or b[1] <= a[0] for i, a in enumerate(spans) for b in spans[:i]
               if a[2] <= b[3] and b[2] <= a[3])


def test_strides_are_row_major() -> None:
    assert contiguous("v", "float32", (2, 3, 4), schema.ArenaStorage(0), "rows").strides == (12, 4, 1)
