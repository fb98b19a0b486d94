from collections.abc import Iterable, Iterator, Sequence

import pytest

from bus import StoredRecord, partition_of
from bus import topics as bus_topics
from candlewright.wire.candlewright_pb2 import OHLCV, TickBatch
from candlewright.wire.grid import SECOND
from flink_replacement_spark.engine.checked_records import CheckedRecords
from flink_replacement_spark.live import rows as live_rows
from flink_replacement_spark.live.partition import LivePartition
from flink_replacement_spark.live.source import Range
from flink_replacement_spark.tables.published_bars import published_bars
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus

VALUES = [bytes([length]) * length for length in (3, 9, 1, 1, 8, 20, 2, 5)]


class _Noted(LivePartition):
    """Records its arguments."""

    def __init__(self) -> None:
        super().__init__(0, 0)
        self.parts: list[list[bytes]] = []
        self.marks: list[bytes] = []

    def add(self, batches: Iterable[bytes], marks: Iterable[bytes] = ()) -> None:
        self.parts.append(list(batches))
        self.marks += marks


@pytest.mark.parametrize("reads", [[8], [1] * 8, [3, 3, 2]])
def test_trades_are_cut_into_parts_by_their_sizes_however_they_were_read(
    reads: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = [
        StoredRecord(topic="ticks", partition=0, offset=offset, timestamp_ms=1_000, key=b"", value=value, headers={})
        for offset, value in enumerate(VALUES)
    ]

    def records_of(
        url: str, partition: int, ranges: object, *, tag: int, known: object
    ) -> Iterator[list[StoredRecord]]:
        left = iter(stored)
        yield from ([next(left) for _ in range(count)] for count in (reads if tag == 0 else [2]))

    monkeypatch.setattr(live_rows, "records_of", records_of)
    monkeypatch.setattr(live_rows, "_PART_BYTES", 10)
    live = _Noted()
    live_rows._output(live, "", 0, [], CheckedRecords(SECOND))
    assert live.parts == [VALUES[:2], VALUES[2:5], VALUES[5:6], VALUES[6:]]
    assert live.marks == VALUES[:2]


@pytest.mark.parametrize(("quote_volume", "trade_count"), [([], []), ([200.0], []), ([], [7]), ([200.0], [7])])
def test_a_bar_begun_with_a_candle_without_count_or_quote_volume_has_none(
    quote_volume: list[float], trade_count: list[int]
) -> None:
    """Kraken's candles have no quote volume, OKX's and Bybit's no trade count, and Coinbase's neither."""
    hour = 1_699_999_200 * SECOND
    opened = hour + 60 * SECOND
    candle = {name: [100.0] for name in ("open", "high", "low", "close")}
    seed = records.Seed(
        period_seconds=60, open_time=[hour], **candle, volume=[2.0], quote_volume=quote_volume, trade_count=trade_count
    )
    bodies = [
        records.TickMark(ticker="A/B.C", wanted=records.Wanted(period_seconds=[300])),
        records.TickMark(ticker="A/B.C", covered=records.Covered(from_time=opened)),
        records.TickMark(ticker="A/B.C", seed=seed),
    ]
    batch = TickBatch(ticker="A/B.C", first_sequence=1, side=[0, 0], received_at=[1, 1], trade_id=["1", "2"])
    batch.timestamp.extend([opened, hour + 300 * SECOND])
    batch.price.extend([101.0, 102.0])
    batch.size.extend([3.0, 1.0])
    live = LivePartition(0, 3_600 * SECOND)
    live.process([], [mark.SerializeToString() for mark in bodies])
    output = LivePartition.load(live.save()).process([batch.SerializeToString()], [])
    expected = (503.0 if quote_volume else None, 8 if trade_count else None)

    sent = [record.value for tickers, made in output.bars for record in live_rows._bar_records(tickers, made)]
    (published,) = [bar for value in sent if (bar := OHLCV.FromString(value)).period_seconds == 300]
    told = [
        getattr(published, name) if published.HasField(name) else None  # type: ignore[arg-type]
        for name in ("quote_volume", "trade_count")
    ]
    assert (*told, published.volume, published.complete) == (*expected, 5.0, True)

    on_bus = [
        StoredRecord(topic="ohlc", partition=0, offset=offset, timestamp_ms=1, key=None, value=value, headers={})
        for offset, value in enumerate(sent)
    ]
    stored = published_bars(on_bus).to_pylist()
    rows = [(row["quote_volume"], row["trade_count"]) for row in stored if row["period_seconds"] == 300]
    assert rows == [expected]
    assert {(row["quote_volume"], row["trade_count"]) for row in stored if row["period_seconds"] == 60} == {(303.0, 1)}


@pytest.mark.parametrize(("first_mark", "is_told"), [(5, True), (None, True), (0, False)])
def test_a_query_whose_checkpoint_was_lost_knows_earlier_needs(first_mark: int | None, is_told: bool) -> None:
    bus = FreshBus(4)
    bus.create_topic(bus_topics.TICKS)
    wanted = records.Wanted(ticks=True, period_seconds=[5, 300]).SerializeToString()
    names = [f"{letter}/USDT.BINANCE" for letter in "ABCDEFGH"]
    bus.put(bus_topics.TABLE_WANTED, dict.fromkeys(names, wanted))
    partition = partition_of(names[0].encode(), 4)
    ranges = [Range(0, 7, 9)]
    if first_mark is not None:
        ranges.append(Range(1, first_mark, 9))
    live = live_rows._begin(bus, partition, ranges, 0, 3_600 * SECOND)
    own = [name for name in names if partition_of(name.encode(), 4) == partition]
    assert 0 < len(own) < len(names)
    assert sorted(live._demands) == (own if is_told else [])
    batch = TickBatch(ticker=names[0], first_sequence=1, side=[0, 0], received_at=[1, 1], trade_id=["1", "2"])
    batch.timestamp.extend([SECOND * 10**9 + 1, SECOND * (10**9 + 7)])
    batch.price.extend([1.0, 2.0])
    batch.size.extend([1.0, 1.0])
    output = live.process([batch.SerializeToString()], [])
    assert bool(output.ticks) == is_told
    # It is unknown whether the first trade was the bar's first.
    five = [made.complete.tolist() for _, made in output.bars if made.bars.period_seconds == 5]
    assert five == ([[False]] if is_told else [])
