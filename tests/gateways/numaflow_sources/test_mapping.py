"""How payloads become records."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import ConfigurationError, InvalidRequest
from core.settings_gateways import NumaflowSourceSettings
from gateways.numaflow_sources.mapping import PayloadMapping
from tests.gateways.numaflow_sources.source_server import result

TICKER = "BTC/USDT.BINANCE"
NS = 1_000_000_000


def mapping(topic: str = "ticks", **fields: str) -> PayloadMapping:
    return PayloadMapping("s", NumaflowSourceSettings(topic=topic, mapping=fields))


def tick(**fields: object) -> cw.Tick:
    payload = {"ticker": TICKER, "price": 1, "size": 1, **fields}
    record = mapping(ticker="ticker").record(result(b"9", json.dumps(payload).encode(), 3))
    return cw.Tick.FromString(record.value)


@pytest.mark.parametrize(
    ("ts", "nanoseconds"),
    [
        (1_700_000_000, 1_700_000_000 * NS),
        (1_700_000_000.123456, 1_700_000_000_123_456_000),
        (1_700_000_000_123, 1_700_000_000_123_000_000),
        (1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        ("1700000000.123456789", 1_700_000_000_123_456_789),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
        ("2023-11-14T22:13:20", 1_700_000_000 * NS),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500_000_000),
        (None, 1_700_000_000 * NS),
    ],
)
def test_times_are_exact_to_the_nanosecond(ts: object, nanoseconds: int) -> None:
    assert tick(ts=ts).timestamp == nanoseconds


@pytest.mark.parametrize(
    "wrong",
    [
        {"price": None},
        {"price": "much"},
        {"price": True},
        {"price": "NaN"},
        {"price": 10**400},
        {"size": -1},
        {"ticker": "BTCUSDT"},
        {"ticker": 7},
        {"side": "long"},
        {"side": 1},
        {"ts": "yesterday"},
        {"ts": -5},
        {"ts": "1e99999999"},
        {"trade_id": 1.5},
    ],
)
def test_a_field_that_does_not_fit_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        tick(**wrong)


@given(st.binary(max_size=60))
def test_any_payload_becomes_a_record_or_an_error_sentence(payload: bytes) -> None:
    for each in (mapping(), mapping(price="p"), mapping("ohlc")):
        try:
            each.record(result(b"1", payload))
        except InvalidRequest as error:
            assert str(error)


@pytest.mark.parametrize(
    "payload",
    [b'{"price": 1e9999999999999999999}', b"[" * 100_000, b"[1]", b'{"price": NaN}', b"1" * 5_000, b'{"a": "\\ud800"}'],
)
def test_hostile_json_is_a_sentence(payload: bytes) -> None:
    with pytest.raises(InvalidRequest):
        mapping(price="p").record(result(b"1", payload))


@pytest.mark.parametrize(("seconds", "nanos"), [(-62_135_596_800, 0), (2**62, 0), (1, -1), (1, 2 * NS), (10**11, 0)])
def test_an_invalid_event_time_stops_nothing(seconds: int, nanos: int) -> None:
    """The first one is sent by a source in Go that sets no time."""
    fields = {"ticker": TICKER, "price": 1, "size": 1}
    for topic, payload, paths in (
        ("mine", b"any", {}),
        ("ticks", json.dumps(fields | {"ts": 1_700_000_000}).encode(), {"ticker": "ticker"}),
    ):
        record = result(b"1", payload)
        record.event_time.seconds, record.event_time.nanos = seconds, nanos
        assert mapping(topic, **paths).record(record).value
        assert mapping(topic, **paths).dead_letter(record, "no").headers["event_time_ns"] == str(seconds * NS + nanos)
    untimed = result(b"1", json.dumps(fields).encode())
    untimed.event_time.seconds, untimed.event_time.nanos = seconds, nanos
    if not 0 < seconds * NS + nanos < 1 << 63:
        with pytest.raises(InvalidRequest, match="event time"):
            mapping(ticker="ticker").record(untimed)


def test_an_id_and_a_side_come_from_the_payload_or_from_the_offset() -> None:
    assert (tick(trade_id=77).trade_id, tick(trade_id="x").trade_id) == ("77", "x")
    assert tick().trade_id == "s:3:9"
    assert [tick(side=side).side for side in ("Buy", "SELL", None)] == [1, 2, 0]


def test_a_key_of_numaflow_may_be_the_ticker() -> None:
    record = result(b"1", b'{"price": 1, "size": 1}')
    record.keys[:] = ["BINANCE:BTC/USDT"]
    assert mapping(ticker="$key").record(record).key == TICKER.encode()


def test_payloads_of_other_topics_are_records_as_they_are() -> None:
    record = mapping("mine").record(result(b"1", b"\x00anything"))
    assert (record.value, record.key) == (b"\x00anything", b"k")
    assert record.headers == {"h": "v", "event_time_ns": str(1_700_000_000 * NS)}
    bar = cw.OHLCV(ticker=TICKER, open_time=1_700_000_040 * NS, period_seconds=60)
    assert mapping("ohlc").record(result(b"1", bar.SerializeToString())).key == TICKER.encode()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"topic": "requests"}, "topic"),
        ({"topic": "notifications"}, "topic"),
        ({"topic": "ticks", "mapping": {"prize": "p"}}, "prize"),
        ({"topic": "mine", "mapping": {"price": "p"}}, "mapping"),
        ({"topic": "ticks", "dead_letters": "ticks"}, "dead_letters"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        PayloadMapping("s", NumaflowSourceSettings.model_validate(settings))
