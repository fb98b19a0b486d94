"""Reads recordings from files: candles as CSV or Parquet, trades as recorded websocket frames or Parquet."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from sandbox.markets.instruments import utc_ms

Trade = tuple[int, str, str, int, bool]
_TIME_NAMES = ("open_time", "timestamp", "time", "date")
_COLUMNS = ("open", "high", "low", "close", "volume")
_FURTHER = ("close_time", "quote_volume", "count", "taker_volume", "taker_quote_volume")


def read_candles(path: Path) -> list[list[Any]]:
    """Rows of (open time ms, o, h, l, c, v), or of twelve columns if the file has quote_volume, count and so on.

    The time column is open_time, timestamp, time or date: ISO text, or a number in s, ms, us or ns. Raises ValueError
    if a column is missing, OSError if the file cannot be read.
    """
    records = _parquet_records(path) if path.suffix == ".parquet" else list(_csv_records(path))
    rows = []
    for number, record in enumerate(records):
        name = next((name for name in _TIME_NAMES if name in record), None)
        if name is None or any(column not in record for column in _COLUMNS):
            raise ValueError(f"{path}: row {number}: expected {', '.join(_COLUMNS)} and a time")
        row = [_milliseconds(record[name]), *(record[column] for column in _COLUMNS)]
        if all(column in record for column in _FURTHER):
            row += [*(record[column] for column in _FURTHER), "0"]
        rows.append(row)
    return rows


def read_trades(paths: Iterable[Path]) -> dict[str, list[Trade]]:
    """Trades by symbol from recorded frames: lines `receive time in ns, space, JSON`, gzipped or not.

    Skips frames other than `trade` events. Raises ValueError for a line that is not a frame.
    """
    found: dict[str, list[Trade]] = {}
    for path in paths:
        for number, line in enumerate(_lines(path), 1):
            _, space, text = line.partition(b" ")
            try:
                frame = orjson.loads(text if space else line)
            except orjson.JSONDecodeError as error:
                raise ValueError(f"{path}: line {number} is not a frame") from error
            event = frame.get("data", frame) if isinstance(frame, dict) else {}
            if event.get("e") == "trade":
                trade = (event["t"], event["p"], event["q"], event["T"], not event["m"])
                found.setdefault(event["s"], []).append(trade)
    return found


def _lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        for line in stream:
            if line.strip():
                yield line


def _csv_records(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as stream:
        yield from csv.DictReader(stream)


def _parquet_records(path: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet  # imported here because a sandbox without recordings does not need it

    records: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return records


def _milliseconds(value: object) -> int:
    if isinstance(value, datetime):
        return utc_ms(value.isoformat())
    text = str(value)
    if not text.lstrip("-").isdecimal():
        return utc_ms(text)
    number = int(text)
    for limit, scale in ((10**11, 1000), (10**14, 1)):
        if abs(number) < limit:
            return number * scale
    return number // (1000 if abs(number) < 10**17 else 1_000_000)
