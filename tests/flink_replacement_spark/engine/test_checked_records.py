"""A trade whose time is far ahead changes only the count of records put aside."""

import pytest

from bars import exact
from bus import StoredRecord
from bus import topics as bus_topics
from bus.dead_letters import kept
from candlewright.wire.grid import SECOND
from flink_replacement_spark.engine.checked_records import CheckedRecords
from flink_replacement_spark.live.partition import LiveOutput, LivePartition
from gateways.records import record_of
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus
from tests.triggers.trigger_records import IN_ORDER, T0, TICKER, bar, batch, clock, register, rows
from triggers.partition import TriggerPartition

BOUND = 5 * SECOND
MINUTES = 5


def stored(topic: str, offset: int, second: float, *, value: bytes) -> StoredRecord:
    """A record that arrived when the exchange's clock was at `second`."""
    return StoredRecord(
        topic=topic,
        partition=0,
        offset=offset,
        timestamp_ms=(T0 + round(second * SECOND)) // 1_000_000,
        key=TICKER.encode(),
        value=value,
        headers={},
    )


def a_trade_a_second(prefix: str, far: int | None) -> list[StoredRecord]:
    """Records of one trade each; that of second `far` is dated 3,500 s ahead."""
    return [
        stored(
            bus_topics.TICKS,
            n,
            n,
            value=batch(n + 1, (n + 3_500 if n == far else n, f"{prefix}{n + 1}", float(n % 7))),
        )
        for n in range(MINUTES * 60)
    ]


def bars_of(output: LiveOutput) -> list[tuple[object, ...]]:
    return [
        (int(b.open_time[i] - T0) // SECOND, float(b.open[i]), float(b.close[i]), float(exact.to_doubles(b.volume)[i]),
         int(made.revision[i]), bool(made.complete[i]))
        for _, made in output.bars for b in [made.bars] for i in range(len(b)) if b.period_seconds == 60
    ]  # fmt: skip


def lived(trades: list[StoredRecord], checked: CheckedRecords) -> tuple[list[tuple[object, ...]], LivePartition]:
    """The bars that result if each trade is a separate micro-batch."""
    live = LivePartition(0, 3_600 * SECOND)
    covered = records.TickMark(ticker=TICKER, covered=records.Covered(job_id="j", from_time=T0))
    live.process([], [covered.SerializeToString()])
    found: list[tuple[object, ...]] = []
    for record in trades:
        found += bars_of(live.process(checked.values([record]), []))
    return found, live


@pytest.mark.parametrize("prefix", ["", "x-"], ids=["numbers", "texts"])
def test_the_minutes_bars_come_as_if_the_trade_far_ahead_had_not_been_there(prefix: str) -> None:
    checked = CheckedRecords(BOUND)
    found, live = lived(a_trade_a_second(prefix, far=90), checked)
    without, _ = lived([r for r in a_trade_a_second(prefix, None) if r.offset != 90], CheckedRecords(BOUND))
    assert found == without
    assert [row[0] for row in found] == [0, 60, 120, 180] and all(row[-1] for row in found)
    assert live.too_late == 0


def test_a_bar_still_ends_by_the_clock_when_its_last_trade_was_put_aside() -> None:
    live, checked = LivePartition(0, 3_600 * SECOND), CheckedRecords(BOUND)
    covered = records.TickMark(ticker=TICKER, covered=records.Covered(job_id="j", from_time=T0)).SerializeToString()
    trades = [stored(bus_topics.TICKS, 0, 50, value=batch(1, (50, "1", 2.0), (3_550, "2", 3.0)))]
    marks = [
        stored(bus_topics.TICK_MARKS, 0, 0, value=covered),
        stored(bus_topics.TICK_MARKS, 1, 3, value=clock(3_600, 2)),
        stored(bus_topics.TICK_MARKS, 2, 61, value=clock(61, 2)),
    ]
    output = live.process(checked.values(trades), checked.values(marks))
    assert bars_of(output) == [(0, 2.0, 2.0, 0.5, 0, True)]


@pytest.mark.parametrize("prefix", ["", "x-"], ids=["numbers", "texts"])
def test_a_trigger_fires_as_if_the_trade_far_ahead_had_not_been_there(prefix: str) -> None:
    def events(trades: list[StoredRecord]) -> list[object]:
        partition, checked = TriggerPartition(), CheckedRecords(BOUND)
        partition.process([], controls=[register("t", IN_ORDER, TICKER)])
        fired = []
        for record in trades:
            fired += [
                row["price"] for event in partition.process(checked.values([record])).events for row in rows(event)
            ]
        return fired

    found = events(a_trade_a_second(prefix, far=90))
    assert found == events([r for r in a_trade_a_second(prefix, None) if r.offset != 90])
    assert len(found) > 200


