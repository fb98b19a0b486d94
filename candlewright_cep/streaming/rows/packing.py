"""A running trigger's state as bytes: its rows, and JSON forms for the values that JSON lacks."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from candlewright_cep.planning.relation import from_table
from candlewright_cep.streaming.rows.release import Rows
from candlewright_cep.table_bytes import bytes_of, table_of
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
    columns = {f"c{index}": _array(rows.relation.column(index)) for index in range(rows.relation.width)}
    columns |= {"time": pa.array(rows.time), "sequence": pa.array(rows.sequence), "ticker": rows.ticker}
    return bytes_of(pa.table(columns))


def _array(column: Vector) -> pa.Array:
    return pa.nulls(column.length) if column.type.kind is Kind.NULL else column.to_arrow()


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
