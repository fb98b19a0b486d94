"""Ten indicators of 1,000 tickers, one core, over stored bars and as a stream, compared with TA-Lib if it is installed.

    ./run bench indicators [--tickers 1000] [--bars 300] [--output json]

One JSON line for all ten together and for each alone: {"name", "rows", "seconds", "rows_per_second",
"microseconds_per_row" (stored rows), "stream_microseconds_per_row" (a batch is one bar of every ticker, as when a
minute closes), "talib_microseconds_per_row", "agrees" (with TA-Lib), "result_rows"}. CPU time of the process; the best
of two runs counts.
"""

import argparse
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from candlewright_cep import Limits, ReleaseBuffer, StreamInput, TriggerStream, compile_stream, evaluate

#: The call, and TA-Lib's call over the same columns with the index of its result.
CALLS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...], int]] = {
    "EMA(close, 20)": ("EMA", ("close",), (20,), 0),
    "SMA(close, 50)": ("SMA", ("close",), (50,), 0),
    "RSI(close, 14)": ("RSI", ("close",), (14,), 0),
    "ATR(high, low, close, 14)": ("ATR", ("high", "low", "close"), (14,), 0),
    "ADX(high, low, close, 14)": ("ADX", ("high", "low", "close"), (14,), 0),
    "CCI(high, low, close, 20)": ("CCI", ("high", "low", "close"), (20,), 0),
    "MACD_SIGNAL(close, 12, 26, 9)": ("MACD", ("close",), (12, 26, 9), 1),
    "BOLLINGER_UPPER(close, 20, 2)": ("BBANDS", ("close",), (20, 2, 2), 0),
    "STOCH_D(high, low, close, 14, 3, 3)": ("STOCH", ("high", "low", "close"), (14, 3, 0, 3, 0), 1),
    "OBV(close, volume)": ("OBV", ("close", "volume"), (), 0),
}
_LIMITS = Limits(seconds_per_row=1e-2, steps_per_row=10_000)


def bars(tickers: int, count: int) -> pa.Table:
    """In time order: one bar of every ticker, then the next."""
    chance = np.random.default_rng(1)
    close = 100 * np.exp(np.cumsum(chance.normal(0, 1e-3, (count, tickers)), axis=0)).reshape(-1)
    names = pa.array([f"T{number}/USDT.SIM" for number in range(tickers)])
    times = np.repeat(np.arange(count, dtype=np.int64) * 60 * 10**9, tickers)
    return pa.table(
        {
            "ticker": names.take(pa.array(np.tile(np.arange(tickers), count))),
            "open_time": pa.array(times).cast(pa.timestamp("ns", "UTC")),
            "high": close + chance.exponential(0.1, len(close)),
            "low": close - chance.exponential(0.1, len(close)),
            "close": close,
            "volume": chance.exponential(10, len(close)),
        }
    )


def text(calls: list[str]) -> str:
    columns = ", ".join(f"{call} OVER w AS v{number}" for number, call in enumerate(calls))
    return f"SELECT ticker, {columns} FROM ohlc WINDOW w AS (PARTITION BY ticker ORDER BY open_time)"


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    best, found = float("inf"), None
    for _ in range(2):
        begin = time.process_time()
        found = run()
        best = min(best, time.process_time() - begin)
    return found, best


def on_stream(sql: str, table: pa.Table, batch_rows: int) -> float:
    """Seconds for the rows after the first fifth, in which every state is initialised."""
    query = compile_stream(sql, {"ohlc": StreamInput(table.schema, ("open_time",))}, limits=_LIMITS)
    stream, buffer = TriggerStream(query=query), ReleaseBuffer("open_time", "ticker")
    seconds, warm = 0.0, table.num_rows // 5
    for start in range(0, table.num_rows, batch_rows):
        released = buffer.push(table.slice(start, batch_rows)).rows
        begin = time.process_time()
        stream.feed(released, buffer.clock)
        if start >= warm:
            seconds += time.process_time() - begin
    return float(seconds / (table.num_rows - warm))


def by_talib(table: pa.Table, calls: list[str]) -> list[np.ndarray[Any, Any]] | None:
    """For each call the values in the table's order; None without TA-Lib."""
    try:
        talib = importlib.import_module("talib")
    except ImportError:
        return None
    count = len(table.column("ticker").unique())
    columns = {
        name: np.ascontiguousarray(table.column(name).to_numpy().reshape(-1, count).T)
        for name in table.column_names[2:]
    }
    found = []
    for call in calls:
        function, inputs, numbers, part = CALLS[call]
        values = np.empty_like(columns["close"])
        for number in range(count):
            result = getattr(talib, function)(*(columns[name][number] for name in inputs), *numbers)
            values[number] = result[part] if isinstance(result, tuple) else result
        found.append(values.T.reshape(-1))
    return found


def measured(name: str, calls: list[str], table: pa.Table, *, tickers: int) -> dict[str, Any]:
    sql, rows = text(calls), table.num_rows
    found, seconds = timed(lambda: evaluate(sql, table, limits=_LIMITS))
    line: dict[str, Any] = {"name": name, "rows": rows, "seconds": round(seconds, 4)}
    line["rows_per_second"] = round(rows / seconds)
    line["microseconds_per_row"] = round(seconds / rows * 1e6, 3)
    streamed = min(on_stream(sql, table, tickers) for _ in range(2))
    line["stream_microseconds_per_row"] = round(streamed * 1e6, 3)
    expected, peer = timed(lambda: by_talib(table, calls))
    if expected is not None:
        line["talib_microseconds_per_row"] = round(peer / rows * 1e6, 3)
        own = [found.column(f"v{number}").to_numpy(zero_copy_only=False) for number in range(len(calls))]
        line["agrees"] = all(
            np.allclose(one.astype(np.float64), other, rtol=1e-9, atol=1e-9, equal_nan=True)
            for one, other in zip(own, expected, strict=True)
        )
    return line | {"result_rows": found.num_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tickers", type=int, default=1_000)
    parser.add_argument("--bars", type=int, default=300)
    parser.add_argument("--output", choices=["json"], default="json")
    options = parser.parse_args()
    table = bars(options.tickers, options.bars)
    shown = {"ten together": list(CALLS)} | {call: [call] for call in CALLS}
    for name, calls in shown.items():
        print(json.dumps(measured(name, calls, table, tickers=options.tickers)), flush=True)


if __name__ == "__main__":
    main()
