"""Requests of `dsv41c run` from its three prompt options; every mistake names its place (E0902)."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.requests import Request

Encode = Callable[[str], list[int]]
_ID = re.compile(r"[+-]?[0-9]{1,30}")
LINE_KEYS = ("prompt", "prompt_ids", *(f.name for f in dataclasses.fields(Request) if f.name != "prompt_ids"))


@dataclass(frozen=True)
class PromptOptions:
    """Exactly one of the three is given. `defaults` holds the settings that a line may override."""

    prompt: str | None
    prompt_ids: str | None
    prompts_file: Path | None
    defaults: Request

    def requests(self, encode: Encode) -> dict[str, Request]:
        """By the place each one comes from, which later checks name."""
        given = [x for x in (self.prompt, self.prompt_ids, self.prompts_file) if x is not None]
        if len(given) != 1:
            raise _bad("prompt options", f"{len(given)} of --prompt, --prompt-ids, --prompts-file", "exactly one")
        if self.prompt is not None:
            return {"--prompt": self._request(encode(self.prompt))}
        if self.prompt_ids is not None:
            return {"--prompt-ids": self._request(parse_ids(self.prompt_ids))}
        assert self.prompts_file is not None
        places = {f"{self.prompts_file}:{number}": text for number, text in _lines(self.prompts_file)}
        return {place: self._line(text, place, encode) for place, text in places.items()}

    def _request(self, ids: Sequence[int]) -> Request:
        return dataclasses.replace(self.defaults, prompt_ids=ids)

    def _line(self, text: str, where: str, encode: Encode) -> Request:
        """A JSON string (text), a list (ids), or an object with `prompt` or `prompt_ids` and settings."""
        try:
            node: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad("line of the prompts file", str(error), "JSON", where) from error
        fields = {"prompt": node} if isinstance(node, str) else {"prompt_ids": node} if isinstance(node, list) else node
        if not isinstance(fields, dict):
            raise _bad("line of the prompts file", f"a JSON {type(node).__name__}", "a string, list or object", where)
        if unknown := sorted(set(fields) - set(LINE_KEYS)):
            raise _bad("line of the prompts file", f"key {unknown[0]}", f"keys out of: {' '.join(LINE_KEYS)}", where)
        if ("prompt" in fields) == ("prompt_ids" in fields):
            raise _bad("line of the prompts file", f"keys {' '.join(fields) or 'none'}",
                       "exactly one of prompt, prompt_ids", where)
        ids = fields.get("prompt_ids")
        if "prompt" in fields:
            ids = encode(_typed(fields.pop("prompt"), str, "prompt", where))
        return dataclasses.replace(self.defaults, **fields | {"prompt_ids": _typed(ids, list, "prompt_ids", where)})


def parse_ids(text: str) -> list[int]:
    """`1,2,3`; blanks around a number are allowed."""
    ids = []
    for index, piece in enumerate(text.split(",")):
        if not _ID.fullmatch(piece.strip()):
            raise _bad(f"--prompt-ids, id at index {index}", repr(piece[:40]), "integers separated by commas")
        ids.append(int(piece))
    return ids


def _lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines that are not blank."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad("--prompts-file", str(error), "a readable file of JSON lines in UTF-8", str(path)) from error
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise _bad("--prompts-file", "no lines", "one request on each line", str(path))
    return lines


def _typed(value: Any, kind: type, name: str, where: str) -> Any:
    if not isinstance(value, kind):
        needed = "a string" if kind is str else "a list of ids"
        raise _bad(f"{name} of a line", f"a JSON {type(value).__name__}", needed, where)
    return value


def _bad(subject: str, found: str, needed: str, where: str | None = None) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0902", subject, where=where, found=found, needed=needed, do="correct the prompt option")
