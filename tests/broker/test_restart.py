"""A broker that stops, and the next one over the same bus."""

import pytest

from broker.events import HistoryMeasured
from broker.journal.feed import Feed
from broker.journal.journal import Mark, Replay
from broker.server import BrokerServer
from bus import topics
from bus.api import Lives, Record, partition_of
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import RecordsLost
from core.metrics import REGISTRY
from core.settings import BrokerSettings
from protobuf import records_pb2 as rec
from tests.broker.conftest import Stage
from tests.broker.harness import MINUTE, START, eventually, minutes
from tests.fresh_bus import FreshBus

OK = ing.HistoryReadyNotification.OK


def interrupted(stage: Stage) -> tuple[str, ing.DataRequest]:
    """A request of three minutes, and its job, which was running when the broker stopped."""
    broker = stage.broker()
    peer = stage.peer(broker)
    peer.offer()
    request_id = stage.client.submit(rows=3)
    job = peer.job()
    broker.stop()
    return request_id, job


def test_accepted_requests_and_pieces_outlive_the_broker(stage: Stage) -> None:
    stage.venue("TEST", candles_per_page=1)
    broker = stage.broker()
    peer = stage.peer(broker)
    peer.offer()
    split = stage.client.submit(rows=30)
    waiting = stage.client.submit(rows=5)
    peer.answer(peer.job(), minutes(START, START + 10 * MINUTE))
    eventually(lambda: len(stage.client.pieces(split)) == 1)
    broker.stop()

    peer = stage.peer(stage.broker())
    peer.offer(slots=4)
    for _ in range(3):
        job = peer.job()
        peer.answer(job, minutes(job.historical.start_time, job.historical.end_time))
    assert (stage.client.end(waiting).rows, stage.client.end(split).rows) == (5, 30)
    assert len(stage.client.pieces(split)) == 3


def test_a_job_is_kept_when_its_ingestor_names_it_to_the_next_broker(stage: Stage) -> None:
    request_id, job = interrupted(stage)

    broker = stage.broker(lease_seconds=1.0, heartbeat_seconds=0.2)
    again = stage.peer(broker)
    again.offer()
    again.send(ing.WorkHeartbeat(job_id=job.job_id))
    span = cw.Span(first_offset=0, last_offset=0)
    again.send(
        cw.HistoryEnd(
            job_id=job.job_id, partition=partition_of(job.ticker.encode(), 4), spans=[span], rows=3, expected=3
        )
    )
    again.complete(job)
    end = stage.client.end(request_id)
    assert (end.status, end.rows) == (OK, 3)
    assert [piece.job_id for piece in stage.client.pieces(request_id)] == [job.job_id]
    assert again.receive(0.3) is None


def test_silence_about_rows_is_not_emptiness_after_a_restart(stage: Stage) -> None:
    request_id, job = interrupted(stage)

    peer = stage.peer(stage.broker())
    peer.complete(job)
    peer.offer()
    again = peer.job()
    assert again.job_id != job.job_id
    peer.answer(again, minutes(START, START + 3 * MINUTE))
    assert stage.client.end(request_id).rows == 3


def test_a_job_that_no_ingestor_names_any_more_is_dispatched_again(stage: Stage) -> None:
    request_id, job = interrupted(stage)

    peer = stage.peer(stage.broker(lease_seconds=0.5, heartbeat_seconds=0.2))
    peer.offer()
    again = peer.job()
    assert (again.request_id, again.job_id == job.job_id) == (request_id, False)
    assert set(stage.bus.leases()) == {again.job_id}


def test_leases_of_work_that_is_over_are_revoked_at_the_start(stage: Stage) -> None:
    stage.bus.grant({"stray": b"no note of ours"})
    stage.broker()
    eventually(lambda: stage.bus.leases() == {})


def test_a_request_cancelled_while_no_broker_ran_ends_as_cancelled(stage: Stage) -> None:
    request_id = stage.client.submit()
    stage.client.cancel(request_id)
    stage.broker()
    assert stage.client.end(request_id).error_message == "cancelled"


