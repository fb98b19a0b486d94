"""Joins by time, one core: stored rows and a stream, compared with Polars (and DuckDB if it is installed).

    python -m benchmarks.language.joins [--rows 1000000] [--tickers 100] [--batch-rows 50000] [--output json]

One JSON line per measurement: {"name", "rows", "seconds", "rows_per_second", "result_rows", "floor_seconds", "floor"};
`rows` are those of the left side. The result of the floor must have the same number of rows.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

# One core, as for the engine. Polars reads this when it is imported.
os.environ["POLARS_MAX_THREADS"] = "1"

import numpy as np
import polars as pl
import pyarrow as pa

from candlewright_cep import Clock, JoinedStream, StreamInput, compile_stream
from candlewright_cep.engine import evaluate_named

SECOND = 1_000_000_000
LAST_BAR = """SELECT t.ts_ns, t.price, o.close FROM ticks t ASOF JOIN ohlc o
    ON t.ticker = o.ticker AND t.ts >= o.close_time AND o.period_seconds = 60"""
NEAR = """SELECT a.ts_ns, b.price FROM ticks a JOIN ticks b ON a.ticker = b.ticker
    AND b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts"""


def market(rows: int, tickers: int) -> dict[str, pa.Table]:
    """Trades a millisecond apart over all tickers, and one bar per minute of each."""
    chance = np.random.default_rng(1)
    names = pa.array([f"T{number:04}/USDT.BINANCE" for number in range(tickers)])
    own = chance.integers(0, tickers, rows)
    # In microseconds, which all engines support.
    times = np.cumsum(chance.integers(1, 4_000_000 // tickers, rows)) * 1_000
    ticks = pa.table(
        {
            "ticker": names.take(pa.array(own)),
            "ts": pa.array(times // 1_000).cast(pa.timestamp("us")),
            "ts_ns": times,
            "price": chance.normal(100, 1, rows),
        }
    )
    minutes = np.repeat(np.arange(int(times[-1]) // (60 * SECOND) + 1), tickers)
    bars = pa.table(
        {
            "ticker": names.take(pa.array(np.tile(np.arange(tickers), len(minutes) // tickers))),
            "period_seconds": pa.array(np.full(len(minutes), 60), pa.int32()),
            "open_time": pa.array(minutes * 60_000_000).cast(pa.timestamp("us")),
            "close": chance.normal(100, 1, len(minutes)),
        }
    )
    return {"ticks": ticks, "ohlc": bars}


def on_stream(sql: str, tables: dict[str, pa.Table], batch_rows: int) -> int:
    """Trades in batches, each followed by the bars of its time."""
    inputs = {
        "ticks": StreamInput(tables["ticks"].schema, ("ts", "ts_ns")),
        "ohlc": StreamInput(tables["ohlc"].schema, ("open_time",), period_column="period_seconds"),
    }
    stream = JoinedStream(query=compile_stream(sql, inputs))
    assert stream.query.joined is not None
    names = tables["ohlc"].column("ticker").unique().to_pylist()
    fed = {name: _numbered(table) for name, table in tables.items()}
    opened = tables["ohlc"].column("open_time").cast(pa.int64()).to_numpy() * 1_000
    reads_bars = any(leaf.name == "ohlc" for leaf in stream.query.joined.leaves())
    found = done = 0
    for start in range(0, tables["ticks"].num_rows, batch_rows):
        part = fed["ticks"].slice(start, batch_rows)
        reached = int(part.column("ts_ns")[-1].as_py())
        order = part.sort_by([("ticker", "ascending"), ("ts_ns", "ascending")])
        found += stream.feed_input("ticks", 0, order, clock=Clock(dict.fromkeys(names, reached))).table.num_rows
        if reads_bars:
            end = int(np.searchsorted(opened, reached - 60 * SECOND, side="right"))
            bars = fed["ohlc"].slice(done, end - done)
            known = Clock(dict.fromkeys(names, int(opened[end - 1]) + 60 * SECOND if end else 0))
            found += stream.feed_input("ohlc", 60, bars, clock=known).table.num_rows
            done = end
    for name, period in (("ticks", 0), ("ohlc", 60)):
        ended = Clock(dict.fromkeys(names, 0), set(names))
        found += stream.feed_input(name, period, fed[name].slice(0, 0), clock=ended).table.num_rows
    return found


def _numbered(table: pa.Table) -> pa.Table:
    return table.append_column("_sequence", pa.array(np.arange(table.num_rows)))


def polars_last_bar(tables: dict[str, pa.Table]) -> int:
    ticks, bars = (pl.DataFrame(tables[name]) for name in ("ticks", "ohlc"))
    closed = bars.with_columns(close_time=pl.col("open_time") + pl.duration(seconds=60)).sort("close_time")
    found = ticks.sort("ts").join_asof(closed, left_on="ts", right_on="close_time", by="ticker", check_sortedness=False)
    return found.select("ts_ns", "price", "close").drop_nulls("close").height


def duckdb_rows(sql: str, tables: dict[str, pa.Table]) -> int | None:
    try:
        import duckdb
    except ImportError:
        return None
    with duckdb.connect(config={"threads": 1}) as connection:
        bars = tables["ohlc"]
        ends = pa.array(bars.column("open_time").cast(pa.int64()).to_numpy() + 60_000_000)
        connection.register("ticks", tables["ticks"])
        connection.register("ohlc", bars.append_column("close_time", ends.cast(pa.timestamp("us"))))
        found: int = connection.execute(sql).to_arrow_table().num_rows
        return found


def timed(run: Callable[[], int | None]) -> tuple[int | None, float]:
    begin = time.perf_counter()
    found = run()
    return found, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tickers", type=int, default=100)
    parser.add_argument("--batch-rows", type=int, default=50_000)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    tables = market(asked.rows, asked.tickers)
    shapes: list[tuple[str, str, Callable[[], int] | None]] = [
        ("last closed bar", LAST_BAR, lambda: polars_last_bar(tables)),
        ("trades of the second before", NEAR, None),
    ]
    for name, sql, in_polars in shapes:
        floors: dict[str, Any] = {}
        if in_polars is not None:
            floors["polars"] = timed(in_polars)
        compared = timed(lambda text=sql: duckdb_rows(text, tables))  # type: ignore[misc]
        if compared[0] is not None:
            floors["duckdb"] = compared
        stored = timed(lambda text=sql: evaluate_named(text, tables).num_rows)  # type: ignore[misc]
        streamed = timed(lambda text=sql: on_stream(text, tables, asked.batch_rows))  # type: ignore[misc]
        for kind, (count, seconds) in (("stored", stored), ("stream", streamed)):
            line = {
                "name": f"{name}, {kind}", "rows": asked.rows, "seconds": round(seconds, 3),
                "rows_per_second": round(asked.rows / seconds), "result_rows": count,
            }  # fmt: skip
            for floor, (rows, needed) in floors.items():
                assert rows == count, (name, kind, floor, rows, count)
                line |= {f"floor_seconds_{floor}": round(needed, 3)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