def a_bar_a_minute(far: int | None) -> list[StoredRecord]:
    """A client's bars, one per minute; the bar of minute `far` opens an hour ahead."""
    found = []
    for n in range(10):
        value = bar(n + 60 if n == far else n, float(n % 3))
        sent = record_of(bus_topics.OHLC, value, now_ns=T0 + 86_400 * SECOND).value
        found.append(stored(bus_topics.OHLC, n, 60 * (n + 1), value=sent))
    return found


@pytest.mark.parametrize("revisions", ["true", "false"])
def test_triggers_over_bars_fire_as_if_the_bar_far_ahead_had_not_been_there(revisions: str) -> None:
    """The bar is published on the bus directly, because the gateways refuse it."""
    sql = """SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time
             MEASURES A.open_time AS t PATTERN (A B) WITHIN INTERVAL '3' MINUTE DEFINE B AS close > PREV(close))"""
    window = "SELECT COUNT(*) AS n FROM ohlc GROUP BY ticker, TUMBLE(open_time, INTERVAL '2' MINUTE)"

    def events(bars: list[StoredRecord]) -> list[object]:
        partition, checked = TriggerPartition(), CheckedRecords(BOUND)
        texts = {"m": sql, "w": window}
        partition.process(
            [], controls=[register(n, t, period_seconds="60", revisions=revisions) for n, t in texts.items()]
        )
        return [
            row for each in bars for e in partition.process([], bars=checked.values([each])).events for row in rows(e)
        ]

    found = events(a_bar_a_minute(far=4))
    assert found == events([record for record in a_bar_a_minute(None) if record.offset != 4])
    assert len(found) > 5


def test_a_clock_far_ahead_passes_no_deadline_over_bars() -> None:
    sql = "SELECT COUNT(*) AS n FROM ohlc GROUP BY ticker, TUMBLE(open_time, INTERVAL '10' MINUTE)"
    partition, checked = TriggerPartition(), CheckedRecords(BOUND)
    partition.process([], controls=[register("w", sql, period_seconds="60")])
    found = []
    for n, record in enumerate(a_bar_a_minute(None)):
        marks = [stored(bus_topics.TICK_MARKS, n, 60 * n, value=clock(60 * n + 3_600, 0))]
        output = partition.process([], bars=checked.values([record]), marks=checked.values(marks))
        found += [row["n"] for event in output.events for row in rows(event)]
    assert len(found) <= 1


def test_a_bar_of_the_platform_is_not_measured_by_its_own_clock() -> None:
    """The bar is made of checked trades; the exchange's clock may be far ahead of ours."""
    checked = CheckedRecords(BOUND)
    assert len(checked.values([stored(bus_topics.OHLC, 0, 0, value=bar(60, 1.0))])) == 1


def test_a_record_put_aside_is_kept_once_with_its_place_even_if_its_batch_is_repeated() -> None:
    bus = FreshBus()
    for _ in range(2):
        checked = CheckedRecords(BOUND)
        checked.values(a_trade_a_second("", far=90)[80:100])
        checked.put_aside(bus)
    ((_, letter),) = kept(bus)
    assert (letter.part, letter.topic, letter.offset) == ("live", bus_topics.TICKS, 90)
    assert TICKER in letter.reason and "3500.0 s ahead" in letter.reason


def test_text_ids_that_leave_the_window_raise_the_floor_by_the_oldest_time_alone() -> None:
    """Even if no record has a time of arrival: one of 24,000 trades, ten a second, is dated 3,500 s ahead."""
    live = LivePartition(0, 10 * 86_400 * SECOND)
    for first in range(0, 24_000, 1_000):
        trades = [(n / 10 + (3_500 if n == 100 else 0), f"x-{n}", 1.0) for n in range(first, first + 1_000)]
        live.process([batch(first + 1, *trades)], [])
        live = LivePartition.load(live.save())
    assert (live.too_late, live.duplicates) == (0, 0)
    live.process([batch(24_001, (2_399.9, "x-23999", 1.0), (0.1, "x-1", 1.0))], [])
    assert (live.too_late, live.duplicates) == (1, 1)
