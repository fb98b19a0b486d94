"""Access to parts of a value: JSON_VALUE of a text, and the fields of MAP and STRUCT columns."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep import work
from candlewright_cep.functions.signatures import Mismatch, fixed
from candlewright_cep.functions.usage import Declared, Usage
from candlewright_cep.limits import MADE_TEXT
from candlewright_cep.types import STRING, Kind, SqlType, from_arrow, to_arrow
from candlewright_cep.vector import Vector, from_column

#: Written as column['name'].
FIELD = "FIELD OF"
_MOST_FIELDS = 100
#: The most single values of a ROW with ROWs in it, which subqueries could otherwise double without end.
_MOST_VALUES = 1_000
_STEP = re.compile(
    r'\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\[(?P<place>[0-9]{1,9})\]|(?:\.|\[)"(?P<quoted>[^"]+)"(?P<end>\]?)'
)


@lru_cache(maxsize=1_000)
def path_of(text: str) -> tuple[str | int, ...] | None:
    """The names and indexes of a path such as `$.bids[0].price`; None if it is not a path."""
    written = text.strip().removeprefix("lax").strip()
    if not written.startswith("$"):
        return None
    found: list[str | int] = []
    at = 1
    while at < len(written):
        step = _STEP.match(written, at)
        if step is None or (step["quoted"] is not None and (step.group().startswith("[") != bool(step["end"]))):
            return None
        found.append(int(step["place"]) if step["place"] is not None else step["name"] or step["quoted"])
        at = step.end()
    return tuple(found)


def _value(text: str | None, path: tuple[str | int, ...]) -> str | None:
    """A number as it is written; NULL for an object, an array, null, and text that is not JSON."""
    if text is None:
        return None
    try:
        found: Any = json.loads(text, parse_float=str, parse_int=str, parse_constant=lambda _word: None)
    except (ValueError, RecursionError):
        return None
    for step in path:
        if isinstance(step, int):
            found = found[step] if isinstance(found, list) and step < len(found) else None
        else:
            found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return "true" if found else "false"
    return found if isinstance(found, str) and len(found) <= MADE_TEXT else None


def _json_value(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    path = path_of(extra)
    assert path is not None
    encoded = arguments[0].expand().text().dictionary_encode()
    work.spend(len(encoded.dictionary), work.FOLDED_A_STEP)
    known = pa.array([_value(text, path) for text in encoded.dictionary.to_pylist()], pa.string())
    made = from_column(known.take(encoded.indices))
    return Vector(kind, made.values, made.valid)


def field_type(kind: SqlType, name: str) -> SqlType | None:
    """The type of a MAP's values, or of a field of a STRUCT; None if the STRUCT lacks it. Raises Mismatch for other
    types.
    """
    if kind.kind is Kind.OPAQUE and pa.types.is_map(kind.arrow) and pa.types.is_string(kind.arrow.key_type):
        return from_arrow(kind.arrow.item_type)
    if kind.kind is Kind.OPAQUE and pa.types.is_struct(kind.arrow):
        place = kind.arrow.get_field_index(name)
        return None if place < 0 else from_arrow(kind.arrow.field(place).type)
    raise Mismatch


def field_names(kind: SqlType) -> list[str]:
    """Of a STRUCT; none for other types."""
    if kind.kind is not Kind.OPAQUE or not pa.types.is_struct(kind.arrow):
        return []
    return [kind.arrow.field(place).name for place in range(kind.arrow.num_fields)]


def field_name(kind: SqlType, name: str) -> str | None:
    """The field that `name` means, in any case unless two differ in their case alone; itself for other types."""
    known = field_names(kind)
    if name in known or not known:
        return name
    found = [other for other in known if other.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def _field(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    source = arguments[0].expand()
    array = source.text()
    work.spend(source.length, work.FOLDED_A_STEP)
    is_map = pa.types.is_map(source.type.arrow)
    found = pc.map_lookup(array, pa.scalar(extra), "first") if is_map else pc.struct_field(array, extra)
    made = from_column(found)
    valid = made.mask if is_map else made.mask & np.broadcast_to(source.mask, (source.length,))
    return Vector(kind, made.values, valid)


def row_type(names: Sequence[str], types: Sequence[SqlType]) -> SqlType:
    """The type of ROW(...). Raises Mismatch for too many fields, its own or those of the STRUCTs in it."""
    if len(names) > _MOST_FIELDS:
        raise Mismatch
    found = pa.struct([pa.field(name, to_arrow(kind)) for name, kind in zip(names, types, strict=True)])
    if _width(found) > _MOST_VALUES:
        raise Mismatch
    return SqlType(Kind.OPAQUE, arrow=found)


def _width(kind: pa.DataType) -> int:
    """How many single values a value has, with one value in each array."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _width(kind.value_type)
    return sum(_width(part.type) for part in kind) if pa.types.is_struct(kind) else 1


def _row(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    work.spend(len(arguments) * arguments[0].length)
    parts = [argument.to_arrow() for argument in arguments]
    return Vector(kind, pa.StructArray.from_arrays(parts, fields=list(kind.arrow)), None)


def _nothing(_types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    """Not used: the type of a field depends on its name, see `field_type`."""
    raise Mismatch


ENTRIES: list[Declared] = [
    (
        "JSON_VALUE",
        fixed(STRING, STRING),
        _json_value,
        Usage(
            "JSON_VALUE(text, 'path' RETURNING type)",
            "the value at a path of a text of JSON; a text without RETURNING",
            "JSON_VALUE('{\"a\": [5]}', '$.a[0]' RETURNING BIGINT) = 5",
            "NULL if an argument is NULL, or the path leads to no value",
        ),
    ),
    (FIELD, _nothing, _field, None),
    (
        "ROW",
        _nothing,
        _row,
        Usage(
            "ROW(x AS name, …)",
            "the values as one, each under its name; row.name or row['name'] is one of them; also STRUCT(…)",
            "ROW(2 AS low, 3 AS high).high = 3",
            "never NULL itself",
        ),
    ),
]
