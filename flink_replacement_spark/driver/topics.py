"""The bus's topics that the queries read."""

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from bus import Log
from bus import topics as bus_topics
from candlewright.wire.errors import BusUnavailable, ConfigurationError

__all__ = ["READ", "prepare_topics"]

#: Topics in which a ticker has the same partition.
_BY_TICKER = (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC)
READ = (bus_topics.HISTORY_OUTCOMES, *_BY_TICKER, bus_topics.TRIGGER_CONTROLS)


def prepare_topics(bus: Log) -> None:
    """Create the topics that the queries read; the bus may still be starting."""
    for attempt in Retrying(
        retry=retry_if_exception_type(BusUnavailable), stop=stop_after_delay(60), wait=wait_fixed(0.5), reraise=True
    ):
        with attempt:
            for topic in (bus_topics.HISTORY_OUTCOMES, *_BY_TICKER, bus_topics.TRIGGER_EVENTS):
                bus.create_topic(topic)
            for topic in (
                bus_topics.TRIGGER_CONTROLS,
                bus_topics.TRIGGER_PROGRESS,
                bus_topics.FUNCTION_ROWS,
                bus_topics.DELIVERIES,
            ):
                bus.create_topic(topic, 1)
            bus.create_topic(bus_topics.TICK_ROWS, bus.partitions(bus_topics.TICKS))
    counts = {topic: bus.partitions(topic) for topic in (*_BY_TICKER, bus_topics.TRIGGER_EVENTS)}
    if len(set(counts.values())) > 1:
        raise ConfigurationError(f"topics that are read together have different numbers of partitions: {counts}")
