"""Converts values of the language for readers and JSON."""

import math
from typing import Any

import numpy as np

from candlewright_cep.types import Kind, SqlType

Value = str | float | int | bool | None


def plain(value: Any, kind: SqlType) -> Value:
    """Times as ISO text with nanoseconds and Z, intervals as seconds, numbers that JSON lacks as text."""
    if value is None or isinstance(value, bool | str):
        return value
    if kind.is_time:
        return iso(value)
    if kind.kind is Kind.INTERVAL:
        return float(value / 1e9)
    if kind.kind is Kind.DECIMAL:
        return f"{value:f}"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, int) else str(value)


def iso(nanoseconds: int) -> str:
    return f"{np.datetime64(nanoseconds, 'ns')}Z"


def shown(value: Any, kind: SqlType) -> str:
    """As written in the text of a trigger."""
    found = plain(value, kind)
    if found is None:
        return "NULL"
    if kind.kind is Kind.DECIMAL:
        return str(found)
    if isinstance(found, bool):
        return str(found).upper()
    if isinstance(found, float):
        return f"{found:.12g}"
    if isinstance(found, str):
        quoted = "'" + found.replace("'", "''") + "'"
        return f"TIMESTAMP {quoted}" if kind.is_time else quoted
    return str(found)
