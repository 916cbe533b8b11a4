"""Bad program text is refused with E0306, the place, what was found and needed, and the nearest name."""

from __future__ import annotations

import pytest

from dsv41c.compiler.program_text.parser import parse_program
from dsv41c.runtime.plan.errors import Dsv41cError

GOOD = """method decode rows D in 1..16 {
  weight %w : bfloat16 [64] = "norm.weight"
  input %x : bfloat16 [D, 64] = "x"
  input %rows : int32 [D, 8] = "rows"
  state %ring : bfloat16 [17, 8, 64] = "window_0"
  %y = rms_norm(%x, %w, 1e-06)
  window_commit(%y, %rows, %ring)
  %v = view(%y, [-1, 4, 16])
  return y=%y, bridge v=%v
}
"""
# What of GOOD becomes what; the place; words of the message.
BROKEN = [
    ("rms_norm(", "rms_nrom(", "line 6, column 8", ("op rms_nrom", "did you mean rms_norm?")),
    ("rms_norm(%x", "rms_norm(%z", "line 6, column 17", ("value %z", "did you mean %")),
    ("bfloat16 [64]", "bfloat61 [64]", "line 2, column 15", ("dtype bfloat61", "did you mean bfloat16?")),
    ("[D, 64]", "[R, 64]", "line 3, column 24", ("R", "D, the symbol of this method")),
    ("%y = rms", "%x = rms", "line 6, column 3", ("a second %x", "each name once")),
    ("%w, 1e-06)", "%w)", "line 6, column 8", ("eps", "dsv41c::rms_norm(Tensor x")),
    ("%w, 1e-06)", '%w, "a")', "line 6, column 8", ("dsv41c::rms_norm",)),
    ("%w, 1e-06)", "%w, eps=1e-06, 1)", "line 6, column 36", ("arguments with names behind",)),
    ("%w, 1e-06)", "%w, eps=1e-06, eps=1e-06)", "line 6, column 36", ("a second argument eps",)),
    ("%y = rms", "rms", "line 6, column 3", ("without a name for its result", "%name = rms_norm(...)")),
    ("%y = rms", "%y, %b = rms", "line 6, column 12", ("2 names", "1, the number of results")),
    ("  window_commit", "  %q = window_commit", "line 7, column 8", ("a value of window_commit", "gives none")),
    ("[-1, 4, 16]", "[-1, 4, 17]", "line 8, column 8", ("view",)),
    ("%v = view(%y, [-1, 4, 16])", "%v = view(%y, [8191, 4, 16])", "line 1, column 22", ("fixes D",)),
    ("return y=%y", "return y=%rowz", "line 9, column 12", ("did you mean %rows?",)),
    ("return y=%y, bridge v=%v", "return bridge v=%v, y=%y", "line 9, column 23", ("bridges behind",)),
    ("  return y=%y, bridge v=%v\n", "", "line 9, column 1", ("begins with return",)),
    ("}\n", "", "line 10, column 1", ("the end of the text", "}")),
    ("1..16", "0..16", "line 1, column 22", ("bounds of at least 1",)),
    ("1..16", "1.5..16", "line 1, column 25", ("an integer",)),
    ("= \"x\"", "= x", "line 3, column 33", ("in quotes",)),
    ("%x, %w", "%x; %w", "line 6, column 19", ("';'",)),
    ("  %v =", "  %torch =", "line 8, column 3", ("a reserved name",)),
    ("%v = view(%y, [-1, 4, 16])", "%v = view(%y, [-1, 4, 16]) %w", "line 8, column 30", ("the end of the line",)),
    ("%v = view(%y, [-1, 4, 16])", "%v = view(%y, [-1, 4, 16]) as %w", "line 8, column 33", ("one name",)),
    ("bridge v=%v", "bridge v=%t, bridge t=%v", "line 9, column 25", ("value %t",)),
]


def refusal(text: str) -> Dsv41cError:
    with pytest.raises(Dsv41cError) as caught:
        parse_program(text)
    return caught.value


def test_the_good_text_is_good() -> None:
    assert list(parse_program(GOOD).methods) == ["decode"]


@pytest.mark.parametrize(("old", "new", "place", "words"), BROKEN, ids=[f"{o}->{n}"[:40] for o, n, _, _ in BROKEN])
def test_every_mistake_has_its_place(old: str, new: str, place: str, words: tuple[str, ...]) -> None:
    assert GOOD.count(old) >= 1
    error = refusal(GOOD.replace(old, new, 1))
    assert (error.code, error.where) == ("DSV41C-E0306", place), str(error)
    for word in words:
        assert word in str(error), str(error)


@pytest.mark.parametrize("text", ["", "  # nothing\n", "hello", GOOD + GOOD])
def test_what_is_no_program(text: str) -> None:
    assert refusal(text).code == "DSV41C-E0306"


def test_a_tuple_is_no_result() -> None:
    error = refusal('''method m rows D in 1..2 {
  input %rows : int32 [D, 8] = "rows"
  weight %embed : bfloat16 [96, 32] = "embed.weight"
  %t = embed_expand(%rows, %embed, 4, bfloat16)
  return out=%t
}''')
    assert error.where == "line 5, column 14" and "no tensor" in error.found
