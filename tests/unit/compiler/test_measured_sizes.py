"""Files of measured sizes: what is read is what was written; every bad file says where, what and what is needed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.compiler.measured_sizes import MOST_COUNT, check_sizes, histogram_of, read_histogram, words_of
from dsv41c.compiler.option_checks import METHODS
from dsv41c.runtime.plan.errors import Dsv41cError

SIZES = st.dictionaries(st.integers(1, 10**9), st.integers(0, MOST_COUNT), min_size=1)


@given(st.dictionaries(st.sampled_from(METHODS), SIZES, min_size=1))
def test_what_is_read_is_what_was_written(histogram: dict[str, dict[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sizes.json"
        path.write_text(json.dumps(histogram))
        found = read_histogram(path)
    assert found == histogram == histogram_of(words_of(found))
    assert all(list(sizes) == sorted(sizes) for sizes in found.values())


@pytest.mark.parametrize(("text", "words"), [
    ("{", "Expecting"), ("[]", "no object of methods"), ("{}", "no object of methods"), ("[" * 100_000, "recursion"),
    ('{"decode": {}}', "decode: {}"), ('{"decode": {"1": 1.5}}', "1.5"), ('{"decode": {"1": true}}', "true"),
    ('{"decode": {"one": 1}}', "one"), ('{"decodes": {"1": 1}}', "decodes"), ('{"decode": [1]}', "[1]"),
    ('{"decode": {"1": 1, "1": 2}}', "key 1 twice"), ('{"decode": {"1": 1, "01": 2}}', "size 1 twice"),
    ('{"decode": {"0": 1}}', "size 0"), ('{"decode": {"-4": 1}}', "size -4"), ('{"decode": {"1": -1}}', "count -1"),
    ('{"decode": {"' + "9" * 5000 + '": 1}}', "999"), ('{"decode": {"1": 4611686018427387904}}', "4611686018427387904"),
    ("\xff", "codec"),
])
def test_a_bad_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "sizes.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        read_histogram(path)
    assert words in caught.value.found and caught.value.where == str(path)
    assert caught.value.needed and caught.value.do


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0901"):
        read_histogram(tmp_path / "none.json")


def test_a_size_above_the_bound_is_refused_where_there_is_one() -> None:
    check_sizes("decode", {16: 1}, 16)
    check_sizes("decode", {17: 1}, None)
    with pytest.raises(Dsv41cError, match="nearest: 16"):
        check_sizes("decode", {17: 1}, 16)
