"""The quality of a stored series as JSON data."""

from dataclasses import asdict
from typing import Any

import numpy as np

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import SECOND, count_opens
from console.times import iso
from core.settings import Settings
from datasets.quality import Quality, examine
from datasets.stored import stored_series

__all__ = ["examined"]


def examined(
    settings: Settings,
    ticker: str,
    period: int,
    *,
    start: int | None,
    end: int | None,
    with_trades: bool,
    max_candles: int,
    max_days_of_trades: int,
    shown_ranges: int,
) -> dict[str, Any]:
    """Raises InvalidRequest for a range over a limit. Without `start`: the newest `max_candles` before `end`."""
    series = next((each for each in stored_series(settings, periods=[period]) if each.ticker == ticker), None)
    if series is None:
        return _body(Quality(ticker=ticker, period_seconds=period, rows=0), shown_ranges, with_trades=with_trades)
    until = series.last + 1 if end is None else min(end, series.last + 1)
    newest = until - max_candles * period * SECOND
    since = max(series.first, newest if start is None else start)
    candles = count_opens(since, until, period)
    if candles > max_candles:
        raise InvalidRequest(f"the range has {candles:,} candles; at most {max_candles:,} are examined at once")
    if with_trades and until - since > max_days_of_trades * 86_400 * SECOND:
        raise InvalidRequest(f"a comparison with trades takes a range of at most {max_days_of_trades} days")
    found = examine(settings, ticker, period, start=since, end=until, with_trades=with_trades)
    return _body(found, shown_ranges, with_trades=with_trades)


def _body(found: Quality, shown_ranges: int, *, with_trades: bool) -> dict[str, Any]:
    body: dict[str, Any] = asdict(found)
    for name in ("first", "last"):
        body[name] = None if body[name] is None else iso(body[name])
    body["problems"] = found.problems
    body["outliers"] = [{"time": iso(each.time), "move": each.move} for each in found.outliers]
    body["trades"] = body["trades"] if with_trades else None
    body["delay_ms"] = found.delay_ms and dict(zip(("median", "p99"), found.delay_ms, strict=True))
    ranges = found.unknown_ranges[:shown_ranges]
    body["unknown_ranges"] = [{"start": iso(first), "end": iso(last)} for first, last in ranges]
    body["days"] = [{**each._asdict(), "day": str(np.datetime64(each.day, "D"))} for each in found.days]
    return body
