"""One-minute bars computed directly from the input with Arrow, as the reference for a benchmark's bars."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = ["expected_bars", "wrong_rows"]

MINUTE_NS = 60_000_000_000
_KEYS = ["symbol", "open_time"]
_VALUES = ["open", "high", "low", "close", "volume", "trade_count"]
#: Sizes in the input have at most this many decimals, so volumes in these units are exact as doubles.
_UNITS = 1_000_000


def expected_bars(input_file: Path, rows: int | None = None) -> pa.Table:
    """Columns of OUT (`symbol`, `open_time` in ns, prices, `volume`, `trade_count`), ordered by symbol and time.

    `rows`: use only the first `rows` trades. The input's trades have distinct times; a volume is a sum of whole units,
    divided once.
    """
    ticks: pa.Table = pq.read_table(input_file, columns=["ts_ns", "symbol", "price", "size"]).slice(0, rows)
    ticks = ticks.sort_by("ts_ns")
    minute = pc.multiply(pc.divide(ticks["ts_ns"], MINUTE_NS), MINUTE_NS)
    units = pc.round(pc.multiply(ticks["size"], _UNITS)).cast(pa.int64())
    trades = pa.table({"symbol": ticks["symbol"], "open_time": minute, "price": ticks["price"], "size": units})
    functions = [("price", "first"), ("price", "max"), ("price", "min"), ("price", "last"), ("size", "sum")]
    made = trades.group_by(_KEYS, use_threads=False).aggregate([*functions, ("price", "count")])
    columns = [made[name] for name in (*_KEYS, *(f"{name}_{function}" for name, function in functions), "price_count")]
    columns[-2] = pc.divide(columns[-2].cast(pa.float64()), float(_UNITS))
    return pa.table(columns, names=[*_KEYS, *_VALUES]).sort_by([(name, "ascending") for name in _KEYS])


def wrong_rows(input_file: Path, bars: pa.Table, rows: int | None = None) -> int:
    """How many of `bars` (columns and order of `expected_bars`) differ in any column, are missing or superfluous."""
    expected = expected_bars(input_file, rows)
    if expected.num_rows != bars.num_rows:
        return max(1, abs(int(expected.num_rows) - int(bars.num_rows)))
    same = pa.array([True] * bars.num_rows)
    for name in (*_KEYS, *_VALUES):
        same = pc.and_(same, pc.equal(bars[name].combine_chunks(), expected[name].combine_chunks()))
    return int(pc.sum(pc.invert(same)).as_py() or 0)
