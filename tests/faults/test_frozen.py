"""Parts that hang instead of dying: another ingestor takes the piece, and late writes of the first have no effect."""

import contextlib
import os
import signal
import time
from datetime import datetime
from typing import Any

import psutil
import pytest

from flink_replacement_spark.driver.vitals import STUCK_SECONDS
from sandbox.behaviour.faults import Fault
from tests.faults.harness import MINUTE_MS, Platform, Status, Submitted, WireClient, submit_message, until

pytestmark = pytest.mark.timeout(300)

#: 2023-06-01 00:00 UTC
JUNE_MS = 1_685_577_600_000
MINUTES = 4_000
SPARK = "flink_replacement_spark"
INGESTORS = ("ingestor-1", "ingestor-2", "ingestor-3")


def working_on(platform: Platform, ticker: str) -> list[str]:
    parts = platform.page()["parts"]
    return [name for name in INGESTORS if ticker in parts[name]["status"].get("running_jobs", {}).values()]


def test_a_frozen_ingestors_piece_goes_to_another_and_its_late_rows_change_nothing(
    platform: Platform, client: WireClient
) -> None:
    ticker, end_ms = "XRP/USDT.BINANCE", JUNE_MS + 30_000 * MINUTE_MS
    slow = platform.exchange.add_fault(Fault(kind="delay", path="*/klines", symbol="XRPUSDT", seconds=0.4))
    answer = client.submit(submit_message("frozen", ticker, JUNE_MS, end_ms=end_ms))
    assert answer.status == Submitted.QUEUED
    victim = until(lambda: working_on(platform, ticker), 30, "an ingestor works on it")[0]
    with platform.frozen(victim):
        platform.exchange.call(lambda sandbox: sandbox.state.faults.remove(slow))
        final = client.final("frozen", 60)
        expected = platform.exchange_rows("XRPUSDT", JUNE_MS, end_ms)
        assert (final.status, final.row_count) == (Status.OK, 30_000), final
        assert platform.all_rows(ticker) == expected
        written = when_written(platform, ticker)
    # It continues with the page that it was about to publish, finds that its lease is gone, and offers slots again.
    until(lambda: not working_on(platform, ticker), 30, f"{victim} gave its piece up")
    platform.wait_until_well()
    with contextlib.ExitStack() as others:
        for name in INGESTORS:
            if name != victim:
                others.enter_context(platform.frozen(name))
        again = client.history(submit_message("thawed", ticker, end_ms, end_ms=end_ms + 60 * MINUTE_MS), 60)
        assert (again.status, again.row_count) == (Status.OK, 60), again
    platform.wait_until_well()
    assert platform.rows(ticker, JUNE_MS, end_ms) == expected
    assert when_written(platform, ticker)[: len(written)] == written, "a late row was written"
    assert platform.rows(ticker, end_ms, end_ms + 60 * MINUTE_MS) == platform.exchange_rows(
        "XRPUSDT", end_ms, end_ms + 60 * MINUTE_MS
    )
    assert len(set(client.deliveries.bodies["frozen"])) == 1
    assert [len(platform.coverage()[name]) for name in ("frozen", "thawed")] == [1, 1]


def when_written(platform: Platform, ticker: str) -> list[tuple[datetime, datetime]]:
    """(open time, time of writing) of every row, by open time."""
    found = platform.table("ohlc", ticker=ticker)
    return sorted(zip(found["open_time"].to_pylist(), found["updated_at"].to_pylist(), strict=True))


@pytest.mark.parametrize("part", ["relay", "broker"])
def test_a_server_that_stalls_for_seconds_loses_nothing(platform: Platform, client: WireClient, part: str) -> None:
    symbol, ticker = "ADAUSDT", "ADA/USDT.BINANCE"
    start_ms = JUNE_MS + {"relay": 0, "broker": 200_000}[part] * MINUTE_MS
    asked = {}
    # So that there is work while it is frozen.
    slow = platform.exchange.add_fault(Fault(kind="delay", path="*/klines", symbol=symbol, seconds=0.2))
    for number in range(6):
        first = start_ms + number * MINUTES * MINUTE_MS
        further: dict[str, Any] = {"client_id": client.client_id} if number % 2 else {}
        message = submit_message(f"{part}-{number}", ticker, first, end_ms=first + MINUTES * MINUTE_MS, **further)
        assert client.submit(message).status == Submitted.QUEUED
        asked[message.request_id] = first
    pid = platform.signal(part, signal.SIGSTOP)
    try:
        # Longer than a lease and than every heartbeat of this platform.
        time.sleep(4.0)
    finally:
        os.kill(pid, signal.SIGCONT)
    platform.exchange.call(lambda sandbox: sandbox.state.faults.remove(slow))
    client.finals(asked, 120)
    for request_id, first in asked.items():
        final = client.final(request_id)
        assert (final.status, final.row_count) == (Status.OK, MINUTES), final
        end = first + MINUTES * MINUTE_MS
        assert platform.rows(ticker, first, end) == platform.exchange_rows(symbol, first, end)
    assert platform.part(part)["pid"] == pid, "it was not replaced, only paused"
    coverage = platform.coverage()
    assert all(len(coverage[request_id]) == 1 for request_id in asked)


@pytest.mark.timeout(900)
def test_a_driver_whose_jvm_hangs_is_replaced(platform: Platform, client: WireClient) -> None:
    """The driver itself runs on, and renews its lease."""
    old = psutil.Process(platform.part(SPARK)["pid"])
    (jvm,) = (child for child in old.children() if child.name() == "java")
    os.kill(jvm.pid, signal.SIGSTOP)
    until(lambda: has_warned(platform), STUCK_SECONDS, "a warning")
    until(lambda: platform.part(SPARK)["pid"] not in (None, old.pid), 2 * STUCK_SECONDS, "the driver is started again")
    # It is killed first, but the kernel takes a while to free its memory.
    until(lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE, 5.0, "the end of the JVM")
    platform.wait_until_well()
    start_ms = JUNE_MS + 500_000 * MINUTE_MS
    final = client.history(submit_message("hung", "LTC/USDT.BINANCE", start_ms, end_ms=start_ms + 60 * MINUTE_MS), 60)
    assert (final.status, final.row_count) == (Status.OK, 60), final


def has_warned(platform: Platform) -> bool:
    return any("Spark has not answered for" in text for text in platform.part(SPARK)["status"]["warnings"])
