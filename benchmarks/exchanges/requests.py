"""Many small requests, as people send them every morning: from the call to the rows, on the sandbox exchange.

- `call_seconds`: one call for a day of minutes of `--tickers` tickers, to one table with all rows; `floor_seconds`: a
  bare pyarrow scan of the same rows in the tables' data files, in the same process.
- `proven_seconds`: the same day of one ticker again, which the table proves: a request, and its rows.
- `read_seconds`: the rows of a finished request once more.
- `final_seconds`: `--requests` requests of an hour each, from the first submission to the last final.
- `command_new_seconds`, `command_stored_seconds`: `candlewright history` of a day, from its start to its end;
  `python_seconds`: starting Python alone.

Medians of `--rounds` where one value is small. Rate limits are off.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.measuring.spark_master import ALL_CORES, add_master
from candlewright.client import Client, Outcome, connect
from candlewright_platform.supervisor.private import PrivatePlatform

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
HOUR = 3_600 * SECOND
#: 2024-03-01 00:00 UTC.
START = 1_709_251_200 * SECOND
TICKER = "BTC/USDT.BINANCE"
MINUTES_A_DAY = 1_440


def run(tickers: int = 500, requests: int = 200, rounds: int = 7, *, master: str = ALL_CORES) -> dict[str, Any]:
    """`rows`: candles of the large call; `result_rows`: those that it returned."""
    bases = [f"M{number}" for number in range(tickers)]
    own = {
        "INGESTOR__RATE_LIMIT": "false",
        "SANDBOX__RATE_LIMIT": "false",
        "SANDBOX__SYMBOLS": json.dumps([f"{base}/USDT" for base in bases]),
        "SPARK__MASTER": master,
    }
    with tempfile.TemporaryDirectory(prefix="candlewright-bench-") as folder:
        platform = PrivatePlatform(Path(folder), ("--sandbox",), own, hear=lambda line: print(line, file=sys.stderr))
        with platform, connect(settings=platform.settings) as client:
            # The first request of a platform also loads libraries in each part.
            client.history(TICKER, start=START - DAY, end=START)
            names = [f"{base}/USDT.BINANCE" for base in bases]
            call_seconds, result_rows = _call(client, names)
            found = client.history(TICKER, start=START, end=START + DAY)
            proven = _median(rounds, lambda: client.history(TICKER, start=START, end=START + DAY))
            read = _median(rounds, lambda: client.read(found.notification))
            final_seconds = _finals(client, requests)
            floor_seconds = _median(rounds, lambda: _scan(platform.data_dir, names))
            commands = [_command(platform, START + (day + 10) * DAY) for day in range(rounds)]
    return {
        "rows": tickers * MINUTES_A_DAY,
        "seconds": round(call_seconds, 3),
        "rows_per_second": round(result_rows / call_seconds),
        "result_rows": result_rows,
        "call_seconds": round(call_seconds, 3),
        "floor_seconds": round(floor_seconds, 3),
        "tickers": tickers,
        "proven_seconds": round(proven, 3),
        "read_seconds": round(read, 3),
        "requests": requests,
        "final_seconds": round(final_seconds, 3),
        "command_new_seconds": round(statistics.median(new for new, _ in commands), 3),
        "command_stored_seconds": round(statistics.median(stored for _, stored in commands), 3),
        "python_seconds": round(_median(rounds, lambda: _run([sys.executable, "-c", ""])), 3),
    }


def _median(rounds: int, work: Callable[[], object]) -> float:
    return statistics.median(_seconds(work) for _ in range(rounds))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _call(client: Client, names: list[str]) -> tuple[float, int]:
    started = time.perf_counter()
    got = client.history(names, start=START, end=START + DAY)
    return time.perf_counter() - started, got.row_count


def _finals(client: Client, requests: int) -> float:
    started = time.perf_counter()
    hours = [START + (2 * number + 48) * HOUR for number in range(requests)]
    submitted = [client.submit(TICKER, 60, start=hour, end=hour + HOUR) for hour in hours]
    finals = [client.wait(each.request_id) for each in submitted]
    if any(final.status is not Outcome.OK or final.row_count != 60 for final in finals):
        raise SystemExit("a request of an hour did not end with its 60 candles")
    return time.perf_counter() - started


def _scan(data_dir: Path, names: list[str]) -> None:
    """Raises SystemExit unless all rows are there."""
    files = [str(each) for each in (data_dir / "warehouse" / "market" / "ohlc").rglob("*.parquet")]
    rows = ds.dataset(files, format="parquet").to_table(filter=pc.field("ticker").isin(names))
    if rows.num_rows < len(names) * MINUTES_A_DAY:
        raise SystemExit(f"the tables' files have only {rows.num_rows} rows")


def _command(platform: PrivatePlatform, start: int) -> tuple[float, float]:
    """Seconds for a day that is not stored, and for the same day again."""
    settings = platform.settings
    day = [time.strftime("%Y-%m-%d", time.gmtime(at // SECOND)) for at in (start, start + DAY)]
    config = settings.data_dir / "bench.toml"
    config.write_text(
        f'[relay]\nrequests_bind = "{settings.relay.requests_bind}"\n'
        f'notifications_bind = "{settings.relay.notifications_bind}"\n'
    )
    command = [sys.executable, "-m", "candlewright", "history", TICKER, "--start", day[0], "--end", day[1]]
    command += ["--output", "csv", "--data-dir", str(settings.data_dir), "--config", str(config)]
    return _seconds(lambda: _run(command)), _seconds(lambda: _run(command))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tickers", type=int, default=500)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    add_master(parser, ALL_CORES)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    print(json.dumps(run(asked.tickers, asked.requests, asked.rounds, master=asked.master)))


if __name__ == "__main__":
    main()
