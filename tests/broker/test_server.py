"""Historical requests through the broker, over real sockets and a bus."""

import threading
import time
from functools import partial

import pytest

from broker.events import HistoricalAccepted
from broker.server import FEW_FRAMES_PER_ROUND, TICK_SECONDS, BrokerServer
from bus import topics
from bus.api import partition_of
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from tests.broker.conftest import Stage
from tests.broker.harness import MINUTE, START, RunningBroker, candle, eventually, minutes

OK = ing.HistoryReadyNotification.OK
NOT_FOUND = ing.HistoryReadyNotification.NOT_FOUND
ERROR = ing.HistoryReadyNotification.ERROR
TIMEOUT = ing.HistoryReadyNotification.TIMEOUT


def has_slots(broker: RunningBroker, count: int) -> bool:
    return broker.server.state.slots.total == count


def test_a_foreign_ingestors_candles_become_the_rows_of_the_request(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer()
    request_id = stage.client.submit(rows=3, client_id="me")

    job = peer.job()
    assert (job.request_id, job.ticker, job.type) == (request_id, "BTC/USDT.TEST", ing.DataRequest.HISTORICAL_OHLC)
    assert (job.historical.start_time, job.historical.end_time) == (START, START + 3 * MINUTE)
    assert (len(job.job_id), job.client_id) == (32, "me")
    peer.answer(job, minutes(START, START + 3 * MINUTE))

    end = stage.client.end(request_id)
    assert (end.status, end.rows, end.expected, list(end.holes), end.client_id) == (OK, 3, 3, [], "me")
    [piece] = stage.client.pieces(request_id)
    assert stage.client.rows(piece) == [START, START + MINUTE, START + 2 * MINUTE]
    eventually(lambda: stage.bus.leases() == {})


def test_success_without_rows_is_a_validly_empty_piece(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer()
    request_id = stage.client.submit(rows=3)
    peer.complete(peer.job())

    end = stage.client.end(request_id)
    assert (end.status, end.rows, end.expected) == (NOT_FOUND, 0, 3)
    assert [(hole.start_time, hole.end_time) for hole in end.holes] == [(START, START + 3 * MINUTE)]


def test_a_native_ingestors_history_end_is_the_result_of_its_piece(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer()
    request_id = stage.client.submit(rows=3)
    job = peer.job()
    hole = cw.TimeRange(start_time=START, end_time=START + MINUTE)
    peer.send(
        cw.HistoryEnd(
            job_id=job.job_id,
            partition=partition_of(job.ticker.encode(), 4),
            spans=[cw.Span(first_offset=5, last_offset=6)],
            rows=2,
            expected=3,
            holes=[hole],
            exchange_time=START + 10 * MINUTE,
            reason="listed late",
        )
    )
    peer.complete(job)

    end = stage.client.end(request_id)
    assert (end.status, end.rows, end.expected, list(end.holes)) == (OK, 2, 3, [hole])
    [piece] = stage.client.pieces(request_id)
    assert (piece.spans[0].first_offset, piece.spans[0].last_offset) == (5, 6)
    assert piece.partition == partition_of(job.ticker.encode(), 4)
    assert (piece.job_id, piece.reason) == (job.job_id, "listed late")


def test_a_result_in_an_unknown_partition_is_refused_and_ends_the_request_as_an_error(stage: Stage) -> None:
    peer = stage.peer(stage.broker(max_attempts=1))
    peer.offer()
    request_id = stage.client.submit(rows=3)
    job = peer.job()
    span = cw.Span(first_offset=0, last_offset=0)
    peer.send(cw.HistoryEnd(job_id=job.job_id, partition=99, spans=[span], rows=3, expected=3))
    refusal = peer.receive()
    assert isinstance(refusal, cw.Error) and "partition 99" in refusal.text
    peer.complete(job)
    end = stage.client.end(request_id)
    assert end.status == ERROR and "partition 99" in end.error_message
    assert stage.client.pieces(request_id) == []


def test_holes_of_a_foreign_result_are_found_and_equal_duplicates_are_harmless(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer()
    request_id = stage.client.submit(rows=6)
    rows = minutes(START, START + 6 * MINUTE)
    peer.answer(peer.job(), [rows[5], rows[1], rows[0], rows[1]])

    end = stage.client.end(request_id)
    assert (end.status, end.rows, end.expected) == (OK, 3, 6)
    assert [(hole.start_time, hole.end_time) for hole in end.holes] == [(START + 2 * MINUTE, START + 5 * MINUTE)]
    [piece] = stage.client.pieces(request_id)
    assert stage.client.rows(piece) == [START, START + MINUTE, START + 5 * MINUTE]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (candle(START - MINUTE), "not one of the asked range"),
        (candle(START + 1), "not one of the asked range"),
        (candle(START, period_seconds=300), "another period"),
        (candle(START, close=float("nan")), "impossible prices"),
        (candle(START, close=9.0), "impossible prices"),
    ],
)
def test_a_bad_candle_fails_the_job_with_the_reason(stage: Stage, row: cw.OHLCV, reason: str) -> None:
    peer = stage.peer(stage.broker(max_attempts=1))
    peer.offer()
    request_id = stage.client.submit(rows=3)
    peer.answer(peer.job(), [row])

    end = stage.client.end(request_id)
    assert end.status == ERROR
    assert reason in end.error_message
    assert "missing [2024-01-01T00:00:00Z, 2024-01-01T00:03:00Z)" in end.error_message


def test_fewer_rows_than_announced_are_not_a_result(stage: Stage) -> None:
    peer = stage.peer(stage.broker(max_attempts=1))
    peer.offer()
    request_id = stage.client.submit(rows=3)
    job = peer.job()
    entry = candle(START).SerializeToString()
    peer.send(ing.DataResponse(request_id=job.request_id, ohlc_data=[entry], total_records=2))
    peer.complete(job)
    assert "2 records announced, 1 received" in stage.client.end(request_id).error_message


def test_a_long_range_is_cut_on_the_absolute_grid_and_added_up(stage: Stage) -> None:
    stage.venue("TEST", candles_per_page=1)
    peer = stage.peer(stage.broker())
    peer.offer(slots=2)
    request_id = stage.client.submit(rows=22, start=START + 5 * MINUTE)
    asked = []
    for _ in range(3):
        job = peer.job()
        asked.append((job.request_id, job.historical.start_time, job.historical.end_time))
        peer.answer(job, minutes(job.historical.start_time, job.historical.end_time))
        peer.offer()

    assert asked == [
        (f"{request_id}#0", START + 5 * MINUTE, START + 10 * MINUTE),
        (f"{request_id}#1", START + 10 * MINUTE, START + 20 * MINUTE),
        (f"{request_id}#2", START + 20 * MINUTE, START + 27 * MINUTE),
    ]
    end = stage.client.end(request_id)
    assert (end.status, end.rows, end.expected, list(end.holes)) == (OK, 22, 22, [])


def test_a_venue_that_keeps_only_its_newest_candles_is_asked_in_one_piece(stage: Stage) -> None:
    stage.venue("TEST", candles_per_page=1, depth=720)
    peer = stage.peer(stage.broker())
    peer.offer(slots=2)
    request_id = stage.client.submit(rows=100)
    job = peer.job()
    assert (job.request_id, job.historical.end_time) == (request_id, START + 100 * MINUTE)


def test_pieces_of_a_limited_request_run_one_after_the_other_with_the_rest_of_the_limit(stage: Stage) -> None:
    stage.venue("TEST", candles_per_page=1)
    peer = stage.peer(stage.broker())
    peer.offer(slots=3)
    request_id = stage.client.submit(rows=100, limit=12)
    first = peer.job()
    assert first.historical.limit == 12
    assert peer.receive(0.3) is None
    peer.answer(first, minutes(START, START + 9 * MINUTE))
    second = peer.job()
    assert (second.historical.start_time, second.historical.limit) == (START + 10 * MINUTE, 3)
    peer.answer(second, minutes(START + 10 * MINUTE, START + 20 * MINUTE))

    end = stage.client.end(request_id)
    assert (end.status, end.rows) == (OK, 12)


def test_a_range_into_the_future_ends_with_the_last_closed_candle(stage: Stage) -> None:
    stage.venue("TEST", candles_per_page=1)
    peer = stage.peer(stage.broker())
    peer.offer(slots=4)
    start = (time.time_ns() // MINUTE - 5) * MINUTE
    request_id = stage.client.submit(rows=10_000_000, start=start)
    while not stage.client.ends(request_id):
        job = peer.receive(0.2)
        if isinstance(job, ing.DataRequest):
            until = min(job.historical.end_time, start + 15 * MINUTE)
            peer.answer(job, minutes(job.historical.start_time, until))
            peer.offer()
    end = stage.client.end(request_id)
    assert (end.status, list(end.holes)) == (OK, [])
    assert end.rows == end.expected == 5


def test_jobs_go_to_the_longest_waiting_slot(stage: Stage) -> None:
    broker = stage.broker()
    peers = [stage.peer(broker) for _ in range(3)]
    for number, peer in enumerate(peers, 1):
        peer.offer()
        eventually(partial(has_slots, broker, number))
    for peer in peers:
        request_id = stage.client.submit()
        assert peer.job().request_id == request_id


def test_clients_take_turns(stage: Stage) -> None:
    broker = stage.broker()
    peer = stage.peer(broker)
    for number in range(6):
        stage.client.submit(request_id=f"many-{number}", client_id="many")
    stage.client.submit(request_id="few-0", client_id="few")
    eventually(lambda: len(broker.server.state.requests) == 7)
    served = []
    for _ in range(4):
        peer.offer()
        job = peer.job()
        served.append(job.request_id)
        peer.complete(job)
    assert "few-0" in served[:2]


def test_a_frozen_workers_job_goes_elsewhere_and_its_late_rows_change_nothing(stage: Stage) -> None:
    broker = stage.broker(lease_seconds=0.6, heartbeat_seconds=0.2)
    frozen, other = stage.peer(broker), stage.peer(broker)
    frozen.offer()
    request_id = stage.client.submit(rows=3)
    lost = frozen.job()
    other.offer()
    again = other.job()
    assert again.job_id != lost.job_id

    stop = frozen.receive()
    assert isinstance(stop, ing.WorkStop)
    assert stop.job_id == lost.job_id
    assert set(stage.bus.leases()) == {again.job_id}
    frozen.answer(lost, minutes(START, START + MINUTE))
    other.answer(again, minutes(START, START + 3 * MINUTE))
    end = stage.client.end(request_id)
    assert (end.status, end.rows) == (OK, 3)
    assert [piece.job_id for piece in stage.client.pieces(request_id)] == [again.job_id]


def test_heartbeats_keep_a_long_job(stage: Stage) -> None:
    broker = stage.broker(lease_seconds=0.6, heartbeat_seconds=0.2)
    peer = stage.peer(broker)
    peer.offer(slots=2)
    request_id = stage.client.submit(rows=3)
    job = peer.job()
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        peer.send(ing.WorkHeartbeat(job_id=job.job_id))
        assert peer.receive(0.2) is None
    peer.answer(job, minutes(START, START + 3 * MINUTE))
    assert stage.client.end(request_id).rows == 3


def test_a_rejected_job_goes_to_another_connection_only(stage: Stage) -> None:
    broker = stage.broker()
    first, second = stage.peer(broker), stage.peer(broker)
    first.offer(slots=2)
    request_id = stage.client.submit(rows=3)
    job = first.job()
    first.send(ing.WorkReject(job_id=job.job_id, reason="busy"))
    assert first.receive(0.5) is None
    second.offer()
    second.answer(second.job(), minutes(START, START + 3 * MINUTE))
    assert stage.client.end(request_id).status == OK


def test_a_job_that_three_ingestors_failed_ends_as_error(stage: Stage) -> None:
    broker = stage.broker()
    request_id = stage.client.submit(rows=3)
    for _ in range(3):
        peer = stage.peer(broker)
        peer.offer()
        peer.send(ing.WorkReject(job_id=peer.job().job_id, reason="I cannot"))
    end = stage.client.end(request_id)
    assert end.status == ERROR
    assert "I cannot" in end.error_message
    assert "3 failed attempts" in end.error_message
    eventually(lambda: stage.bus.leases() == {})


def test_rows_of_accepted_pieces_stay_when_another_piece_fails_permanently(stage: Stage) -> None:
    stage.venue("TEST", candles_per_page=1)
    peer = stage.peer(stage.broker())
    peer.offer(slots=2)
    request_id = stage.client.submit(rows=20)
    first, second = peer.job(), peer.job()
    peer.complete(first, "DEPTH: older than the venue keeps")
    peer.answer(second, minutes(START + 10 * MINUTE, START + 20 * MINUTE))
    end = stage.client.end(request_id)
    assert (end.status, end.rows) == (ERROR, 10)
    assert "DEPTH" in end.error_message
    assert "missing [2024-01-01T00:00:00Z, 2024-01-01T00:10:00Z)" in end.error_message


def test_an_unknown_ticker_is_not_found(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer()
    request_id = stage.client.submit()
    peer.complete(peer.job(), "UNKNOWN_TICKER: BTC/USDT is not listed")
    end = stage.client.end(request_id)
    assert (end.status, end.rows) == (NOT_FOUND, 0)


def test_cancel_ends_a_queued_request(stage: Stage) -> None:
    stage.broker()
    request_id = stage.client.submit()
    stage.client.cancel(request_id)
    end = stage.client.end(request_id)
    assert (end.status, end.error_message) == (ERROR, "cancelled")


def test_cancel_stops_and_fences_a_running_job(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer()
    request_id = stage.client.submit()
    job = peer.job()
    stage.client.cancel(request_id)
    told = [peer.receive(), peer.receive()]
    assert ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=request_id) in told
    assert ing.WorkStop(job_id=job.job_id) in told
    assert stage.client.end(request_id).error_message == "cancelled"
    eventually(lambda: stage.bus.leases() == {})
    peer.answer(job, minutes(START, START + MINUTE))
    peer.offer()
    stage.client.submit(request_id="next")
    assert peer.job().request_id == "next"
    assert stage.client.pieces(request_id) == []


def test_a_request_no_one_serves_times_out_and_reports_it(stage: Stage) -> None:
    stage.broker()
    request_id = stage.client.submit(seconds=0.3)
    end = stage.client.end(request_id)
    assert end.status == TIMEOUT
    assert "no ingestor had a free slot for TEST" in end.error_message


def test_progress_is_shown_in_the_table_of_request_states(stage: Stage) -> None:
    peer = stage.peer(stage.broker())
    peer.offer()
    request_id = stage.client.submit(rows=100)
    job = peer.job()
    peer.send(cw.WorkProgress(job_id=job.job_id, done_candles=40))

    def state() -> cw.RequestState:
        [value] = stage.bus.get(topics.TABLE_REQUEST_STATES, [request_id])
        return cw.RequestState.FromString(value or b"")

    eventually(lambda: state().done_candles == 40)
    assert (state().state, state().expected_candles) == ("running", 100)


def test_the_garbage_collector_leaves_out_many_waiting_requests(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.server.MANY_REQUESTS", 20)
    frozen: list[bool] = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(True))
    monkeypatch.setattr("gc.unfreeze", lambda: frozen.append(False))
    broker = stage.broker()
    requests = broker.server.state.requests
    names = [stage.client.submit(rows=3) for _ in range(40)]
    eventually(lambda: len(requests) == 40 and frozen == [True])
    for name in names[:28]:
        stage.client.cancel(name)
    eventually(lambda: len(requests) == 12)
    held_at = broker.server._held_at
    eventually(lambda: broker.server._held_at > held_at)
    assert frozen == [True]
    more = [stage.client.submit(rows=3) for _ in range(40)]
    eventually(lambda: len(requests) == 52 and frozen == [True, True])
    for name in [*names[28:], *more]:
        stage.client.cancel(name)
    eventually(lambda: frozen == [True, True, False])


def test_a_quiet_broker_wakes_rarely_and_a_request_finds_its_clock_as_it_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[float] = []
    original = BrokerServer._tick

    def tick(server: BrokerServer, now: float) -> None:
        ticks.append(now)
        original(server, now)

    monkeypatch.setattr(BrokerServer, "_tick", tick)
    broker = stage.broker()
    eventually(lambda: len(ticks) > 10)
    assert ticks[10] - ticks[0] > 10 * TICK_SECONDS * 3
    board = broker.server.state._board
    lags: list[float] = []
    handlers = broker.server.state._handlers
    accept = handlers[HistoricalAccepted]
    handlers[HistoricalAccepted] = lambda event: (lags.append(time.monotonic() - board.at), accept(event))
    eventually(lambda: time.monotonic() - ticks[-1] > 1.5 * TICK_SECONDS)
    stage.client.submit(rows=1)
    eventually(lambda: bool(lags))
    assert lags[0] < TICK_SECONDS


def test_the_first_jobs_of_a_burst_are_leased_before_the_last_offers_are_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * FEW_FRAMES_PER_ROUND
    # However busy the machine is, Redis counts as fast.
    monkeypatch.setattr("broker.server.SOON_SECONDS", 60.0)
    leased: list[int] = []
    begin = stage.bus.begin_grant
    monkeypatch.setattr(
        stage.bus, "begin_grant", lambda leases, **also: (leased.append(len(leases)), begin(leases, **also))[1]
    )
    stage.venue("TEST", 1_000)
    broker = stage.broker()
    peer = stage.peer(broker)
    peer.offer()
    stage.client.submit()
    peer.complete(peer.job())
    for _ in range(count):
        stage.client.submit()
    eventually(lambda: len(broker.server.state.requests) == count and not stage.bus.leases())

    reached, gate = threading.Event(), threading.Event()
    original = BrokerServer._tick

    def tick(server: BrokerServer, now: float) -> None:
        reached.set()
        gate.wait()
        original(server, now)

    monkeypatch.setattr(BrokerServer, "_tick", tick)
    reached.wait()
    peer.offer(slots=count)
    # Offers that arrive only later make the first batch smaller.
    gate.wait(0.3)
    leased.clear()
    gate.set()
    assert len({peer.job().job_id for _ in range(count)}) == count
    first = next(filter(None, leased))
    assert first <= FEW_FRAMES_PER_ROUND
