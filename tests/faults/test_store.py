"""Redis refuses writes, freezes or dies at any moment; its contents are those that the guide lists."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from bus import Bus
from candlewright_platform.cli.machine.doctor import _platform
from candlewright_platform.supervisor.parts import bus_url_of
from tests.faults.harness import MINUTE_MS, Platform, Status, Submitted, WireClient, submit_message, until
from tests.faults.replay import PERIODS, STEP, check, moved, recorded_trades, replay, streamed

pytestmark = pytest.mark.timeout(600)
JULY_MS = 1_719_792_000_000
DAY_MS = 86_400_000
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
MINUTES = 3_000


@pytest.fixture
def store(platform: Platform) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(bus_url_of(platform.up.settings)) as client:
        yield client


@contextmanager
def maxmemory(platform: Platform, store: redis.Redis) -> Iterator[str]:
    """Far below current use, so that nothing fits into the room that others free."""
    store.config_set("maxmemory", 1 << 20)
    try:
        yield "OOM"
    finally:
        store.config_set("maxmemory", 0)


@contextmanager
def too_few_replicas(platform: Platform, store: redis.Redis) -> Iterator[str]:
    store.config_set("min-replicas-to-write", 1)
    try:
        yield "NOREPLICAS"
    finally:
        store.config_set("min-replicas-to-write", 0)


@contextmanager
def a_replica(platform: Platform, store: redis.Redis) -> Iterator[str]:
    store.execute_command("REPLICAOF", "127.0.0.1", "1")
    yield "READONLY"
    store.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def frozen(platform: Platform, store: redis.Redis, seconds: float = 5.0) -> Iterator[str]:
    """Longer than a lease and every heartbeat of this platform."""
    pid = platform.signal("redis", signal.SIGSTOP)
    try:
        time.sleep(seconds)
        yield ""
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def frozen_long(platform: Platform, store: redis.Redis) -> Iterator[str]:
    """Longer than every retry of a call, and than the supervisor's patience with a part."""
    with frozen(platform, store, 30.0) as code:
        yield code


@contextmanager
def loading(platform: Platform, store: redis.Redis) -> Iterator[str]:
    """The server answers but refuses every call, as it does while it loads a large file."""
    # Between a thousand commands the server answers others; each takes half a millisecond.
    with store.pipeline(transaction=False) as ballast:
        for number in range(5_000):
            ballast.set("cw:probe", number)
        ballast.execute()
    store.config_set("key-load-delay", 500)
    refused = threading.Event()

    def watch() -> None:
        with redis.Redis.from_url(bus_url_of(platform.up.settings), retry=None) as other:
            while not refused.is_set() and thread.is_alive():
                try:
                    other.get("cw:life")
                except redis.BusyLoadingError:
                    refused.set()
                except redis.RedisError:
                    continue

    thread = threading.Thread(target=lambda: store.execute_command("DEBUG", "LOADAOF"))
    watcher = threading.Thread(target=watch)
    thread.start()
    watcher.start()
    thread.join()
    watcher.join()
    store.config_set("key-load-delay", 0)
    store.delete("cw:probe")
    assert refused.is_set()
    yield ""


@contextmanager
def killed(platform: Platform, store: redis.Redis, times: int = 2) -> Iterator[str]:
    """Kill the server, often in the middle of a script."""
    for _ in range(times):
        platform.kill("redis")
    yield ""


