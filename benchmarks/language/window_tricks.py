"""Row patterns compared with DuckDB's window functions for the same questions, one core each.

    python -m benchmarks.language.window_tricks [--rows 1000000] [--symbols 100] [--rounds 3] [--output json]

One JSON line per question: {"name", "rows", "seconds", "rows_per_second", "result_rows", "floor_seconds", "floor",
"ratio" (of DuckDB's time to the pattern's: above 1 the pattern is faster)}. Both must find the same rows. The best
round counts. For Trino, see `trino`.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from candlewright_cep import evaluate

#: Numbered runs of rows that fall, rise or stay, in each symbol.
_RUNS = """
    WITH steps AS (
        SELECT symbol, ts, price, sign(price - lag(price) OVER w) AS way
        FROM ticks WINDOW w AS (PARTITION BY symbol ORDER BY ts)
    ), marked AS (
        SELECT *, way IS DISTINCT FROM lag(way) OVER (PARTITION BY symbol ORDER BY ts) AS is_new FROM steps
    ), numbered AS (
        SELECT *, sum(is_new::INT) OVER (PARTITION BY symbol ORDER BY ts) AS run FROM marked
    ), runs AS (
        SELECT symbol, run, any_value(way) AS way, count(*) AS n, min(ts) AS t0, max(ts) AS t1,
               arg_max(price, ts) AS last
        FROM numbered GROUP BY symbol, run
    )"""


@dataclass(frozen=True)
class Question:
    pattern: str
    windows: str


def _pattern(rest: str) -> str:
    return f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts {rest}) AS m"


def _threshold(rise: str) -> Question:
    """Each row from which the price rises this much within ten seconds (WITHIN is exclusive)."""
    return Question(
        _pattern(
            "MEASURES A.ts AS t0, A.price AS price AFTER MATCH SKIP TO NEXT ROW "
            f"PATTERN (A B*? C) WITHIN INTERVAL '10' SECOND DEFINE C AS C.price > A.price * {rise}"
        ),
        f"""SELECT symbol, t0, price FROM (
            SELECT symbol, ts AS t0, price, max(price) OVER (
                PARTITION BY symbol ORDER BY ts
                RANGE BETWEEN CURRENT ROW AND INTERVAL '9.999999' SECOND FOLLOWING) AS best
            FROM ticks
        ) WHERE best > price * {rise}""",
    )


QUESTIONS = {
    "V shape": Question(
        _pattern(
            "MEASURES FIRST(ts) AS t0, LAST(ts) AS t1, LAST(D.price) AS bottom, LAST(U.price) AS top "
            "PATTERN (D{3,} U{3,}) DEFINE D AS price < PREV(price), U AS price > PREV(price)"
        ),
        f"""{_RUNS}, pairs AS (
            SELECT symbol, way, n, t0, last AS bottom, lead(way) OVER w AS next_way, lead(n) OVER w AS next_n,
                   lead(t1) OVER w AS t1, lead(last) OVER w AS top
            FROM runs WINDOW w AS (PARTITION BY symbol ORDER BY run)
        )
        SELECT symbol, t0, t1, bottom, top FROM pairs WHERE way = -1 AND n >= 3 AND next_way = 1 AND next_n >= 3""",
    ),
    "run of rises": Question(
        _pattern(
            "MEASURES FIRST(ts) AS t0, LAST(ts) AS t1, LAST(price) AS top "
            "PATTERN (U{5,}) DEFINE U AS price > PREV(price)"
        ),
        f"{_RUNS} SELECT symbol, t0, t1, last AS top FROM runs WHERE way = 1 AND n >= 5",
    ),
    "threshold from start": _threshold("1.01"),
    "threshold from start, often met": _threshold("1.002"),
}


def market(rows: int, symbols: int) -> pa.Table:
    """Random walks on a grid of 0.01, with a trade of each symbol about every tenth of a second."""
    chance = np.random.default_rng(1)
    own = chance.integers(0, symbols, rows)
    # In microseconds, which both support; no two rows have the same time.
    times = np.cumsum(chance.integers(1, 200_000 // symbols, rows))
    steps = chance.integers(-5, 6, rows) / 100.0
    price = np.zeros(rows)
    for symbol in range(symbols):
        picked = np.flatnonzero(own == symbol)
        price[picked] = np.round(100.0 + np.cumsum(steps[picked]), 2)
    names = pa.array([f"S{number:04}" for number in range(symbols)])
    return pa.table({"symbol": names.take(pa.array(own)), "ts": pa.array(times, pa.timestamp("us")), "price": price})


def _best(run: Callable[[], pa.Table], rounds: int) -> tuple[float, pa.Table]:
    """CPU time, because the machine may have other work."""
    found, seconds = None, float("inf")
    for _ in range(rounds):
        began = time.process_time()
        found = run()
        seconds = min(seconds, time.process_time() - began)
    assert found is not None
    return seconds, found


def compared(name: str, table: pa.Table, rounds: int) -> dict[str, object]:
    question = QUESTIONS[name]
    with duckdb.connect() as connection:
        connection.execute("SET threads TO 1")
        connection.register("ticks", table)
        floor, wanted = _best(lambda: connection.execute(question.windows).to_arrow_table(), rounds)
    seconds, found = _best(lambda: evaluate(question.pattern, table), rounds)
    order = [("symbol", "ascending"), ("t0", "ascending")]
    if not found.select(wanted.column_names).sort_by(order).equals(wanted.cast(found.schema).sort_by(order)):
        sys.exit(f"{name}: the pattern and the windows do not find the same rows")
    return {
        "name": name,
        "rows": table.num_rows,
        "seconds": round(seconds, 3),
        "rows_per_second": round(table.num_rows / seconds),
        "result_rows": found.num_rows,
        "floor_seconds": round(floor, 3),
        "floor": f"DuckDB {duckdb.__version__}",
        "ratio": round(floor / seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--symbols", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", default="json", choices=["json"])
    options = parser.parse_args()
    table = market(options.rows, options.symbols)
    for name in QUESTIONS:
        print(json.dumps(compared(name, table, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
