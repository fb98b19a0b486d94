"""Marks and trades are in two topics: in any order of reading, a mark applies at its own position between trades."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hyp

from bars import exact
from bus import Record
from bus import topics as bus_topics
from candlewright.wire.candlewright_pb2 import TickBatch
from candlewright.wire.grid import SECOND
from flink_replacement_spark.engine import bus_source
from flink_replacement_spark.live import source as live_source
from flink_replacement_spark.live.marks import WaitingMarks
from flink_replacement_spark.live.partition import LiveOutput, LivePartition
from flink_replacement_spark.live.source import LiveStreamReader
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus

T0 = 1_700_006_400 * SECOND
MINUTE = 60 * SECOND
TICKERS = ("BTC/USDT.BINANCE", "TEXT/USDT.BYBIT")

Row = tuple[float, float, float, float, float, int, bool]


def batch_of(ticker: str, first_sequence: int, trades: Sequence[tuple[int, str, float]]) -> bytes:
    """(ns, id, price) each; a price of -1 stands for NaN."""
    batch = TickBatch(ticker=ticker, first_sequence=first_sequence)
    for time, trade_id, price in trades:
        batch.timestamp.append(time)
        batch.trade_id.append(trade_id)
        batch.price.append(price if price >= 0 else float("nan"))
        batch.size.append(0.1)
        batch.side.append(1)
        batch.received_at.append(1)
    return batch.SerializeToString()


@dataclass
class Script:
    """Records that ingestors published for a few tickers, in order: (whether it is a mark, record)."""

    random: Random
    entries: list[tuple[bool, bytes]] = field(default_factory=list)
    sequence: dict[str, int] = field(default_factory=dict)
    next_id: dict[str, int] = field(default_factory=dict)
    sent: dict[str, list[tuple[int, str, float]]] = field(default_factory=dict)

    def mark(self, ticker: str, **body: object) -> None:
        mark = records.TickMark(ticker=ticker, **body)  # type: ignore[arg-type]
        if mark.WhichOneof("body") == "clock":
            mark.clock.sequence = self.sequence.get(ticker, 0)
        else:
            mark.after_sequence = self.sequence.get(ticker, 0)
        self.entries.append((True, mark.SerializeToString()))

    def trades(self, ticker: str, start: int, count: int) -> int:
        """`count` trades from `start` on, some of them sent again; returns the time of the newest."""
        found, time = [], start
        for _ in range(count):
            number = self.next_id[ticker] = self.next_id.get(ticker, 995) + 1
            trade_id = f"x-{number}" if ticker.startswith("TEXT") else str(number)
            found.append((time, trade_id, float(self.random.randint(1, 99))))
            time += self.random.randint(0, 40) * SECOND
        known = self.sent.setdefault(ticker, [])
        resent = known[-self.random.randint(1, 3) :] if self.random.random() < 0.3 else []
        known += found
        self.random.shuffle(found)
        batch = [*resent, *found]
        if self.random.random() < 0.2:
            batch.insert(self.random.randint(0, len(batch)), (time, "5", -1.0))
        self.entries.append((False, batch_of(ticker, self.sequence.get(ticker, 0) + 1, batch)))
        self.sequence[ticker] = self.sequence.get(ticker, 0) + len(batch)
        return max(trade[0] for trade in found)

    def run(self, ticker: str, start: int) -> int:
        """One run of a job; returns the time of its end."""
        opened = start - start % MINUTE
        self.mark(ticker, covered=records.Covered(job_id="j", from_time=opened))
        time = self.trades(ticker, opened + self.random.randint(0, 30) * SECOND, self.random.randint(1, 20))
        for _ in range(self.random.randint(0, 6)):
            match self.random.randint(0, 4):
                case 0:
                    self.seed(ticker, opened)
                case 1 if not ticker.startswith("TEXT"):
                    self.gap(ticker, time)
                case 2:
                    self.mark(ticker, clock=records.Clock(exchange_time=time + 50 * SECOND))
                case _:
                    time = max(time, self.trades(ticker, time, self.random.randint(1, 20)))
        return time

    def seed(self, ticker: str, opened: int) -> None:
        opens = list(range(opened - opened % (60 * MINUTE), opened, MINUTE))
        if opens:
            seed = records.Seed(period_seconds=60, open_time=opens, volume=[1.0] * len(opens))
            for column in (seed.open, seed.high, seed.low, seed.close):
                column.extend([50.0] * len(opens))
            seed.trade_count.extend([2] * len(opens))
            self.mark(ticker, seed=seed)

    def gap(self, ticker: str, time: int) -> None:
        first = self.next_id[ticker] + 1
        gap = records.Gap(
            gap_id=f"g{first}", from_trade_id=str(first), to_trade_id=str(first + 2), from_time=time, to_time=time + 1
        )
        self.next_id[ticker] += 3
        if self.random.random() < 0.5:
            seed = records.Seed(open_time=[time], volume=[0.7], first_trade_id=[first], last_trade_id=[first + 2])
            for column in (seed.open, seed.high, seed.low, seed.close):
                column.append(7.0)
            self.mark(ticker, seed=seed)
        self.mark(ticker, gap=gap)
        if self.random.random() < 0.5:
            gap.is_repaired = True
            self.mark(ticker, gap=gap)


def script(random: Random) -> Script:
    made = Script(random)
    ends = dict.fromkeys(TICKERS, T0)
    for ticker in TICKERS:
        wanted = records.Wanted(ticks=True, period_seconds=[5, 300, 3_600])
        made.entries.append((True, records.TickMark(ticker=ticker, wanted=wanted).SerializeToString()))
    for _ in range(random.randint(1, 5)):
        ticker = random.choice(TICKERS)
        ends[ticker] = made.run(ticker, ends[ticker] + random.randint(16, 60) * MINUTE)
    for ticker in TICKERS:
        made.mark(ticker, clock=records.Clock(exchange_time=max(ends.values()) + 100 * MINUTE))
    return made


def slices(entries: Sequence[tuple[bool, bytes]], random: Random) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Micro-batches of trades and marks. As the source promises, a mark is never read later than the trades that were
    published after it, though it may be read any time earlier.
    """
    trade_end = mark_end = 0
    while trade_end < len(entries) or mark_end < len(entries):
        until = min(len(entries), trade_end + random.choice((0, 1, 1, 2, 5, 40)))
        ahead = max(mark_end, min(len(entries), until + random.choice((0, 0, 1, 3, 10, 100))))
        yield (
            [value for is_mark, value in entries[trade_end:until] if not is_mark],
            [value for is_mark, value in entries[mark_end:ahead] if is_mark],
        )
        trade_end, mark_end = until, ahead


