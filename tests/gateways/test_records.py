"""What clients of a gateway may publish to the platform's topics."""

import pytest

from bus import topics
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import InvalidRequest
from gateways.records import as_published, is_visible, record_of
from tests.fresh_bus import FreshBus

_TICKER = "GATE/USDT.NOWHERE"
_MINUTE = 60_000_000_000
_TIME = 1_700_000_040_000_000_000


def _tick(**changed: object) -> cw.Tick:
    fields = {"ticker": _TICKER, "trade_id": "7", "timestamp": _TIME, "price": 2.5, "size": 1.0, "side": cw.BUY}
    return cw.Tick(**{**fields, **changed})  # type: ignore[arg-type]


def _batch(**changed: object) -> cw.TickBatch:
    fields = {
        "ticker": _TICKER, "timestamp": [_TIME, _TIME + 1], "price": [1.0, 2.0], "size": [1.0, 0.0],
        "side": [cw.BUY, cw.SELL], "trade_id": ["1", "2"], "received_at": [0, 0],
    }  # fmt: skip
    return cw.TickBatch(**{**fields, **changed})  # type: ignore[arg-type]


def _bar(**changed: object) -> cw.OHLCV:
    fields = {
        "open_time": _TIME - _TIME % _MINUTE, "open": 2.0, "high": 3.0, "low": 1.0, "close": 2.5, "volume": 9.0,
        "period_seconds": 60, "ticker": _TICKER, "complete": True,
    }  # fmt: skip
    return cw.OHLCV(**{**fields, **changed})  # type: ignore[arg-type]


def _event(**changed: object) -> ing.CEPTriggerEvent:
    cell = ing.FieldValue(double_val=1.5).SerializeToString()
    fields = {
        "trigger_id": "t1", "timestamp": _TIME, "rows": [ing.ResultRow(values=[cell])],
        "schema": ing.ResultSchema(column_names=["price"], column_types=["DOUBLE"]),
        "context": {"event_id": "e1", "ticker": _TICKER},
    }  # fmt: skip
    return ing.CEPTriggerEvent(**{**fields, **changed})  # type: ignore[arg-type]


def test_clients_see_four_topics_of_the_platform() -> None:
    assert {name for name in topics.TOPICS if is_visible(name)} == {"ticks", "ohlc", "trigger_events", "notifications"}


def test_a_topic_of_a_client_takes_any_bytes_and_keeps_its_key() -> None:
    record = record_of("mine", b"\xff\x00", key=b"", partition=2, headers={"a": "b"})
    assert (record.value, record.key, record.partition, record.headers) == (b"\xff\x00", b"", 2, {"a": "b"})
    assert record.sequence is None


@pytest.mark.parametrize("topic", ["", "requests", "trigger_controls", "__delayed", "x" * 250, "a\nb", "notifications"])
def test_topics_that_clients_may_not_write_are_refused(topic: str) -> None:
    with pytest.raises(InvalidRequest):
        record_of(topic, b"x")


@pytest.mark.parametrize(
    ("topic", "message"), [("ticks", _tick()), ("ticks", _batch()), ("ohlc", _bar()), ("trigger_events", _event())]
)
def test_the_ticker_inside_decides_the_partition(topic: str, message: cw.Tick) -> None:
    record = record_of(topic, message.SerializeToString(), key=b"other", partition=1, headers={"a": "b"})
    assert record.partition_key == _TICKER.encode()
    assert record.key == (b"t1" if topic == "trigger_events" else _TICKER.encode())
    assert record.partition is None
    assert not record.headers


def test_a_tick_gets_a_number_and_is_read_back_as_it_was_published() -> None:
    bus = FreshBus(partitions=1)
    values = [_tick(trade_id=str(number)).SerializeToString() for number in range(300)]
    bus.publish("ticks", [record_of("ticks", value) for value in values])
    records = bus.read("ticks", 0, 0)
    assert [record.sequence for record in records] == list(range(1, 301))
    assert [as_published(record) for record in records] == values
    assert all(record.value != value for record, value in zip(records, values, strict=True))


