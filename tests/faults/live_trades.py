"""Live trades of two tickers under 50 triggers, and their expected results, for any process that serves them."""

import time
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from bus import Bus, Record
from bus import topics as bus_topics
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from flink_replacement_spark.cep import evaluate
from protobuf import records_pb2 as records
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.trigger_walks import table_of, walk
from tests.triggers.trigger_records import V_SHAPE, rows

#: On a busy machine a driver takes minutes to start.
PATIENCE_SECONDS = 300.0
#: Trades of each ticker, and how often they come.
TRADES, PAUSE_SECONDS = 4, 0.2
#: The columns of a bar, on the bus and in the table.
VALUES = ("open", "high", "low", "close", "volume", "trade_count")
TICKER, OTHER = "WALK/USDT.BINANCE", "ANY/USDT.BINANCE"


class LiveTrades:
    def __init__(self, bus: Bus, seed: int) -> None:
        self.bus = bus
        self.prices = walk(seed, 100_000)
        self.trades = 0
        self._events, self._read = 0, dict.fromkeys(range(bus.partitions(bus_topics.TRIGGER_EVENTS)), 0)
        feed.register(self.bus, "shape", V_SHAPE, TICKER)
        feed.register(self.bus, "any", "size > 0", OTHER)
        for number in range(48):
            feed.control(
                self.bus,
                records.TriggerControl(
                    register=records.TriggerRegistration(
                        trigger_id=f"more-{number}", sql=f"price > {1_000_000 + number}", tickers=[OTHER],
                        version=10_000 + number, registered_at=time.time_ns(),
                    )
                ),
            )  # fmt: skip
        for ticker in (TICKER, OTHER):
            wanted = records.TickMark(ticker=ticker, wanted=records.Wanted(ticks=True, period_seconds=[60]))
            covered = records.TickMark(ticker=ticker, covered=records.Covered(job_id="j", from_time=feed.T0))
            for mark in (wanted, covered):
                self.bus.publish(bus_topics.TICK_MARKS, [Record(mark.SerializeToString(), key=ticker.encode())])

    def trading(self) -> AbstractContextManager[None]:
        """Trades of both tickers meanwhile, one a second of their own time, with a clock so that minutes end."""
        return feed.repeated(self._trade, PAUSE_SECONDS)

    def _trade(self) -> None:
        prices = self.prices[self.trades : self.trades + TRADES]
        for ticker in (TICKER, OTHER):
            feed.trades(self.bus, ticker, 1 + self.trades, prices=prices)
            feed.clock(self.bus, ticker, self.trades + TRADES, sequence=self.trades + TRADES)
        self.trades += TRADES

    def bars(self) -> list[OHLCV]:
        found = []
        for partition in range(self.bus.partitions(bus_topics.OHLC)):
            records_of = partial(self.bus.read, bus_topics.OHLC, partition, max_records=1_000_000, max_bytes=1 << 30)
            found += [OHLCV.FromString(each.value) for each in records_of(0)]
        return sorted(found, key=lambda bar: (bar.ticker, bar.sequence))

    def bar(self, number: int) -> tuple[Any, ...]:
        """The minute that begins with trade 60 x `number`; the first one has a trade less."""
        own = self.prices[60 * number - 1 : 60 * number + 59]
        return feed.T0 + 60 * number * SECOND, own[0], max(own), min(own), own[-1], 0.5 * 60, 60

    def events(self) -> int:
        """The events of trigger `any` so far, one for each trade."""
        for partition, offset in self._read.items():
            for record in self.bus.read(bus_topics.TRIGGER_EVENTS, partition, offset):
                self._events += CEPTriggerEvent.FromString(record.value).trigger_id == "any"
                self._read[partition] = record.offset + 1
        return self._events

    def check(self) -> list[str]:
        """Check that nothing is lost or duplicated, that no sequence has a hole, and that everything follows from the
        trades. Returns the ids of all events.
        """
        every = feed.events(self.bus, "any")
        assert [int(event.context["sequence"]) for event in every] == list(range(1, self.trades + 1))
        ids = [event.context["event_id"] for event in every]
        assert len(set(ids)) == len(ids)
        expected = evaluate(V_SHAPE, table_of(TICKER, 1, self.prices[: self.trades])).to_pylist()
        shapes = wait_for(lambda: feed.first_events(self.bus, len(expected) - 1, "shape"), PATIENCE_SECONDS)
        assert [row for event in shapes for row in rows(event)] == expected[: len(shapes)]
        assert [int(event.context["sequence"]) for event in shapes] == list(range(1, len(shapes) + 1))
        ids += [event.context["event_id"] for event in shapes]
        for ticker in (TICKER, OTHER):
            mine = wait_for(partial(self._bars_of, ticker), PATIENCE_SECONDS)
            assert [bar.sequence for bar in mine] == list(range(1, len(mine) + 1))
            assert all(bar.complete and bar.revision == 0 for bar in mine[1:])
            assert [_values(bar) for bar in mine[1:]] == [self.bar(number) for number in range(1, len(mine))]
        return ids

    def _bars_of(self, ticker: str) -> list[OHLCV] | None:
        """Once all are there; the last one may wait for late trades."""
        found = [bar for bar in self.bars() if bar.ticker == ticker]
        return found if len(found) >= self.trades // 60 - 1 else None


def _values(bar: OHLCV) -> tuple[Any, ...]:
    return bar.open_time, *(getattr(bar, name) for name in VALUES)
