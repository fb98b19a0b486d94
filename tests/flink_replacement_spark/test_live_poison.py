"""No record of `ticks` or `tick_marks`, from any sender, stops the live query; the others are still counted."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from bus import Record, partition_of
from bus import topics as bus_topics
from bus.dead_letters import kept
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.grid import SECOND
from core.settings import Settings
from flink_replacement_spark.live import rows as live_rows
from flink_replacement_spark.live import source as live_source
from flink_replacement_spark.live.partition import LivePartition
from flink_replacement_spark.live.results import LiveCounts
from flink_replacement_spark.live.store import StateStore
from flink_replacement_spark.live.tables import FOLLOWED_BARS, FOLLOWED_TICKS, BarTable, TickTable
from flink_replacement_spark.tables.follower import Follower
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import GAPS, create_tables, load_table, open_catalog
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.history.test_writer import NoSpark
from tests.fresh_bus import FreshBus
from tests.hostile import records_like

GOOD, WILD = "GOOD/X.TEST", "A/B.TEST"
START = 1_700_000_040 * SECOND
#: A trade that would make a bar of 1970, which no table takes.
AT_ZERO = records.Seed(
    open_time=[0], open=[2.0], high=[2.0], low=[2.0], close=[2.0], volume=[2.0], first_trade_id=[20], last_trade_id=[25]
)
MINUTE = 60 * SECOND


def trades(ticker: str, first: int, *times: int) -> bytes:
    count = len(times)
    batch = cw.TickBatch(
        ticker=ticker,
        first_sequence=first,
        timestamp=times,
        price=[100.0] * count,
        size=[1.0] * count,
        side=[cw.BUY] * count,
        trade_id=[str(first + n) for n in range(count)],
        received_at=times,
    )
    return batch.SerializeToString()


class Stage:
    """The live query's task over one partition, batch by batch, and the tables that follow it."""

    def __init__(self, catalog: Catalog, partitions: int = 1) -> None:
        self.bus = FreshBus(partitions)
        for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC):
            self.bus.create_topic(topic)
        self.catalog, locks = catalog, TableLocks()
        stores = ((FOLLOWED_BARS, BarTable(catalog, NoSpark(), locks)), (FOLLOWED_TICKS, TickTable(catalog, locks)))
        self.bus.create_topic(bus_topics.TICK_ROWS)
        self.tables = [
            Follower(self.bus, followed, table.store, stopping=threading.Event()) for followed, table in stores
        ]
        self.batches = 0
        self._read = [0, 0]
        self._minute = 0

    def put(self, ticks: Sequence[bytes] = (), marks: Sequence[bytes] = ()) -> None:
        for topic, values in ((bus_topics.TICKS, ticks), (bus_topics.TICK_MARKS, marks)):
            if values:
                self.bus.publish(topic, [Record(value, partition=0) for value in values])

    def batch(self, *, is_stored: bool = True) -> LiveCounts:
        """One micro-batch over everything that is new, as Spark runs it."""
        ends = [self.bus.state(topic)[0].end for topic in live_source.TOPICS]
        ranges = [
            live_source.Range(tag, first, end - 1)
            for tag, (first, end) in enumerate(zip(self._read, ends, strict=True))
            if end > first
        ]
        counts = LiveCounts()
        if ranges:
            counts = live_rows.run_step(
                "",
                "query",
                self.batches,
                partition=0,
                lateness_ns=0,
                horizon_ns=3_600 * SECOND,
                max_ahead_ns=SECOND,
                ranges=ranges,
            )
        if is_stored:
            self.store()
        self._read = ends
        self.batches += 1
        return counts

    def store(self) -> None:
        for table in self.tables:
            while table.step():
                pass

    def good_minute(self) -> bool:
        """Whether the next minute of a valid ticker is published as complete."""
        opened = START + self._minute * MINUTE
        if not self._minute:
            covered = records.TickMark(ticker=GOOD, covered=records.Covered(from_time=opened))
            self.put(marks=[covered.SerializeToString()])
        self._minute += 1
        self.put([trades(GOOD, 2 * self._minute, opened, opened + MINUTE)])
        before = self.bus.state(bus_topics.OHLC)[0].end
        self.batch()
        bars = [cw.OHLCV.FromString(record.value) for record in self.bus.read(bus_topics.OHLC, 0, before)]
        return any((bar.ticker, bar.open_time, bar.complete) == (GOOD, opened, True) for bar in bars)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    found = open_catalog(Settings(data_dir=Path(tmp_path_factory.mktemp("tables"))))
    create_tables(found)
    return found