def results(steps: Iterator[tuple[list[bytes], list[bytes]]], restarts: Random | None = None) -> tuple[object, ...]:
    partition = LivePartition(2 * SECOND, 7 * 86_400 * SECOND)
    bars: dict[tuple[str, int, int], Row] = {}
    revisions: set[tuple[str, int, int, int]] = set()
    gaps: list[tuple[str, bool]] = []
    ticks: dict[str, list[bytes]] = {}
    for batches, marks in steps:
        if restarts is not None and restarts.random() < 0.3:
            partition = LivePartition.load(partition.save())
        output = partition.process(batches, marks)
        for key, revision, row in rows(output):
            assert (*key, revision) not in revisions
            revisions.add((*key, revision))
            bars[key] = row
        gaps += [(mark.gap.gap_id, mark.gap.is_repaired) for mark in output.gaps]
        for columns in output.ticks:
            ticks.setdefault(columns.ticker, []).extend(columns.trade_id.tolist())
    return bars, sorted(gaps), ticks, partition.duplicates, partition.too_late


def rows(output: LiveOutput) -> Iterator[tuple[tuple[str, int, int], int, Row]]:
    for tickers, made in output.bars:
        bars = made.bars
        volume = exact.to_doubles(bars.volume)
        for i in range(len(bars)):
            key = (tickers[bars.group[i]], bars.period_seconds, int(bars.open_time[i]))
            prices = (float(bars.open[i]), float(bars.high[i]), float(bars.low[i]), float(bars.close[i]))
            yield key, int(made.revision[i]), (
                *prices, float(volume[i]), int(bars.trade_count[i]), bool(made.complete[i])
            )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(hyp.integers(0, 1 << 32), hyp.integers(0, 1 << 32))