FAULTS = [maxmemory, too_few_replicas, a_replica, frozen, killed, loading, frozen_long]
LONG = {frozen_long, loading}


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.__name__, marks=[pytest.mark.long] * (fault in LONG)) for fault in FAULTS],
)
def test_requests_under_way_end_exactly_once_the_store_is_back(
    platform: Platform, client: WireClient, store: redis.Redis, fault: Callable[[Platform, redis.Redis], Any]
) -> None:
    ticker, symbol, asked = "XRP/USDT.BINANCE", "XRPUSDT", {}
    for number in range(4):
        first = JULY_MS + (FAULTS.index(fault) * 4 + number) * MINUTES * MINUTE_MS
        message = submit_message(f"store-{fault.__name__}-{number}", ticker, first, end_ms=first + MINUTES * MINUTE_MS)
        assert client.submit(message).status == Submitted.QUEUED
        asked[message.request_id] = first
    with fault(platform, store) as code:
        if code:
            until(lambda: f"({code})" in json.dumps(platform.page()), 60, f"/status names {code}")
    client.finals(asked, 150)
    for request_id, first in asked.items():
        final = client.final(request_id)
        assert (final.status, final.row_count) == (Status.OK, MINUTES), final
        end = first + MINUTES * MINUTE_MS
        assert platform.rows(ticker, first, end) == platform.exchange_rows(symbol, first, end)
    coverage = platform.coverage()
    assert all(len(coverage[request_id]) == 1 for request_id in asked)
    platform.wait_until_well()


@pytest.mark.long
@pytest.mark.usefixtures("past")
@pytest.mark.parametrize("fault", [maxmemory, too_few_replicas])
def test_live_data_waits_for_a_store_that_takes_no_writes_and_loses_no_trade(
    platform: Platform, bus: Bus, store: redis.Redis, shared_data: Path, fault: Callable[[Platform, redis.Redis], Any]
) -> None:
    """The exchange shows further trades meanwhile, and `doctor` names what keeps them from the bus."""
    pair, recorded = f"{fault.__name__.upper()}/USDT", recorded_trades(shared_data)
    # Days after the trades that were played before, because the clock only advances.
    trades = moved(recorded, milliseconds=(2 + FAULTS.index(fault)) * DAY_MS)
    platform.wait_until_well()
    with ExitStack() as stack:
        playing = replay(platform, bus, {pair: trades}, stack=stack, periods=PERIODS)
        until(lambda: pair.replace("/", "") in streamed(platform), 60, "it is streamed")
        playing.play(len(trades) // 2)
        playing.finish()
        with fault(platform, store) as code:
            shown = playing.tapes[0].shown
            playing.pass_time(playing.tapes[0].times[shown + STEP] - playing.tapes[0].now)
            until(lambda: f"({code})" in json.dumps(platform.page()), 60, f"/status names {code}")
            until(lambda: f"({code})" in str(list(_platform(platform.up.settings))), 60, f"doctor names {code}")
            assert (playing.behind() or 0) >= STEP, "the bus took what it should refuse"
            # Longer than a lease: no job may be given away because its lease cannot be renewed.
            time.sleep(4.0)
        playing.play(len(trades))
        playing.finish()
        playing.pass_time(6 * MINUTE_MS)
        platform.wait_until_well()
        check(platform, bus, pair, trades=trades)
    assert f"({code})" not in json.dumps(platform.page())


def test_every_key_and_table_of_a_running_platform_is_listed_with_its_bound(
    platform: Platform, client: WireClient, store: redis.Redis
) -> None:
    message = submit_message("listed", "ETH/USDT.BINANCE", JULY_MS, end_ms=JULY_MS + 60 * MINUTE_MS)
    assert client.history(message).status == Status.OK
    text = OPERATIONS.read_text()
    families = {family for family, _ in re.findall(r"`(cw:[a-z]+)(:\*)?", text)}
    keys = [key.decode() for key in store.scan_iter(count=1_000)]
    assert {":".join(key.split(":")[:2]) for key in keys} <= families
    listed = tables_of(text)
    found = {key.removeprefix("cw:table:") for key in keys if key.startswith("cw:table:")}
    assert {"venues", "planned_offsets", "history_written"} <= found
    assert not {name for name in found if not matches(name, listed)}


def tables_of(text: str) -> list[str]:
    """The tables that docs/operations.md lists."""
    rows = re.findall(r"^\| ((?:`[a-z_*:/]+`(?:, )?)+) \|", text.partition("### Keyed tables")[2], re.MULTILINE)
    assert rows
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def matches(name: str, patterns: list[str]) -> bool:
    return any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in patterns)