@pytest.fixture
def stage(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Stage]:
    made = Stage(catalog, getattr(request, "param", 1))
    for module in (live_rows, live_source):
        monkeypatch.setattr(module, "worker_bus", lambda url: made.bus)
    live_rows._CACHE.clear()
    yield made
    made.bus.close()


def reasons(stage: Stage) -> list[str]:
    return [letter.reason for _, letter in kept(stage.bus)]


def test_a_record_that_is_not_sound_is_put_aside_with_its_place(stage: Stage) -> None:
    stage.put([b"\xff\xff", trades(WILD, 1, START)], [b"\xff", records.TickMark(ticker=WILD).SerializeToString()])
    assert stage.good_minute()
    found = [(letter.part, letter.topic, letter.offset) for _, letter in kept(stage.bus)]
    assert found == [
        ("live", bus_topics.TICK_MARKS, 0),
        ("live", bus_topics.TICK_MARKS, 1),
        ("live", bus_topics.TICKS, 0),
    ]


def test_the_sound_trades_of_a_batch_count_and_the_batch_is_put_aside(stage: Stage) -> None:
    batch = cw.TickBatch.FromString(trades(WILD, 1, START, START + 1, START + MINUTE))
    batch.price[1] = float("nan")
    stage.put([batch.SerializeToString()])
    results = stage.batch()
    assert results.bad_records == 1
    (published,) = stage.bus.read(bus_topics.OHLC, 0, 0)
    assert cw.OHLCV.FromString(published.value).trade_count == 1
    assert reasons(stage) == ["1 of 3 trades have an impossible time, price, size or id"]


@pytest.mark.parametrize("stage", [2], indirect=True)
def test_a_record_in_the_partition_of_another_ticker_is_put_aside(stage: Stage) -> None:
    stray = next(name for n in range(9) if partition_of((name := f"S{n}/B.TEST").encode(), 2) == 1)
    covered = records.TickMark(ticker=stray, covered=records.Covered(from_time=START))
    stage.put([trades(stray, 1, START, START + MINUTE)], [covered.SerializeToString()])
    assert stage.batch().first_bars == 0
    assert reasons(stage) == [f"{stray} belongs to another partition"] * 2


@pytest.mark.parametrize(
    "body",
    [
        {"clock": records.Clock(exchange_time=2**64 - 1)},
        {"clock": records.Clock(exchange_time=START, sequence=2**64 - 1)},
        {"covered": records.Covered(from_time=2**63)},
        {"wanted": records.Wanted(period_seconds=[0])},
        {"wanted": records.Wanted(period_seconds=[2**32 - 1])},
        {"gap": records.Gap(gap_id="g", missing=2**64 - 1)},
        {"gap": records.Gap(gap_id="g", from_time=2**63, to_time=2**64 - 1)},
        {"gap": records.Gap(gap_id="g", from_trade_id="9" * 5_000, to_trade_id="9" * 5_000)},
        {"seed": records.Seed(period_seconds=60, open_time=[START], open=[1.0])},
        {"seed": records.Seed(open_time=[START], first_trade_id=[1], last_trade_id=[2**61])},
        {"seed": AT_ZERO},
    ],
)
def test_an_impossible_mark_is_put_aside(stage: Stage, body: dict[str, records.Clock]) -> None:
    stage.put(marks=[records.TickMark(ticker=WILD, **body).SerializeToString()])  # type: ignore[arg-type]
    assert stage.good_minute()
    assert stage.good_minute()
    assert len(set(reasons(stage))) == 1


def test_a_gap_of_ids_that_are_larger_than_any_number_is_a_gap_like_others(stage: Stage) -> None:
    ids = {"from_trade_id": "9" * 30, "to_trade_id": "9" * 30}
    gap = records.Gap(gap_id="g", from_time=START, to_time=START + 1, detected_at=START, **ids)
    stage.put([trades(WILD, 1, START)], [records.TickMark(ticker=WILD, gap=gap).SerializeToString()])
    assert stage.good_minute()
    assert reasons(stage) == []
    assert load_table(stage.catalog, GAPS).scan().to_arrow().num_rows == 1


