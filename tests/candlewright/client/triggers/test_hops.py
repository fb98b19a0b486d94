"""Where the time of an event went, computed from the records of the topics."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from candlewright.client.errors import PlatformRefused
from candlewright.client.operations import Newest, Operations
from candlewright.client.records import TriggerInfo
from candlewright.client.session.session import Operation
from candlewright.client.triggers.hops import Hops, hops_of
from candlewright.client.triggers.trigger_events import TriggerEvent
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from tests.candlewright.client.trigger_relay import START, TICKER, event

TRIGGER = "TRIGGER:t"
MS = 1_000_000


class Topics:
    """A relay's answers: a topic's records by their first number, and how many of the oldest are gone."""

    def __init__(self, records: Mapping[str, Sequence[cw.TopicRecord]], gone: int = 0, period: str = "") -> None:
        self.questions = 0
        self._records = records
        self._gone = gone
        self._parameters = {"period_seconds": period} if period else {}
        self.triggers = self

    def get(self, trigger_id: str) -> Operation[TriggerInfo]:
        yield from ()
        return TriggerInfo(
            trigger_id=trigger_id,
            sql="",
            tickers=(),
            state="active",
            reason="",
            registered_at=START,
            events=1,
            parameters=self._parameters,
        )

    def newest(self, topic: str) -> Operation[Newest]:
        yield from ()
        newest = self._records[topic][-1]
        return Newest(newest.sequence + max(1, len(ticks_of(newest))) - 1, START)

    def replay_records(self, topic: str, first: int, last: int) -> Operation[list[cw.TopicRecord]]:
        assert first == last
        self.questions += 1
        yield from ()
        if first <= self._gone:
            raise PlatformRefused("NOT_KEPT", "gone")
        return [next(record for record in reversed(self._records[topic]) if record.sequence <= first)]

    def hops(self, fired: TriggerEvent) -> Hops:
        steps = hops_of(cast("Operations", self), fired)
        with pytest.raises(StopIteration) as end:
            next(steps)
        return cast("Hops", end.value.value)


def ticks_of(record: cw.TopicRecord) -> Sequence[int]:
    message = frames.decode_body(record.body, frames.ON_TOPIC)
    return message.timestamp if isinstance(message, cw.TickBatch) else ()


def batch(first: int, size: int = 3) -> cw.TopicRecord:
    """Trades a millisecond apart, number 1 one after START; each arrived 20 ms later, and was on the bus after 30."""
    times = [START + (first + place) * MS for place in range(size)]
    ticks = cw.TickBatch(
        ticker=TICKER, first_sequence=first, timestamp=times, received_at=[each + 20 * MS for each in times],
        price=[1.0] * size, size=[1.0] * size, side=[0] * size, trade_id=["1"] * size,
    )  # fmt: skip
    return kept("TICKS", first, frames.encode_body(ticks), at=times[-1] + 30 * MS)


def kept(topic: str, sequence: int, body: bytes, *, at: int) -> cw.TopicRecord:
    return cw.TopicRecord(topic=topic, sequence=sequence, body=body, published_at=at, is_final=True)


def fired_at(time: int) -> tuple[TriggerEvent, dict[str, Sequence[cw.TopicRecord]]]:
    message = event("t", 1)
    fired = replace(TriggerEvent.from_message(message), time=time)
    return fired, {TRIGGER: [kept(TRIGGER, 1, frames.encode_body(message), at=START + 5_000 * MS)]}


@pytest.mark.parametrize("number", [1, 2, 500, 2_997, 3_000])
def test_the_way_of_a_trade_is_found_wherever_its_record_is(number: int) -> None:
    time = START + number * MS
    fired, records = fired_at(time)
    topics = Topics(records | {f"TICKS:{TICKER}": [batch(first) for first in range(1, 3_001, 3)]})
    on_bus = START + (number + (-number) % 3) * MS + 30 * MS
    assert topics.hops(fired) == Hops(time, time + 20 * MS, on_bus, START + 5_000 * MS)
    assert topics.questions < 40


def test_a_trade_that_is_no_longer_kept_leaves_the_rest() -> None:
    fired, records = fired_at(START + 2 * MS)
    records[f"TICKS:{TICKER}"] = [batch(first) for first in range(1, 301, 3)]
    assert Topics(records).hops(fired).exchange_at == START + 2 * MS
    records[TRIGGER] = [kept(TRIGGER, 151, records[TRIGGER][0].body, at=START + 5_000 * MS)]
    gone = Topics(records, gone=150)
    assert gone.hops(replace(fired, sequence=151)) == Hops(None, None, None, START + 5_000 * MS)


def test_the_row_of_a_trigger_over_bars_is_its_bar() -> None:
    minute = 60_000 * MS
    fired, records = fired_at(START + 2 * minute)
    bars = [
        kept("OHLC", number, frames.encode_body(cw.OHLCV(open_time=START + number * minute)), at=START + number)
        for number in range(1, 6)
    ]
    topics = Topics(records | {f"OHLC:{TICKER}:60": bars}, period="60")
    assert topics.hops(fired) == Hops(None, None, START + 2, START + 5_000 * MS)
