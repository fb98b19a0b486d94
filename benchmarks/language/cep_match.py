"""The matcher alone, one core: V shapes over a tick file, in one batch and as a stream, and many triggers at once.

    python benchmarks/language/cep_match.py --input ticks.parquet [--batch-rows 100000] [--triggers 1 100 1000]

The file has the columns ts_ns, symbol, price, size, side. One JSON line per measurement: {"name", "rows", "seconds",
"rows_per_second", "rows_per_cpu_second", "result_rows"}.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from candlewright_cep import evaluate
from candlewright_cep.streaming.rows.release import ReleaseBuffer
from candlewright_cep.streaming.stream import StreamInput, TriggerStream, compile_stream

MEASURES = (
    "MEASURES FIRST(ts_ns) AS t0, LAST(ts_ns) AS t1, FIRST(price) AS first_price, LAST(D.price) AS bottom, "
    "LAST(U.price) AS top"
)
LOCAL = "D AS price < PREV(price), U AS price > PREV(price)"
PATH = (
    "D AS D.price < LAST(D.price, 1) OR (LAST(D.price, 1) IS NULL AND D.price < S.price), "
    "U AS U.price > LAST(D.price) AND SUM(U.size) > 0"
)


def query(pattern: str, define: str, measures: str = MEASURES, *, partition: str = "symbol") -> str:
    return (
        f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY {partition} ORDER BY ts_ns {measures} ONE ROW PER MATCH "
        f"AFTER MATCH SKIP PAST LAST ROW PATTERN ({pattern}) DEFINE {define}) AS m"
    )


#: A V shape that engines without a greedy last variable can also run: a row that does not rise ends it.
ENDED = (
    "MEASURES FIRST(ts_ns) AS t0, LAST(U.ts_ns) AS t1, FIRST(price) AS first_price, LAST(D.price) AS bottom, "
    "LAST(U.price) AS top"
)

BATCH = {
    "local, a match in 116 rows, with an end": query("S D{3,} U{3,} E", f"{LOCAL}, E AS price <= PREV(price)", ENDED),
    "local, a match in 7 rows": query("S D+ U+", LOCAL),
    "local, a match in 115 rows": query("S D{3,} U{3,}", LOCAL),
    "path": query("S D+ U+", PATH),
    "aggregate": query("A+", "A AS SUM(A.size) <= 20", "MEASURES FIRST(ts_ns) AS t0, SUM(size) AS size"),
    "greedy loop that gives back": query("S A* D U{3,}", LOCAL),
    "threshold": "price > 1500 AND size > 8",
}


def measure(name: str, rows: int, run: Callable[[], int]) -> None:
    begin, cpu = time.perf_counter(), time.process_time()
    result_rows = run()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    line = {
        "name": name,
        "rows": rows,
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds),
        "rows_per_cpu_second": round(rows / cpu),
        "result_rows": result_rows,
    }
    print(json.dumps(line))


def in_batch(sql: str, table: pa.Table) -> Callable[[], int]:
    def run() -> int:
        found: int = evaluate(sql, table).num_rows
        return found

    return run


def on_stream(sqls: list[str], table: pa.Table, batch_rows: int) -> Callable[[], int]:
    source = StreamInput(table.schema, ("ts_ns",), "symbol")

    def run() -> int:
        streams = [TriggerStream(query=compile_stream(sql, {"ticks": source})) for sql in sqls]
        buffer = ReleaseBuffer("ts_ns", "symbol")
        found: int = 0
        for start in range(0, table.num_rows, batch_rows):
            released = buffer.push(table.slice(start, batch_rows)).rows
            found += sum(stream.feed(released, buffer.clock).table.num_rows for stream in streams)
        released = buffer.close(set(buffer.clock.watermarks))
        found += sum(stream.feed(released, buffer.clock).table.num_rows for stream in streams)
        return found

    return run


def one_ticker_each(table: pa.Table, count: int, batch_rows: int) -> Callable[[], int]:
    """`count` triggers that divide the symbols among themselves: trigger i sees every count-th symbol."""
    source = StreamInput(table.schema, ("ts_ns",), "symbol")
    names = sorted(table.column("symbol").unique().to_pylist())
    owner = {name: index % count for index, name in enumerate(names)}

    def run() -> int:
        sql = query("S D{3,} U{3,}", LOCAL)
        compiled = compile_stream(sql, {"ticks": source})
        streams = [TriggerStream(query=compiled) for _ in range(count)]
        buffer = ReleaseBuffer("ts_ns", "symbol")
        found: int = 0
        for start in range(0, table.num_rows, batch_rows):
            released = buffer.push(table.slice(start, batch_rows)).rows
            encoded = released.column("symbol").combine_chunks().dictionary_encode()
            owners = np.array([owner[name] for name in encoded.dictionary.to_pylist()])
            of_row = owners[encoded.indices.to_numpy(zero_copy_only=False)] if len(owners) else np.zeros(0, np.int64)
            order = np.argsort(of_row, kind="stable")
            grouped = released.take(order)
            cuts = np.searchsorted(of_row[order], np.arange(count + 1))
            for index, stream in enumerate(streams):
                part = grouped.slice(int(cuts[index]), int(cuts[index + 1] - cuts[index]))
                if part.num_rows:
                    found += stream.feed(part, buffer.clock).table.num_rows
        return found

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True)
    parser.add_argument("--batch-rows", type=int, default=100_000)
    parser.add_argument("--output", choices=("json",), default="json")
    parser.add_argument("--triggers", type=int, nargs="*", default=[1, 10, 100])
    options = parser.parse_args()
    table = pq.read_table(options.input)
    for name, sql in BATCH.items():
        measure(f"batch: {name}", table.num_rows, in_batch(sql, table))
    for name, sql in BATCH.items():
        measure(f"stream: {name}", table.num_rows, on_stream([sql], table, options.batch_rows))
    for count in options.triggers:
        run = one_ticker_each(table, count, options.batch_rows)
        measure(f"stream: {count} triggers", table.num_rows, run)


if __name__ == "__main__":
    main()
