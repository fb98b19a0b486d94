"""nautilus_trader: a ParquetDataCatalog, `data/bar/BTCUSDT.BINANCE-1-MINUTE-LAST-EXTERNAL/FIRST_LAST.parquet`.

Source: files that nautilus_trader 1.221 writes. Prices and sizes are 128-bit integers, little-endian, in units of
10^-16; a bar's time is its close.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import SECOND
from candlewright.wire.periods import format_period
from datasets.layouts.files import pair_of, replacing, venue_of
from datasets.stored import Candles, open_times

_STEPS = ((86_400, "DAY"), (3_600, "HOUR"), (60, "MINUTE"), (1, "SECOND"))
#: nautilus_trader's bars have fewer than this many of a unit; except for days, the count also divides it.
_MOST = {"SECOND": 60, "MINUTE": 60, "HOUR": 24, "DAY": 2}
_UNIT_DIGITS = 16
#: Doubles represent this many decimal places exactly for prices up to nine million (below 2^53 units).
_MOST_DIGITS = 9


def write(candles: Candles, folder: Path) -> list[Path]:
    rows = candles.whole
    if not rows.num_rows:
        return []
    instrument = f"{pair_of(candles.ticker, '')}.{venue_of(candles.ticker)}"
    bar_type = f"{instrument}-{_step(candles.period_seconds)}-LAST-EXTERNAL"
    prices = {name: rows[name].to_numpy() for name in ("open", "high", "low", "close")}
    sizes = rows["volume"].to_numpy()
    price_digits, size_digits = _digits(*prices.values()), _digits(sizes)
    closes = open_times(rows) + candles.period_seconds * SECOND
    metadata = {
        "bar_type": bar_type,
        "instrument_id": instrument,
        "price_precision": str(price_digits),
        "size_precision": str(size_digits),
    }
    names = [*prices, "volume", "ts_event", "ts_init"]
    columns = [_fixed(column, price_digits) for column in prices.values()]
    columns += [_fixed(sizes, size_digits), *[pa.array(closes.astype(np.uint64))] * 2]
    schema = pa.schema(
        [pa.field(name, column.type, nullable=False) for name, column in zip(names, columns, strict=True)], metadata
    )
    file = folder / "data" / "bar" / bar_type / f"{_moment(closes[0])}_{_moment(closes[-1])}.parquet"
    with replacing(file) as draft:
        pq.write_table(pa.table(columns, schema=schema), draft, compression="zstd")
    _remove_others(file)
    return [file]


def _step(period_seconds: int) -> str:
    seconds, unit = next(each for each in _STEPS if period_seconds % each[0] == 0)
    count = period_seconds // seconds
    if count >= _MOST[unit] or (unit != "DAY" and _MOST[unit] % count):
        raise InvalidRequest(f"nautilus_trader has no bars of {format_period(period_seconds)}")
    return f"{count}-{unit}"


def _digits(*columns: NDArray[np.float64]) -> int:
    """The fewest decimal places that represent every value; _MOST_DIGITS if none do."""
    return next(
        (digits for digits in range(_MOST_DIGITS) if all(np.array_equal(np.round(c, digits), c) for c in columns)),
        _MOST_DIGITS,
    )


def _fixed(values: NDArray[np.float64], digits: int) -> pa.Array:
    """The values as 128-bit integers in units of 10^-16, rounded to `digits` decimal places: 63-bit integers times a
    power of ten, by long multiplication into two words. Raises InvalidRequest if a value is too large.
    """
    units = np.round(values * 10.0**digits)
    if not np.all(np.abs(units) < 2**63):
        raise InvalidRequest("a value is too large for nautilus_trader")
    whole = units.astype(np.uint64)
    factor = 10 ** (_UNIT_DIGITS - digits)
    low_mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    low, high = whole & low_mask, whole >> shift
    factor_low, factor_high = np.uint64(factor & 0xFFFFFFFF), np.uint64(factor >> 32)
    middle = high * factor_low + (low * factor_low >> shift)
    carry = (middle & low_mask) + low * factor_high
    words = np.empty((len(values), 2), "<u8")
    words[:, 0] = (carry << shift) | (low * factor_low & low_mask)
    words[:, 1] = high * factor_high + (middle >> shift) + (carry >> shift)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(words.tobytes())])


def _moment(time: int) -> str:
    return f"{np.datetime64(int(time), 'ns')}Z".replace(":", "-").replace(".", "-")


def _remove_others(file: Path) -> None:
    """Delete an earlier export of the same bars, since the catalog refuses files whose times overlap."""
    for other in file.parent.glob("*.parquet"):
        if other != file:
            other.unlink()
