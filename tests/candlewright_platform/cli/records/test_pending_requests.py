"""Requests that have not ended, from the bus."""

from bus import topics
from bus.api import Record
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.cli.records.pending_requests import unfinished
from protobuf import records_pb2 as rec
from tests.fresh_bus import FreshBus

START = 1_704_067_200 * 10**9


def submitted(request_id: str) -> Record:
    request = ing.SubmitHistoricalRequest(
        request_id=request_id,
        ticker="BTC/USDT.KRAKEN",
        start_time=START,
        end_time=START + 86_400 * 10**9,
        period_seconds=60,
    )
    return Record(rec.Request(historical=request).SerializeToString(), key=request_id.encode())


def running(request_id: str, done: int) -> bytes:
    state = cw.RequestState(request_id=request_id, state="running", done_candles=done, expected_candles=1_440)
    return state.SerializeToString()


def test_a_bus_without_requests_has_none() -> None:
    assert unfinished(FreshBus()) == []


def test_a_request_that_waits_is_listed_and_one_that_has_ended_is_not() -> None:
    bus = FreshBus()
    bus.create_topic(topics.REQUESTS, 1)
    control = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id="old")
    cancel = Record(rec.Request(control=control).SerializeToString(), key=b"old")
    bus.publish(topics.REQUESTS, [submitted("old"), submitted("waits"), cancel, submitted("works")])
    bus.publish_once(
        topics.NOTIFICATIONS, Record(b""), registry=topics.REGISTRY_FINALS, name="old", content=b"", keep_seconds=60
    )
    bus.put(topics.TABLE_REQUEST_STATES, {"works": running("works", 3), "live": running("live", 0)})
    rows = unfinished(bus)
    assert [(row["request_id"], row["state"], row["done_candles"]) for row in rows] == [
        ("waits", "queued", 0),
        ("works", "running", 3),
        ("live", "running", 0),
    ]
    assert (rows[0]["ticker"], rows[0]["period"], rows[0]["start"]) == ("BTC/USDT.KRAKEN", "1m", "2024-01-01T00:00:00Z")


def test_trimmed_records_are_skipped() -> None:
    bus = FreshBus()
    bus.create_topic(topics.REQUESTS, 1)
    bus.publish(topics.REQUESTS, [submitted("old"), submitted("new")])
    bus.hold(topics.REQUESTS, "broker", {0: 1})
    bus.trim(topics.REQUESTS, keep_seconds=0)
    assert [row["request_id"] for row in unfinished(bus)] == ["new"]


def test_a_request_without_a_slot_gives_the_reason_for_waiting() -> None:
    bus = FreshBus()
    bus.create_topic(topics.REQUESTS, 1)
    bus.publish(topics.REQUESTS, [submitted("waits")])
    live = ing.DataRequest(
        request_id="live",
        type=ing.DataRequest.REALTIME_TICKS,
        ticker="BTC/USDT.BINANCE",
        realtime=ing.RealtimeParams(include_ohlc=True, ohlc_period_seconds=[60]),
    )
    bus.put(topics.TABLE_REALTIME, {"live": live.SerializeToString()})
    served = rec.ServedVenues(historical=["BINANCE"])
    bus.put(topics.TABLE_SERVED, {topics.SERVED_KEY: served.SerializeToString()})
    rows = unfinished(bus)
    assert [(row["ticker"], row["period"], row["state"], row["reason"]) for row in rows] == [
        ("BTC/USDT.KRAKEN", "1m", "queued", "waiting for a slot of KRAKEN (served now: BINANCE)"),
        ("BTC/USDT.BINANCE", "1m", "queued", "waiting for a slot of BINANCE (served now: none)"),
    ]


def test_an_unreadable_record_hides_no_other_request() -> None:
    bus = FreshBus()
    bus.create_topic(topics.REQUESTS, 1)
    bus.publish(topics.REQUESTS, [Record(b"\xff\x00", key=b"bad"), submitted("good")])
    for table in (topics.TABLE_REQUEST_STATES, topics.TABLE_REALTIME, topics.TABLE_SERVED):
        bus.put(table, {"bad": b"\xff\x00", topics.SERVED_KEY: b"\xff\x00"})
    assert [row["request_id"] for row in unfinished(bus)] == ["good"]
