"""Reads any CSV with a header whose columns are named as in `lake.market.ohlc`, or by a mapping."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.times import to_nanoseconds
from datasets.archives.candles import Candles, Wanted, checked, times
from datasets.archives.files import MAX_BYTES, BadFile, Lines, kept, read_lines, unpacked

REQUIRED = ("open_time", "open", "high", "low", "close", "volume")
OPTIONAL = ("quote_volume", "trade_count")
#: What a mapping names.
OWN_COLUMNS = (*REQUIRED, *OPTIONAL)


def read(file: Path, wanted: Wanted) -> Candles:
    """The wanted candles. Raises BadFile."""
    if wanted.period_seconds is None:
        raise BadFile(file, "a CSV does not say how long its candles are: add --period")
    names = {name: name for name in OWN_COLUMNS} | (wanted.mapping or {})

    def found(columns: Sequence[str]) -> list[str]:
        for name in (*REQUIRED, *(wanted.mapping or {})):
            if names[name] not in columns:
                hint = "" if name in (wanted.mapping or {}) else f" (--mapping {name}=COLUMN names another one)"
                listed = ", ".join(columns)[:200]
                raise BadFile(file, f"it has no column {names[name]}{hint}; its columns are: {listed}")
        return [column for column in columns if column in names.values()]

    with kept(file) as original, unpacked(file, original, MAX_BYTES) as content:
        lines = read_lines(file, content, wanted=found)
    columns = lines.table.column_names
    quote_volume, trade_count = (names[name] if names[name] in columns else "" for name in OPTIONAL)
    return checked(
        lines,
        wanted,
        wanted.period_seconds,
        opens=_opens(lines, names["open_time"]),
        names=[names[name] for name in REQUIRED[1:]],
        quote_volume=quote_volume,
        trade_count=trade_count,
    )


def _opens(lines: Lines, name: str) -> "NDArray[np.int64]":
    """Open times in ns. Integers are times since the epoch; anything else is ISO 8601."""
    column = lines.table[name]
    if pc.match_substring_regex(column.slice(0, 1), "^ *[0-9]+ *$")[0].as_py():
        return times(lines, name)[0]
    found = np.zeros(len(column), np.int64)
    for index, text in enumerate(column.to_pylist()):
        try:
            found[index] = to_nanoseconds(text)
        except InvalidRequest as error:
            raise BadFile(lines.file, f"{name}: {error}", lines.place(index)) from error
    return found
