"""`keep` under kill -9 of every part, and alongside a person's requests, on an exchange whose rate limits both."""
# ruff: noqa: T201

import itertools
import statistics
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.supervisor.parts import bus_url_of
from tests.faults.harness import MINUTE_MS, Platform, WireClient, platform, submit_message, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TICKERS = [f"{base}/USDT.BINANCE" for base in ("BTC", "ETH", "SOL", "DOGE")]
DAYS = 20
ASKED = 8
#: Five calls for candles a second, half of which a rule may use.
SLOW = {"INGESTOR__RATE_LIMIT": "true", "INGESTOR__BUDGET_SHARE": "0.1", "BROKER__LEASE_SECONDS": "2"}
#: A person who waits longer than this for a day of candles, relative to waits without a rule, does not get a fair
#: share.
MOST_RATIO = 4.0

_numbers = itertools.count()


def waits(client: WireClient, first_ms: int) -> list[float]:
    """Seconds until the rows of a day are there, for a different day each time."""
    found = []
    for _ in range(ASKED):
        number = next(_numbers)
        start = first_ms + number * 1_440 * MINUTE_MS
        since = time.monotonic()
        asked = submit_message(f"person-{number}", TICKERS[0], start, end_ms=start + 1_440 * MINUTE_MS)
        final = client.history(asked, 120.0)
        found.append(time.monotonic() - since)
        assert (final.status, final.row_count) == (ing.HistoryReadyNotification.OK, 1_440), final
    return found


def test_keeping_continues_when_parts_are_killed_and_leaves_room_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with platform(tmp_path / "data", ingestors=2, environment=SLOW) as running:
        running.wait_until_well()
        monkeypatch.setenv("CANDLEWRIGHT_BUS__URL", bus_url_of(running.up.settings))
        end = int(time.time()) // 60 * MINUTE_MS - 5 * MINUTE_MS
        since = end - DAYS * 1_440 * MINUTE_MS
        with running.client("person") as client:
            waits(client, since - 400 * 1_440 * MINUTE_MS)
            idle = waits(client, since - 400 * 1_440 * MINUTE_MS)
            started = time.monotonic()
            moment = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(since / 1_000))
            added = CliRunner().invoke(app, ["keep", "add", *TICKERS, "--period", "1m", "--since", moment])
            assert added.exit_code == 0, added.output
            until(lambda: kept(running, TICKERS[0], since, end_ms=end), 120, "the rule has begun")
            beside = waits(client, since - 400 * 1_440 * MINUTE_MS)
            busy_until = [kept(running, ticker, since, end_ms=end) for ticker in TICKERS]
            ratio = statistics.median(beside) / statistics.median(idle)
            print(f"a person waits {statistics.median(idle):.2f} s idle, {ratio:.2f} times as long beside a rule")
            assert sum(busy_until) < len(TICKERS) * DAYS * 1_440, "the rule was over too early to measure beside it"
        killer = threading.Thread(target=kill_each, args=(running,))
        killer.start()
        killer.join(400)
        running.wait_until_well()
        whole = DAYS * 1_440
        until(lambda: all(kept(running, ticker, since, end_ms=end) >= whole for ticker in TICKERS), 300, "all is kept")
        print(f"kept {len(TICKERS) * whole:,} candles in {time.monotonic() - started:.0f} s, five kills included")
        for ticker in TICKERS:
            symbol = ticker.partition(".")[0].replace("/", "")
            rows = running.rows(ticker, since, end)
            assert max(Counter(row[0] for row in rows).values()) == 1
            assert rows == running.exchange_rows(symbol, since, end)
    assert ratio <= MOST_RATIO, f"{statistics.median(idle):.2f} s idle, {statistics.median(beside):.2f} s beside a rule"


def kept(running: Platform, ticker: str, since_ms: int, *, end_ms: int) -> int:
    times = running.table("ohlc", ticker=ticker, period_seconds=60)["open_time"]
    return sum(since_ms <= moment.timestamp() * 1_000 < end_ms for moment in times.to_pylist())


def kill_each(running: Platform) -> None:
    for part in ("broker", "relay", "ingestor-1", "flink_replacement_spark", "ingestor-2"):
        running.kill(part)
        time.sleep(3)
