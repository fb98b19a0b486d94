"""Settings: each group of `core.settings`, its keys, types, defaults and comments."""

import typing
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from candlewright.settings.loading import PREFIX
from core.settings import Settings
from documentation.markdown import code, comments_of_fields, page, table

INTRODUCTION = f"""
A setting comes from the command line, else from the environment, else from the TOML file, else from its default.
In the environment a setting's name is its group and key in capitals, joined by two underscores: `[broker]
lease_seconds` is `{PREFIX}BROKER__LEASE_SECONDS`. Lists and maps are JSON there. `candlewright config show` prints the
effective settings.
[Operations](../operations.md#settings) explains them by task.
"""


def markdown() -> str:
    blocks = [INTRODUCTION]
    for name, model in groups(Settings):
        comments = comments_of(model)
        rows = [
            (code(key), type_of(field.annotation), default_of(field), comments.get(key, ""))
            for key, field in sorted(model.model_fields.items())
            if not nested(field.annotation)
        ]
        if rows:
            blocks.append(f"## {f'`[{name}]`' if name else 'Top level'}")
            blocks.append(table(("key", "type", "default", "meaning"), rows))
    return page("Settings", *blocks)


def groups(model: type[BaseModel], name: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Every group of settings, by its name in the file."""
    yield name, model
    for key, field in sorted(model.model_fields.items()):
        below = nested(field.annotation)
        if below is not None:
            placeholder = "" if isinstance(field.annotation, type) else ".NAME"
            yield from groups(below, f"{name}.{key}".lstrip(".") + placeholder)


def nested(annotation: Any) -> type[BaseModel] | None:
    """The group that a field holds, or a map of names to."""
    for kind in (annotation, *get_args(annotation)[1:]):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def comments_of(model: type[BaseModel]) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and not base.__module__.startswith("pydantic"):
            found |= comments_of_fields(base)
    return found


def type_of(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(code(value) for value in arguments)
    if origin in (typing.Union, UnionType):
        return " or ".join(type_of(kind) for kind in arguments if kind is not type(None))
    if origin in (list, tuple):
        return f"list of {type_of(arguments[0])}"
    if origin is dict or getattr(origin, "__name__", "") == "Mapping":
        return f"map to {type_of(arguments[1])}"
    if hasattr(annotation, "__metadata__"):
        return type_of(arguments[0])
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return ""
    if isinstance(value, bool):
        return code(str(value).lower())
    if value in ("", (), [], {}) or value is None:
        return "empty"
    if isinstance(value, int | float):
        return code(f"{value:g}" if abs(value) < 1e5 else f"{value:,.0f}")
    if isinstance(value, tuple | list):
        return code(list(value))
    return code(value)
