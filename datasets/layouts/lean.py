"""LEAN: one file per day, `crypto/binance/minute/btcusdt/20240101_trade.zip`, or for hours and days one zip file per
ticker.

Source: the README files in the data folder of QuantConnect's LEAN. Times are UTC: milliseconds since midnight in files
of one day, else `YYYYMMDD HH:MM`. Prices of crypto are not scaled, unlike those of equities.
"""

import io
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.periods import format_period
from datasets.layouts.files import pair_of, replacing, venue_of
from datasets.stored import Candles

_RESOLUTIONS = {1: "second", 60: "minute", 3_600: "hour", 86_400: "daily"}
_DAY_MS = 86_400_000
_VALUES = ("open", "high", "low", "close", "volume")
#: LEAN collects a number's digits in 64 bits, without a check, and its decimals have at most 28 places.
_MOST_DIGITS = 2**64 - 1
_MOST_PLACES = 28
#: No text of this length exceeds either.
_SURE_LENGTH = 18


def write(candles: Candles, folder: Path) -> list[Path]:
    resolution = _RESOLUTIONS.get(candles.period_seconds)
    if resolution is None:
        have = ", ".join(map(format_period, _RESOLUTIONS))
        raise InvalidRequest(f"LEAN has no candles of {format_period(candles.period_seconds)} (it has {have})")
    symbol = pair_of(candles.ticker, "").lower()
    root = folder / "crypto" / venue_of(candles.ticker).lower() / resolution
    rows = candles.whole
    values = [_decimals(rows[column]) for column in _VALUES]
    if candles.period_seconds >= 3_600:
        file = root / f"{symbol}_trade.zip"
        times = pc.strftime(rows["open_time"].cast(pa.timestamp("s", "UTC")), "%Y%m%d %H:%M")
        _zip(file, f"{symbol}.csv", _csv(times, values))
        return [file]
    files = []
    opens = rows["open_time"].cast(pa.int64()).to_numpy() // 1_000
    days = opens // _DAY_MS
    starts = np.flatnonzero(np.diff(days, prepend=-1))
    for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(days)], strict=True):
        day = str(np.datetime64(int(days[first]), "D")).replace("-", "")
        file = root / symbol / f"{day}_trade.zip"
        own = [each.slice(first, end - first) for each in values]
        _zip(file, f"{day}_{symbol}_{resolution}_trade.csv", _csv(pa.array(opens[first:end] % _DAY_MS), own))
        files.append(file)
    return files


def _csv(times: pa.Array, values: list[pa.Array]) -> bytes:
    sink = io.BytesIO()
    table = pa.table([times, *values], names=["time", *_VALUES])
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(include_header=False, quoting_style="none"))
    return sink.getvalue()


def _decimals(values: pa.ChunkedArray) -> pa.Array:
    """The values as text without exponents, which LEAN does not read."""
    texts = values.cast(pa.string()).combine_chunks()
    if pc.any(pc.match_substring(texts, "e")).as_py():
        texts = pa.array([np.format_float_positional(float(each), trim="-") for each in texts.to_pylist()])
    for text in texts.filter(pc.greater(pc.utf8_length(texts), _SURE_LENGTH)).to_pylist():
        whole, _, places = text.partition(".")
        if int(whole + places) > _MOST_DIGITS or len(places) > _MOST_PLACES:
            raise InvalidRequest(f"LEAN cannot read {text}: it keeps 19 digits and {_MOST_PLACES} decimal places")
    return texts


def _zip(file: Path, name: str, content: bytes) -> None:
    """Write a zip file with a fixed date, so that equal candles give equal files."""
    with replacing(file) as draft, ZipFile(draft, "w", ZIP_DEFLATED) as archive:
        archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
