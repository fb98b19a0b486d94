"""`/ready` of the driver while maintenance keeps writers waiting."""

import threading
import urllib.error
import urllib.request

import pytest

from core.http import StatusServer
from flink_replacement_spark import server
from iceberg import TICKS
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.running import Platform


def test_ready_says_503_for_as_long_as_maintenance_keeps_a_writer_waiting_past_the_bound(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, locks = platform.driver, platform.driver.locks
    page = StatusServer("127.0.0.1:0", driver.status)

    def ready() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/ready", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def write() -> None:
        with locks.writing(TICKS, "test"):
            written.set()

    written = threading.Event()
    writer = threading.Thread(target=write)
    try:
        wait_for(lambda: True if ready() == 200 else None, 60)
        with locks.maintaining(TICKS, 10.0) as is_held:
            assert is_held
            writer.start()
            wait_for(lambda: locks.waiting() or None)
            # Below the bound, no client waits for long.
            monkeypatch.setattr(server, "_LONG_WAIT_SECONDS", 3_600.0)
            assert ready() == 200
            monkeypatch.setattr(server, "_LONG_WAIT_SECONDS", 0.05)
            wait_for(lambda: True if ready() == 503 else None)
            assert "maintenance holds table ticks" in driver.status().warnings
            assert not written.is_set()
        assert written.wait(30)
        wait_for(lambda: True if ready() == 200 else None)
    finally:
        page.close()
        writer.join(30)
