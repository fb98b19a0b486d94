"""A live ticker beside partitions of the bus that catch up with an hour of trades.

    candlewright bench backfill [--rows 3000000] [--tickers 20] [--timed 60]

Starts a whole platform without ingestors. A row pattern waits for the trades of one live ticker, and one for those of
each of `--tickers` others, all in other partitions. The tasks are stopped by a signal while the others' `--rows` trades
are published: an hour of event time, in records of a thousand, as an ingestor publishes them after an outage. One line
each:

- `alone`: `p50_ms`, `p99_ms` and `max_ms` from a trade of the live ticker to its event, while nothing else happens.
- `backfill`: the same from when the tasks continue until bars and triggers have taken all of the others' trades, which
  is after `seconds` (positions are written once a second), with `rows_per_second` and the number of `timed` trades.
- `unwatched`: as many further trades of the others, without a trade of the live ticker.
"""

import argparse
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from benchmarks.measuring.process_tree import spark_workers
from benchmarks.measuring.spark_master import ALL_CORES, add_master
from benchmarks.system.latency import (
    LOAD_SQL,
    MODE,
    PATTERN_TICKER,
    SECOND_NS,
    SQL,
    TIMEOUT_SECONDS,
    TRIGGER_ID,
    Trades,
    figures,
    subscriber_of,
    warm_up,
    without_ingestors,
)
from bus import Bus, partition_of
from bus import topics as bus_topics
from candlewright.wire import streams
from core.log import configure_logging
from core.settings import Settings
from flink_replacement_spark.triggers.query import held_for_triggers

__all__ = ["run"]

#: Trades in one record, as in one page of an exchange.
_PAGE = 1_000
_RECORDS = 100
_PAUSE_SECONDS = 0.05
_LOOK_SECONDS = 0.05


def run(
    rows: int = 3_000_000, tickers: int = 20, timed: int = 60, *, fsync: str = "always", master: str = ALL_CORES
) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        _, platform, client, bus = without_ingestors(stack, fsync=fsync, mode=MODE, master=master)
        step_ns = 3_600 * SECOND_NS * tickers // rows
        others = [Trades(bus, name, step_ns) for name in _elsewhere(bus, PATTERN_TICKER, tickers)]
        client.triggers.add(SQL, tickers=[PATTERN_TICKER], trigger_id=TRIGGER_ID, timeout=TIMEOUT_SECONDS).close()
        for number, trades in enumerate(others):
            client.triggers.add(
                LOAD_SQL % number, tickers=[trades.ticker], trigger_id=f"other-{number}", timeout=TIMEOUT_SECONDS
            ).close()
        live = Trades(bus, PATTERN_TICKER, SECOND_NS)
        events = subscriber_of(stack, platform, streams.trigger(TRIGGER_ID))
        warm_up(events, live, 1.0)
        found = []
        for _ in range(timed):
            time.sleep(_PAUSE_SECONDS)
            found.append(_timed(live, events))
        yield {"name": "alone", **figures(found), "timed": timed}

        began = _resume_behind(bus, others, rows)
        found = []
        while _is_behind(bus):
            time.sleep(_PAUSE_SECONDS)
            found.append(_timed(live, events))
        yield {"name": "backfill", **figures(found), "timed": len(found), **_rate(rows, began)}

        began = _resume_behind(bus, others, rows)
        while _is_behind(bus):
            time.sleep(_LOOK_SECONDS)
        yield {"name": "unwatched", **_rate(rows, began)}


def _elsewhere(bus: Bus, ticker: str, count: int) -> list[str]:
    """Tickers that are not in the partition of `ticker`."""
    partitions = bus.partitions(bus_topics.TICKS)
    own, found, number = partition_of(ticker.encode(), partitions), list[str](), 0
    while len(found) < count:
        name = f"OTHER{number}/USDT.BENCH"
        number += 1
        if partition_of(name.encode(), partitions) != own:
            found.append(name)
    return found


def _timed(live: Trades, events: Any) -> float:
    """Milliseconds from before the publish of a trade until its event has arrived."""
    began = time.perf_counter()
    live.publish()
    events.recv_multipart()
    return 1_000 * (time.perf_counter() - began)


def _resume_behind(bus: Bus, others: Sequence[Trades], rows: int) -> float:
    """Stop the tasks, publish the trades, `rows` together, and let the tasks continue; returns when they do."""
    workers = spark_workers()
    try:
        _signal(workers, signal.SIGSTOP)
        pages = [trades.record(_PAGE) for _ in range(rows // (_PAGE * len(others))) for trades in others]
        for first in range(0, len(pages), _RECORDS):
            bus.publish(bus_topics.TICKS, pages[first : first + _RECORDS])
        return time.perf_counter()
    finally:
        _signal(workers, signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_behind(bus: Bus) -> bool:
    """Whether bars or triggers have records of other partitions than the live ticker's left."""
    states = bus.state(bus_topics.TICKS)
    own = partition_of(PATTERN_TICKER.encode(), len(states))
    bars = bus.holds(bus_topics.TICKS, bus_topics.READER_BAR_MAKER)
    triggers = held_for_triggers(Settings(), bus, len(states))
    for partition, state in enumerate(states):
        if partition != own and min(bars[partition], triggers[partition]) < state.end:
            return True
    return False


def _rate(rows: int, began: float) -> dict[str, Any]:
    seconds = time.perf_counter() - began
    return {"rows": rows, "seconds": round(seconds, 1), "rows_per_second": round(rows / seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000, help="trades that arrive at once")
    parser.add_argument("--tickers", type=int, default=20, help="tickers that they are of")
    parser.add_argument("--timed", type=int, default=60, help="timed trades of the live ticker before")
    parser.add_argument("--fsync", choices=["always", "everysec", "no"], default="always")
    add_master(parser, ALL_CORES)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    configure_logging("bench", "warning")
    for line in run(asked.rows, asked.tickers, asked.timed, fsync=asked.fsync, master=asked.master):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
