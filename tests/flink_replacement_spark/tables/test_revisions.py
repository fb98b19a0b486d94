"""Published bars reach `ohlc_revisions` once each, whatever fails in between; also with the real driver."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bus import Record
from bus import topics as bus_topics
from candlewright.client.history.spark_connect import SparkRows
from candlewright.client.records import Range
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright_platform.lake import LakeRows
from core.settings import Settings
from flink_replacement_spark.history.merger import SparkMerger
from flink_replacement_spark.tables.follower import Follower
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.revisions import FOLLOWED_REVISIONS, RevisionTable, fill_once
from iceberg import (
    OHLC,
    OHLC_REVISIONS,
    append,
    create_tables,
    drop_old_snapshots,
    load_table,
    open_catalog,
    read_as_of,
    read_published,
)
from tests.flink_replacement_spark import test_live
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.running import Platform
from tests.fresh_bus import FreshBus
from tests.iceberg.rows import MINUTE, TICKER

pytestmark = pytest.mark.timeout(300)

Told = list[tuple[int, int, float]]


class Case:
    def __init__(self, folder: Path) -> None:
        self.settings = Settings(data_dir=folder)
        self.catalog = open_catalog(self.settings)
        create_tables(self.catalog)
        self.bus = FreshBus()
        self.bus.create_topic(bus_topics.OHLC)
        self.restart()

    def restart(self) -> None:
        self.table = RevisionTable(self.catalog, TableLocks())
        self.follower = Follower(self.bus, FOLLOWED_REVISIONS, self.table.store, stopping=threading.Event())

    def publish(self, *bars: tuple[int, int, float], ticker: str = TICKER, source: str = "ticks") -> None:
        """(minute, revision, close), all in one call."""
        messages = [
            OHLCV(
                ticker=ticker, period_seconds=60, open_time=minute * MINUTE, open=1.0, high=9.0, low=0.5, close=close,
                volume=1.0, complete=True, revision=revision, source=source,
            )
            for minute, revision, close in bars
        ]  # fmt: skip
        self.bus.publish(bus_topics.OHLC, [Record(m.SerializeToString(), key=ticker.encode()) for m in messages])

    def drain(self) -> None:
        while self.follower.step():
            pass

    def told(self) -> Told:
        """(minute, revision, close) in the order of publication."""
        return told(read_published(self.settings, TICKER, 60, since_ns=0)[1])


def told(rows: pa.Table) -> Told:
    minutes = [time // (MINUTE // 1_000) for time in rows["open_time"].cast(pa.int64()).to_pylist()]
    return list(zip(minutes, rows["revision"].to_pylist(), rows["close"].to_pylist(), strict=True))


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    found = Case(tmp_path)
    try:
        yield found
    finally:
        found.bus.close()


def test_every_published_revision_is_a_row_in_the_order_of_the_topic(case: Case) -> None:
    case.publish((1, 0, 1.0), (2, 0, 1.0), (1, 1, 2.0))
    case.publish((1, 2, 3.0))
    case.drain()
    assert case.told() == [(1, 0, 1.0), (2, 0, 1.0), (1, 1, 2.0), (1, 2, 3.0)]
    _, rows = read_published(case.settings, TICKER, 60, since_ns=0)
    sent = [record.timestamp_ms for part in range(4) for record in case.bus.read(bus_topics.OHLC, part, 0)]
    assert [time // 1_000 for time in rows["known_at"].cast(pa.int64()).to_pylist()] == sent


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("are_snapshots_gone", [False, True])
def test_a_crash_around_the_commit_neither_loses_nor_repeats_a_row(
    case: Case, monkeypatch: pytest.MonkeyPatch, moment: str, are_snapshots_gone: bool
) -> None:
    case.publish((1, 0, 1.0))
    case.drain()
    store = case.table.store

    def crash(taken: object) -> None:
        if moment == "after":
            store(taken)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    case.publish((1, 1, 2.0), (2, 0, 1.0))
    monkeypatch.setattr(case.follower, "_store", crash)
    with pytest.raises(KeyboardInterrupt):
        case.follower.step()
    if are_snapshots_gone:
        append(load_table(case.catalog, OHLC_REVISIONS), OHLC_REVISIONS.arrow_schema.empty_table(), {"a": "b"})
        drop_old_snapshots(load_table(case.catalog, OHLC_REVISIONS), keep=1, min_age_seconds=-1)
    case.restart()
    case.publish((3, 0, 1.0))
    case.drain()
    assert case.told() == [(1, 0, 1.0), (1, 1, 2.0), (2, 0, 1.0), (3, 0, 1.0)]


def test_bars_of_clients_are_left_out(case: Case) -> None:
    case.bus.publish(bus_topics.OHLC, [Record(b"\xff\xff\xff", key=TICKER.encode()), Record(b"", key=b"")])
    case.publish((1, 0, 1.0), source="mine")
    case.publish((2, 0, 1.0))
    case.drain()
    assert case.told() == [(2, 0, 1.0)]


# ---- the real driver
def revisions(platform: Platform, ticker: str) -> pa.Table:
    table = load_table(open_catalog(platform.settings), OHLC_REVISIONS)
    return table.scan(row_filter=f"ticker = '{ticker}'").to_arrow().sort_by([("open_time", "ascending")])


def once(found: Callable[[], object]) -> None:
    wait_for(lambda: True if found() else None, 60)


def test_a_late_trade_and_the_exchanges_candle_leave_the_bar_as_it_was_known(platform: Platform) -> None:
    tape = test_live.Tape(platform, "KNOWN/USDT.BINANCE")
    tape.start()
    tape.trades(1, [0, 61])
    first = tape.published(1)[0]
    tape.trades(3, [30], price=9.0)
    tape.published(2)
    once(lambda: revisions(platform, tape.ticker).num_rows == 2)
    minute = first.open_time // MINUTE
    platform.feed(tape.ticker).request("known", range(minute, minute + 1), close=77.0)
    assert platform.final("known").row_count == 1
    rows = revisions(platform, tape.ticker)
    found = sorted(zip(*(rows[name].to_pylist() for name in ("revision", "high", "source", "known_at")), strict=True))
    assert [row[:3] for row in found] == [(0, 2.0, "ticks"), (1, 9.0, "ticks"), (2, 9.0, "exchange")]
    for revision, _, source, known_at in found:
        at_ns = round(known_at.timestamp() * 1_000_000) * 1_000
        (seen,) = read_as_of(platform.settings, tape.ticker, 60, start_ns=0, end_ns=2**62, as_of_ns=at_ns).to_pylist()
        assert (seen["revision"], seen["source"]) == (revision, source)


def test_a_remote_client_reads_the_same_by_spark(platform: Platform) -> None:
    feed = platform.feed("FAR/USDT.BINANCE")
    feed.request("far", [1, 2, 4])
    platform.final("far")
    first_ns = time.time_ns()
    feed.request("far-2", [2, 5], close=7.0)
    platform.final("far-2")
    near, far = LakeRows(platform.settings), SparkRows(platform.settings.spark)
    wanted = Range(feed.ticker, 60, 0, 10 * MINUTE)
    for as_of in (None, first_ns, time.time_ns(), 1):
        one, other = near.stored(wanted, as_of), far.stored(wanted, as_of)
        assert one.to_arrow().to_pylist() == other.to_arrow().to_pylist()
        assert (one.holes, one.unknown) == (other.holes, other.unknown)
    assert near.stored(wanted, first_ns).to_arrow()["close"].to_pylist() == [1.0, 1.0, 1.0]


def test_executors_append_new_rows(platform: Platform) -> None:
    feed = platform.feed("WIDE/USDT.BINANCE")
    merger = SparkMerger(platform.driver.session, open_catalog(platform.settings), platform.settings.bus.url)

    def revise(*arguments: object, **options: object) -> None:
        piece = feed.piece(*arguments, **options)  # type: ignore[arg-type]
        with platform.driver.locks.writing(OHLC_REVISIONS, "test"):
            for _ in range(2):
                merger.revise_pieces([piece], {"candlewright.batch-id": "wide"})

    revise("one", range(5))
    revise("two", range(3, 7), close=4.0)
    revise("three", range(7), close=4.0, source="ticks")
    rows = revisions(platform, feed.ticker)
    assert told(rows.sort_by([("open_time", "ascending"), ("revision", "ascending")])) == [
        (0, 0, 1.0), (1, 0, 1.0), (2, 0, 1.0), (3, 0, 1.0), (3, 1, 4.0), (4, 0, 1.0), (4, 1, 4.0), (5, 0, 4.0),
        (6, 0, 4.0),
    ]  # fmt: skip


def test_a_directory_from_before_the_table_is_filled_once(platform: Platform) -> None:
    platform.feed("OLD/USDT.BINANCE").request("old", range(3))
    platform.final("old")
    catalog = open_catalog(platform.settings)
    with platform.driver.locks.writing(OHLC_REVISIONS, "test"):
        catalog.drop_table(OHLC_REVISIONS.identifier)
        create_tables(catalog)
        for _ in range(2):
            fill_once(platform.driver.session, catalog)
    bars = load_table(catalog, OHLC).scan(row_filter="ticker = 'OLD/USDT.BINANCE'").to_arrow()
    rows = revisions(platform, "OLD/USDT.BINANCE")
    assert rows["revision"].to_pylist() == [0, 0, 0]
    assert rows["known_at"].to_pylist() == bars.sort_by([("open_time", "ascending")])["updated_at"].to_pylist()
