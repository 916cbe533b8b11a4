"""Arena layouts: laws of the planner, and a checker that catches what a planner could do wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.graphs.memory import ALIGNMENT, Layout, Lifetime, aligned, check_layout, plan_layout
from dsv41c.runtime.plan.errors import Dsv41cError


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    found = []
    for number in range(draw(st.integers(0, 25))):
        first = draw(st.integers(0, 30))
        found.append(Lifetime(f"v{number}", draw(st.integers(1, 5000)), first, first + draw(st.integers(0, 12))))
    return found


@given(lifetimes())
def test_every_layout_passes_the_independent_checker(items: list[Lifetime]) -> None:
    check_layout(items, plan_layout(items))


@given(lifetimes())
def test_the_arena_lies_between_the_live_peak_and_no_reuse(items: list[Lifetime]) -> None:
    """Never smaller than what is live at once, never larger than giving every buffer its own place."""
    total = plan_layout(items).total_bytes
    peak = max((sum(aligned(i.num_bytes) for i in items if i.first <= t <= i.last) for t in range(45)), default=0)
    assert peak <= total <= sum(aligned(i.num_bytes) for i in items)


@given(lifetimes())
def test_the_total_is_the_largest_end(items: list[Lifetime]) -> None:
    layout = plan_layout(items)
    assert layout.total_bytes == max((layout.offsets[i.name] + aligned(i.num_bytes) for i in items), default=0)


@given(lifetimes())
def test_values_that_live_at_once_share_no_byte(items: list[Lifetime]) -> None:
    """Pair by pair, without the checker: it walks launches."""
    offsets = plan_layout(items).offsets
    for number, a in enumerate(items):
        for b in items[:number]:
            if a.first <= b.last and b.first <= a.last:
                assert (offsets[a.name] + a.num_bytes <= offsets[b.name]
                        or offsets[b.name] + b.num_bytes <= offsets[a.name])


@given(lifetimes(), st.randoms())
def test_the_layout_does_not_depend_on_the_order_of_its_input(items: list[Lifetime], random: object) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert plan_layout(shuffled) == plan_layout(items)


def test_buffers_that_never_meet_share_memory() -> None:
    items = [Lifetime("a", 1000, 0, 1), Lifetime("b", 1000, 2, 3)]
    assert plan_layout(items).total_bytes == aligned(1000)


@pytest.mark.parametrize(("offsets", "total"), [
    ({"a": 0, "b": 0}, 4096),  # overlap
    ({"a": 0, "b": aligned(100) - ALIGNMENT}, 4096),  # partial overlap
    ({"a": 0, "b": 65}, 4096),  # not aligned
    ({"a": 0, "b": aligned(100)}, aligned(100) + 99),  # past the end
])
def test_the_checker_catches_a_wrong_layout(offsets: dict[str, int], total: int) -> None:
    items = [Lifetime("a", 100, 0, 2), Lifetime("b", 100, 2, 3)]
    with pytest.raises(Dsv41cError, match="DSV41C-E0401"):
        check_layout(items, Layout(offsets, total))
