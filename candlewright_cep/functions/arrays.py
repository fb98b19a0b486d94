"""Functions of arrays. Arrays are what ARRAY_AGG makes, and list columns of an input."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep.functions.signatures import Mismatch, Signature, fits
from candlewright_cep.functions.text import written
from candlewright_cep.limits import MADE_TEXT, check_made
from candlewright_cep.types import BIGINT, STRING, Kind, SqlType, from_arrow
from candlewright_cep.vector import Index, Vector, from_column


def item_type(kind: SqlType) -> SqlType:
    """Of the values of an array. Raises Mismatch for other types."""
    if kind.kind is not Kind.OPAQUE or not (pa.types.is_list(kind.arrow) or pa.types.is_large_list(kind.arrow)):
        raise Mismatch
    return from_arrow(kind.arrow.value_type)


def _takes(result: SqlType | None, *further: SqlType, optional: int = 0) -> Signature:
    """An array, then these types; without `result` the result is a value of the array."""

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if not types or not 1 + len(further) - optional <= len(types) <= 1 + len(further):
            raise Mismatch
        item = item_type(types[0])
        if not all(fits(given, wanted) for given, wanted in zip(types[1:], further, strict=False)):
            raise Mismatch
        return [types[0], *further[: len(types) - 1]], result or item

    return resolve


def _opened(array: Vector) -> tuple[Vector, Index, Index]:
    """The values of all arrays, and where those of each begin and how many there are."""
    whole = array.text() if not array.constant else array.expand().text()
    lists = pc.fill_null(pc.list_value_length(whole), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    items = whole.flatten()
    return from_column(items), np.cumsum(lists) - lists, lists


def _joined(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    items, firsts, sizes = _opened(arguments[0])
    try:
        texts: list[str | None] = written(items).to_list() if items.type.kind is not Kind.STRING else items.to_list()
    except Mismatch:
        texts = [None] * items.length
    separators = arguments[1].to_list()
    missing = arguments[2].to_list() if len(arguments) > 2 else [None] * len(separators)
    present = np.broadcast_to(arguments[0].mask, (arguments[0].length,)).tolist()
    found: list[str | None] = []
    for first, size, is_there, separator, instead in zip(
        firsts.tolist(), sizes.tolist(), present, separators, missing, strict=True
    ):
        if not is_there or separator is None:
            found.append(None)
            continue
        parts = (instead if text is None else text for text in texts[first : first + size])
        joined = separator.join(part for part in parts if part is not None)
        found.append(joined if len(joined) <= MADE_TEXT else None)
    check_made(sum(len(text or "") for text in found))
    made = pa.array(found, pa.string())
    return Vector(kind, made, np.array([text is not None for text in found], np.bool_))


def _cardinality(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return Vector(kind, _opened(arguments[0])[2], np.broadcast_to(arguments[0].mask, (arguments[0].length,)))


def _element(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    """Counted from 1, from the end where negative; NULL where there is none."""
    items, firsts, sizes = _opened(arguments[0])
    place = arguments[1].expand()
    wanted = np.where(place.values > 0, place.values - 1, place.values + sizes)
    inside = place.mask & (place.values != 0) & (wanted >= 0) & (wanted < sizes)
    found = items.take(np.where(inside, firsts + np.where(inside, wanted, 0), -1))
    return Vector(kind, found.values, found.valid)


ENTRIES = [
    ("ARRAY_JOIN", _takes(STRING, STRING, STRING, optional=1), _joined),
    ("CARDINALITY", _takes(BIGINT), _cardinality),
    ("ELEMENT_AT", _takes(None, BIGINT), _element),
]
NAMES = tuple(entry[0] for entry in ENTRIES)
