"""The cost of registered triggers side by side in one bus partition: no bus, no Spark, one core.

    python -m benchmarks.triggers.trigger_engine [--rows 2000000] [--symbols 1000] [--counts 1 100 1000 10000]
        [--settings shared distinct everywhere live] [--batch-rows 50000]

Ticks of `symbols` random walks arrive in micro-batches as serialised TickBatches; the state is saved after each.
Settings: `shared` - one text, each trigger over one ticker; `distinct` - each trigger has a different text (its own
constants, three kinds of trigger), over one ticker; `everywhere` - distinct texts over all tickers; `live` - 10,000
distinct triggers in micro-batches of 100 ticks. One JSON line per measurement:
{"name", "rows", "seconds", "rows_per_second", "rows_per_cpu_second", "result_rows", "ratio" (of CPU time to the first
count), "batch_milliseconds", "save_milliseconds" (CPU, of a micro-batch), "state_bytes", "changed_bytes" (the parts of
the state that a micro-batch has changed), ...}.
"""

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from candlewright.wire.tick_columns import TickColumns, encode
from protobuf import records_pb2 as records
from triggers.partition import TriggerPartition

#: Of texts in the setting `distinct`.
KINDS = 3
V_SHAPE = (
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts_ns "
    "MEASURES FIRST(ts_ns) AS t0, LAST(ts_ns) AS t1, FIRST(price) AS first_price, LAST(D.price) AS bottom, "
    "LAST(U.price) AS top PATTERN (S D{3,} U{3,}) "
    "DEFINE D AS price < PREV(price)%s, U AS price > PREV(price)) AS m"
)

_DROP = (
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts_ns "
    "MEASURES MAX(A.price) AS top, LAST(price) AS price "
    "PATTERN (A+ B) DEFINE A AS price > %.2f, B AS price < PREV(price) * 0.99) AS m"
)
_CROSSING = (
    "SELECT * FROM {} MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts_ns "
    "MEASURES LAST(ts_ns) AS at, LAST(price) AS price "
    "PATTERN (B) DEFINE B AS price > %.2f AND PREV(price) < price) AS m"
)
#: Alerts on a level above the price, most of which do not fire; the level of `runs` is below it, so all have begun.
ALERTS = {
    "thresholds": "price > %.2f",
    "crossings": _CROSSING.format("ticks"),
    "filtered": _CROSSING.format("(SELECT * FROM ticks WHERE size > 1)"),
    "turns": "price > %.2f AND LAG(price) OVER (PARTITION BY ticker ORDER BY ts) < price",
    "drops": _DROP,
    "runs": _DROP,
}


_INDICATORS = (
    "EMA(price, 20)", "RSI(price, 14)", "BOLLINGER_UPPER(price, 20, 2)", "BOLLINGER_LOWER(price, 20, 2)",
    "DEMA(price, 10)", "TEMA(price, 10)", "MACD(price, 12, 26, 9)", "WMA(price, 30)", "ROC(price, 10)",
    "EMA(size, 20)", "SMA(price, 50)",
)  # fmt: skip
#: A view that costs much more than the texts over it, which differ in the columns that they compare.
VIEW = (
    "SELECT ticker, ts, price, "
    + ", ".join(f"{name} OVER w AS c{place}" for place, name in enumerate(_INDICATORS))
    + " FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts)"
)


def over_a_view(number: int, source: str) -> str:
    """A text of its own for each of 110 numbers."""
    one, other = divmod(number, 10)
    other += other >= one
    return f"SELECT ticker, ts, price, c{one} AS c FROM {source} WHERE c{one} > ABS(c{other}) * 1e9 + 1e9"


class Ticks:
    """Random walks on a 0.01 grid, each symbol's trades numbered from 1, in micro-batches."""

    def __init__(self, symbols: int, seed: int = 7) -> None:
        self.random = np.random.default_rng(seed)
        self.names = [f"S{number:04d}/USDT.SIM" for number in range(symbols)]
        self.price = 1000.0 + 10.0 * (np.arange(symbols) % 100)
        self.counts = np.zeros(symbols, np.int64)
        self.now_ms = 1_704_067_200_000

    def batch(self, rows: int) -> list[bytes]:
        """One TickBatch per symbol that traded; there is a trade of some symbol every 36 ms."""
        random = self.random
        times = self.now_ms + np.cumsum(random.integers(1, 72, rows))
        self.now_ms = int(times[-1])
        symbol = np.sort(random.integers(0, len(self.names), rows))
        picked = random.permutation(rows)
        steps, size = random.integers(-5, 6, rows) / 100.0, random.exponential(2.0, rows) + 0.001
        cuts = np.flatnonzero(np.diff(symbol)) + 1
        found = []
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), rows], strict=True):
            own, count = int(symbol[start]), end - start
            price = np.round(self.price[own] + np.cumsum(steps[start:end]), 2)
            self.price[own] = price[-1]
            first = int(self.counts[own]) + 1
            self.counts[own] += count
            # Ids of one width, as neighbouring trades have on exchanges.
            ids = np.char.mod("%d", np.arange(first, first + count) + 10**9).astype("S10")
            time_ns = np.sort(times[picked[start:end]]) * 1_000_000
            side = random.integers(1, 3, count).astype(np.uint8)
            columns = TickColumns(
                ticker=self.names[own],
                first_sequence=first,
                timestamp=time_ns,
                price=price,
                size=np.round(size[start:end], 3),
                side=side,
                trade_id=ids,
                received_at=time_ns,
            )
            found.append(encode(columns))
        return found


