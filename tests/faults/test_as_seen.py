"""`trigger try --as-seen` repeats what triggers over bars did live, with late trades, repaired gaps and killed parts.

`AS_SEEN_SEED` in the environment repeats the long rounds.
"""
# ruff: noqa: T201

import os
import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import candlewright as cw
from bus import Bus, topics
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from candlewright_platform.cli.triggers import backtest
from sandbox.behaviour.faults import Fault
from sandbox.recorded.files import Trade
from tests.faults.harness import Platform, until
from tests.faults.replay import moved, recorded_trades, replay, streamed
from tests.triggers.trigger_records import rows

SEED = int(os.environ.get("AS_SEEN_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
WEEK_MS, MINUTE_MS = 7 * 86_400_000, 60_000
#: The recording's busiest minute; how much of it is played, and for how long REST cannot repair gaps.
BUSY_MS = 28_719_358 * MINUTE_MS
TAPE_SECONDS, UNREPAIRED_SECONDS = 60, 20.0
PERIODS = (1, 60)
#: The ingestor that has the job of the ticker.
HOLDER = "holder"
#: Texts that take the first revision of each bar or all of them, one bar or several, of both periods.
TEXTS = {
    "rising": ("close > open", {"period_seconds": "1"}),
    "traded": ("volume > 0", {"period_seconds": "1", "revisions": "true"}),
    "minutes": (
        "SELECT open_time, close, volume, trade_count FROM ohlc",
        {"period_seconds": "60", "revisions": "true"},
    ),
    "falls": (
        "SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time "
        "MEASURES A.open_time AS since, LAST(B.close) AS bottom, C.close AS back "
        "PATTERN (A B+ C) DEFINE B AS close < PREV(close), C AS close > PREV(close)) AS m",
        {"period_seconds": "1"},
    ),
    "moving": (
        "SELECT open_time, SUM(volume) OVER (PARTITION BY ticker ORDER BY open_time "
        "ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) AS volume FROM ohlc",
        {"period_seconds": "1", "revisions": "true"},
    ),
}


@dataclass(slots=True)
class Period:
    """A separate market, the triggers on it, and what was published."""

    platform: Platform
    bus: Bus
    number: int
    since_ns: int

    @property
    def pair(self) -> str:
        return f"SEEN{self.number}/USDT"

    @property
    def symbol(self) -> str:
        return self.pair.replace("/", "")

    @property
    def ticker(self) -> str:
        return f"{self.pair}.BINANCE"

    def trigger(self, name: str) -> str:
        return f"{name}-{self.number}"

    def revisions(self) -> Counter[int]:
        """How many bars of each revision were published."""
        bars = map(OHLCV.FromString, published(self.bus, topics.OHLC))
        return Counter(bar.revision for bar in bars if bar.ticker == self.ticker)

    def newest_bar(self) -> int:
        """Open time (ms) of the newest minute that was published."""
        bars = map(OHLCV.FromString, published(self.bus, topics.OHLC))
        minutes = [bar.open_time for bar in bars if (bar.ticker, bar.period_seconds) == (self.ticker, 60)]
        return max(minutes, default=0) // 1_000_000

    def events(self) -> dict[str, Counter[str]]:
        """The rows of each trigger's events."""
        found: dict[str, Counter[str]] = {self.trigger(name): Counter() for name in TEXTS}
        for event in map(CEPTriggerEvent.FromString, published(self.bus, topics.TRIGGER_EVENTS)):
            if event.trigger_id in found:
                found[event.trigger_id].update(map(repr, rows(event)))
        return found

    def as_seen(self, name: str) -> Counter[str]:
        sql, parameters = TEXTS[name]
        settings = self.platform.up.settings
        found = backtest.run(
            settings,
            sql,
            parameters,
            ticker=self.ticker,
            since=self.since_ns,
            table=None,
            progress=lambda *_: None,
            as_seen=True,
        ).table
        for place, part in enumerate(found.schema):
            if pa.types.is_timestamp(part.type):
                nanoseconds = found[part.name].cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
                found = found.set_column(place, part.name, nanoseconds)
        return Counter(map(repr, found.to_pylist()))

    def holder(self) -> str:
        """The ingestor that has the ticker's job."""

        def found() -> str | None:
            for name, part in self.platform.page()["parts"].items():
                if self.ticker in part["status"].get("running_jobs", {}).values():
                    return str(name)
            return None

        return str(until(found, 60, f"an ingestor has {self.ticker}"))

    def disturb(self, *, without_rest: bool) -> None:
        """Trades are late by seconds and out of order; without REST they are missing meanwhile."""
        late = (100, 300, 500, 700) if without_rest else (100, 400, 800)
        faults = [Fault(kind="late", symbol=self.symbol, seconds=6.0, after=after, count=2) for after in late]
        faults.append(Fault(kind="swap", symbol=self.symbol, count=500, probability=0.3))
        if without_rest:
            faults += [Fault(kind="none", path=f"*/{name}", symbol=self.symbol) for name in ("trades", "aggTrades")]
        for fault in faults:
            self.platform.exchange.add_fault(fault)


def published(bus: Bus, topic: str) -> list[bytes]:
    found = []
    for partition, state in enumerate(bus.state(topic)):
        offset = state.first
        while records := bus.read(topic, partition, offset, max_records=10_000):
            offset = records[-1].offset + 1
            found += [record.value for record in records]
    return found


def live_through(platform: Platform, bus: Bus, shared_data: Path, *, number: int, victims: list[str]) -> None:
    """The exchange's clock runs like this machine's; by how far it is ahead shows which trades are from after a
    registration.
    """
    platform.wait_until_well()
    period = Period(platform, bus, number, time.time_ns())
    trades = recorded_minute(shared_data, number)
    start = trades[0][3] - 1
    with ExitStack() as stack:
        replay(platform, bus, {period.pair: trades}, stack=stack, periods=PERIODS)
        client = stack.enter_context(cw.connect(settings=platform.up.settings, timeout=60.0))
        for name, (sql, parameters) in TEXTS.items():
            client.triggers.add(sql, tickers=[period.ticker], parameters=parameters, trigger_id=period.trigger(name))
        until(lambda: period.symbol in streamed(platform), 60, "it is streamed")
        period.disturb(without_rest=True)
        platform.exchange.call(lambda sandbox: sandbox.clock.set(start, 1.0))
        time.sleep(UNREPAIRED_SECONDS)
        platform.exchange.clear_faults()
        period.disturb(without_rest=False)
        for victim in victims:
            name = period.holder() if victim == HOLDER else victim
            print(f"{time.strftime('%H:%M:%S')} kill -9 {name}; {sum(period.revisions().values())} bars")
            platform.kill(name)
        last = trades[-1][3]
        until(lambda: period.newest_bar() >= last - last % MINUTE_MS, 120, "the last minute closed")
        platform.wait_until_well()

        def is_stored() -> bool:
            stored = platform.table("ohlc_revisions", ticker=period.ticker).num_rows
            return bool(stored == sum(period.revisions().values()))

        until(is_stored, 120, "every revision in the table")
        # It is registered once every partition has evaluated everything published before.
        client.triggers.add("price < 0", tickers=[period.ticker], trigger_id=period.trigger("last"))
        live = period.events()
    revisions = period.revisions()
    print(revisions)
    assert sum(revisions.values()) > revisions[0], "no bar was corrected"
    gaps = platform.table("gaps", ticker=period.ticker)
    assert any(gaps["repaired"].to_pylist()), "no gap was repaired"
    for name in TEXTS:
        seen, told = period.as_seen(name), live[period.trigger(name)]
        assert seen, name
        assert told == seen, (name, "events alone", told - seen, "as seen alone", seen - told)


def recorded_minute(shared_data: Path, number: int) -> list[Trade]:
    """Its busiest minute and a little more, on a different day each time."""
    trades = recorded_trades(shared_data)
    first = BUSY_MS - 5_000
    busy = [trade for trade in trades if first <= trade[3] < first + TAPE_SECONDS * 1_000]
    return moved(busy, ids=number, milliseconds=WEEK_MS + number * MINUTE_MS * 60)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("past")
def test_as_seen_repeats_the_events_of_a_period_with_late_trades_repaired_gaps_and_kills(
    platform: Platform, bus: Bus, shared_data: Path
) -> None:
    live_through(platform, bus, shared_data, number=0, victims=["flink_replacement_spark", HOLDER, "redis"])


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.usefixtures("past")
@pytest.mark.parametrize("number", range(1, 6))
def test_as_seen_repeats_the_events_whichever_parts_are_killed(
    platform: Platform, bus: Bus, shared_data: Path, number: int
) -> None:
    print(f"AS_SEEN_SEED={SEED}")
    choice = random.Random(SEED + number)
    victims = choice.choices(["flink_replacement_spark", "relay", "broker", "redis", HOLDER], k=5)
    live_through(platform, bus, shared_data, number=number, victims=victims)
