import pytest

from bus import topics
from candlewright.wire import streams


@pytest.mark.parametrize(
    ("topic", "bus_topic"),
    [
        ("SNAPSHOT:BTC/USDT.BINANCE", "snapshots"),
        ("TICKS:BTC/USDT.BINANCE", "ticks"),
        ("OHLC:BTC/USDT.BINANCE:60", "ohlc"),
        ("TRIGGER:t", "trigger_events"),
        ("SNAPSHOT:", None),
        ("RESPONSE:a", None),
        ("", None),
    ],
)
def test_numbered_topics_have_a_home_on_the_bus(topic: str, bus_topic: str | None) -> None:
    stream = streams.stream_of(topic)
    assert (stream and stream.bus_topic) == bus_topic


@pytest.mark.parametrize("stream", streams.STREAMS, ids=lambda stream: stream.bus_topic)
def test_a_stream_has_the_message_of_the_topic_of_the_bus_that_carries_it(stream: streams.Stream) -> None:
    assert topics.TOPICS[stream.bus_topic].message is stream.message


@pytest.mark.parametrize("stream", streams.STREAMS, ids=lambda stream: stream.bus_topic)
def test_the_bus_sets_the_number_of_a_message_under_the_tag_of_its_stream(stream: streams.Stream) -> None:
    if stream is streams.TRIGGERS:
        entry = b"\x0a\x08sequence\x12\x017"
        message = stream.message.FromString(stream.tag + bytes((len(entry),)) + entry)
        assert dict(message.context) == {"sequence": "7"}  # type: ignore[attr-defined]
    else:
        message = stream.message.FromString(stream.tag + b"\x07")
        assert [value for field, value in message.ListFields() if field.name.endswith("sequence")] == [7]
