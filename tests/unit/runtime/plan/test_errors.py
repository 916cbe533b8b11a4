"""Every code renders with its fields and ends a command with the exit code of its kind."""

from __future__ import annotations

import pickle

import pytest

from dsv41c.runtime.plan.errors import CODES, Dsv41cError

EXIT_CODES = {2, 3, 4, 5, 6, 70}


@pytest.mark.parametrize("code", CODES)
def test_each_code_renders(code: str) -> None:
    error = Dsv41cError(code, "the subject", where="here", found="1", needed="2", do="that")
    assert str(error) == f"{code} the subject\n  where   here\n  found   1\n  needed  2\n  do      that"
    assert error.exit_code == CODES[code].exit_code in EXIT_CODES
    assert code.startswith("DSV41C-E") and 1 <= int(code[-4:-2]) <= 10


def test_where_is_optional() -> None:
    assert "where" not in str(Dsv41cError("DSV41C-E0901", "x", found="a", needed="b", do="c"))


def test_unknown_code_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Dsv41cError("DSV41C-E9999", "x", found="a", needed="b", do="c")


@pytest.mark.parametrize("where", [None, "there"])
def test_survives_json_and_pickle(where: str | None) -> None:
    error = Dsv41cError("DSV41C-E0501", "x", where=where, found="a", needed="b", do="c")
    assert Dsv41cError.from_json(error.to_json()).to_json() == error.to_json()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