def registrations(setting: str, count: int, names: Sequence[str]) -> Iterator[bytes]:
    for number in range(count):
        own = number * max(1, len(names) // count) % len(names) if count < len(names) else number % len(names)
        tickers = [] if setting == "everywhere" else [names[own]]
        parameters: dict[str, str] = {}
        sql = V_SHAPE % ""
        if setting in ALERTS:
            least = 900 if setting == "runs" else 1_005
            sql = ALERTS[setting] % (least + 10 * (own % 100) + number // len(names) / 10)
        elif setting != "shared":
            sql, parameters = _distinct(number)
        views = {"signals": VIEW} if setting == "views" else {}
        if setting in ("views", "written"):
            sql, tickers = over_a_view(number, "signals" if views else f"({VIEW})"), list(names)
        registration = records.TriggerRegistration(
            trigger_id=f"t{number}", version=number + 1, sql=sql, tickers=tickers, parameters=parameters, views=views
        )
        yield records.TriggerControl(register=registration).SerializeToString()


def _distinct(number: int) -> tuple[str, dict[str, str]]:
    """Distinct texts; a third each are conditions, patterns and windows."""
    kind = number % KINDS
    if kind == 0:
        return f"price > {1900 + number * 0.01:.2f} AND size >= :min_size", {"min_size": f"{5 + number % 50 / 10}"}
    if kind == 1:
        return V_SHAPE % f" - {number % 4000 * 0.000001:.6f}", {}
    return (
        "SELECT ticker, window_start, COUNT(*) AS n, MAX(price) AS high FROM TABLE(TUMBLE(TABLE ticks, "
        "DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ticker, window_start, window_end "
        f"HAVING COUNT(*) > {number % 97 + number // 97}"
    ), {}


def show(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def peak_megabytes() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def run(
    name: str, setting: str, count: int, *, options: argparse.Namespace, batch_rows: int, rows: int
) -> dict[str, Any]:
    ticks = Ticks(options.symbols)
    partition = TriggerPartition()
    begin = time.process_time()
    output = partition.process([], controls=list(registrations(setting, count, ticks.names)), now_ns=1)
    registering = time.process_time() - begin
    refused = [report for report in output.reports if report.state != "active"]
    if refused:
        sys.exit(f"refused: {refused[0]}")
    # A first batch compiles and caches, which is not part of the steady cost.
    partition.process(ticks.batch(batch_rows))
    partition.save()
    seconds, cpu, saving, size, changed, events, done, batches = 0.0, 0.0, 0.0, 0, 0, 0, 0, 0
    before: dict[str, bytes] = {}
    while done < rows:
        values = ticks.batch(min(batch_rows, rows - done))
        gc.collect()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        events += len(partition.process(values).events)
        seconds += time.perf_counter() - begin
        middle = time.process_time()
        state = partition.segments()
        saving += time.process_time() - middle
        cpu += middle - begin_cpu
        size += sum(map(len, state.values()))
        changed += sum(len(part) for name, part in state.items() if before.get(name) is not part)
        before = state
        done += min(batch_rows, rows - done)
        batches += 1
        if options.batches and batches >= options.batches:
            break
    return {
        "name": name, "triggers": count, "rows": done, "seconds": round(seconds, 3),
        "rows_per_second": round(done / seconds), "rows_per_cpu_second": round(done / cpu), "result_rows": events,
        "shards": partition.shards, "batch_milliseconds": round(1000 * cpu / batches, 2),
        "register_seconds": round(registering, 3),
        "save_milliseconds": round(1000 * saving / batches, 2), "state_bytes": size // batches,
        "changed_bytes": changed // batches, "peak_megabytes": peak_megabytes(),
    }  # fmt: skip


def compare(setting: str, counts: Sequence[int], options: argparse.Namespace) -> None:
    first = 0.0
    for count in counts:
        line = run(
            f"{setting} {count}", setting, count, options=options, batch_rows=options.batch_rows, rows=options.rows
        )
        cost = 1 / line["rows_per_cpu_second"]
        first = first or cost
        show(line | {"ratio": round(cost / first, 2)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--symbols", type=int, default=1_000)
    parser.add_argument("--counts", type=int, nargs="*", default=[1, 100, 1_000, 10_000])
    parser.add_argument("--batch-rows", type=int, default=50_000)
    parser.add_argument("--batches", type=int, default=0, help="stop each measurement after this many micro-batches")
    parser.add_argument(
        "--settings", nargs="*", default=["shared", "distinct", "everywhere", "live"],
        choices=["shared", "distinct", "everywhere", "live"],
    )  # fmt: skip
    parser.add_argument("--output", default="json", choices=["json"])
    options = parser.parse_args()
    for setting in options.settings:
        if setting == "live":
            for count in (options.counts[0], options.counts[-1]):
                rows = min(options.rows, 20_000)
                show(run(f"live {count}", "distinct", count, options=options, batch_rows=100, rows=rows))
        else:
            counts = options.counts if setting != "everywhere" else [n for n in options.counts if n < 1_000]
            compare(setting, counts, options)


if __name__ == "__main__":
    main()
