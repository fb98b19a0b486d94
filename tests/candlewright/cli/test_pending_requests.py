"""Requests that have not ended, from the bus."""

from bus import topics
from bus.api import Record
from bus.memory_bus import MemoryBus
from candlewright.cli.pending_requests import unfinished
from protobuf import candlewright_pb2 as cw
from protobuf import ingestor_pb2 as ing
from protobuf import records_pb2 as rec

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
    assert unfinished(MemoryBus()) == []


def test_a_request_that_waits_is_listed_and_one_that_has_ended_is_not() -> None:
    bus = MemoryBus()
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


def test_what_was_trimmed_from_the_topic_is_passed_over() -> None:
    bus = MemoryBus()
    bus.create_topic(topics.REQUESTS, 1)
    bus.publish(topics.REQUESTS, [submitted("old"), submitted("new")])
    bus.hold(topics.REQUESTS, "broker", {0: 1})
    bus.trim(topics.REQUESTS, keep_seconds=0)
    assert [row["request_id"] for row in unfinished(bus)] == ["new"]
