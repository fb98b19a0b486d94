"""Snapshots and realtime ticks."""

import time
from functools import partial
from typing import Any

import pytest

from broker.journal.writer import TABLE_REALTIME
from bus import topics
from bus.dead_letters import kept
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from tests.broker.conftest import Stage
from tests.broker.harness import eventually

TICKER = "BTC/USDT.TEST"


def realtime(request_id: str, ticker: str = TICKER) -> ing.DataRequest:
    return ing.DataRequest(
        request_id=request_id,
        type=ing.DataRequest.REALTIME_TICKS,
        ticker=ticker,
        realtime=ing.RealtimeParams(include_ticks=True),
    )


def batch(*trade_ids: str) -> cw.TickBatch:
    return cw.TickBatch(
        ticker=TICKER,
        timestamp=[1] * len(trade_ids),
        price=[1.5] * len(trade_ids),
        size=[2.0] * len(trade_ids),
        trade_id=trade_ids,
    )


def stored(stage: Stage, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(stage.bus.partitions(topic)):
        found.extend(record.value for record in stage.bus.read(topic, partition, 0))
    return found


def state_of(stage: Stage, request_id: str) -> cw.RequestState:
    [value] = stage.bus.get(topics.TABLE_REQUEST_STATES, [request_id])
    return cw.RequestState.FromString(value or b"")


def is_done(stage: Stage, request_id: str) -> bool:
    return state_of(stage, request_id).state == "done"


def test_a_snapshot_is_published_once_with_its_sequence(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer(slots=2)
    for number in (1, 2):
        request_id = f"snapshot-{number}"
        stage.client.ask(ing.DataRequest(request_id=request_id, type=ing.DataRequest.TICKER_SNAPSHOT, ticker=TICKER))
        job = peer.job()
        assert (job.type, job.request_id) == (ing.DataRequest.TICKER_SNAPSHOT, request_id)
        peer.send(cw.Snapshot(ticker=TICKER, last=1.5, request_id=request_id))
        peer.complete(job)
        eventually(partial(is_done, stage, request_id))
    found = [cw.Snapshot.FromString(value) for value in stored(stage, topics.SNAPSHOTS)]
    assert [(one.request_id, one.sequence, one.last) for one in found] == [
        ("snapshot-1", 1, 1.5),
        ("snapshot-2", 2, 1.5),
    ]


def test_a_failed_snapshot_says_why(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer()
    stage.client.ask(ing.DataRequest(request_id="s", type=ing.DataRequest.TICKER_SNAPSHOT, ticker=TICKER))
    peer.complete(peer.job(), "UNKNOWN_TICKER: not listed")
    eventually(lambda: state_of(stage, "s").state == "done")
    assert state_of(stage, "s").notification.error_message == "UNKNOWN_TICKER: not listed"


def test_ticks_of_a_foreign_ingestor_are_numbered_and_published(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer(kind=ing.REALTIME)
    stage.client.ask(realtime("live"))
    job = peer.job()
    assert (job.type, job.request_id, job.realtime.include_ticks) == (ing.DataRequest.REALTIME_TICKS, "live", True)
    peer.send(batch("1", "2"))
    peer.send(batch("3"))
    peer.send(cw.Tick(ticker=TICKER, trade_id="4", timestamp=1, price=1.0, size=1.0))
    eventually(lambda: len(stored(stage, topics.TICKS)) == 3)
    found = [cw.TickBatch.FromString(value) for value in stored(stage, topics.TICKS)]
    assert [(list(one.trade_id), one.first_sequence) for one in found] == [(["1", "2"], 1), (["3"], 3), (["4"], 4)]


@pytest.mark.parametrize(
    ("spoiled", "sentence"),
    [
        ({"timestamp": [time.time_ns() // 10**9] * 2}, "looks like seconds"),
        ({"timestamp": [time.time_ns(), time.time_ns() // 10**6]}, "looks like milliseconds"),
        ({"size": [1.0, -1.0]}, "a size is negative"),
        ({"price": [1.0, float("nan")]}, "not finite"),
        ({"size": [float("inf"), 1.0]}, "not finite"),
        ({"trade_id": ["1", ""]}, "without a trade_id"),
        ({"trade_id": ["1"]}, "the same length"),
    ],
)
def test_a_batch_of_bad_trades_is_refused_whole_and_the_job_continues(
    stage: Stage, spoiled: dict[str, Any], sentence: str
) -> None:
    peer = stage.peer(stage.broker())
    peer.offer(kind=ing.REALTIME)
    stage.client.ask(realtime("live"))
    peer.job()
    now = time.time_ns()
    good: dict[str, Any] = {
        "ticker": TICKER,
        "timestamp": [now, now],
        "price": [1.0] * 2,
        "size": [1.0] * 2,
        "trade_id": ["1", "2"],
    }
    peer.send(cw.TickBatch(**{**good, **spoiled}))
    answer = peer.receive()
    assert isinstance(answer, cw.Error) and sentence in answer.text
    peer.send(cw.TickBatch(**good))
    eventually(lambda: len(stored(stage, topics.TICKS)) == 1)
    [value] = stored(stage, topics.TICKS)
    assert list(cw.TickBatch.FromString(value).trade_id) == ["1", "2"]


def test_foreign_trades_far_ahead_are_put_aside_and_the_others_are_published(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer(kind=ing.REALTIME)
    stage.client.ask(realtime("live"))
    peer.job()
    now = time.time_ns()
    times = [now, now + 3_500 * 10**9, now + 10**9, 2**64 - 1]
    sent = cw.TickBatch(
        ticker=TICKER, timestamp=times, price=[1.0, 2.0, 3.0, 4.0], size=[1.0] * 4, exchange_ahead=2**60
    )
    sent.trade_id.extend("1234")
    peer.send(sent)
    answer = peer.receive()
    assert isinstance(answer, cw.Error) and answer.code == "FAR_AHEAD" and "ticks.max_ahead_seconds" in answer.text
    eventually(lambda: len(list(kept(stage.bus))) == 1)
    ((_, letter),) = kept(stage.bus)
    assert list(cw.TickBatch.FromString(letter.record).trade_id) == ["2", "4"]
    assert (letter.part, letter.topic, letter.key) == ("broker", topics.TICKS, TICKER.encode())
    eventually(lambda: len(stored(stage, topics.TICKS)) == 1)
    [value] = stored(stage, topics.TICKS)
    published = cw.TickBatch.FromString(value)
    assert list(published.trade_id) == ["1", "3"] and not published.HasField("exchange_ahead")


def clocks(stage: Stage) -> list[rec.Clock]:
    found = [rec.TickMark.FromString(value) for value in stored(stage, topics.TICK_MARKS)]
    return [mark.clock for mark in found if mark.WhichOneof("body") == "clock"]


def test_time_continues_for_a_foreign_market_that_fell_silent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.requests.realtime.QUIET_SECONDS", 0.2)
    peer = stage.peer(stage.broker())
    peer.offer(kind=ing.REALTIME)
    stage.client.ask(realtime("live"))
    peer.job()
    newest = time.time_ns()
    sent = cw.TickBatch(ticker=TICKER, timestamp=[newest, newest - 5], price=[1.0] * 2, size=[1.0] * 2)
    sent.trade_id.extend(["1", "2"])
    peer.send(sent)
    eventually(lambda: len(clocks(stage)) >= 3)
    times = [clock.exchange_time for clock in clocks(stage)]
    assert newest < times[0] and times == sorted(set(times)) and times[-1] <= time.time_ns()
    assert {clock.sequence for clock in clocks(stage)} == {2}


def test_two_requests_share_one_job_until_the_last_is_cancelled(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer(kind=ing.REALTIME, slots=2)
    stage.client.ask(realtime("first"))
    job = peer.job()
    stage.client.ask(realtime("second"))
    assert peer.receive(0.3) is None
    stage.client.cancel("first")
    eventually(lambda: state_of(stage, "first").state == "done")
    peer.send(batch("1"))
    eventually(lambda: len(stored(stage, topics.TICKS)) == 1)
    stage.client.cancel("second")
    told = [peer.receive(), peer.receive()]
    assert ing.WorkStop(job_id=job.job_id) in told
    peer.send(batch("2"))
    peer.send(ing.WorkHeartbeat(job_id=job.job_id))
    assert peer.receive() == ing.WorkStop(job_id=job.job_id)
    assert len(stored(stage, topics.TICKS)) == 1


def test_realtime_requests_that_are_never_cancelled_fill_neither_memory_nor_their_table(stage: Stage) -> None:
    broker = stage.broker(max_slots=3)
    for number in range(6):
        stage.client.ask(realtime(f"live-{number}"))
    eventually(lambda: is_done(stage, "live-5"))
    assert set(stage.bus.items(TABLE_REALTIME)) == {"live-0", "live-1", "live-2"}
    assert len(broker.server.state.requests) == 3
    assert "broker.max_slots allows no more" in state_of(stage, "live-3").notification.error_message
    # There is room again once one ends, and other clients can request history meanwhile.
    stage.client.cancel("live-0")
    eventually(lambda: is_done(stage, "live-0"))
    stage.client.ask(realtime("again"))
    eventually(lambda: set(stage.bus.items(TABLE_REALTIME)) == {"live-1", "live-2", "again"})


def test_a_realtime_job_whose_lease_is_lost_goes_to_another_connection(stage: Stage) -> None:
    broker = stage.broker(lease_seconds=0.6, heartbeat_seconds=0.2)
    frozen, other = stage.peer(broker), stage.peer(broker)
    frozen.offer(kind=ing.REALTIME)
    stage.client.ask(realtime("live"))
    lost = frozen.job()
    other.offer(kind=ing.REALTIME)
    again = other.job()
    assert again.job_id != lost.job_id
    frozen.send(batch("late"))
    other.send(batch("1"))
    eventually(lambda: len(stored(stage, topics.TICKS)) == 1)
    [value] = stored(stage, topics.TICKS)
    assert list(cw.TickBatch.FromString(value).trade_id) == ["1"]


def test_a_realtime_request_outlives_the_broker(stage: Stage) -> None:
    broker = stage.broker()
    stage.client.ask(realtime("live"))
    stage.client.ask(realtime("over", "ETH/USDT.TEST"))
    stage.client.cancel("over")
    eventually(lambda: state_of(stage, "over").state == "done")
    broker.stop()
    peer = stage.peer(stage.broker())
    peer.offer(kind=ing.REALTIME, slots=2)
    assert peer.job().request_id == "live"
    assert peer.receive(0.3) is None
