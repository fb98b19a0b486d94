"""Does the platform's memory grow with the requests it serves? Memory and open files, sampled under steady load.

Each minute of load consists of many small historical requests for fresh ranges. The tables are maintained nine times,
because sorting takes memory that must be returned. The slope is a least-squares line through the samples after the
first third of the time, in which caches fill and the JVM compiles.
"""

import argparse
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring.output import add_output, show
from benchmarks.measuring.spark_master import ALL_CORES, add_master
from candlewright.client import Outcome, connect
from candlewright_platform.supervisor.private import PrivatePlatform

TICKER = "ETH/USDT.BINANCE"
SECOND = 1_000_000_000
START = 1_577_836_800 * SECOND
ROWS = 500
MIB = 1 << 20
SAMPLE_SECONDS = 5.0
MAINTENANCE_RUNS = 9
_SAMPLE = re.compile(r'^candlewright_supervisor_(resident_bytes|open_files)\{name="([^"]+)".*\} (\S+)$', re.MULTILINE)

#: Seconds since the start, and the value of each part.
Samples = list[tuple[float, dict[str, float]]]


def run(minutes: float = 10.0, master: str = ALL_CORES) -> dict[str, Any]:
    """One JSON-able result; slopes are per hour, sizes in MiB, `by_part` holds the slope of each part's memory."""
    with tempfile.TemporaryDirectory(prefix="candlewright-soak-") as folder:
        platform = PrivatePlatform(
            Path(folder),
            environment={
                "INGESTOR__RATE_LIMIT": "false",
                "SANDBOX__RATE_LIMIT": "false",
                "SPARK__MASTER": master,
                "ICEBERG__MAINTENANCE_MINUTES": str(minutes / MAINTENANCE_RUNS),
            },
            hear=lambda line: print(line, file=sys.stderr),
        )
        with platform, connect(settings=platform.settings) as client:
            page = f"http://{platform.settings.http.bind}/metrics"
            idle = sum(_sample(page)[0].values())
            memory: Samples = []
            files: Samples = []
            served, start = 0, START
            started = time.monotonic()
            next_sample = started
            while time.monotonic() < started + minutes * 60:
                submitted = client.submit(TICKER, 60, start=start, end=start + ROWS * 60 * SECOND)
                final = client.wait(submitted.request_id, timeout=300)
                if final.status is not Outcome.OK or final.row_count != ROWS:
                    raise SystemExit(f"a request ended as {final.status} with {final.row_count} rows")
                served += 1
                start += ROWS * 60 * SECOND
                if time.monotonic() >= next_sample:
                    at = time.monotonic() - started
                    resident, open_files = _sample(page)
                    memory.append((at, resident))
                    files.append((at, open_files))
                    next_sample += SAMPLE_SECONDS
            seconds = time.monotonic() - started
    return {
        "rows": served * ROWS,
        "requests": served,
        "seconds": round(seconds, 1),
        "rows_per_second": round(served * ROWS / seconds),
        "result_rows": served * ROWS,
        "idle_mib": round(idle / MIB),
        "first_mib": round(sum(memory[0][1].values()) / MIB),
        "last_mib": round(_last(_totals(memory)) / MIB),
        "peak_mib": round(max(total for _, total in _totals(memory)) / MIB),
        "memory_slope_mib_per_hour": round(slope(_totals(memory)) * 3_600 / MIB, 1),
        "open_files_first": round(sum(files[0][1].values())),
        "open_files_last": round(_last(_totals(files))),
        "open_files_slope_per_hour": round(slope(_totals(files)) * 3_600, 1),
        "by_part": {
            part: round(slope([(at, values.get(part, 0.0)) for at, values in memory]) * 3_600 / MIB, 1)
            for part in memory[-1][1]
        },
    }


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """Per second, through the last two thirds of the samples; 0 if there are too few."""
    settled = samples[len(samples) // 3 :]
    if len(settled) < 2:
        return 0.0
    times, values = np.array(settled, dtype=np.float64).T
    return float(np.polyfit(times, values, 1)[0])


def _last(samples: Sequence[tuple[float, float]]) -> float:
    """The median of the last tenth, because maintenance takes memory for half a minute."""
    return float(np.median([value for _, value in samples[-max(1, len(samples) // 10) :]]))


def _totals(samples: Samples) -> list[tuple[float, float]]:
    return [(at, sum(values.values())) for at, values in samples]


def _sample(page: str) -> tuple[dict[str, float], dict[str, float]]:
    """Resident bytes and open files by part."""
    with urllib.request.urlopen(page, timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, dict[str, float]] = {"resident_bytes": {}, "open_files": {}}
    for kind, part, value in _SAMPLE.findall(text):
        found[kind][part] = float(value)
    return found["resident_bytes"], found["open_files"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    add_master(parser, ALL_CORES)
    add_output(parser)
    asked = parser.parse_args()
    result = run(asked.minutes, asked.master)
    show(result, asked.output)


if __name__ == "__main__":
    main()
