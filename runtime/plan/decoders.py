"""Strict decoders derived from the schema's types: a wrong type, key or case is E0501 with its path."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable

from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import INT64_MAX, INT64_MIN, Expr, describe, from_json
from dsv41c.runtime.plan.reflection import field_types, members, tag_of, tagged_cases
from dsv41c.runtime.plan.schema import DTYPES, INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, PAD_RULES, SWIZZLES

Decoder = Callable[[object, str], object]

SCALAR_WORDS: dict[object, str] = {int: "an integer", bool: "a boolean", str: "a string", type(None): "null"}
# Strings with few allowed values are refused here, so that both sides can hold them as codes.
CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": tuple(DTYPES), "pads": PAD_RULES, "interleave": INTERLEAVES, "swizzle": SWIZZLES,
    "l2_promotion": L2_PROMOTIONS, "oob_fill": OOB_FILLS,
}
HEX_FLOAT = re.compile(r"-?(0x[0-9a-f]\.[0-9a-f]+p[+-][0-9]+|inf)|nan", re.ASCII)


def malformed(subject: str, path: str, found: str, needed: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0501", subject, where=path, found=found, needed=needed,
                       do="rebuild the plan with this version of dsv41c")


@functools.cache
def decoder(kind: object) -> Decoder:
    """The decoder of a type of the schema."""
    if kind == Expr:
        return from_json
    if kind in SCALAR_WORDS or len(members(kind)) > 1:
        return _union(kind)
    origin = typing.get_origin(kind)
    if origin is tuple:
        return _array(decoder(typing.get_args(kind)[0]))
    if origin is dict:
        return _mapping(decoder(typing.get_args(kind)[1]))
    assert isinstance(kind, type)
    return _tagged({tag.name: kind}, "") if (tag := tag_of(kind)) else _fields(kind)


def _union(kind: object) -> Decoder:
    """Scalars by exact type (a boolean is no integer), else one of the tagged cases."""
    scalars = tuple(member for member in members(kind) if member in SCALAR_WORDS)
    words = " or ".join(SCALAR_WORDS[member] for member in scalars)
    cases = tagged_cases(kind)
    tagged = _tagged(cases, words) if cases else None

    def decode(node: object, path: str) -> object:
        if type(node) in scalars:
            if type(node) is int and not INT64_MIN <= node <= INT64_MAX:
                raise malformed("integer outside int64", path, describe(node), "an int64")
            return node
        if tagged is None:
            raise malformed("wrong type", path, describe(node), words)
        return tagged(node, path)

    return decode


def _tagged(cases: dict[str, type], words: str) -> Decoder:
    kinds = {name: _fields(cls, "kind") for name, cls in cases.items() if _form(cls) == "kind"}
    keyed = {name: _keyed(cls) for name, cls in cases.items() if _form(cls) != "kind"}
    needed = "an object with " + ("kind one of " if kinds else "one key of ") + " ".join(cases)
    needed = f"{words} or {needed}" if words else needed

    def decode(node: object, path: str) -> object:
        if isinstance(node, dict):
            kind = node.get("kind")
            if isinstance(kind, str) and kind in kinds:
                return kinds[kind](node, path)
            key = next(iter(node)) if len(node) == 1 else None
            if key in keyed:
                return keyed[key](node[key], f"{path}.{key}")
        raise malformed("unknown case", path, describe(node), needed)

    return decode


def _form(cls: type) -> str:
    tag = tag_of(cls)
    return tag.form if tag else ""


def _keyed(cls: type) -> Decoder:
    """The part under the tag's key: an object of the fields, the only field, or true."""
    if _form(cls) == "object":
        return _fields(cls)
    if not field_types(cls):
        return functools.partial(_true, cls)
    [(name, kind)] = field_types(cls).items()
    inner = _chosen(name, decoder(kind))
    return lambda node, path: cls(inner(node, path))


def _true(cls: type, node: object, path: str) -> object:
    if node is not True:
        raise malformed("wrong type", path, describe(node), "true")
    return cls()


def _fields(cls: type, extra: str = "") -> Decoder:
    """An object with exactly the fields of the dataclass (and the key that held its tag)."""
    parts = {name: _chosen(name, decoder(kind)) for name, kind in field_types(cls).items()}
    known = {*parts, extra} - {""}

    def decode(node: object, path: str) -> object:
        if not isinstance(node, dict):
            raise malformed("wrong type", path, describe(node), "an object")
        if unknown := sorted(set(node) - known):
            raise malformed("unknown key", f"{path}.{unknown[0]}", unknown[0], "one of: " + " ".join(parts))
        if missing := [name for name in parts if name not in node]:
            raise malformed("missing key", path, f"no key {missing[0]}", "keys: " + " ".join(parts))
        return cls(**{name: part(node[name], f"{path}.{name}") for name, part in parts.items()})

    return decode


def _chosen(name: str, inner: Decoder) -> Decoder:
    """Refuses strings that are no dtype, pad rule or hex float where the field's name says so."""
    if name not in CHOICES and name != "hex":
        return inner

    def decode(node: object, path: str) -> object:
        text = str(inner(node, path))
        if name in CHOICES and text not in CHOICES[name]:
            raise malformed(f"unknown {name}", path, describe(text), "one of: " + " ".join(CHOICES[name]))
        if name == "hex" and not HEX_FLOAT.fullmatch(text):
            raise malformed("not a hex float", path, describe(text), "a float as 0x1.8p+0, inf, -inf or nan")
        return text

    return decode


def _array(item: Decoder) -> Decoder:
    def decode(node: object, path: str) -> object:
        if not isinstance(node, list):
            raise malformed("wrong type", path, describe(node), "an array")
        return tuple(item(element, f"{path}[{i}]") for i, element in enumerate(node))

    return decode


def _mapping(item: Decoder) -> Decoder:
    def decode(node: object, path: str) -> object:
        if not isinstance(node, dict):
            raise malformed("wrong type", path, describe(node), "an object")
        return {key: item(element, f"{path}.{key}") for key, element in node.items()}

    return decode
