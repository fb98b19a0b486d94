from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as hyp

from candlewright.wire import ingestor_pb2 as ing
from flink_replacement_spark.history.outcomes import Tally, final_notification, runs, waves
from protobuf import records_pb2 as records

SPANS = hyp.lists(hyp.tuples(hyp.sampled_from("AB"), hyp.integers(0, 40), hyp.integers(1, 10)), max_size=40)


def pieces_of(spans: list[tuple[str, int, int]]) -> list[records.PieceDone]:
    return [
        records.PieceDone(job_id=str(n), ticker=ticker, period_seconds=60, start_time=a, end_time=a + size, rows=size)
        for n, (ticker, a, size) in enumerate(spans)
    ]


@given(SPANS, hyp.integers(1, 60))
def test_waves_keep_the_order_and_hold_no_key_twice(spans: list[tuple[str, int, int]], max_rows: int) -> None:
    pieces = pieces_of(spans)
    found = waves(pieces, max_rows)
    assert [piece.job_id for wave in found for piece in wave] == [piece.job_id for piece in pieces]
    for wave in found:
        keys = [(piece.ticker, time) for piece in wave for time in range(piece.start_time, piece.end_time)]
        assert len(keys) == len(set(keys))
        assert len(wave) == 1 or sum(piece.rows for piece in wave) <= max_rows


@given(SPANS)
def test_runs_are_unbroken_ranges_of_all_pieces(spans: list[tuple[str, int, int]]) -> None:
    for wave in waves(pieces_of(spans), 10**9):
        found = runs(wave)
        assert sorted(p.job_id for run in found for p in run) == sorted(p.job_id for p in wave)
        for run in found:
            assert all(a.end_time == b.start_time and a.ticker == b.ticker for a, b in pairwise(run))


def test_pieces_that_are_near_each_other_are_one_run_up_to_its_size() -> None:
    minute = 60_000_000_000
    pieces = pieces_of([("A", n * 10 * minute, 5 * minute) for n in range(10)])
    assert [len(run) for run in runs(pieces, max_gap=5)] == [10]
    assert [len(run) for run in runs(pieces, max_gap=4)] == [1] * 10
    assert [len(run) for run in runs(pieces, max_gap=5, max_candles=35)] == [4, 4, 2]
    # A single piece that is larger is not cut.
    assert [len(run) for run in runs(pieces, max_gap=5, max_candles=1)] == [1] * 10


@given(hyp.lists(hyp.tuples(hyp.integers(0, 5), hyp.integers(0, 100)), max_size=20))
def test_a_tally_survives_its_encoding_and_repetition(entries: list[tuple[int, int]]) -> None:
    tally = Tally()
    for piece, rows in entries * 2:
        tally = tally.with_piece(piece, rows)
    assert tally.rows == sum(dict(entries).values())
    assert Tally.from_bytes(tally.to_bytes()) == tally


def test_a_piece_found_later_no_longer_has_a_fault() -> None:
    tally = Tally().with_fault(0, "missing").with_piece(0, 3)
    assert (tally.faults, tally.rows) == ({}, 3)


def test_ok_needs_the_exact_number_of_rows() -> None:
    done = records.RequestDone(request_id="r", rows=5, status=ing.HistoryReadyNotification.OK)
    assert final_notification(done, Tally({0: 5}), 1).status == ing.HistoryReadyNotification.OK
    assert final_notification(done, Tally({0: 4}), 1).status == ing.HistoryReadyNotification.ERROR
    assert final_notification(done, Tally({0: 5}, {1: "x"}), 1).error_message == "x"


def test_not_found_with_rows_is_an_error() -> None:
    done = records.RequestDone(request_id="r", rows=5, status=ing.HistoryReadyNotification.NOT_FOUND)
    assert final_notification(done, Tally({0: 5}), 1).status == ing.HistoryReadyNotification.ERROR
