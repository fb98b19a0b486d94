"""kill -9 of the driver between and during micro-batches of triggers."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from core.settings import Settings
from flink_replacement_spark.cep import evaluate
from iceberg import TRIGGER_EVENTS, load_table, open_catalog
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.trigger_walks import table_of, walk
from tests.triggers.trigger_records import V_SHAPE, rows

#: A busy machine takes minutes for what a quiet one does in seconds; a driver that has ended is reported immediately.
PATIENCE_SECONDS = 400.0

pytestmark = pytest.mark.timeout(2_000)

T = TypeVar("T")
TICKER, OTHER = "KILL/USDT.BINANCE", "KILL2/USDT.BINANCE"


@contextmanager
def driver(folder: Path, redis_url: str) -> Iterator[subprocess.Popen[bytes]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "CANDLEWRIGHT_DATA_DIR": str(folder),
        "CANDLEWRIGHT_BUS__URL": redis_url,
        "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
        "CANDLEWRIGHT_SPARK__CONNECT_BIND": f"127.0.0.1:{port}",
        "CANDLEWRIGHT_SPARK__MASTER": "local[2]",
        "CANDLEWRIGHT_SPARK__INTERVAL_SECONDS": "1",
        # Restarted only after its end, as by a supervisor, so that it need not wait for the lease.
        "CANDLEWRIGHT_SUPERVISED": "test/driver",
    }
    command = [sys.executable, "-m", "flink_replacement_spark"]
    with (folder / "driver.log").open("ab") as told, subprocess.Popen(
        command, env=environment, stdout=told, stderr=told
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()


def alive(process: subprocess.Popen[bytes], find: Callable[[], T | None]) -> T:
    """The first result of `find` while the driver is alive."""

    def found() -> T | None:
        assert process.poll() is None, f"the driver ended with {process.returncode}"
        return find()

    return wait_for(found, PATIENCE_SECONDS)


def test_a_killed_driver_continues_with_the_same_events_each_once(tmp_path: Path) -> None:
    prices = walk(3, 900)
    expected = evaluate(V_SHAPE, table_of(TICKER, 1, prices)).to_pylist()
    with EmbeddedRedis(tmp_path / "redis", fsync="no") as redis:
        settings = Settings.model_validate({"data_dir": tmp_path, "bus": {"url": redis.url}})
        bus = connect(settings.bus)
        with driver(tmp_path, redis.url) as first:
            # The last topic that a driver creates.
            alive(first, lambda: bus.partitions("trigger_progress") or None)
            feed.register(bus, "killed", V_SHAPE, TICKER)
            feed.register(bus, "any", "price > 101", OTHER)
            for start in range(0, 300, 50):
                feed.trades(bus, TICKER, 1 + start, prices=prices[start : start + 50])
                feed.trades(bus, OTHER, 1 + start, prices=prices[start : start + 50])
            before = alive(first, lambda: feed.first_events(bus, 10, "killed"))
            # The driver dies while it processes these; further registrations follow only after its end.
            feed.trades(bus, TICKER, 301, prices=prices[300:600])
            first.send_signal(signal.SIGKILL)
            first.wait()
        with driver(tmp_path, redis.url) as second:
            feed.register(bus, "later", "price > 0", OTHER)
            feed.trades(bus, TICKER, 601, prices=prices[600:])
            feed.clock(bus, TICKER, 10_000, sequence=len(prices))
            found = alive(second, lambda: feed.first_events(bus, len(expected) - 1, "killed"))
            assert [row for event in found for row in rows(event)] == expected[: len(found)]
            numbers = list(range(1, len(found) + 1))
            assert [int(event.context["match_number"]) for event in found] == numbers
            assert [int(event.context["sequence"]) for event in found] == numbers
            ids = [event.context["event_id"] for event in found]
            assert len(set(ids)) == len(ids)
            assert [event.context["event_id"] for event in before] == ids[: len(before)]

            def stored() -> list[str] | None:
                table = load_table(open_catalog(settings), TRIGGER_EVENTS).scan().to_arrow().to_pylist()
                mine = [row["event_id"] for row in table if row["trigger_id"] == "killed"]
                return sorted(mine) if len(mine) >= len(ids) else None

            assert alive(second, stored) == sorted(ids)
        bus.close()
