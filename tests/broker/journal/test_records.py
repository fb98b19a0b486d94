"""Outcomes are put together from parts that are serialised once."""

from hypothesis import given
from hypothesis import strategies as st

from broker.commands import PublishPieceDone, PublishRequestDone
from broker.events import Final, PieceResult
from broker.journal.records import outcome_records
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
COUNTS = st.integers(0, 1 << 40)
TIMES = st.integers(0, 1 << 62)
PERIODS = st.integers(0, 1 << 31)
RANGES = st.lists(st.tuples(TIMES, TIMES), max_size=3).map(tuple)
SPANS = st.lists(st.tuples(COUNTS, COUNTS), max_size=3).map(tuple)


def holes_of(ranges: tuple[tuple[int, int], ...]) -> list[cw.TimeRange]:
    return [cw.TimeRange(start_time=start, end_time=end) for start, end in ranges]


@given(
    command=st.builds(
        PublishPieceDone,
        request_id=NAMES,
        number=st.integers(0, 1_000),
        job_id=NAMES,
        ticker=NAMES,
        period_seconds=PERIODS,
        start=TIMES,
        end=TIMES,
        result=st.builds(
            PieceResult,
            partition=st.integers(0, 100),
            spans=SPANS,
            rows=st.integers(1, 1 << 40),
            expected=COUNTS,
            holes=RANGES,
            reason=NAMES,
        )
        | st.builds(
            PieceResult, partition=st.just(0), spans=st.just(()), rows=st.just(0), expected=COUNTS, holes=RANGES
        ),
        is_proven=st.booleans(),
    )
)
def test_an_accepted_piece_is_stored_whole(command: PublishPieceDone) -> None:
    result = command.result
    piece = rec.PieceDone(
        request_id=command.request_id,
        piece=command.number,
        job_id=command.job_id,
        ticker=command.ticker,
        period_seconds=command.period_seconds,
        start_time=command.start,
        end_time=command.end,
        partition=result.partition,
        spans=[cw.Span(first_offset=first, last_offset=last) for first, last in result.spans],
        rows=result.rows,
        expected=result.expected,
        holes=holes_of(result.holes),
        reason=result.reason,
        is_proven=command.is_proven,
    )
    (record,) = outcome_records([command])
    assert rec.HistoryOutcome.FromString(record.value) == rec.HistoryOutcome(piece=piece)
    assert record.key == command.ticker.encode()


@given(
    command=st.builds(
        PublishRequestDone,
        request_id=NAMES,
        ticker=NAMES,
        period_seconds=PERIODS,
        start=TIMES,
        end=TIMES,
        status=st.sampled_from(Final),
        error_message=NAMES,
        rows=COUNTS,
        expected=COUNTS,
        holes=RANGES,
        client_id=NAMES,
        closed_until=TIMES,
    )
)
def test_the_end_of_a_request_is_stored_whole(command: PublishRequestDone) -> None:
    request = rec.RequestDone(
        request_id=command.request_id,
        ticker=command.ticker,
        period_seconds=command.period_seconds,
        start_time=command.start,
        end_time=command.end,
        status=ing.HistoryReadyNotification.NotificationStatus.Value(command.status.value),
        error_message=command.error_message,
        rows=command.rows,
        expected=command.expected,
        holes=holes_of(command.holes),
        client_id=command.client_id,
        closed_until=command.closed_until,
    )
    (record,) = outcome_records([command])
    assert rec.HistoryOutcome.FromString(record.value) == rec.HistoryOutcome(request=request)
    assert record.key == command.ticker.encode()