def test_the_journal_is_held_until_the_final_notification_is_seen(stage: Stage) -> None:
    broker = stage.broker()
    peer = stage.peer(broker)
    peer.offer()
    first = stage.client.submit(rows=3)
    peer.answer(peer.job(), minutes(START, START + 3 * MINUTE))
    [partition] = {piece.partition for piece in _pieces_when_there(stage, first)}

    def held(topic: str) -> dict[int, int]:
        return stage.bus.holds(topic, topics.READER_BROKER)

    assert (held(topics.REQUESTS)[0], held(topics.HISTORY)[partition]) == (0, 0)

    final = ing.HistoryReadyNotification(request_id=first, status=OK)
    stage.bus.publish_once(
        topics.NOTIFICATIONS,
        Record(final.SerializeToString(), key=first.encode()),
        registry=topics.REGISTRY_FINALS,
        name=first,
        content=final.SerializeToString(),
        keep_seconds=60,
    )
    eventually(lambda: held(topics.REQUESTS)[0] == 1)
    # Only the history writer knows that it no longer needs them.
    assert (held(topics.HISTORY)[partition], sum(held(topics.HISTORY_OUTCOMES).values())) == (0, 0)
    ends = {str(p): b"%d" % state.end for p, state in enumerate(stage.bus.state(topics.HISTORY_OUTCOMES))}
    stage.bus.put(topics.TABLE_HISTORY_WRITTEN, ends)
    eventually(lambda: held(topics.HISTORY)[partition] == 1)
    eventually(lambda: sum(held(topics.HISTORY_OUTCOMES).values()) == 2)

    broker.stop()
    after = stage.broker()
    assert (after.server.state.requests, after.server.state.decided) == ({}, {})


def _pieces_when_there(stage: Stage, request_id: str) -> list[rec.PieceDone]:
    stage.client.end(request_id)
    return stage.client.pieces(request_id)


@pytest.mark.parametrize(
    ("has_topic", "reason"),
    [
        (True, r"^the bus has lost records: requests/0 was read up to 5, but is unchanged only up to 1$"),
        (False, r"^the bus has lost records: requests/0 was read up to 5, but is unchanged only up to 0$"),
    ],
)
def test_a_store_that_lost_read_records_ends_the_process(has_topic: bool, reason: str) -> None:
    """Requests accepted from then on would wait until the process has caught up; the next process begins with the
    existing records.
    """
    bus = FreshBus()
    bus.create_topic(topics.NOTIFICATIONS)
    bus.create_topic(topics.HISTORY)
    if has_topic:
        bus.create_topic(topics.REQUESTS, 1)
        bus.publish(topics.REQUESTS, [Record(b"")])
    ends = dict.fromkeys(range(bus.partitions(topics.NOTIFICATIONS)), 0)
    feed = Feed(
        bus,
        Replay(
            events=[],
            next_offset=5,
            notifications=ends,
            outcome_ends={},
            mark=Mark(5, {}),
            measured=HistoryMeasured(0, {}, {}, 0.0),
            unwritten=[],
            lives=Lives(),
        ),
        lambda: None,
    )
    eventually(lambda: feed.failure is not None)
    with pytest.raises(RecordsLost, match=reason):
        feed.take()
    feed.close()


def test_finals_that_were_trimmed_unread_are_counted() -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("candlewright_broker_missed_finals_total") or 0.0

    bus, before = FreshBus(), counted()
    for topic, partitions in ((topics.REQUESTS, 1), (topics.HISTORY, 2), (topics.NOTIFICATIONS, 1)):
        bus.create_topic(topic, partitions)
    bus.publish(topics.NOTIFICATIONS, [Record(b"") for _ in range(3)])
    bus.trim(topics.NOTIFICATIONS, keep_seconds=1e9, keep_bytes=0)
    feed = Feed(
        bus,
        Replay(
            events=[],
            next_offset=0,
            notifications={0: 0},
            outcome_ends={},
            mark=Mark(0, {}),
            measured=HistoryMeasured(0, {}, {}, 0.0),
            unwritten=[],
            lives=Lives(),
        ),
        lambda: None,
    )
    eventually(lambda: counted() - before == 3)
    assert feed.failure is None
    feed.close()


def test_a_broker_starts_over_a_store_that_ends_before_its_holds(stage: Stage) -> None:
    for topic, partitions in ((topics.REQUESTS, 1), (topics.HISTORY_OUTCOMES, 2), (topics.HISTORY, 2)):
        stage.bus.create_topic(topic, partitions)
        stage.bus.hold(topic, topics.READER_BROKER, dict.fromkeys(range(partitions), 7))
    peer = stage.peer(stage.broker())
    peer.offer()
    request_id = stage.client.submit(rows=3)
    job = peer.job()
    peer.answer(job, minutes(job.historical.start_time, job.historical.end_time))
    assert stage.client.end(request_id).rows == 3


def test_a_broker_takes_its_holds_from_a_store_that_lost_records(stage: Stage) -> None:
    """Stale holds would keep the next broker from requests accepted since."""
    server = BrokerServer(BrokerSettings(bind="tcp://127.0.0.1:0"), stage.bus)
    server.start()
    stage.bus.hold(topics.REQUESTS, topics.READER_BROKER, {0: 5})
    server._feed._next_offset = 5
    with pytest.raises(RecordsLost):
        server.run()
    assert stage.bus.holds(topics.REQUESTS, topics.READER_BROKER) == {0: 0}
    # The next process reports it.
    after = stage.broker().server
    eventually(lambda: bool(after.status().warnings))
    (warning,) = after.status().warnings
    assert warning.startswith("Redis lost records of requests/0 0 min ago: offsets 0 to 4 had been read")
