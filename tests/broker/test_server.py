"""The broker over real sockets and a memory bus."""

from protobuf import candlewright_pb2 as cw
from protobuf import ingestor_pb2 as ing
from tests.broker.conftest import Stage
from tests.broker.harness import MINUTE, START, minutes


def test_a_foreign_ingestors_candles_become_the_rows_of_the_request(stage: Stage) -> None:
    broker = stage.broker()
    peer = stage.peer(broker)
    peer.offer()
    request_id = stage.client.submit(rows=3)

    job = peer.job()
    assert (job.request_id, job.ticker, job.type) == (request_id, "BTC/USDT.TEST", ing.DataRequest.HISTORICAL_OHLC)
    assert (job.historical.start_time, job.historical.end_time) == (START, START + 3 * MINUTE)
    assert len(job.job_id) == 32
    peer.answer(job, minutes(START, START + 3 * MINUTE))

    end = stage.client.end(request_id)
    assert (end.status, end.rows, end.expected, list(end.holes)) == (ing.HistoryReadyNotification.OK, 3, 3, [])
    [piece] = stage.client.pieces(request_id)
    assert stage.client.rows(piece) == [START, START + MINUTE, START + 2 * MINUTE]
    assert stage.bus.leases() == {}


def test_success_without_rows_is_a_validly_empty_piece(stage: Stage) -> None:
    broker = stage.broker()
    peer = stage.peer(broker)
    peer.offer()
    request_id = stage.client.submit(rows=3)
    peer.complete(peer.job())

    end = stage.client.end(request_id)
    assert (end.status, end.rows, end.expected) == (ing.HistoryReadyNotification.NOT_FOUND, 0, 3)
    assert [(hole.start_time, hole.end_time) for hole in end.holes] == [(START, START + 3 * MINUTE)]


def test_a_native_ingestors_history_end_is_the_result_of_its_piece(stage: Stage) -> None:
    broker = stage.broker()
    peer = stage.peer(broker)
    peer.offer()
    request_id = stage.client.submit(rows=3)
    job = peer.job()
    hole = cw.TimeRange(start_time=START, end_time=START + MINUTE)
    peer.send(
        cw.HistoryEnd(
            job_id=job.job_id,
            partition=2,
            spans=[cw.Span(first_offset=5, last_offset=6)],
            rows=2,
            expected=3,
            holes=[hole],
            exchange_time=START + 10 * MINUTE,
        )
    )
    peer.complete(job)

    end = stage.client.end(request_id)
    assert (end.status, end.rows, end.expected, list(end.holes)) == (ing.HistoryReadyNotification.OK, 2, 3, [hole])
    [piece] = stage.client.pieces(request_id)
    assert (piece.partition, piece.spans[0].first_offset, piece.spans[0].last_offset) == (2, 5, 6)
    assert piece.job_id == job.job_id
