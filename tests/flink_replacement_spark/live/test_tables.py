"""Published bars and stored trades reach their tables once each, whatever fails; only the last test uses Spark."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bus import Record, StoredRecord
from bus import topics as bus_topics
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BusFull
from candlewright.wire.grid import SECOND
from candlewright.wire.tick_columns import TickColumns
from core.settings import Settings
from flink_replacement_spark.live.tables import FOLLOWED_BARS, FOLLOWED_TICKS, BarTable, TickTable
from flink_replacement_spark.live.tick_rows import records_of_rows
from flink_replacement_spark.tables import follower as follower_module
from flink_replacement_spark.tables.follower import Follower, Taken
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.published_bars import published_bars
from gateways.records import record_of
from iceberg import (
    GAPS,
    OHLC,
    TICKS,
    TRIGGER_EVENTS,
    append_or_find,
    compare_candles,
    create_tables,
    drop_old_snapshots,
    load_table,
    open_catalog,
    scan_series,
)
from protobuf import records_pb2 as records
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.running import Platform
from tests.flink_replacement_spark.test_live import Tape
from tests.fresh_bus import FreshBus

pytestmark = pytest.mark.timeout(300)

MINUTE = 60 * SECOND
T0 = 1_709_164_800 * SECOND
TICKER = "A/B.C"


class Rewriting:
    """MERGE without Spark: rewrites the whole table."""

    def __init__(self, case: "Case") -> None:
        self._case = case

    def merge(self, rows: pa.Table, summary: dict[str, str]) -> None:
        table = load_table(self._case.catalog, OHLC)
        kept = compare_candles(scan_series(table, [TICKER], start_ns=0, end_ns=2 * T0), rows).new
        table.overwrite(pa.concat_tables([kept, rows]), snapshot_properties=summary)

    def write_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> dict[int, str]:
        raise NotImplementedError

    def revise_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> None:
        raise NotImplementedError


class Case:
    def __init__(self, folder: Path) -> None:
        self.catalog = open_catalog(Settings(data_dir=folder))
        create_tables(self.catalog)
        self.bus = FreshBus()
        for topic in (bus_topics.OHLC, bus_topics.TICK_ROWS):
            self.bus.create_topic(topic)
        self.locks = TableLocks()
        self.restart()

    def restart(self) -> None:
        self.stopping = threading.Event()
        self.bars_table = BarTable(self.catalog, Rewriting(self), self.locks)
        self.ticks_table = TickTable(self.catalog, self.locks)
        self.bars = Follower(self.bus, FOLLOWED_BARS, self.bars_table.store, stopping=self.stopping)
        self.ticks = Follower(self.bus, FOLLOWED_TICKS, self.ticks_table.store, stopping=self.stopping)

    def drain(self) -> None:
        for follower in (self.bars, self.ticks):
            while follower.step():
                pass

    def publish(self, *bars: tuple[int, int, float], source: str = "ticks", from_client: bool = False) -> None:
        """(minute, revision, close), all in one call."""
        self.bus.publish(
            bus_topics.OHLC,
            [
                Record(bar(*told, source=source, from_client=from_client).SerializeToString(), key=TICKER.encode())
                for told in bars
            ],
        )

    def trade(self, *ids: int, perhaps_stored: bool = False, gaps: Sequence[records.TickMark] = ()) -> None:
        self.bus.publish(
            bus_topics.TICK_ROWS, list(records_of_rows([columns(*ids)], gaps, 0, perhaps_stored=perhaps_stored))
        )

    def stored(self) -> list[tuple[int, float, str]]:
        """(minute, close, source)"""
        found = scan_series(load_table(self.catalog, OHLC), [TICKER], start_ns=0, end_ns=2 * T0).sort_by("open_time")
        minutes = ((found["open_time"].cast(pa.int64()).to_numpy() * 1_000 - T0) // MINUTE).tolist()
        return list(zip(minutes, found["close"].to_pylist(), found["source"].to_pylist(), strict=True))

    def trades(self) -> list[str]:
        return sorted(load_table(self.catalog, TICKS).scan().to_arrow()["trade_id"].to_pylist(), key=int)


def bar(minute: int, revision: int, close: float, *, source: str = "ticks", from_client: bool = False) -> OHLCV:
    return OHLCV(
        ticker=TICKER, period_seconds=60, open_time=T0 + minute * MINUTE, open=1.0, high=9.0, low=0.5, close=close,
        volume=1.0, complete=True, revision=revision, source=source, from_client=from_client,
    )  # fmt: skip


def columns(*ids: int) -> TickColumns:
    times = np.array([T0 + trade_id * SECOND + 1 for trade_id in ids], np.int64)
    ones = np.ones(len(ids))
    names = np.array([str(trade_id).encode() for trade_id in ids])
    return TickColumns(
        ticker=TICKER,
        first_sequence=1,
        timestamp=times,
        price=ones,
        size=ones,
        side=ones.astype(np.uint8),
        trade_id=names,
        received_at=np.zeros(len(ids), np.int64),
    )


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    found = Case(tmp_path)
    try:
        yield found
    finally:
        found.bus.close()


def test_the_newest_revision_of_each_bar_is_in_the_table(case: Case) -> None:
    case.publish((1, 0, 1.0), (2, 0, 1.0), (1, 1, 2.0))
    case.drain()
    assert case.stored() == [(1, 2.0, "ticks"), (2, 1.0, "ticks")]
    case.publish((1, 2, 3.0), (3, 0, 1.0))
    case.drain()
    assert case.stored() == [(1, 3.0, "ticks"), (2, 1.0, "ticks"), (3, 1.0, "ticks")]


def test_a_candle_of_the_exchange_outranks_bars_that_reach_the_table_later(case: Case) -> None:
    case.publish((1, 0, 1.0))
    case.drain()
    case.publish((1, 1, 2.0), (2, 0, 2.0))
    rows = published_bars(
        [
            StoredRecord(
                topic="ohlc",
                partition=0,
                offset=0,
                timestamp_ms=1,
                key=None,
                value=bar(1, 0, 7.0).SerializeToString(),
                headers={},
            )
        ]
    )
    place = rows.schema.get_field_index("source")
    candle = rows.set_column(place, "source", pa.array(["exchange"])).append_column("updated_at", rows["known_at"])
    Rewriting(case).merge(candle.select(OHLC.arrow_schema.names).cast(OHLC.arrow_schema), {})
    case.drain()
    assert case.stored() == [(1, 7.0, "exchange"), (2, 2.0, "ticks")]


def test_bars_that_clients_publish_reach_no_table(case: Case) -> None:
    now_ns = T0 + 100 * MINUTE
    for told in (bar(1, 0, 5.0), bar(2, 0, 5.0, source="derived"), bar(3, 0, 5.0, source="mine")):
        sent = record_of(bus_topics.OHLC, told.SerializeToString(), now_ns=now_ns)
        assert OHLCV.FromString(sent.value).from_client
        case.bus.publish(bus_topics.OHLC, [sent])
        assert (
            published_bars(
                [
                    StoredRecord(
                        topic="ohlc", partition=0, offset=0, timestamp_ms=1, key=None, value=sent.value, headers={}
                    )
                ]
            ).num_rows
            == 0
        )
    case.publish((4, 0, 1.0))
    case.drain()
    assert case.stored() == [(4, 1.0, "ticks")]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("are_snapshots_gone", [False, True])
def test_a_crash_around_the_commit_neither_loses_nor_repeats_a_row(
    case: Case, monkeypatch: pytest.MonkeyPatch, moment: str, are_snapshots_gone: bool
) -> None:
    case.publish((1, 0, 1.0))
    case.trade(1)
    case.drain()

    def crashing(store: object) -> object:
        def crash(taken: Taken) -> None:
            if moment == "after":
                store(taken)  # type: ignore[operator]
            raise KeyboardInterrupt

        return crash

    case.publish((1, 1, 2.0), (2, 0, 1.0))
    case.trade(2, 3)
    for follower in (case.bars, case.ticks):
        monkeypatch.setattr(follower, "_store", crashing(follower._store))
        with pytest.raises(KeyboardInterrupt):
            follower.step()
    if are_snapshots_gone:
        for definition in (OHLC, TICKS):
            append_or_find(load_table(case.catalog, definition), definition.arrow_schema.empty_table(), {"a": "b"})
            drop_old_snapshots(load_table(case.catalog, definition), keep=1, min_age_seconds=-1)
    case.restart()
    case.publish((3, 0, 1.0))
    case.trade(4)
    case.drain()
    assert case.stored() == [(1, 2.0, "ticks"), (2, 1.0, "ticks"), (3, 1.0, "ticks")]
    assert case.trades() == ["1", "2", "3", "4"]


def test_trades_that_a_query_with_a_lost_checkpoint_counts_again_are_stored_once(case: Case) -> None:
    case.trade(1, 2, 3)
    case.drain()
    case.trade(4)
    case.trade(2, 3, 4, perhaps_stored=True)
    case.trade(4, 5, perhaps_stored=True)
    case.drain()
    case.trade(6)
    case.drain()
    assert case.trades() == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("is_new_process", [False, True])
def test_a_store_that_lost_its_last_call_repeats_no_trade(case: Case, is_new_process: bool) -> None:
    before = case.bus.get(FOLLOWED_TICKS.state, ["taken"])[0]
    case.trade(1, 2)
    case.drain()
    assert before is None
    case.bus.delete(FOLLOWED_TICKS.state, ["taken"])
    if is_new_process:
        case.restart()
    case.ticks = Follower(case.bus, FOLLOWED_TICKS, case.ticks_table.store, stopping=case.stopping)
    case.drain()
    assert case.trades() == ["1", "2"]


def test_a_gap_and_its_repair_are_one_row(case: Case) -> None:
    def mark(*, is_repaired: bool) -> records.TickMark:
        gap = records.Gap(gap_id="g", from_trade_id="2", to_trade_id="3", from_time=T0, to_time=T0 + 1, missing=2)
        gap.is_repaired = is_repaired
        return records.TickMark(ticker=TICKER, gap=gap)

    case.trade(1, gaps=[mark(is_repaired=False)])
    case.drain()
    case.trade(4, gaps=[mark(is_repaired=False), mark(is_repaired=True)])
    case.drain()
    assert [row["repaired"] for row in load_table(case.catalog, GAPS).scan().to_arrow().to_pylist()] == [True]
    assert case.trades() == ["1", "4"]


def test_rows_that_no_table_takes_fill_their_topic_and_are_all_there_when_it_does(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "LAG_WARNING_SECONDS", 0.2)
    bus = FreshBus(1, max_bytes=20_000)
    bus.create_topic(bus_topics.TICK_ROWS, 1)
    follower = Follower(bus, FOLLOWED_TICKS, case.ticks_table.store, stopping=case.stopping)
    thread = threading.Thread(target=follower.run)
    sent = 0
    try:
        with case.locks.writing(TICKS, "test"):
            follower._look()
            thread.start()
            with pytest.raises(BusFull, match="tick_rows"):
                while sent < 1_000:
                    trades = list(records_of_rows([columns(sent)], [], 0, perhaps_stored=False))
                    bus.publish_as(bus_topics.TICK_ROWS, trades, writer="query:0", number=sent)
                    sent += 1
            wait_for(lambda: "tick-table is" in follower.warning or None)
            assert case.trades() == []
        wait_for(lambda: len(case.trades()) == sent or None)
        wait_for(lambda: not follower.warning or None)
        assert sent > 3
    finally:
        case.stopping.set()
        thread.join()
        bus.close()


# ---- the real driver
HELD = (OHLC, TICKS, TRIGGER_EVENTS)


@pytest.mark.parametrize("seconds", [4.0, pytest.param(30.0, marks=pytest.mark.long)])
def test_bars_and_events_do_not_wait_for_tables_that_are_held(platform: Platform, seconds: float) -> None:
    """Each step has a bar and an event while a writer holds all tables; afterwards each row is there once."""
    name = f"HELD{seconds:.0f}"
    tape = Tape(platform, f"{name}/USDT.BINANCE")
    tape.start(ticks=True)
    tape.trades(1, [0])
    feed.register(platform.bus, name, "close > 0", tape.ticker, period_seconds="60")
    locks, done = platform.driver.locks, threading.Event()
    held = [threading.Event() for _ in HELD]

    def hold(place: int) -> None:
        with locks.writing(HELD[place], "test"):
            held[place].set()
            done.wait(120)

    threads = [threading.Thread(target=hold, args=(place,)) for place in range(len(HELD))]
    for thread in threads:
        thread.start()
    try:
        assert all(event.wait(60) for event in held)
        started, step = time.monotonic(), 0
        while step < 2 or time.monotonic() - started < seconds:
            step += 1
            tape.trades(1 + step, [60 * step + 1])
            asked = time.monotonic()
            tape.published(step)
            feed.wait_for_events(platform.bus, step, name)
            assert time.monotonic() - asked < 15, "a table held up a topic"
            done.wait(1)
        assert tape.rows() == []
        lag = platform.driver.status().details["tables"]["bars"]["lag_seconds"]
        assert lag > seconds / 2
    finally:
        done.set()
        for thread in threads:
            thread.join()
    wait_for(lambda: len(tape.rows()) == step or None, 60)
    assert tape.rows() == [(0.1, 1, True)] * step

    def ticks() -> list[str]:
        found = load_table(open_catalog(platform.settings), TICKS).scan(f"ticker = '{tape.ticker}'").to_arrow()
        return sorted(found["trade_id"].to_pylist(), key=int)

    wait_for(lambda: ticks() == [str(number) for number in range(1, step + 2)] or None, 60)

    def events() -> int:
        table = load_table(open_catalog(platform.settings), TRIGGER_EVENTS)
        return int(table.scan(f"trigger_id = '{name}'").to_arrow().num_rows)

    wait_for(lambda: events() == step or None, 60)
    assert step > 1