def test_any_slicing_of_the_two_topics_gives_the_same(content: int, cuts: int) -> None:
    entries = script(Random(content)).entries
    slicing = Random(cuts)
    one_by_one = ([] if is_mark else [value] for is_mark, value in entries)
    expected = results(
        (batch, [value] if is_mark else []) for batch, (is_mark, value) in zip(one_by_one, entries, strict=True)
    )
    assert results(slices(entries, slicing), slicing) == expected
    # Everything at once, as for a pipeline that was down for a long time.
    everything = [value for is_mark, value in entries if not is_mark], [value for is_mark, value in entries if is_mark]
    assert results(iter([everything])) == expected


def test_the_needs_at_the_time_of_trades_apply_however_late_they_are_counted() -> None:
    wanted = records.Wanted(ticks=True, period_seconds=[5])
    partition = LivePartition(0, 3_600 * SECOND)
    partition.process([], [mark_of(0, covered=records.Covered(from_time=T0)).SerializeToString()])
    partition.process([], [mark_of(0, wanted=wanted).SerializeToString()])
    # After trade 2 no request needs trades, after trade 3 another one does; everything is read at once.
    marks = [mark_of(2, wanted=records.Wanted()), mark_of(3, wanted=records.Wanted(ticks=True))]
    batch = batch_of(TICKERS[0], 1, [(T0 + n * 6 * SECOND, str(n + 1), 1.0) for n in range(4)])
    output = partition.process([batch], [mark.SerializeToString() for mark in marks])
    assert [int(trade_id) for columns in output.ticks for trade_id in columns.trade_id] == [1, 2, 4]
    assert [key[1:] for key, *_ in rows(output)] == [(5, T0 // (5 * SECOND) * 5 * SECOND)]


def test_a_wanted_mark_stays_after_marks_of_the_ingestor_that_name_later_trades() -> None:
    marks = WaitingMarks()
    for mark in (clock(9), mark_of(7, wanted=records.Wanted(ticks=True)), clock(12)):
        marks.add(mark)
    assert popped(marks, 8) == []
    assert popped(marks, 9) == [9, 7]
    assert popped(marks, 12) == [12]


def mark_of(number: int, **body: object) -> records.TickMark:
    return records.TickMark(ticker=TICKERS[0], after_sequence=number, **body)  # type: ignore[arg-type]


def gap(number: int) -> records.TickMark:
    return mark_of(number, gap=records.Gap(gap_id=f"g{number}", from_time=T0, to_time=T0))


def clock(number: int) -> records.TickMark:
    return records.TickMark(ticker=TICKERS[0], clock=records.Clock(exchange_time=T0, sequence=number))


def popped(marks: WaitingMarks, counted: int) -> list[int]:
    found = []
    while (mark := marks.pop_due(TICKERS[0], counted)) is not None:
        found.append(mark.after_sequence or mark.clock.sequence)
    return found


def test_marks_wait_for_their_trades_in_their_order() -> None:
    marks = WaitingMarks()
    for number in (3, 3, 5):
        marks.add(gap(number))
    assert popped(marks, 2) == []
    assert popped(marks, 4) == [3, 3]
    assert popped(WaitingMarks.load(marks.save()), 5) == [5]


def test_marks_whose_trades_the_bus_lost_are_released_by_a_later_mark() -> None:
    marks = WaitingMarks()
    for number in (100, 101, 90):
        marks.add(gap(number))
    assert popped(marks, 90) == [100, 101, 90]
    assert len(marks) == 0


def test_marks_whose_trades_the_bus_lost_are_released_by_the_next_trades() -> None:
    partition = LivePartition(0, 3_600 * SECOND)
    partition.process([batch_of(TICKERS[0], 1, [(T0, "1", 1.0)])], [gap(5).SerializeToString()])
    output = partition.process([batch_of(TICKERS[0], 9, [(T0 + 1, "9", 1.0)])], [])
    assert [mark.gap.gap_id for mark in output.gaps] == ["g5"]


def test_only_the_newest_of_neighbouring_clocks_waits() -> None:
    marks = WaitingMarks()
    for mark in (clock(3), clock(4), gap(4), clock(5), clock(7)):
        marks.add(mark)
    assert popped(marks, 9) == [4, 4, 7]


def test_numbers_count_trades_that_were_not_sound() -> None:
    partition = LivePartition(0, 3_600 * SECOND)
    broken = [(T0, "1", 1.0), (T0, "2", -1.0), (T0, "3", 1.0), (T0, "4", -1.0)]
    output = partition.process([batch_of(TICKERS[0], 1, broken)], [gap(4).SerializeToString()])
    assert output.bad_records == 2
    assert [mark.gap.gap_id for mark in output.gaps] == ["g4"]


def test_bars_of_an_earlier_run_stay_complete_however_late_they_are_counted() -> None:
    earlier = [(T0 + second * SECOND, str(second), 1.0) for second in range(1, 200, 10)]
    covered = [records.Covered(from_time=T0), records.Covered(from_time=T0 + 40 * MINUTE)]
    marks = [mark_of(0, covered=covered[0]), mark_of(20, covered=covered[1])]
    later = [(T0 + 40 * MINUTE, "1000", 2.0), (T0 + 42 * MINUTE, "1001", 2.0)]
    batches = [batch_of(TICKERS[0], 1, earlier), batch_of(TICKERS[0], 21, later)]
    output = LivePartition(0, 7_200 * SECOND).process(batches, [mark.SerializeToString() for mark in marks])
    complete = {(key[2] - T0) // MINUTE: row[-1] for key, _, row in rows(output)}
    assert complete == {0: True, 1: True, 2: True, 3: False, 40: True}


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> FreshBus:
    bus = FreshBus(2)
    for topic in live_source.TOPICS:
        bus.create_topic(topic)
    monkeypatch.setattr(bus_source, "RedisBus", lambda *_, **__: bus)
    return bus


def test_trades_are_not_read_before_the_marks_that_were_published_before_them(bus: FreshBus) -> None:
    for partition in range(2):
        count = 30 if partition == 0 else 3
        bus.publish(bus_topics.TICK_MARKS, [Record(b"m", partition=partition) for _ in range(count)])
        bus.publish(bus_topics.TICKS, [Record(b"t", partition=partition) for _ in range(2)])
    reader = LiveStreamReader({"url": "redis://none", "reader": "me", "max_records": "10"})
    reader.initialOffset()
    trades, marks = [], []
    for _ in range(4):
        planned = reader.latestOffset()
        trades.append(planned[bus_topics.TICKS])
        marks.append(planned[bus_topics.TICK_MARKS]["0"])
    assert marks[-2] < 30 and marks[-1] == 30
    assert trades == [{"0": 0, "1": 2}] * 3 + [{"0": 2, "1": 2}]


def test_a_restarted_source_plans_nothing_before_the_last_plan(bus: FreshBus) -> None:
    options = {"url": "redis://none", "reader": "me", "max_records": "10"}
    bus.publish(bus_topics.TICKS, [Record(b"t", partition=0) for _ in range(8)])
    reader = LiveStreamReader(options)
    start = reader.initialOffset()
    planned = reader.latestOffset()
    reader.partitions(start, planned)
    # The hold is before the plan, and now the trades wait for marks.
    bus.publish(bus_topics.TICK_MARKS, [Record(b"m", partition=0) for _ in range(30)])
    assert LiveStreamReader(options).latestOffset()[bus_topics.TICKS] == planned[bus_topics.TICKS] == {"0": 8, "1": 0}
