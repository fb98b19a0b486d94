"""Stored candles over HTTP: rows per second as JSON, CSV and Arrow, compared with pyiceberg alone in the same run.

The setup is a table of `--rows` one-minute candles, and the process `console`. A reader in this process requests all of
them in each format, `--times` times in turn; the best time counts. `floor_rows_per_second` is pyiceberg's scan of the
same rows into Arrow. `rows_per_cpu_second` and its floor use the processor time of the console and of the scan, which
other work affects less. `first_ms`: until the first byte of the answer; `bytes`: its uncompressed length.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import orjson
import pyarrow as pa

from benchmarks.servers.sse import cpu_seconds, free_port
from core.settings import Settings
from iceberg import create_tables, open_catalog
from iceberg.tables import OHLC

TICKER = "BTC/USDT.BINANCE"
START_US = 1_577_836_800_000_000
MINUTE_US = 60_000_000
FORMATS = ("json", "csv", "arrow")


def candles(rows: int) -> pa.Table:
    random = np.random.default_rng(7)
    close = np.round(40_000 + random.normal(0, 20, rows).cumsum(), 2)
    times = pa.array(START_US + np.arange(rows) * MINUTE_US).cast(pa.timestamp("us", "UTC"))
    columns = {
        "ticker": pa.repeat(TICKER, rows),
        "period_seconds": pa.repeat(60, rows),
        "open_time": times,
        "open": close,
        "high": close + 1.5,
        "low": close - 0.25,
        "close": close,
        "volume": np.round(random.gamma(2, 3, rows), 5),
        "quote_volume": pa.nulls(rows),
        "trade_count": pa.repeat(3, rows),
        "source": pa.repeat("exchange", rows),
        "complete": pa.repeat(True, rows),
        "updated_at": times,
    }
    schema = OHLC.arrow_schema
    return pa.table([pa.array(columns[name]).cast(schema.field(name).type) for name in schema.names], schema=schema)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """The API's address, and the process."""
    address = f"127.0.0.1:{free_port()}"
    environment = {
        **os.environ,
        "CANDLEWRIGHT_DATA_DIR": str(folder),
        "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
        "CANDLEWRIGHT_CONSOLE__BIND": address,
    }
    process = subprocess.Popen([sys.executable, "-m", "console"], env=environment, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                httpx.get(f"http://{address}/api/v1/openapi.json")
                break
            except httpx.ConnectError:
                time.sleep(0.05)
        yield f"http://{address}/api/v1/bars", process.pid
    finally:
        process.terminate()
        process.wait()


def asked(client: httpx.Client, url: str, form: str, *, rows: int) -> tuple[float, float, bytes]:
    """Seconds in total, seconds until the first bytes, and the answer."""
    query = {"ticker": TICKER, "start": "2020-01-01", "limit": str(rows), "format": form}
    begun = time.perf_counter()
    parts: list[bytes] = []
    first = 0.0
    with client.stream("GET", url, params=query, headers={"Accept-Encoding": "identity"}) as answer:
        answer.raise_for_status()
        for part in answer.iter_raw():
            first = first or time.perf_counter() - begun
            parts.append(part)
    return time.perf_counter() - begun, first, b"".join(parts)


def rows_in(form: str, answer: bytes) -> int:
    if form == "json":
        return len(orjson.loads(answer)["rows"])
    return answer.count(b"\n") - 1 if form == "csv" else pa.ipc.open_stream(answer).read_all().num_rows


def run(rows: int, times: int) -> Iterator[dict[str, float | str]]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        catalog = open_catalog(Settings(data_dir=folder))
        create_tables(catalog)
        table = catalog.load_table(OHLC.identifier)
        table.append(candles(rows))
        floor: list[tuple[float, float]] = []
        found: dict[str, list[tuple[float, float, float]]] = {form: [] for form in FORMATS}
        answers: dict[str, bytes] = {}
        with serving(folder) as (url, pid), httpx.Client(timeout=300) as client:
            for form in FORMATS:
                asked(client, url, form, rows=1)
            for _ in range(times):
                begun, used = time.perf_counter(), time.process_time()
                scanned = table.scan(row_filter=f"ticker = '{TICKER}' AND period_seconds = 60").to_arrow()
                floor.append((time.perf_counter() - begun, time.process_time() - used))
                assert scanned.num_rows == rows
                for form in FORMATS:
                    used = cpu_seconds(pid)
                    seconds, first, answers[form] = asked(client, url, form, rows=rows)
                    found[form].append((seconds, first, cpu_seconds(pid) - used))
        for form, measured in found.items():
            seconds, first, used = (min(each) for each in zip(*measured, strict=True))
            yield {
                "name": form,
                "rows": rows,
                "result_rows": rows_in(form, answers[form]),
                "seconds": round(seconds, 3),
                "rows_per_second": round(rows / seconds),
                "floor_rows_per_second": round(rows / min(each[0] for each in floor)),
                "rows_per_cpu_second": round(rows / max(used, 0.01)),
                "floor_rows_per_cpu_second": round(rows / min(each[1] for each in floor)),
                "first_ms": round(1e3 * first, 1),
                "bytes": len(answers[form]),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--output", choices=("json",), default="json")
    options = parser.parse_args()
    for line in run(options.rows, options.times):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
