"""The broker's connections: bad frames, limits, heartbeats, controls, peers that disconnect."""

import pytest

from bus import topics
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from core.metrics import REGISTRY
from protobuf import records_pb2 as rec
from tests.broker.conftest import Stage
from tests.broker.harness import MINUTE, START, eventually, minutes

READY = ing.WorkerReady(exchanges=["TEST"], job_type=ing.HISTORICAL).SerializeToString()


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ((b"",), "MALFORMED"),
        ((b"\x02", b"\x20" + READY), "UNKNOWN_VERSION"),
        ((b"\x01",), "MALFORMED"),
        ((b"\x01", b""), "MALFORMED"),
        ((b"\x01", b"\xee"), "UNKNOWN_TYPE"),
        ((b"\x01", b"\x10"), "UNEXPECTED_TYPE"),
        ((b"\x01", b"\x20\xff\xff"), "MALFORMED"),
        ((b"\x01", b"\x20" + READY, b"more"), "MALFORMED"),
        ((b"\x01", b"\x22" + b"\x0a\xff\x7f" + b"x" * 10_000), "TOO_LARGE"),
        (tuple(b"x" for _ in range(10_000)), "MALFORMED"),
        ((b"\x01", b"\x20" + ing.WorkerReady(job_type=ing.HISTORICAL).SerializeToString()), "INVALID"),
        ((b"\x01", b"\x20" + READY + b"\x10\x07"), "INVALID"),
        ((b"\x01", b"\x42" + cw.TickBatch(ticker="A/B.TEST", timestamp=[1, 2]).SerializeToString()), "INVALID"),
    ],
)
def test_a_bad_frame_costs_its_sender_one_error(stage: Stage, parts: tuple[bytes, ...], code: str) -> None:
    peer = stage.peer(stage.broker())
    peer.send_raw(*parts)
    answer = peer.receive()
    assert isinstance(answer, cw.Error)
    assert answer.code == code
    peer.offer()
    request_id = stage.client.submit(rows=3)
    peer.answer(peer.job(), minutes(START, START + 3 * MINUTE))
    assert stage.client.end(request_id).rows == 3


def test_a_frame_over_the_sockets_limit_costs_only_the_connection(stage: Stage) -> None:
    broker = stage.broker()
    rude, other = stage.peer(broker), stage.peer(broker)
    rude.send_raw(b"\x01", bytes(18 << 20))
    other.offer()
    request_id = stage.client.submit(rows=3)
    other.answer(other.job(), minutes(START, START + 3 * MINUTE))
    assert stage.client.end(request_id).rows == 3


def refused(code: str) -> float:
    return REGISTRY.get_sample_value("candlewright_broker_refused_total", {"code": code}) or 0.0


def test_slots_and_connections_are_limited(stage: Stage) -> None:
    before = [refused(code) for code in ("TOO_MANY_SLOTS", "TOO_MANY_CONNECTIONS")]
    broker = stage.broker(max_slots=2, max_connections=1)
    peer, late = stage.peer(broker), stage.peer(broker)
    peer.offer(slots=3)
    answer = peer.receive()
    assert isinstance(answer, cw.Error)
    assert answer.code == "TOO_MANY_SLOTS"
    late.offer()
    answer = late.receive()
    assert isinstance(answer, cw.Error)
    assert answer.code == "TOO_MANY_CONNECTIONS"
    after = [refused(code) for code in ("TOO_MANY_SLOTS", "TOO_MANY_CONNECTIONS")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1]


def test_every_connection_gets_heartbeats(stage: Stage) -> None:
    broker = stage.broker(heartbeat_seconds=0.1)
    for peer in (stage.peer(broker), stage.peer(broker)):
        peer.offer()
        for _ in range(3):
            assert peer.receive(heartbeats=True) == ing.IngestorControl(action=ing.IngestorControl.HEARTBEAT)


def test_shutdown_and_new_configuration_are_passed_on(stage: Stage) -> None:
    broker = stage.broker()
    peer = stage.peer(broker)
    peer.offer()
    eventually(lambda: broker.server.state.slots.total == 1)
    update = ing.IngestorControl(action=ing.IngestorControl.CONFIG_UPDATE)
    update.config.max_concurrent = 2
    stage.client.control(update)
    assert peer.receive() == update
    stage.client.control(ing.IngestorControl(action=ing.IngestorControl.SHUTDOWN))
    assert peer.receive() == ing.IngestorControl(action=ing.IngestorControl.SHUTDOWN)


def test_slots_of_a_connection_that_is_gone_are_dropped(stage: Stage) -> None:
    broker = stage.broker(heartbeat_seconds=0.1)
    gone = stage.peer(broker)
    gone.offer(slots=5)
    eventually(lambda: broker.server.state.slots.total == 5)
    gone.close()
    eventually(lambda: broker.server.state.slots.total == 0)
    other = stage.peer(broker)
    other.offer()
    request_id = stage.client.submit()
    assert other.job().request_id == request_id


def test_a_heartbeat_of_an_unknown_job_is_answered_by_a_stop(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.send(ing.WorkHeartbeat(job_id="unknown"))
    assert peer.receive() == ing.WorkStop(job_id="unknown")


def test_a_stranger_cannot_complete_a_job(stage: Stage) -> None:
    broker = stage.broker()
    peer, stranger = stage.peer(broker), stage.peer(broker)
    peer.offer()
    request_id = stage.client.submit(rows=3)
    job = peer.job()
    stranger.complete(job)
    stranger.send(ing.WorkHeartbeat(job_id=job.job_id))
    assert stranger.receive() == ing.WorkStop(job_id=job.job_id)
    peer.answer(job, minutes(START, START + 3 * MINUTE))
    assert stage.client.end(request_id).rows == 3


def test_a_slot_of_several_venues_takes_any_of_them_once(stage: Stage) -> None:
    broker = stage.broker()
    peer = stage.peer(broker)
    peer.send(ing.WorkerReady(exchanges=["ONE", "TWO"], job_type=ing.ANY))
    first = stage.client.submit(ticker="A/B.TWO")
    assert peer.job().request_id == first
    stage.client.submit(ticker="A/B.ONE")
    assert peer.receive(0.3) is None


def served(stage: Stage) -> tuple[list[str], list[str]] | None:
    """The venues with historical and with realtime slots, according to the bus."""
    (value,) = stage.bus.get(topics.TABLE_SERVED, [topics.SERVED_KEY])
    if value is None:
        return None
    found = rec.ServedVenues.FromString(value)
    return list(found.historical), list(found.realtime)


def test_the_bus_names_the_venues_that_slots_are_offered_for(stage: Stage) -> None:
    broker = stage.broker()
    eventually(lambda: served(stage) == ([], []))
    first, second = stage.peer(broker), stage.peer(broker)
    first.offer("KRAKEN", slots=2)
    second.offer("OKX", ing.REALTIME)
    eventually(lambda: served(stage) == (["KRAKEN"], ["OKX"]))
    # A busy slot still counts for its venue.
    stage.client.submit(rows=3, ticker="BTC/USD.KRAKEN")
    stage.client.submit(rows=3, ticker="BTC/USD.KRAKEN")
    first.job()
    first.job()
    second.offer("BYBIT", ing.ANY)
    eventually(lambda: served(stage) == (["BYBIT", "KRAKEN"], ["BYBIT", "OKX"]))
    second.close()
    eventually(lambda: served(stage) == (["KRAKEN"], []))
