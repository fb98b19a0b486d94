"""A running trigger's state as bytes: its rows, and JSON forms for the values that JSON lacks."""

import json
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from candlewright_cep.planning.relation import from_table
from candlewright_cep.streaming.rows.release import Rows
from candlewright_cep.table_bytes import bytes_of_batch, table_of
from candlewright_cep.types import Kind
from candlewright_cep.vector import Vector

_NAME = "decimal"


def as_json(value: Any) -> dict[str, str]:
    """For `json.dumps(…, default=as_json)`."""
    if isinstance(value, Decimal):
        return {_NAME: str(value)}
    raise TypeError(type(value).__name__)


def unpacked(text: str) -> Any:
    """Decodes a text written with `as_json`; tuples come back as lists."""
    return json.loads(text, object_hook=_read if f'{{"{_NAME}":' in text else None)


def _read(found: dict[str, Any]) -> Any:
    return Decimal(found[_NAME]) if len(found) == 1 and isinstance(found.get(_NAME), str) else found


def packed_rows(rows: Rows) -> bytes:
    """As an Arrow stream."""
    width = rows.relation.width
    arrays = [_array(rows.relation.column(index)) for index in range(width)]
    arrays += [pa.array(rows.time), pa.array(rows.sequence), rows.ticker]
    return bytes_of_batch(pa.RecordBatch.from_arrays(arrays, names=_names(width)))


@lru_cache(maxsize=256)
def _names(width: int) -> list[str]:
    return [*(f"c{index}" for index in range(width)), "time", "sequence", "ticker"]


def _array(column: Vector) -> pa.Array:
    return _nulls(column.length) if column.type.kind is Kind.NULL else column.to_arrow()


@lru_cache(maxsize=256)
def _nulls(length: int) -> pa.Array:
    """Columns that are not kept; the same array takes no memory for its rows."""
    return pa.nulls(length)


def unpacked_rows(blob: bytes) -> Rows:
    """The inverse of `packed_rows`. Raises pyarrow.ArrowInvalid."""
    table = table_of(blob)
    width = table.num_columns - 3
    columns = [table.column(width + index).combine_chunks() for index in range(3)]
    return Rows(
        from_table(table.select(range(width))),
        columns[0].to_numpy(zero_copy_only=False),
        columns[1].to_numpy(zero_copy_only=False),
        columns[2],
    )
