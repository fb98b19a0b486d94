"""Live trades through real Spark, Redis and tables."""

import threading
from collections.abc import Iterable

import numpy as np
import pytest

from bus import Record, SequenceStamp
from bus import topics as bus_topics
from candlewright.wire import tick_columns
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.grid import SECOND
from flink_replacement_spark.engine.writes import Outdated
from flink_replacement_spark.live.store import StateStore
from flink_replacement_spark.tables.maintenance import Maintenance
from iceberg import GAPS, OHLC, load_table, open_catalog, read_ohlc, read_ticks
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.running import Platform

pytestmark = pytest.mark.timeout(300)

T0 = 1_700_000_100 * SECOND
DAY = 86_400 * SECOND


class Tape:
    """Publishes trades of one ticker as an ingestor does."""

    def __init__(self, platform: Platform, ticker: str) -> None:
        self.platform = platform
        self.ticker = ticker

    def mark(self, **body: object) -> None:
        mark = records.TickMark(ticker=self.ticker, **body)  # type: ignore[arg-type]
        key = self.ticker.encode()
        self.platform.bus.publish(bus_topics.TICK_MARKS, [Record(mark.SerializeToString(), key=key)])

    def start(self, *periods: int, ticks: bool = False) -> None:
        self.mark(wanted=records.Wanted(ticks=ticks, period_seconds=periods))
        self.mark(covered=records.Covered(job_id="j", from_time=T0))

    def trades(self, first_id: int, seconds: Iterable[float], price: float = 2.0) -> None:
        times = np.array([T0 + round(second * SECOND) for second in seconds])
        count = len(times)
        ids = np.arange(first_id, first_id + count).astype("S")
        sizes, sides = np.full(count, 0.1), np.ones(count, np.uint8)
        columns = tick_columns.TickColumns(
            ticker=self.ticker,
            first_sequence=0,
            timestamp=times,
            price=np.full(count, price),
            size=sizes,
            side=sides,
            trade_id=ids,
            received_at=times,
        )
        stamp = SequenceStamp(f"TICKS:{self.ticker}", count, b"\x10")
        record = Record(tick_columns.encode(columns), key=self.ticker.encode(), sequence=stamp)
        self.platform.bus.publish(bus_topics.TICKS, [record])

    def published(self, count: int) -> list[OHLCV]:
        """The first `count` bars of the topic, in order of their sequence."""

        def found() -> list[OHLCV] | None:
            bus, bars = self.platform.bus, []
            for partition in range(bus.partitions(bus_topics.OHLC)):
                for record in bus.read(bus_topics.OHLC, partition, 0, max_records=100_000):
                    bar = OHLCV.FromString(record.value)
                    if bar.ticker == self.ticker:
                        bars.append(bar)
            return sorted(bars, key=lambda bar: (bar.period_seconds, bar.sequence)) if len(bars) >= count else None

        return wait_for(found, 90)

    def rows(self, period_seconds: int = 60) -> list[tuple[float, int, bool]]:
        found = read_ohlc(self.platform.settings, self.ticker, period_seconds, start_ns=T0 - DAY, end_ns=T0 + DAY)
        columns = (found[name].to_pylist() for name in ("volume", "trade_count", "complete"))
        return list(zip(*columns, strict=True))


def test_closed_bars_come_on_the_topic_and_in_the_table(platform: Platform) -> None:
    tape = Tape(platform, "LIVE/USDT.BINANCE")
    tape.start(300, 1, ticks=True)
    tape.trades(1, [0, 1, 59.9, 60, 301])
    bars = tape.published(6)
    assert [(b.period_seconds, b.sequence, b.trade_count) for b in bars] == [
        (1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1), (60, 1, 3), (60, 2, 1), (300, 1, 4),
    ][: len(bars)]  # fmt: skip
    bars = tape.published(7)
    assert all(bar.complete and bar.revision == 0 and bar.source == "ticks" for bar in bars)
    wait_for(lambda: tape.rows() == [(0.3, 3, True), (0.1, 1, True)] or None, 60)
    ticks = wait_for(
        lambda: (
            found
            if (found := read_ticks(platform.settings, tape.ticker, start_ns=T0, end_ns=T0 + DAY)).num_rows == 5
            else None
        ),
        60,
    )
    assert ticks["trade_id"].to_pylist() == ["1", "2", "3", "4", "5"]
    assert ticks["side"].to_pylist() == ["buy"] * 5


