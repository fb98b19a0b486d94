"""Live trades of tickers in every partition of the bus, each with a bar a second and an event for every trade."""

from collections import defaultdict
from contextlib import AbstractContextManager

from bus import Bus, Record, partition_of
from bus import topics as bus_topics
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from protobuf import records_pb2 as records
from tests.flink_replacement_spark import trigger_feed as feed

#: Tickers of each partition.
TICKERS = 2
PAUSE_SECONDS = 0.2


class ManyTickers:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.trades = 0
        self.tickers = _tickers(bus.partitions(bus_topics.TICKS))
        for ticker in self.tickers:
            feed.register(bus, f"any {ticker}", "size > 0", ticker)
            wanted = records.TickMark(ticker=ticker, wanted=records.Wanted(ticks=True, period_seconds=[1]))
            covered = records.TickMark(ticker=ticker, covered=records.Covered(job_id="j", from_time=feed.T0))
            for mark in (wanted, covered):
                bus.publish(bus_topics.TICK_MARKS, [Record(mark.SerializeToString(), key=ticker.encode())])
        self._read = {topic: dict.fromkeys(range(bus.partitions(topic)), 0) for topic in _TOPICS}
        #: By ticker: the bars on the topic, and the trades that have an event, in its order.
        self.bars: dict[str, list[OHLCV]] = defaultdict(list)
        self.events: dict[str, list[int]] = defaultdict(list)

    def trading(self) -> AbstractContextManager[None]:
        """A trade of each ticker every `PAUSE_SECONDS`, one a second of their own time."""
        return feed.repeated(self._trade, PAUSE_SECONDS)

    def _trade(self) -> None:
        number = self.trades + 1
        for ticker in self.tickers:
            feed.trades(self._bus, ticker, number, prices=[float(number)])
            feed.clock(self._bus, ticker, number, sequence=number)
        self.trades = number

    def read(self) -> None:
        """Reads what has arrived since the last call."""
        for topic, places in self._read.items():
            for partition, offset in places.items():
                for record in self._bus.read(topic, partition, offset, max_records=10_000):
                    places[partition] = record.offset + 1
                    if topic == bus_topics.OHLC:
                        bar = OHLCV.FromString(record.value)
                        # Bars of minutes are made for every ticker.
                        if bar.period_seconds == 1:
                            self.bars[bar.ticker].append(bar)
                    else:
                        event = CEPTriggerEvent.FromString(record.value)
                        self.events[event.trigger_id.split()[1]].append((event.timestamp - feed.T0) // SECOND)

    def waits_for(self, number: int) -> list[str]:
        """The tickers without an event of a trade from `number` on, or without its bar."""
        self.read()
        found = []
        for ticker in self.tickers:
            bars, events = self.bars[ticker], self.events[ticker]
            has_bar = bool(bars) and bars[-1].open_time >= feed.T0 + number * SECOND
            if not has_bar or not events or events[-1] < number:
                found.append(ticker)
        return found

    def check(self) -> None:
        """Every trade has its event, and every one but the last its bar, each once and in order."""
        numbers = range(1, self.trades + 1)
        for ticker in self.tickers:
            assert self.events[ticker] == list(numbers)
            bars = self.bars[ticker]
            found = [(bar.sequence, bar.open_time, bar.revision, bar.trade_count, bar.open, bar.close) for bar in bars]
            expected = [(n, feed.T0 + n * SECOND, 0, 1, float(n), float(n)) for n in numbers]
            assert found == expected[: len(found)]
            assert len(found) >= len(expected) - 2


_TOPICS = (bus_topics.OHLC, bus_topics.TRIGGER_EVENTS)


def _tickers(partitions: int) -> list[str]:
    found: dict[int, list[str]] = defaultdict(list)
    for number in range(100 * partitions):
        ticker = f"LOST{number}/USDT.BINANCE"
        mine = found[partition_of(ticker.encode(), partitions)]
        if len(mine) < TICKERS:
            mine.append(ticker)
    assert len(found) == partitions
    return [ticker for mine in found.values() for ticker in mine]
