"""The same bars and the same row pattern in Apache Flink, to compare with `bench ohlc` and `bench match`.

    .venv/bin/uv run --no-project --python 3.11 --with apache-flink==2.3.0 benchmarks/live/flink.py match ticks.parquet

It runs in a separate environment, which needs Java 17 and holds nothing of this project. Flink's SQL runs on a
local cluster with one slot per core (`--parallelism`). It reads the ticks from a CSV file and discards its results.
Timing starts when the job is submitted and stops when it has finished; a first job over `--warm-rows` rows starts the
cluster. One JSON line with the fields of the other benchmarks.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

OHLC = """
INSERT INTO results
SELECT symbol, window_start, FIRST_VALUE(price), MAX(price), MIN(price), LAST_VALUE(price), SUM(size), COUNT(*)
FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY symbol, window_start, window_end
"""
OHLC_SINK = "symbol STRING, t TIMESTAMP(3), o DOUBLE, h DOUBLE, l DOUBLE, c DOUBLE, v DOUBLE, n BIGINT"
MATCH = """
INSERT INTO results
SELECT * FROM {table} MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY ts
  MEASURES FIRST(S.ts_ns) AS t0, LAST(U.ts_ns) AS t1, FIRST(S.price) AS first_price, LAST(D.price) AS bottom,
           LAST(U.price) AS top
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (S D{{3,}} U{{3,}} E)
  DEFINE D AS D.price < LAST(D.price, 1) OR (LAST(D.price, 1) IS NULL AND D.price < S.price),
         U AS U.price > LAST(U.price, 1) OR (LAST(U.price, 1) IS NULL AND U.price > LAST(D.price)),
         E AS E.price <= LAST(U.price)
)
"""
MATCH_SINK = "symbol STRING, t0 BIGINT, t1 BIGINT, first_price DOUBLE, bottom DOUBLE, top DOUBLE"
TEXTS = {"ohlc": (OHLC, OHLC_SINK), "match": (MATCH, MATCH_SINK)}


def write_csv(ticks: pa.Table, path: Path) -> None:
    ticks = ticks.append_column("ms", pc.divide(ticks["ts_ns"], 1_000_000))
    columns = ticks.select(["ts_ns", "symbol", "price", "size", "ms"])
    pcsv.write_csv(columns, path, pcsv.WriteOptions(include_header=False))


def source(tables: TableEnvironment, name: str, path: Path) -> None:
    tables.execute_sql(f"""
        CREATE TABLE {name} (
          ts_ns BIGINT, symbol STRING, price DOUBLE, size DOUBLE, ms BIGINT,
          ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts
        ) WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')""")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TEXTS)
    parser.add_argument("input")
    parser.add_argument("--parallelism", type=int, default=os.cpu_count())
    parser.add_argument("--warm-rows", type=int, default=100_000)
    options = parser.parse_args()
    text, columns = TEXTS[options.name]
    ticks = pq.read_table(options.input)
    with tempfile.TemporaryDirectory() as folder:
        tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        tables.get_config().set("parallelism.default", str(options.parallelism))
        tables.get_config().set("table.local-time-zone", "UTC")
        tables.execute_sql(f"CREATE TABLE results ({columns}) WITH ('connector' = 'blackhole')")
        for name, rows in (("warm", ticks.slice(0, options.warm_rows)), ("ticks", ticks)):
            path = Path(folder) / f"{name}.csv"
            write_csv(rows, path)
            source(tables, name, path)
            begin = time.perf_counter()
            tables.execute_sql(text.format(table=name)).wait()
            seconds = time.perf_counter() - begin
    result = {"rows": ticks.num_rows, "seconds": round(seconds, 3), "rows_per_second": round(ticks.num_rows / seconds)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