def test_a_late_trade_revises_topic_and_table_and_a_repeated_one_does_not(platform: Platform) -> None:
    tape = Tape(platform, "LATE/USDT.BINANCE")
    tape.start(ticks=True)
    tape.trades(1, [0, 61])
    assert [bar.revision for bar in tape.published(1)] == [0]
    tape.trades(3, [30], price=9.0)
    tape.trades(1, [0, 61])
    bars = tape.published(2)
    assert [(bar.revision, bar.high, bar.sequence) for bar in bars] == [(0, 2.0, 1), (1, 9.0, 2)]
    wait_for(lambda: tape.rows() == [(0.2, 2, True)] or None, 60)

    def stored() -> list[str]:
        return read_ticks(platform.settings, tape.ticker, start_ns=T0, end_ns=T0 + DAY)["trade_id"].to_pylist()  # type: ignore[no-any-return]

    wait_for(lambda: stored() == ["1", "3", "2"] or None, 60)


def test_the_exchanges_own_candle_wins_over_a_bar_of_ticks(platform: Platform) -> None:
    tape = Tape(platform, "MEET/USDT.BINANCE")
    tape.start()
    feed = platform.feed(tape.ticker)
    minute = T0 // (60 * SECOND)
    feed.request("meet", range(minute, minute + 1), close=77.0)
    assert platform.final("meet").row_count == 1
    tape.trades(1, [0, 61, 122])
    assert len(tape.published(2)) == 2

    def sources() -> list[str] | None:
        found = read_ohlc(platform.settings, tape.ticker, 60, start_ns=T0 - DAY, end_ns=T0 + DAY)["source"].to_pylist()
        return found if len(found) == 2 else None

    assert wait_for(sources, 60) == ["exchange", "ticks"]


