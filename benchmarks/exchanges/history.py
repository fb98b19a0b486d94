"""One-minute candles from the sandbox exchange through the whole platform into Iceberg, against stock ccxt alone.

Timing runs from the submission to the HistoryReady notification, which follows the commit. The floor is stock ccxt's
`fetch_ohlcv` in a plain loop over the same pages of an equal, equally cold sandbox: it only fetches and parses. Rate
limits are off on both sides. Also measured: the latency of a request of 1,000 candles, compared with a bare Iceberg
commit of 1,000 rows by the same Spark, and the rate of a small request, which separates the cost of a candle from the
cost of a request.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ccxt.async_support

from benchmarks.measuring.output import add_output, show
from benchmarks.measuring.process_tree import ProcessTree
from benchmarks.measuring.spark_master import ALL_CORES, add_master
from candlewright.client import Client, Outcome, connect
from candlewright.client.history.spark_connect import open_session
from candlewright_platform.supervisor.private import PrivatePlatform

TICKER, SYMBOL, PERIOD_SECONDS = "BTC/USDT.BINANCE", "BTC/USDT", 60
SECOND = 1_000_000_000
#: 2020-01-01 00:00 UTC, when the sandbox's BTC/USDT had been listed for a while.
START_MS = 1_577_836_800_000
PAGE = 1_000
DAY_MS = 86_400_000
LATENCY_ROUNDS = 7
SEED = "5"


def run(rows: int = 1_000_000, ingestors: int = 1, master: str = ALL_CORES) -> dict[str, Any]:
    """`rows`: requested candles; `result_rows`: rows that Spark SQL finds in the table afterwards."""
    with _sandbox() as url:
        floor_seconds = asyncio.run(_fetch_with_ccxt(url, rows))
    with tempfile.TemporaryDirectory(prefix="candlewright-bench-") as folder:
        platform = PrivatePlatform(
            Path(folder),
            ("--sandbox", "--ingestors", str(ingestors)),
            {
                "INGESTOR__RATE_LIMIT": "false",
                "SANDBOX__RATE_LIMIT": "false",
                "SANDBOX__SEED": SEED,
                "SPARK__MASTER": master,
            },
            hear=lambda line: print(line, file=sys.stderr),
        )
        with platform, connect(settings=platform.settings) as client:
            latencies = [_request(client, START_MS - (round_ + 1) * DAY_MS, PAGE) for round_ in range(LATENCY_ROUNDS)]
            commit_seconds = _bare_commit(platform.settings.spark.connect_bind)
            small = min(rows, 10_000)
            small_seconds = _request(client, START_MS - 30 * DAY_MS, small)
            with ProcessTree() as tree:
                seconds = _request(client, START_MS, rows)
            result_rows = _count(platform.settings.spark.connect_bind, rows)
    latency = statistics.median(latencies[2:])
    return {
        "rows": rows,
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds),
        "result_rows": result_rows,
        "floor_seconds": round(floor_seconds, 3),
        "floor_rows_per_second": round(rows / floor_seconds),
        "ratio": round(floor_seconds / seconds, 3),
        "cpu_seconds": {part: round(used, 2) for part, used in sorted(tree.cpu_seconds.items())},
        "peak_mib": {part: peak >> 20 for part, peak in sorted(tree.peak_bytes.items())},
        "small_rows": small,
        "small_rows_per_second": round(small / small_seconds),
        "latency_rows": PAGE,
        "latency_seconds": round(latency, 3),
        "latency_first_seconds": round(latencies[0], 3),
        "bare_commit_seconds": round(commit_seconds, 3),
        "ingestors": ingestors,
        "processors": os.cpu_count(),
    }


@contextmanager
def _sandbox() -> Iterator[str]:
    command = [sys.executable, "-m", "sandbox", "--port", "0", "--no-rate-limit", "--seed", SEED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


async def _fetch_with_ccxt(url: str, rows: int) -> float:
    """Seconds of the plain loop: page by page, each starting where the last one ended."""
    exchange = ccxt.async_support.binance(
        {
            "enableRateLimit": False,
            "options": {"fetchMarkets": {"types": ["spot"]}},
            "urls": {"api": {"public": f"{url}/api/v3"}},
        }
    )
    try:
        await exchange.load_markets()
        started = time.perf_counter()
        since, got = START_MS, 0
        while got < rows:
            page = await exchange.fetch_ohlcv(SYMBOL, "1m", since, min(PAGE, rows - got))
            if not page:
                raise SystemExit(f"the sandbox has only {got} of {rows} candles")
            got += len(page)
            since = page[-1][0] + 60_000
        return time.perf_counter() - started
    finally:
        await exchange.close()


def _request(client: Client, start_ms: int, rows: int) -> float:
    """Seconds from the submission to the final; a wrong number of rows ends the run."""
    start = start_ms // 60_000 * 60 * SECOND
    started = time.perf_counter()
    submitted = client.submit(TICKER, PERIOD_SECONDS, start=start, end=start + rows * 60 * SECOND)
    final = client.wait(submitted.request_id)
    seconds = time.perf_counter() - started
    if final.status is not Outcome.OK or final.row_count != rows:
        raise SystemExit(f"the request ended as {final.status} with {final.row_count} rows: {final.error_message}")
    return seconds


def _bare_commit(connect_bind: str) -> float:
    """Median seconds of Spark writing 1,000 rows into an empty Iceberg table, warm."""
    with open_session(connect_bind) as session:
        session.sql("CREATE TABLE lake.market.bench_commit (id bigint, price double) USING iceberg").collect()
        times = []
        for _ in range(LATENCY_ROUNDS):
            started = time.perf_counter()
            session.sql(
                f"INSERT INTO lake.market.bench_commit SELECT id, CAST(id AS double) FROM range(0, {PAGE}, 1, 1)"
            ).collect()
            times.append(time.perf_counter() - started)
        session.sql("DROP TABLE lake.market.bench_commit").collect()
    return statistics.median(times[2:])


def _count(connect_bind: str, rows: int) -> int:
    with open_session(connect_bind) as session:
        (row,) = session.sql(
            "SELECT count(DISTINCT open_time) AS n FROM lake.market.ohlc WHERE ticker = :ticker AND period_seconds = 60"
            " AND open_time >= timestamp_millis(:first) AND open_time < timestamp_millis(:last)",
            args={"ticker": TICKER, "first": START_MS, "last": START_MS + rows * 60_000},
        ).collect()
    return int(row["n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--ingestors", type=int, default=1)
    add_master(parser, ALL_CORES)
    add_output(parser)
    asked = parser.parse_args()
    result = run(asked.rows, asked.ingestors, asked.master)
    show(result, asked.output)


if __name__ == "__main__":
    main()