def test_batches_and_bars_are_read_back_with_their_numbers() -> None:
    bus = FreshBus(partitions=1)
    for _ in range(2):
        bus.publish("ticks", [record_of("ticks", _batch(first_sequence=77).SerializeToString())])
        bus.publish("ohlc", [record_of("ohlc", _bar(sequence=77).SerializeToString())])
    bus.publish("trigger_events", [record_of("trigger_events", _event().SerializeToString())])
    batches = [cw.TickBatch.FromString(as_published(record)) for record in bus.read("ticks", 0, 0)]
    bars = [cw.OHLCV.FromString(as_published(record)) for record in bus.read("ohlc", 0, 0)]
    (event,) = (ing.CEPTriggerEvent.FromString(as_published(record)) for record in bus.read("trigger_events", 0, 0))
    assert [batch.first_sequence for batch in batches] == [1, 3]
    assert [bar.sequence for bar in bars] == [1, 2]
    assert dict(event.context) == {"event_id": "e1", "ticker": _TICKER, "sequence": "1"}


def test_fields_of_ingestors_are_removed_from_a_batch() -> None:
    record = record_of("ticks", _batch(clock_ahead=5).SerializeToString())
    assert cw.TickBatch.FromString(record.value) == _batch()


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("ticks", b""),
        ("ticks", b"no message"),
        ("ticks", _bar().SerializeToString()),
        ("ticks", _tick(ticker="GATE").SerializeToString()),
        ("ticks", _tick(ticker="").SerializeToString()),
        ("ticks", _tick(trade_id="").SerializeToString()),
        ("ticks", _tick(timestamp=0).SerializeToString()),
        ("ticks", _tick(timestamp=1_700_000_000).SerializeToString()),
        ("ticks", _tick(timestamp=4_000_000_000_000_000_000).SerializeToString()),
        ("ticks", _tick(price=float("nan")).SerializeToString()),
        ("ticks", _tick(size=-1.0).SerializeToString()),
        ("ticks", _batch(trade_id=["1", ""]).SerializeToString()),
        ("ticks", _batch(price=[1.0]).SerializeToString()),
        ("ohlc", b""),
        ("ohlc", _bar(ticker="").SerializeToString()),
        ("ohlc", _bar(period_seconds=0).SerializeToString()),
        ("ohlc", _bar(open_time=_TIME + 1).SerializeToString()),
        ("ohlc", _bar(high=2.0).SerializeToString()),
        ("ohlc", _bar(volume=float("inf")).SerializeToString()),
        ("trigger_events", _event(trigger_id="").SerializeToString()),
        ("trigger_events", _event(context={}).SerializeToString()),
        ("trigger_events", _event(rows=[ing.ResultRow(values=[])]).SerializeToString()),
        ("trigger_events", _event(rows=[ing.ResultRow(values=[b"\xff"])]).SerializeToString()),
    ],
)
def test_records_that_readers_could_not_decode_are_refused_with_a_sentence(topic: str, value: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        record_of(topic, value)
    assert len(str(refused.value)) > 20


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("ticks", _tick().SerializeToString()),
        ("ticks", _batch().SerializeToString()),
        ("ticks", _batch(exchange_ahead=3_600_000_000_000, clock_ahead=3_600_000_000_000).SerializeToString()),
        ("ohlc", _bar().SerializeToString()),
    ],
)
def test_records_dated_ahead_of_the_platforms_clock_are_refused_with_the_bound(topic: str, value: bytes) -> None:
    record_of(topic, value, now_ns=_TIME - 4_900_000_000)
    with pytest.raises(InvalidRequest, match=r"6\.0 s ahead of the platform's clock, .* ticks.max_ahead_seconds = 5$"):
        record_of(topic, value, now_ns=_TIME - 6_000_000_000)
    record_of(topic, value, now_ns=_TIME - 6_000_000_000, max_ahead_ns=6_100_000_000)


def test_clock_measurements_of_ingestors_are_removed_from_a_batch() -> None:
    record = record_of("ticks", _batch(exchange_ahead=2**60, clock_ahead=1).SerializeToString())
    found = cw.TickBatch.FromString(record.value)
    assert not found.HasField("exchange_ahead") and not found.HasField("clock_ahead") and len(found.price) == 2