@pytest.mark.timeout(600)
def test_live_bars_and_history_meet_while_files_are_merged(platform: Platform) -> None:
    tape = Tape(platform, "BUSY/USDT.BINANCE")
    tape.start()
    feed, first = platform.feed(tape.ticker), T0 // (60 * SECOND)
    catalog = open_catalog(platform.settings)
    maintenance = Maintenance(
        session=platform.driver.session,
        catalog=catalog,
        locks=platform.driver.locks,
        minutes=1,
        min_snapshot_age_seconds=0.0,
    )
    stopping, problems, rounds = threading.Event(), set(), 0

    def merge_files() -> None:
        nonlocal rounds
        while not stopping.is_set():
            maintenance.run_all(stopping)
            problems.add(maintenance.last_problem)
            rounds += 1

    def minutes() -> list[tuple[int, str]]:
        """(minute since the first one, source), as readers see them."""
        found = read_ohlc(platform.settings, tape.ticker, 60, start_ns=T0 - DAY, end_ns=T0 + DAY)
        opened = [int(moment.timestamp()) // 60 - first for moment in found["open_time"].to_pylist()]
        assert len(opened) == len(set(opened))
        return sorted(zip(opened, found["source"].to_pylist(), strict=True))

    worker = threading.Thread(target=merge_files)
    worker.start()
    try:
        asked: list[int] = []
        for step in range(6):
            tape.trades(1 + 5 * step, [60 * (5 * step + number) for number in range(5)])
            if step % 2:
                # Some of these bars were live a moment ago, and others soon will be.
                span = range(5 * step, 5 * step + 8)
                feed.request(f"busy-{step}", range(first + span.start, first + span.stop), close=77.0)
                assert platform.final(f"busy-{step}").row_count == 8
                asked += span
            minutes()
        expected = [(minute, "exchange" if minute in asked else "ticks") for minute in {*range(29), *asked}]
        wait_for(lambda: minutes() == sorted(expected) or None, 90)
        wait_for(lambda: rounds or None, 60)
    finally:
        stopping.set()
        worker.join(60)
    assert problems <= {""}
    assert minutes() == sorted(expected)


def test_a_gap_is_a_row_and_its_repair_changes_it(platform: Platform) -> None:
    tape = Tape(platform, "GAP/USDT.BINANCE")
    tape.start()
    gap = records.Gap(gap_id="g", from_trade_id="2", to_trade_id="3", from_time=T0, to_time=T0 + SECOND, missing=2)

    def repaired() -> list[bool]:
        rows = load_table(open_catalog(platform.settings), GAPS).scan().to_arrow().to_pylist()
        return [row["repaired"] for row in rows if row["ticker"] == tape.ticker]

    tape.mark(gap=gap)
    tape.trades(1, [0, 61])
    assert [bar.complete for bar in tape.published(1)] == [False]
    wait_for(lambda: repaired() == [False] or None, 60)
    gap.is_repaired = True
    tape.mark(gap=gap)
    assert [bar.complete for bar in tape.published(2)] == [False, True]
    wait_for(lambda: repaired() == [True] or None, 60)


def test_bars_that_an_exchanges_aggregates_repaired_are_derived(platform: Platform) -> None:
    tape = Tape(platform, "DEEP/USDT.BINANCE")
    tape.start()
    tape.trades(1, [0])
    tape.trades(5, [30, 61, 121])
    assert [bar.source for bar in tape.published(2)] == ["ticks", "ticks"]
    seed = records.Seed(open_time=[T0 + SECOND], volume=[0.3], first_trade_id=[2], last_trade_id=[4])
    for column in (seed.open, seed.high, seed.low, seed.close):
        column.append(6.0)
    tape.mark(seed=seed)
    bar = tape.published(3)[-1]
    assert (bar.open_time - T0, bar.trade_count, bar.revision, bar.source) == (0, 5, 1, "derived")

    def stored() -> list[tuple[int, str]]:
        table = load_table(open_catalog(platform.settings), OHLC).scan(f"ticker = '{tape.ticker}'").to_arrow()
        return sorted(zip(table["trade_count"].to_pylist(), table["source"].to_pylist(), strict=True))

    wait_for(lambda: stored() == [(1, "ticks"), (5, "derived")] or None, 60)


def test_a_restarted_query_continues_without_repeating_a_bar(platform: Platform) -> None:
    tape = Tape(platform, "AGAIN/USDT.BINANCE")
    tape.start()
    tape.trades(1, [0, 30])
    query = platform.driver.queries[1]
    before = query.query
    assert before is not None
    before.stop()
    tape.trades(3, [59, 61])
    wait_for(lambda: (query.query is not None and query.query is not before) or None, 60)
    tape.trades(5, [122])
    assert [(bar.trade_count, bar.revision) for bar in tape.published(2)] == [(3, 0), (1, 0)]


def test_a_batch_that_runs_again_starts_from_the_state_before_it(platform: Platform) -> None:
    store = StateStore(platform.bus, "test-query")
    assert store.load(0, store.base_of(0, 5)) is None
    store.save(0, 5, b"five")
    store.save(0, 9, b"nine")
    assert store.load(0, store.base_of(0, 9)) == b"five"
    store.save(0, 9, b"nine again")
    assert store.load(0, store.base_of(0, 9)) == b"five"
    assert store.load(0, store.base_of(0, 10)) == b"nine again"
    store.save(0, 10, b"ten")
    with pytest.raises(Outdated):
        store.load(0, 5)
