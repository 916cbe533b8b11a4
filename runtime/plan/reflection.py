"""Reads the schema's dataclasses: their JSON keys, their types and the cases of their tagged unions."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing

from dsv41c.runtime.plan.schema import Tag


@functools.cache
def field_types(cls: type) -> dict[str, object]:
    """JSON key to resolved type of every field, in declaration order."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def tag_of(cls: type) -> Tag | None:
    tag: Tag | None = getattr(cls, "TAG", None)
    return tag


@functools.cache
def members(kind: object) -> tuple[object, ...]:
    """The members of a union; a type that is no union is its own only member."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return typing.get_args(kind)
    return (kind,)


@functools.cache
def tagged_cases(kind: object) -> dict[str, type]:
    """Tag name to dataclass for the tagged members of a union."""
    cases: dict[str, type] = {}
    for member in members(kind):
        tag = tag_of(member) if isinstance(member, type) else None
        if tag is not None and isinstance(member, type):
            cases[tag.name] = member
    return cases
