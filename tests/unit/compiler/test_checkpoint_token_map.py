"""Engram token map: the normaliser's rule, the real vocabulary's count of keys, and loading."""

import json
import time

import pytest

from dsv41c.compiler.checkpoint.demo_tokenizer import DemoTokenizer
from dsv41c.compiler.checkpoint.presets import tiny
from dsv41c.compiler.checkpoint.token_map import build_token_map, load_token_map, normalise
from dsv41c.runtime.plan.errors import Dsv41cError


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (" The", "the"),
        ("\u00c9t\u00e9", "ete"),
        ("\ufb01", "fi"),
        (" ", " "),
        ("\n\t ", " "),
        ("a \t\r\n b", "a b"),
        ("\u0301", "\u0301"),  # folds to nothing, so it stays
        ("", ""),
    ],
)
def test_normaliser(text: str, key: str) -> None:
    assert normalise(text) == key


def test_real_vocabulary_has_the_published_number_of_keys() -> None:
    tokenizer = DemoTokenizer.find().tokenizer_json
    start = time.perf_counter()
    ids = build_token_map(tokenizer)
    assert time.perf_counter() - start < 3
    assert len(ids) == 129_280
    assert max(ids) + 1 == len(set(ids)) == 99_092
    vocabulary = tokenizer["model"]["vocab"]
    assert ids[vocabulary["\u0120the"]] == ids[vocabulary["The"]] == ids[vocabulary["the"]]


def test_real_tokenizer_knows_the_system_marker() -> None:
    (entry,) = [e for e in DemoTokenizer.find().tokenizer_json["added_tokens"] if e["id"] == 128799]
    assert (entry["content"], entry["special"], entry["normalized"]) == ("<\uff5cSystem\uff5c>", False, True)


def test_loading_checks_the_map(tmp_path) -> None:
    good = [token % 40 for token in range(96)]
    path = tmp_path / "engram_token_map.json"
    path.write_text(json.dumps(good))
    assert load_token_map(tiny(), tmp_path).tolist() == good
    for bad in (good[1:], [*good[1:], 40], [*good[1:], -1], [], {"a": 1}, [*good[1:], 1.5]):
        path.write_text(json.dumps(bad))
        with pytest.raises(Dsv41cError, match="E0104"):
            load_token_map(tiny(), tmp_path)
    path.unlink()
    with pytest.raises(Dsv41cError, match="E0101"):
        load_token_map(tiny(), tmp_path)