def test_a_record_that_fails_unexpectedly_is_found_and_put_aside(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LivePartition._add

    def fragile(self: LivePartition, by_ticker: dict[str, object], output: object) -> None:
        if WILD in by_ticker:
            raise ZeroDivisionError("surprise")
        original(self, by_ticker, output)  # type: ignore[arg-type]

    monkeypatch.setattr(LivePartition, "_add", fragile)
    stage.put([trades(WILD, 1, START), trades(WILD, 2, START + 1)])
    assert stage.good_minute()
    assert reasons(stage) == ["ZeroDivisionError: surprise"] * 2
    assert stage.good_minute()


@pytest.mark.parametrize("damage", ["", "no head", "cut", "flipped", "pointer", "gone"])
def test_an_unreadable_state_is_reported_and_the_partition_starts_afresh(stage: Stage, damage: str) -> None:
    assert stage.good_minute()
    store = StateStore(stage.bus, "query")
    base = store.base_of(0, stage.batches)
    state = store.load(0, base)
    assert state is not None
    damaged = {"": b"", "no head": b"\xff\x00", "cut": state[: len(state) // 2], "flipped": b"\x7f" * 16 + state[16:]}
    if damage == "pointer":
        stage.bus.put("live_state:query", {"0": b"\xff"})
    elif damage == "gone":
        stage.bus.delete("live_state:query", [f"0/{base}"])
    else:
        stage.bus.put(
            "live_state:query", {f"0/{base}": damaged.get(str(damage), b"") if isinstance(damage, str) else damage}
        )
    live_rows._CACHE.clear()
    opened = START + 60 * MINUTE
    covered = records.TickMark(ticker=GOOD, covered=records.Covered(from_time=opened))
    stage.put([trades(GOOD, 100, opened)], [covered.SerializeToString()])
    stage.batch()
    assert any("state" in reason and "partition 0" in reason for reason in reasons(stage))
    live_rows._CACHE.clear()
    before = stage.bus.state(bus_topics.OHLC)[0].end
    stage.put([trades(GOOD, 101, opened + MINUTE)])
    stage.batch()
    bars = [cw.OHLCV.FromString(record.value) for record in stage.bus.read(bus_topics.OHLC, 0, before)]
    assert [(bar.open_time, bar.trade_count, bar.complete) for bar in bars] == [(opened, 1, True)]
    assert len(set(reasons(stage))) == 1


def test_a_state_of_another_version_is_kept_for_the_version_that_wrote_it(stage: Stage) -> None:
    assert stage.good_minute()
    base = stage.batches - 1
    (state,) = stage.bus.get("live_state:query", [f"0/{base}"])
    assert state is not None
    stage.bus.put("live_state:query", {f"0/{base}": b"\x09" + state[1:]})
    live_rows._CACHE.clear()
    stage.put([trades(GOOD, 100, START + 60 * MINUTE)])
    with pytest.raises(ValueError, match="`forget` into the folder `live`"):
        stage.batch()
    assert reasons(stage) == []


_TICKS = records_like(
    cw.TickBatch.FromString(trades(WILD, 1, START, START + 1, START + MINUTE)),
    cw.Tick(ticker=WILD, trade_id="7", timestamp=START, price=1.0, size=1.0),
)
_CANDLE = {name: [2.0] for name in ("open", "high", "low", "close", "volume")}
_MARKS = records_like(
    records.TickMark(ticker=WILD, wanted=records.Wanted(ticks=True, period_seconds=[7, 60, 90, 3_600])),
    records.TickMark(ticker=WILD, covered=records.Covered(job_id="j", from_time=START), after_sequence=1),
    records.TickMark(ticker=WILD, clock=records.Clock(exchange_time=START + MINUTE, sequence=3)),
    records.TickMark(
        ticker=WILD,
        gap=records.Gap(gap_id="g", from_trade_id="3", to_trade_id="9", from_time=START, to_time=START, missing=7),
    ),
    records.TickMark(ticker=WILD, seed=records.Seed(period_seconds=60, open_time=[START - MINUTE], **_CANDLE)),
    records.TickMark(
        ticker=WILD, seed=records.Seed(open_time=[START], first_trade_id=[20], last_trade_id=[25], **_CANDLE)
    ),
)
_SENT = st.lists(st.tuples(st.lists(_TICKS, max_size=12), st.lists(_MARKS, max_size=12)), min_size=1, max_size=4)


def _survives(stage: Stage, sent: list[tuple[list[bytes], list[bytes]]]) -> None:
    for ticks, marks in sent:
        stage.put(ticks, marks)
        stage.batch(is_stored=False)
        # As after a restart, when the state comes from the bus.
        live_rows._CACHE.clear()
    letters = len(reasons(stage))
    stage.store()
    assert len(reasons(stage)) == letters
    assert stage.good_minute()


@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(_SENT)
def test_no_trade_and_no_mark_stops_the_live_query(stage: Stage, sent: list[tuple[list[bytes], list[bytes]]]) -> None:
    _survives(stage, sent)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(_SENT)
def test_two_hundred_sequences_do_not_stop_it_either(stage: Stage, sent: list[tuple[list[bytes], list[bytes]]]) -> None:
    _survives(stage, sent)
