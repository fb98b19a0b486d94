"""Everyday texts, one core, over stored rows and as a stream, each compared with pandas or numpy in the same run.

    python -m benchmarks.language.cep_shapes [--rows 100000] [--stream-rows 40000] [--batch-rows 1000] [--only NAME ...]

One ticker trades 25 times a second in a random walk. One JSON line per text: {"name", "rows_per_second" (of CPU time of
one core, over stored rows), "stream_rows_per_second" (both null if the text exceeds the work limit), "step_ms" and
"step_bytes" (of a live step of one row: CPU time, and state written before compression), "peer",
"peer_rows_per_second", "ratio" (of stored rows to the peer), "agrees" (with the peer's result), "result_rows", "slow"}.
A text is slow below `--slow` stored rows a second (200,000). The best of three runs counts.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from candlewright_cep import (
    ReleaseBuffer,
    StreamInput,
    TriggerRejected,
    TriggerStream,
    compile_stream,
    evaluate,
)

SECOND = 10**9
Peer = Callable[[pd.DataFrame], float]


@dataclass(frozen=True)
class Shape:
    """A text and its comparison. `peer` computes what `checksum` makes of the result: the sum of column m, or the
    number of rows without that column.
    """

    sql: str
    peer: Peer | None = None
    tool: str = "pandas"
    parameters: tuple[tuple[str, str], ...] = ()


def trades(rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    times = np.cumsum(random.exponential(0.04, rows) * SECOND).astype(np.int64) + 1_700_000_000 * SECOND
    return pa.table(
        {
            "ticker": ["BTC/USDT.SIM"] * rows,
            "ts": pa.array(times).cast(pa.timestamp("ns", "UTC")),
            "price": np.round(65_000 * np.exp(np.cumsum(random.normal(0, 2e-4, rows))), 2),
            "size": np.round(random.exponential(1, rows), 4),
            "side": random.choice(["buy", "sell"], rows),
        }
    )


# -- texts ----------------------------------------------------------------------------------------------------------


def over(value: str, frame: str) -> str:
    return f"SELECT ts, {value} OVER (PARTITION BY ticker ORDER BY ts {frame}) AS m FROM ticks"


def time_frame(seconds: int) -> str:
    return f"RANGE BETWEEN INTERVAL '{seconds}' SECOND PRECEDING AND CURRENT ROW"


def where(window: str, condition: str) -> str:
    """The rows for which a condition on one window is true."""
    return f"SELECT ts, price FROM (SELECT ts, price, size, {window}) WHERE {condition}"


def of_window(value: str, name: str, frame: str) -> str:
    return f"{value} OVER (PARTITION BY ticker ORDER BY ts {frame}) AS {name} FROM ticks"


def pattern(text: str, define: str, seconds: int = 60, *, clauses: str = "", within: bool = True) -> str:
    bound = f"WITHIN INTERVAL '{seconds}' SECOND" if within else ""
    return (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(ts) AS begin_ts, LAST(ts) "
        f"AS end_ts {clauses} PATTERN ({text}) {bound} DEFINE {define}) AS found"
    )


def windows(function: str, intervals: str, value: str = "SUM(size)") -> str:
    return (
        f"SELECT ticker, window_start, {value} AS m FROM TABLE({function}(TABLE ticks, DESCRIPTOR(ts), {intervals})) "
        "GROUP BY ticker, window_start, window_end"
    )


#: Live steps that are measured.
_STEPS = 200

# -- peers ----------------------------------------------------------------------------------------------------------


def rolling(seconds: int, value: Callable[[Any], Any]) -> Peer:
    def run(frame: pd.DataFrame) -> float:
        # closed="both": a row exactly one interval earlier still counts.
        return float(value(frame.set_index("ts").rolling(f"{seconds}s", closed="both")).sum())

    return run


def rows_rolling(rows: int, value: Callable[[Any], Any]) -> Peer:
    return lambda frame: float(value(frame.rolling(rows, min_periods=1)).sum())


def first_past(is_past: Callable[[Any, Any], Any], seconds: int = 60) -> Peer:
    """From each start, one comparison with the slice of rows within reach; continues after a match."""

    def run(frame: pd.DataFrame) -> float:
        price, times = frame["price"].to_numpy(), frame["ts"].astype("int64").to_numpy()
        ends = np.searchsorted(times, times + seconds * SECOND)
        start, found = 0, 0
        while start < len(price):
            hits = is_past(price[start + 1 : ends[start]], price[start])
            first = int(hits.argmax()) if len(hits) else 0
            is_found = bool(len(hits) and hits[first])
            found += is_found
            start += first + 2 if is_found else 1
        return found

    return run


def rising(count: int) -> Peer:
    """Runs of this many rises, each beginning after the previous one."""

    def run(frame: pd.DataFrame) -> float:
        up = np.diff(frame["price"].to_numpy()) > 0
        found, length = 0, 0
        for is_up in up.tolist():
            length = length + 1 if is_up else 0
            if length == count:
                found, length = found + 1, -1
        return found

    return run


def crossings(frame: pd.DataFrame) -> float:
    fast, slow = (frame["price"].rolling(n, min_periods=1).mean().round(6) for n in (50, 200))
    above = (fast > slow).to_numpy()
    return float((above[1:] & ~above[:-1]).sum())


def day_vwap(frame: pd.DataFrame) -> float:
    days = frame["ts"].dt.date
    value = (frame["price"] * frame["size"]).groupby(days).cumsum() / frame["size"].groupby(days).cumsum()
    return float(value.sum())


def hop(frame: pd.DataFrame) -> float:
    panes = frame["size"].groupby(frame["ts"].astype("int64") // SECOND).sum()
    # Each second's sum is in 60 windows.
    return float(np.convolve(panes.to_numpy(), np.ones(60)).sum())


def sessions(frame: pd.DataFrame) -> float:
    number = (frame["ts"].astype("int64").diff() > SECOND // 4).cumsum()
    return float(frame["size"].groupby(number).sum().sum())


# -- what is measured -----------------------------------------------------------------------------------------------

NO_MATCH = 1.5
SHAPES = {
    "maximum over 60 s": Shape(over("MAX(price)", time_frame(60)), rolling(60, lambda w: w["price"].max())),
    "mean of 200 rows": Shape(over("AVG(price)", "ROWS 199 PRECEDING"), rows_rolling(200, lambda w: w["price"].mean())),
    "deviation of 200 rows": Shape(
        over("STDDEV_SAMP(price)", "ROWS 199 PRECEDING"), rows_rolling(200, lambda w: w["price"].std())
    ),
    "deviation over 60 s": Shape(over("STDDEV_SAMP(price)", time_frame(60)), rolling(60, lambda w: w["price"].std())),
    "volume over 60 s": Shape(over("SUM(size)", time_frame(60)), rolling(60, lambda w: w["size"].sum())),
    "trades in 10 s": Shape(over("COUNT(*)", time_frame(10)), rolling(10, lambda w: w["price"].count())),
    "minimum over 1 hour": Shape(over("MIN(price)", time_frame(3600)), rolling(3600, lambda w: w["price"].min())),
    "volume so far": Shape(over("SUM(size)", ""), lambda frame: float(frame["size"].cumsum().sum())),
    "correlation of 200 rows": Shape(
        over("CORR(price, size)", "ROWS 199 PRECEDING"),
        lambda f: float(f["price"].rolling(200, 2).corr(f["size"]).sum()),
    ),
    "different prices in 10 s": Shape(over("COUNT(DISTINCT price)", time_frame(10))),
    "change from the row before": Shape(
        "SELECT ts, price - LAG(price) OVER (PARTITION BY ticker ORDER BY ts) AS m FROM ticks",
        lambda frame: float(frame["price"].diff().sum()),
    ),
    "mean price of the day by volume": Shape(
        "SELECT ts, SUM(price * size) OVER w / SUM(size) OVER w AS m FROM (SELECT *, CAST(ts AS DATE) AS day FROM "
        "ticks) WINDOW w AS (PARTITION BY ticker, day ORDER BY ts)",
        day_vwap,
    ),
    "two deviations above the mean": Shape(
        "SELECT ts FROM (SELECT ts, price, AVG(price) OVER w AS mean, STDDEV_SAMP(price) OVER w AS spread FROM ticks "
        "WINDOW w AS (PARTITION BY ticker ORDER BY ts ROWS 199 PRECEDING)) WHERE price > mean + 2 * spread",
        lambda f: float((f["price"] > f["price"].rolling(200, 1).mean() + 2 * f["price"].rolling(200, 1).std()).sum()),
    ),
    "three times the mean size": Shape(
        where(of_window("AVG(size)", "mean", "ROWS 499 PRECEDING"), "size > 3 * mean"),
        lambda f: float((f["size"] > 3 * f["size"].rolling(500, 1).mean()).sum()),
    ),
    "new high of 60 s": Shape(
        where(of_window("MAX(price)", "top", "ROWS BETWEEN 1500 PRECEDING AND 1 PRECEDING"), "price > top"),
        lambda f: float((f["price"] > f["price"].shift().rolling(1500, 1).max()).sum()),
    ),
    "averages of 50 and 200 rows, crossing": Shape(
        "SELECT * FROM (SELECT ts, ticker, ROUND(AVG(price) OVER a, 6) AS f, ROUND(AVG(price) OVER b, 6) AS s FROM "
        "ticks WINDOW a AS (PARTITION BY ticker ORDER BY ts ROWS 49 PRECEDING),"
        " b AS (PARTITION BY ticker ORDER BY ts ROWS 199 PRECEDING))"
        " MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(ts) AS t AFTER MATCH SKIP TO NEXT ROW"
        " PATTERN (X Y) DEFINE X AS f <= s, Y AS f > s) AS found",
        crossings,
    ),
    "a condition": Shape("price > 65000 AND size > 2", lambda f: float(len(f[(f["price"] > 65000) & (f["size"] > 2)]))),
    "bars of a minute": Shape(
        windows("TUMBLE", "INTERVAL '1' MINUTE"),
        lambda frame: float(frame["size"].groupby(frame["ts"].astype("int64") // (60 * SECOND)).sum().sum()),
    ),
    "a minute by a second": Shape(windows("HOP", "INTERVAL '1' SECOND, INTERVAL '60' SECOND"), hop),
    "sessions": Shape(
        "SELECT window_start, SUM(size) AS m FROM TABLE(SESSION(TABLE ticks PARTITION BY ticker, DESCRIPTOR(ts), "
        "INTERVAL '0.25' SECOND)) GROUP BY ticker, window_start, window_end",
        sessions,
    ),
    "V shape": Shape(pattern("S D{3,} U{3,}", "D AS price < PREV(price), U AS price > PREV(price)", within=False)),
    "five rises": Shape(pattern("S U{5}", "U AS price > PREV(price)", within=False), rising(5), "Python"),
    "a large trade, then one twice its size": Shape(
        pattern("A B*? C", "A AS A.size > 3, C AS C.size > A.size * 2", 10)
    ),
    "sells around a buy, in any order": Shape(
        pattern("PERMUTE(A, B, C)", "A AS side = 'buy' AND size > 1, B AS side = 'sell' AND size > 1, C AS size > 2", 5)
    ),
    "no trade for half a second": Shape(
        pattern("A B", "B AS B.ts > PREV(B.ts) + INTERVAL '0.5' SECOND", within=False),
    ),
    "rise of 0.5 %": Shape(
        pattern("A B*? C", "C AS C.price > A.price * 1.005"), first_past(lambda p, a: p > a * 1.005), "numpy"
    ),
    "rise of 0.5 %, greedy": Shape(pattern("A B* C", "C AS C.price > A.price * 1.005")),
    "rise of 0.5 % in 10 s": Shape(
        pattern("A B*? C", "C AS C.price > A.price * 1.005", 10), first_past(lambda p, a: p > a * 1.005, 10), "numpy"
    ),
    "fall by a parameter": Shape(
        pattern("A B*? C", "C AS (A.price - C.price) / A.price > :fall"),
        first_past(lambda p, a: (a - p) / a > 0.005),
        "numpy",
        (("fall", "0.005"),),
    ),
    "rise of 50 %, never": Shape(
        pattern("A B*? C", f"C AS C.price > A.price * {NO_MATCH}"), first_past(lambda p, a: p > a * NO_MATCH), "numpy"
    ),
    "rise of 0.5 %, from each row": Shape(
        pattern("A B*? C", "C AS C.price > A.price * 1.005", 10, clauses="AFTER MATCH SKIP TO NEXT ROW"),
    ),
    "profit or loss of 0.5 %": Shape(
        pattern("A B*? (C | D)", "C AS C.price > A.price * 1.005, D AS D.price < A.price * 0.995"),
        first_past(lambda p, a: (p > a * 1.005) | (p < a * 0.995)),
        "numpy",
    ),
    "0.5 % below the maximum of B": Shape(pattern("A B+? C", "C AS C.price < MAX(B.price) * 0.995")),
    "2 % below the maximum of B": Shape(pattern("A B+? C", "C AS C.price < MAX(B.price) * 0.98")),
    "volume of B past 500": Shape(pattern("A B*? C", "C AS SUM(B.size) > 500")),
    "volume of B past a limit, never": Shape(pattern("A B*? C", "C AS SUM(B.size) > 50000")),
}


def checksum(table: pa.Table) -> float:
    if "m" not in table.column_names:
        return float(table.num_rows)
    return float(np.nansum(table.column("m").to_numpy().astype(np.float64)))


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    best, found = float("inf"), None
    for _ in range(3):
        begin = time.process_time()
        found = run()
        best = min(best, time.process_time() - begin)
        if best > 2:
            break
    return found, best


def on_stream(shape: Shape, table: pa.Table, batch_rows: int) -> tuple[TriggerStream, ReleaseBuffer]:
    source = {"ticks": StreamInput(table.schema, ("ts",))}
    stream = TriggerStream(query=compile_stream(shape.sql, source, dict(shape.parameters)))
    buffer = ReleaseBuffer("ts", "ticker")
    for start in range(0, table.num_rows, batch_rows):
        stream.feed(buffer.push(table.slice(start, batch_rows)).rows, buffer.clock)
    return stream, buffer


def in_steps(shape: Shape, table: pa.Table) -> tuple[float, int]:
    """Milliseconds and bytes of state written by a live step of one row, after all but the last rows."""
    behind = table.num_rows - _STEPS
    stream, buffer = on_stream(shape, table.slice(0, behind), 1_000)
    known, written, used = stream.parts(), 0, 0.0
    for row in range(behind, table.num_rows):
        began = time.process_time()
        stream.feed(buffer.push(table.slice(row, 1)).rows, buffer.clock)
        parts = stream.parts()
        used += time.process_time() - began
        written += sum(len(part) for name, part in parts.items() if known.get(name) is not part)
        known = parts
    return round(1e3 * used / _STEPS, 2), written // _STEPS


def rate(rows: int, run: Callable[[], Any]) -> tuple[Any, int | None]:
    try:
        found, seconds = timed(run)
    except TriggerRejected as error:
        if "took more than" not in str(error):
            raise
        return None, None
    return found, round(rows / max(seconds, 1e-9))


def measured(
    name: str, shape: Shape, table: pa.Table, *, stream_rows: int, batch_rows: int, slow: int
) -> dict[str, Any]:
    found, stored = rate(table.num_rows, lambda: evaluate(shape.sql, table, parameters=dict(shape.parameters)))
    part = table.slice(0, stream_rows)
    _, streamed = rate(part.num_rows, lambda: on_stream(shape, part, batch_rows))
    step_ms, step_bytes = (None, None) if streamed is None else in_steps(shape, table)
    line: dict[str, Any] = {
        "name": name,
        "rows_per_second": stored,
        "stream_rows_per_second": streamed,
        "step_ms": step_ms,
        "step_bytes": step_bytes,
    }
    if shape.peer is not None and found is not None:
        frame, peer = table.to_pandas(), shape.peer
        expected, seconds = timed(lambda: peer(frame))
        line["peer"] = shape.tool
        line["peer_rows_per_second"] = round(table.num_rows / max(seconds, 1e-9))
        line["ratio"] = round((stored or 0) / line["peer_rows_per_second"], 3)
        line["agrees"] = bool(np.isclose(checksum(found), expected, rtol=1e-6))
    return line | {"result_rows": None if found is None else found.num_rows, "slow": (stored or 0) < slow}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--stream-rows", type=int, default=40_000)
    parser.add_argument("--batch-rows", type=int, default=1_000)
    parser.add_argument("--slow", type=int, default=200_000, help="rows a second below which a text is marked slow")
    parser.add_argument("--only", nargs="*", default=[], help="texts with one of these words in their name")
    parser.add_argument("--output", choices=["json"], default="json")
    options = parser.parse_args()
    table = trades(options.rows)
    for name, shape in SHAPES.items():
        if not options.only or any(word in name for word in options.only):
            line = measured(
                name, shape, table, stream_rows=options.stream_rows, batch_rows=options.batch_rows, slow=options.slow
            )
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
