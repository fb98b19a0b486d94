"""A full disk under the tables: the platform reports it, loses nothing, and finishes once there is room again."""

import errno
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import MINUTE_MS, Platform, Status, Submitted, submit_message, until
from tests.faults.harness import platform as running_platform

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]

#: 2023-01-01 00:00 UTC
START_MS = 1_672_531_200_000
MINUTES = 5_000
TICKER = "BTC/USDT.BINANCE"


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path_factory.mktemp("disk")
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount command")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def cramped(tmp_path_factory: pytest.TempPathFactory, small_disk: Path) -> Iterator[Platform]:
    environment = {"ICEBERG__WAREHOUSE": f"file://{small_disk}/warehouse"}
    with running_platform(tmp_path_factory.mktemp("cramped"), ingestors=1, environment=environment) as running:
        yield running


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4_096))
        except OSError as error:
            assert error.errno == errno.ENOSPC


def test_a_full_warehouse_is_reported_and_the_request_succeeds_when_there_is_room(
    cramped: Platform, small_disk: Path
) -> None:
    end_ms = START_MS + MINUTES * MINUTE_MS
    with cramped.client("disk") as client:
        before = client.history(submit_message("before", TICKER, START_MS, end_ms=START_MS + 60 * MINUTE_MS))
        assert (before.status, before.row_count) == (Status.OK, 60)
        spark = cramped.part("flink_replacement_spark")["pid"]
        ballast = small_disk / "ballast"
        fill(ballast)
        assert client.submit(submit_message("during", TICKER, START_MS, end_ms=end_ms)).status == Submitted.QUEUED
        problems = until(lambda: cramped.part("flink_replacement_spark")["problems"], 60, "the problem is reported")
        assert "No space left on device" in problems[0], problems
        code, body = cramped.ask("/health")
        assert code == 503
        assert any("No space left" in problem for problem in json.loads(body)["problems"])
        # A second one waits after it.
        later_ms = end_ms + 60 * MINUTE_MS
        assert client.submit(submit_message("behind", TICKER, end_ms, end_ms=later_ms)).status == Submitted.QUEUED
        assert not {"during", "behind"} & set(client.deliveries.bodies)
        ballast.unlink()
        for request_id, rows in (("during", MINUTES), ("behind", 60)):
            final = client.final(request_id, 90)
            assert (final.status, final.row_count) == (Status.OK, rows), final
        until(lambda: cramped.ask("/health")[0] == 200, 60, "health is green again")
        assert cramped.part("flink_replacement_spark")["pid"] == spark
        assert cramped.all_rows(TICKER) == cramped.exchange_rows("BTCUSDT", START_MS, later_ms)
        assert [len(cramped.coverage()[name]) for name in ("before", "during", "behind")] == [1, 1, 1]
        assert all(len(set(bodies)) == 1 for bodies in client.deliveries.bodies.values())
