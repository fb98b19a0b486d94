"""Whether the cost of a trade stays flat: bars from 100 times the trades, and from 10 to 1,000 tickers, in one run.

Each size is a run of `bench ohlc` in a separate process, with its own bus and tables, over generated trades. One line
for each, then one with the ratios. Costs are processor time of all processes, including executors on this machine, so
that other work affects them little. They include those of a step and of a commit, which weigh most in the
smallest run. A ratio is the cost of a trade at the largest size over that at the smallest: 1 is flat, less is cheaper.

Every ticker has the same number of trades per minute in each run, so every bar has too, and so has every record on the
bus. Two more runs vary these: in one, 1,000 tickers share the trades of 10, so that a bar has two or three; in the
other, trades travel in ten times as many records. What a bar and a record cost beyond their trades is reported as
`cpu_microseconds_per_bar` and `cpu_microseconds_per_record`.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.live import ohlc
from benchmarks.measuring.spark_master import TWO_CORES, add_master
from benchmarks.measuring.ticks_file import MEAN_GAP_MS, trades
from candlewright_platform.supervisor.processes import LIBRARIES
from core.log import configure_logging

TICKERS = (10, 100, 1_000)
TIMES = 100
#: Trades of a ticker that travel together: an ingestor sends what has come in a time, however many tickers it has.
IN_A_RECORD = 500
PARTS = 10
SEED = 7


def run(rows: int, of_tickers: int, master: str = TWO_CORES) -> Iterator[dict[str, Any]]:
    """`rows`: of the largest run; `of_tickers`: of each run that varies the tickers. The ratios come last."""
    fewest, most = TICKERS[0], TICKERS[-1]
    by_rows, by_tickers = [], []
    for size in (rows // TIMES, rows // 10, rows):
        by_rows.append(_measured(size, fewest, master=master))
        yield by_rows[-1]
    for tickers in TICKERS:
        by_tickers.append(_measured(of_tickers, tickers, busy=tickers, master=master))
        yield by_tickers[-1]
    quiet = _measured(of_tickers, most, master=master)
    yield quiet
    parted = _measured(of_tickers, most, busy=most, in_a_record=IN_A_RECORD // PARTS, master=master)
    yield parted
    yield _ratios(by_rows, by_tickers, quiet, parted)


def _measured(
    rows: int, tickers: int, *, busy: int = TICKERS[0], in_a_record: int = IN_A_RECORD, master: str
) -> dict[str, Any]:
    """`tickers` tickers share as many trades per minute as `busy` of them have."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ticks.parquet"
        gap_ns = MEAN_GAP_MS * 1_000_000 * TICKERS[0] // busy
        pq.write_table(trades(rows, tickers, SEED, gap_ns=gap_ns), file)
        # A separate process, so that one run's memory and caches do not affect the next.
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            found = apart.submit(_run_apart, file, master, in_a_record * tickers).result()
    used = found["cpu_microseconds_per_row"]
    return {
        "rows": rows,
        "tickers": tickers,
        "seconds": found["seconds"],
        "rows_per_second": found["rows_per_second"],
        "result_rows": found["result_rows"],
        "wrong_rows": found["wrong_rows"],
        "cpu_microseconds_per_row": round(sum(used.values()), 2),
        "by_part": used,
        "peak_mib": found["peak_mib"],
    }


def _run_apart(file: Path, master: str, window: int) -> dict[str, Any]:
    configure_logging("bench", "warning")
    return ohlc.run(file, master=master, window=window)


def _ratios(
    by_rows: list[dict[str, Any]], by_tickers: list[dict[str, Any]], quiet: dict[str, Any], parted: dict[str, Any]
) -> dict[str, Any]:
    def ratio(runs: list[dict[str, Any]]) -> float:
        return round(_cost(runs[-1]) / _cost(runs[0]), 2)

    everything = [*by_rows, *by_tickers, quiet, parted]
    seconds = sum(each["seconds"] for each in everything)
    rows = sum(each["rows"] for each in everything)
    most = by_tickers[-1]
    bars = quiet["result_rows"] - most["result_rows"]
    records = most["rows"] // IN_A_RECORD * (PARTS - 1)
    return {
        "rows": rows,
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds),
        "result_rows": sum(each["result_rows"] for each in everything),
        "wrong_rows": sum(each["wrong_rows"] for each in everything),
        f"ratio_rows_x{TIMES}": ratio(by_rows),
        "ratio_rows_x10": ratio(by_rows[1:]),
        f"ratio_tickers_{TICKERS[0]}_to_{TICKERS[-1]}": ratio(by_tickers),
        "cpu_microseconds_per_bar": round((_cost(quiet) - _cost(most)) * most["rows"] / bars, 2),
        "cpu_microseconds_per_record": round((_cost(parted) - _cost(most)) * most["rows"] / records, 2),
    }


def _cost(run: dict[str, Any]) -> float:
    return float(run["cpu_microseconds_per_row"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="trades of the largest run (default: 10000000)")
    parser.add_argument("--of-tickers", type=int, default=1_000_000, help="trades of each run that varies the tickers")
    add_master(parser)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    os.environ.update({**LIBRARIES, **os.environ})
    for line in run(asked.rows, asked.of_tickers, asked.master):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
