"""The bus at its bound: pieces wait for room while broker, driver and store are killed; the work ends, rows exact."""

from collections.abc import Iterator

import pytest

from tests.faults.harness import MINUTE_MS, Platform, Status, Submitted, submit_message, until
from tests.faults.harness import platform as running_platform

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
JULY_MS = 1_719_792_000_000
#: Ten times the limit of the topic.
MINUTES = 120_000
MAX_BYTES = 1 << 20


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    environment = {
        "BUS__MAX_BYTES": str(MAX_BYTES),
        "BROKER__LEASE_SECONDS": "2",
        "BROKER__HEARTBEAT_SECONDS": "0.5",
    }
    with running_platform(tmp_path_factory.mktemp("small"), ingestors=1, environment=environment) as running:
        yield running


def test_waiting_pieces_are_completed_although_broker_and_driver_are_killed(small: Platform) -> None:
    def is_at_bound() -> bool:
        """Accepted pieces are not written, and the topic holds more than half of its limit."""
        sizes = small.part("broker")["status"]
        return bool(sizes.get("history_unwritten_pieces")) and sizes["history_bytes"] > MAX_BYTES // 2

    small.wait_until_well()
    with small.client("small") as client:
        message = submit_message("large", "XRP/USDT.BINANCE", JULY_MS, end_ms=JULY_MS + MINUTES * MINUTE_MS)
        assert client.submit(message).status == Submitted.QUEUED
        for victim in ("broker", "flink_replacement_spark", "redis"):
            with small.frozen("flink_replacement_spark"):
                until(is_at_bound, 60, "the topic is full")
                if victim != "flink_replacement_spark":
                    small.kill(victim)
                    until(is_at_bound, 60, f"the topic is still full after {victim} was killed")
            if victim == "flink_replacement_spark":
                small.kill(victim)
        client.finals(["large"], 300)
        final = client.final("large")
    assert (final.status, final.row_count) == (Status.OK, MINUTES), final
    end = JULY_MS + MINUTES * MINUTE_MS
    assert small.rows("XRP/USDT.BINANCE", JULY_MS, end) == small.exchange_rows("XRPUSDT", JULY_MS, end)
    assert len(small.coverage()["large"]) == 1
    small.wait_until_well()
