"""When the data of one event passed each hop: looked up afterwards in the topics.

Nothing is recorded for this. Trades carry the times of the exchange and of the ingestor, and the bus has the time at
which it accepted each record.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from candlewright.client.errors import PlatformRefused, TriggerNotFound
from candlewright.client.operations import Operations
from candlewright.client.session.session import Operation
from candlewright.client.triggers.trigger_events import TriggerEvent
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames, streams


@dataclass(frozen=True, slots=True)
class Hops:
    """Times in ns since the epoch; None if unknown, for example once the topic has dropped the row.

    The row is the last one of the event: a trade, or the bar of a trigger with `period_seconds`. `exchange_at`: when
    the exchange made the trade; `ingestor_at`: when its frame arrived; `bus_at` and `event_at`: when row and event were
    on
    the bus, whose clock has milliseconds.
    """

    exchange_at: int | None
    ingestor_at: int | None
    bus_at: int | None
    event_at: int | None


def hops_of(ask: Operations, event: TriggerEvent) -> Operation[Hops]:
    fired = yield from _record(ask, streams.trigger(event.trigger_id), event.sequence)
    event_at = (fired.published_at or None) if fired else None
    topic = yield from _topic_of_rows(ask, event)
    found = yield from _record_at(ask, topic, event.time)
    if found is None:
        return Hops(None, None, None, event_at)
    row = frames.decode_body(found.body, frames.ON_TOPIC)
    if not isinstance(row, cw.TickBatch):
        return Hops(None, None, found.published_at or None, event_at)
    received = dict(zip(row.timestamp, row.received_at, strict=False))
    return Hops(event.time, received.get(event.time) or None, found.published_at or None, event_at)


def _topic_of_rows(ask: Operations, event: TriggerEvent) -> Operation[str]:
    try:
        info = yield from ask.triggers.get(event.trigger_id)
    except TriggerNotFound:
        return streams.ticks(event.ticker)
    period = info.parameters.get("period_seconds")
    return streams.bars(event.ticker, period) if period else streams.ticks(event.ticker)


def _record_at(ask: Operations, topic: str, time: int) -> Operation[cw.TopicRecord | None]:
    """The record with the row of this event time: searched backwards from the newest one, in doubling steps, and then
    by bisection.
    """
    try:
        newest = yield from ask.newest(topic)
    except PlatformRefused:
        return None
    low, high, step = 1, newest.number, 1
    number = high
    while low <= high:
        found = yield from _record(ask, topic, number)
        times = _times(found)
        if not times or time > max(times):
            low = number + 1
        elif found is not None and time < min(times):
            high = min(number, found.sequence) - 1
        else:
            return found if time in times else None
        number, step = (low + high) // 2 if low > 1 else max(1, high - step), 2 * step
    return None


def _record(ask: Operations, topic: str, number: int) -> Operation[cw.TopicRecord | None]:
    """None if the topic has dropped it."""
    try:
        found = yield from ask.replay_records(topic, number, number)
    except PlatformRefused:
        return None
    return found[0] if found else None


def _times(record: cw.TopicRecord | None) -> Sequence[int]:
    if record is None:
        return ()
    row = frames.decode_body(record.body, frames.ON_TOPIC)
    if isinstance(row, cw.TickBatch):
        return row.timestamp
    return (row.open_time,) if isinstance(row, cw.OHLCV) else ()
