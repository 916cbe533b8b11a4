"""Parses program text. Shapes and dtypes of results are not read but inferred, by the fakes of the ops that make them.

    method  = "method" NAME AXIS SYMBOL "in" LO ".." HI "{" line* "return" [result ("," result)*] "}"
    line    = ("weight" | "state" | "input" | "bridge") REF ":" DTYPE "[" sizes "]" "=" STRING
            | [REF "=" | (REF | "_") "," ... "="] OP "(" arguments ")" ["as" REF]
    result  = ["bridge"] NAME "=" REF
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from dsv41c.compiler.program import Method, Origin, Program, Symbol
from dsv41c.compiler.program_text.builder import MethodBuilder
from dsv41c.compiler.program_text.scanner import END, Token, refuse, scan, unknown

_T = TypeVar("_T")
_ORIGINS = {origin.value: origin for origin in Origin}
_WORDS = {"True": True, "False": False, "None": None}


def parse_program(text: str) -> Program:
    """E0306 with line and column for everything that is no program."""
    return _Parser(scan(text)).program()


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    # --- tokens -----------------------------------------------------------------------------------------

    @property
    def _here(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._here
        self._next += token.kind != END
        return token

    def _is(self, text: str) -> bool:
        return self._here.text == text and self._here.kind in ("mark", "word")

    def _maybe(self, text: str) -> bool:
        found = self._is(text)
        self._next += found
        return found

    def _expect(self, text: str) -> Token:
        if not self._is(text):
            raise refuse(self._here, str(self._here), text)
        return self._take()

    def _expect_kind(self, kind: str, needed: str) -> Token:
        if self._here.kind != kind:
            raise refuse(self._here, str(self._here), needed)
        return self._take()

    def _skip_lines(self) -> None:
        while self._here.kind == "line":
            self._next += 1

    def _end_line(self) -> None:
        if self._here.kind not in ("line", END) and not self._is("}"):
            raise refuse(self._here, str(self._here), "the end of the line")
        self._skip_lines()

    def _list(self, close: str, item: Callable[[], _T]) -> list[_T]:
        items: list[_T] = []
        while not self._is(close):
            items.append(item())
            if not self._is(close):
                self._expect(",")
        self._expect(close)
        return items

    # --- methods ----------------------------------------------------------------------------------------

    def program(self) -> Program:
        methods: dict[str, Method] = {}
        self._skip_lines()
        while self._here.kind != END or not methods:
            start = self._expect("method")
            method = self._method()
            if method.name in methods:
                raise refuse(start, f"a second method {method.name}", "another name")
            methods[method.name] = method
            self._skip_lines()
        return Program(methods)

    def _method(self) -> Method:
        name, axis, symbol = (self._expect_kind("word", needed).text
                              for needed in ("the name of the method", "the name of its axis", "a symbol for its rows"))
        start = self._expect("in")
        lo = self._integer()
        self._expect("..")
        hi = self._integer()
        if not 1 <= lo <= hi:
            raise refuse(start, f"{lo}..{hi}", "bounds of at least 1 in ascending order")
        self._expect("{")
        self._skip_lines()
        builder = MethodBuilder(symbol)
        while not self._is("return"):
            self._line(builder)
        outputs, bridges = self._results(builder)
        return Method(name, axis, Symbol(symbol, lo, hi), builder.finish(start), outputs, bridges)

    def _line(self, builder: MethodBuilder) -> None:
        if self._is("}"):
            raise refuse(self._here, "}", "a line that begins with return before the end of the method")
        if self._here.kind == "word" and self._here.text in _ORIGINS:
            self._declaration(builder)
        else:
            self._call(builder)
        self._end_line()

    def _declaration(self, builder: MethodBuilder) -> None:
        origin = _ORIGINS[self._take().text]
        node = self._expect_kind("ref", "the %value it declares")
        self._expect(":")
        dtype = self._dtype(self._expect_kind("word", "a dtype"))
        self._expect("[")
        sizes = self._list("]", lambda: self._size(builder))
        self._expect("=")
        name = json.loads(self._expect_kind("string", 'the name in quotes').text)
        builder.declare(node, origin, name, dtype, sizes)

    def _size(self, builder: MethodBuilder) -> tuple[int, int]:
        """(slope, base) of a size over the symbol."""
        slope, base = 1, 0
        if self._here.kind == "number":
            number = self._integer()
            if not self._maybe("*"):
                return 0, number
            slope = number
        token = self._expect_kind("word", f"a number or {builder.symbol}")
        if token.text != builder.symbol:
            raise refuse(token, token.text, f"a number or {builder.symbol}, the symbol of this method")
        if self._here.kind == "number" or self._is("+") or self._is("-"):
            sign = -1 if self._maybe("-") else 1
            self._maybe("+")
            base = sign * self._integer()
        return slope, base

    def _results(self, builder: MethodBuilder) -> tuple[tuple[str, ...], tuple[str, ...]]:
        self._expect("return")
        names: dict[bool, list[str]] = {False: [], True: []}  # is it a bridge?
        while self._here.kind not in ("line", END) and not self._is("}"):
            start, is_bridge = self._here, self._maybe("bridge")
            if names[True] and not is_bridge:
                raise refuse(start, str(start), "bridges behind all other results")
            token = self._take()
            if token.kind not in ("word", "string"):
                raise refuse(token, str(token), "the name of a result")
            names[is_bridge].append(json.loads(token.text) if token.kind == "string" else token.text)
            self._expect("=")
            builder.give(self._expect_kind("ref", "the %value that is returned"))
            if not self._maybe(","):
                break
        self._end_line()
        self._expect("}")
        return tuple(names[False]), tuple(names[True])

    # --- calls ------------------------------------------------------------------------------------------

    def _call(self, builder: MethodBuilder) -> None:
        left, is_list = self._left()
        callee = self._expect_kind("word", "an op, a declaration (weight, state, input, bridge) or return")
        self._expect("(")
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        self._list(")", lambda: self._argument(builder, args, kwargs))
        name = self._expect_kind("ref", "the %name of the call") if self._maybe("as") else None
        if name is not None and left and not is_list:
            raise refuse(name, f"as {name}", "one name for one value")
        builder.call(callee, args, kwargs, left, is_list, name)

    def _left(self) -> tuple[list[Token | None], bool]:
        """What stands left of the =, None for _; and whether it takes the results apart."""
        left: list[Token | None] = []
        is_list = False
        while self._here.kind == "ref" or self._is("_"):
            token = self._take()
            left.append(token if token.kind == "ref" else None)
            if not self._maybe(","):
                break
            is_list = True
        if left:
            self._expect("=")
        return left, is_list or left == [None]

    def _argument(self, builder: MethodBuilder, args: list[Any], kwargs: dict[str, Any]) -> None:
        following = self._tokens[self._next + 1]
        if self._here.kind == "word" and following.text == "=":
            token = self._take()
            self._take()
            if token.text in kwargs:
                raise refuse(token, f"a second argument {token.text}", "each argument once")
            kwargs[token.text] = self._value(builder)
        elif kwargs:
            raise refuse(self._here, str(self._here), "arguments with names behind those without")
        else:
            args.append(self._value(builder))

    def _value(self, builder: MethodBuilder) -> Any:
        token = self._take()
        match token.kind:
            case "ref":
                return builder.node(token)
            case "number":
                is_float = any(c in token.text for c in ".eEn")
                return float(token.text) if is_float else int(token.text)
            case "string":
                return json.loads(token.text)
            case "mark" if token.text == "[":
                return self._list("]", lambda: self._value(builder))
            case "word":
                return _WORDS[token.text] if token.text in _WORDS else self._dtype(token)
        raise refuse(token, str(token), "a %value, number, string, dtype, True, False, None or a list of these")

    def _integer(self) -> int:
        token = self._expect_kind("number", "an integer")
        if not token.text.removeprefix("-").isdecimal():
            raise refuse(token, token.text, "an integer")
        return int(token.text)

    @staticmethod
    def _dtype(token: Token) -> torch.dtype:
        dtype = getattr(torch, token.text, None)
        if not isinstance(dtype, torch.dtype):
            known = [name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)]
            raise unknown(token, "dtype", token.text, known)
        return dtype
