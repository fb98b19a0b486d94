"""The life of `candlewright up`: it ends cleanly on a signal, leaves nothing behind when killed, and refuses a second
one.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from candlewright_platform.supervisor.private import PrivatePlatform
from core.settings import Settings
from sandbox import SandboxThread
from tests.faults.harness import MINUTE_MS, START_SECONDS, Platform, Status, Submitted, submit_message, until

pytestmark = pytest.mark.timeout(600)

#: 2023-02-01 00:00 UTC
START_MS = 1_675_209_600_000
TICKER = "BTC/USDT.BINANCE"


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Platform]:
    """Not started yet; stopped at the end if it is running."""
    told: list[str] = []
    with SandboxThread(seed=11, rate_limit=False) as exchange:
        up = PrivatePlatform(
            tmp_path / "data",
            ("--exchange-url", f"BINANCE={exchange.url}", "--ingestors", "1"),
            {"INGESTOR__VENUES": '["BINANCE"]', "INGESTOR__RATE_LIMIT": "false"},
            hear=told.append,
        )
        try:
            yield Platform(up, exchange, told)
        finally:
            up.stop()


def processes_of(data_dir: Path) -> dict[int, str]:
    """Command lines of all living processes that name the folder in their command line or environment."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            text = command + (folder / "environ").read_bytes()
        except OSError:
            continue
        if str(data_dir).encode() in text and command and int(folder.name) != os.getpid():
            found[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace")[:200]
    return found


def listening(settings: Settings) -> list[str]:
    found = []
    for address in (
        settings.relay.requests_bind,
        settings.relay.notifications_bind,
        settings.broker.bind,
        settings.spark.connect_bind,
        settings.http.bind,
        settings.console.bind,
    ):
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        with closing(socket.socket()) as probe:
            if probe.connect_ex((host, int(port))) == 0:
                found.append(address)
    return found


def assert_nothing_is_left(platform: Platform, family: dict[int, str], seconds: float) -> None:
    assert len(family) >= 6, f"all parts and the JVM ran: {family}"
    until(
        lambda: not processes_of(platform.data_dir) and not any(Path(f"/proc/{pid}").exists() for pid in family),
        seconds,
        f"no process is left; there are {processes_of(platform.data_dir)}",
    )
    assert listening(platform.up.settings) == []


def family_of(platform: Platform) -> dict[int, str]:
    """Redis hides its environment behind its title, so its pid comes from the status page."""
    return processes_of(platform.data_dir) | {pid: name for name, pid in pids_of_parts(platform).items()}


def pids_of_parts(platform: Platform) -> dict[str, int]:
    return {name: part["pid"] for name, part in platform.page()["parts"].items()}


def is_below(pid: int, ancestor: int) -> bool:
    """Whether the process descends from that one; True if it has ended meanwhile."""
    while pid not in (ancestor, 0):
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return True
    return pid == ancestor


def test_signals_and_kills_leave_nothing_behind_and_a_second_platform_is_refused(stopped: Platform) -> None:
    """One data directory through three lives: killed, interrupted, stopped."""
    end_ms = START_MS + 30_000 * MINUTE_MS
    up, ran = stopped.up, stopped
    up.start(START_SECONDS)
    family, parts = family_of(ran), pids_of_parts(ran)
    with ran.client("lives") as client:
        first = client.history(submit_message("first", TICKER, START_MS, end_ms=START_MS + 60 * MINUTE_MS))
        assert first.status == Status.OK
        first_body = client.deliveries.bodies["first"][0]

        # A second platform on the same data is refused immediately, and the first does not notice.
        other = subprocess.run(
            [sys.executable, "-m", "candlewright", "up", "--data-dir", str(ran.data_dir), "--sandbox"],
            cwd=ran.data_dir,
            env={**os.environ, "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert other.returncode == 1
        assert str(up.pid) in other.stderr
        assert other.stdout == ""
        before, family = family, family_of(ran)
        # Spark's JVM starts and ends helpers freely: new ones descend from the first platform.
        assert pids_of_parts(ran) == parts
        assert [family[pid] for pid in family.keys() - before.keys() if not is_below(pid, up.pid)] == []
        assert ran.is_well()

        # Killed in the middle of work.
        assert client.submit(submit_message("unfinished", TICKER, START_MS, end_ms=end_ms)).status == Submitted.QUEUED
        up.kill()
        assert_nothing_is_left(ran, family, 20)

        up.start(START_SECONDS)
        family = family_of(ran)
        unfinished = client.final("unfinished", 120)
        assert (unfinished.status, unfinished.row_count) == (Status.OK, 30_000)
        assert ran.all_rows(TICKER) == ran.exchange_rows("BTCUSDT", START_MS, end_ms)
        client.deliveries.bodies.clear()
        answer = client.submit(submit_message("first", TICKER, START_MS, end_ms=START_MS + 60 * MINUTE_MS))
        assert answer.status == Submitted.DUPLICATE
        until(lambda: client.deliveries.bodies.get("first"), 30, "the earlier final comes again")
        assert set(client.deliveries.bodies["first"]) == {first_body}

        os.kill(up.pid, signal.SIGINT)
        until(lambda: not Path(f"/proc/{up.pid}/cmdline").read_bytes(), 60, "Ctrl-C ends it")
        assert up.stop() == 0
        assert_nothing_is_left(ran, family, 5)

        up.start(START_SECONDS)
        family = family_of(ran)
        after = client.history(submit_message("after", TICKER, end_ms, end_ms=end_ms + 60 * MINUTE_MS))
        assert (after.status, after.row_count) == (Status.OK, 60)
        assert up.stop() == 0
        assert_nothing_is_left(ran, family, 5)
        rows = ran.exchange_rows("BTCUSDT", START_MS, end_ms + 60 * MINUTE_MS)
        assert ran.all_rows(TICKER) == rows
        assert all(len(found) == 1 for found in ran.coverage().values())
    assert "up: stopped" in ran.told
    assert json.loads((ran.data_dir / "origin.json").read_text())["origin"] == "exchanges"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_starting_platform_ends_cleanly(stopped: Platform, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "candlewright", "up", "--data-dir", str(stopped.data_dir), "--ingestors", "1"]
    stopped.data_dir.mkdir()
    settings = stopped.up.settings
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CANDLEWRIGHT_")},
        "CANDLEWRIGHT_BROKER__BIND": settings.broker.bind,
        "CANDLEWRIGHT_RELAY__REQUESTS_BIND": settings.relay.requests_bind,
        "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": settings.relay.notifications_bind,
        "CANDLEWRIGHT_SPARK__CONNECT_BIND": settings.spark.connect_bind,
        "CANDLEWRIGHT_HTTP__BIND": settings.http.bind,
        "CANDLEWRIGHT_CONSOLE__BIND": settings.console.bind,
        "CANDLEWRIGHT_EXCHANGE__BINANCE__URL": stopped.exchange.url,
        "CANDLEWRIGHT_INGESTOR__VENUES": '["BINANCE"]',
    }
    with subprocess.Popen(
        command, cwd=stopped.data_dir, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as starting:
        try:
            until(lambda: (stopped.data_dir / "logs" / "flink_replacement_spark.log").exists(), 60, "Spark is starting")
            starting.send_signal(number)
            output, _ = starting.communicate(timeout=60)
        finally:
            starting.kill()
    assert (starting.returncode, output) == (0, "")
    assert processes_of(stopped.data_dir) == {}
    assert listening(settings) == []
