"""Records of the broker's journal on the bus: requests, outcomes, and the notes of leases."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from sys import intern
from typing import Any

import orjson
from google.protobuf.message import DecodeError

from broker.commands import AskProof, PublishPages, PublishPieceDone, PublishRequestDone
from broker.events import (
    AcceptedPiece,
    CancelAsked,
    Candle,
    ControlAsked,
    Demand,
    Event,
    Final,
    HistoricalAccepted,
    LeaseNote,
    ProofFound,
    ProvenRange,
    Range,
    RealtimeAccepted,
    SnapshotAccepted,
)
from bus import topics
from bus.api import Position, Record, StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame
from candlewright.wire.varint import length
from protobuf import records_pb2 as rec
from venues import sound

ROWS_PER_PAGE = 1_000
#: The deadline of a request that has none.
DEFAULT_DEADLINE_NS = 3_600 * 1_000_000_000

_STATUS = {
    Final.OK: ing.HistoryReadyNotification.OK,
    Final.NOT_FOUND: ing.HistoryReadyNotification.NOT_FOUND,
    Final.ERROR: ing.HistoryReadyNotification.ERROR,
    Final.TIMEOUT: ing.HistoryReadyNotification.TIMEOUT,
}


def venue_of(ticker: str) -> str:
    return intern(ticker.rpartition(".")[2])


def event_of(record: StoredRecord) -> Event | None:
    """The event of a record of the topic `requests`; None if it does not concern the broker.

    Raises BadFrame if it is not a valid request.
    """
    message = rec.Request()
    try:
        message.ParseFromString(record.value)
    except DecodeError as error:
        raise BadFrame("BAD_RECORD", "not a Request") from error
    if problem := sound.problem_with_request(message):
        raise BadFrame("BAD_RECORD", problem)
    deadline = message.deadline or (message.accepted_at or record.timestamp_ms * 1_000_000) + DEFAULT_DEADLINE_NS
    body = message.WhichOneof("body")
    if body == "historical":
        asked = message.historical
        # Many requests name the same few tickers and clients; sharing the strings saves memory and time.
        ticker = intern(asked.ticker)
        return HistoricalAccepted(
            request_id=asked.request_id,
            ticker=ticker,
            venue=venue_of(ticker),
            period_seconds=asked.period_seconds,
            start=asked.start_time,
            end=asked.end_time,
            limit=asked.limit if asked.HasField("limit") else None,
            client_id=intern(asked.client_id),
            deadline_ns=deadline,
            offset=record.offset,
            refresh=message.refresh,
            sender=intern(message.sender),
            connection=intern(message.connection),
        )
    if body == "data":
        return _data_event(message.data, deadline, record.offset, message.sender, message.connection)
    if body == "control":
        if message.control.action == ing.IngestorControl.CANCEL:
            return CancelAsked(message.control.request_id)
        return ControlAsked(message.control)
    return None


def unreadable(request_id: str, offset: int) -> HistoricalAccepted:
    """An unreadable request as an event that is refused, without any range."""
    return HistoricalAccepted(
        request_id=request_id,
        ticker="",
        venue="",
        period_seconds=0,
        start=0,
        end=0,
        limit=None,
        client_id="",
        deadline_ns=0,
        offset=offset,
    )


def _data_event(
    asked: ing.DataRequest, deadline: int, offset: int, sender: str = "", connection: str = ""
) -> Event | None:
    venue = venue_of(asked.ticker)
    if asked.type == ing.DataRequest.REALTIME_TICKS:
        return RealtimeAccepted(
            request_id=asked.request_id,
            ticker=asked.ticker,
            venue=venue,
            client_id=asked.client_id,
            include_ohlc=asked.realtime.include_ohlc,
            ohlc_period_seconds=tuple(asked.realtime.ohlc_period_seconds),
            # Subscribers read ticks from the topic; only a client's own request has them stored in the table.
            stores_ticks=asked.realtime.include_ticks and not asked.request_id.startswith(topics.SUBSCRIPTION_PREFIX),
        )
    if asked.type == ing.DataRequest.TICKER_SNAPSHOT:
        return SnapshotAccepted(
            request_id=asked.request_id,
            ticker=asked.ticker,
            venue=venue,
            client_id=asked.client_id,
            deadline_ns=deadline,
            offset=offset,
            sender=sender,
            connection=connection,
        )
    if asked.type == ing.DataRequest.HISTORICAL_OHLC:
        historical = asked.historical
        return HistoricalAccepted(
            request_id=asked.request_id,
            ticker=asked.ticker,
            venue=venue,
            period_seconds=historical.period_seconds,
            start=historical.start_time,
            end=historical.end_time,
            limit=historical.limit if historical.HasField("limit") else None,
            client_id=asked.client_id,
            deadline_ns=deadline,
            offset=offset,
        )
    return None


def realtime_value(request: RealtimeAccepted) -> bytes:
    """A realtime request as it is stored while it runs; `realtime_event` reads it."""
    return ing.DataRequest(
        request_id=request.request_id,
        type=ing.DataRequest.REALTIME_TICKS,
        ticker=request.ticker,
        client_id=request.client_id,
        realtime=ing.RealtimeParams(
            include_ticks=request.stores_ticks,
            include_ohlc=request.include_ohlc,
            ohlc_period_seconds=request.ohlc_period_seconds,
        ),
    ).SerializeToString()


def realtime_event(value: bytes) -> Event | None:
    return _data_event(ing.DataRequest.FromString(value), 0, -1)


def wanted_value(wants: Demand) -> bytes:
    """The needs of a ticker, serialised; empty if there are none."""
    return rec.Wanted(ticks=wants.ticks, period_seconds=wants.period_seconds).SerializeToString()


def mark_record(ticker: str, wanted: bytes) -> Record:
    mark = rec.TickMark(ticker=ticker, wanted=rec.Wanted.FromString(wanted))
    key = ticker.encode()
    return Record(mark.SerializeToString(), key=key, partition_key=key)


def clock_record(ticker: str, exchange_time: int, sequence: int) -> Record:
    """A mark with the exchange's time (ns). `sequence`: the number of the last trade before it."""
    mark = rec.TickMark(ticker=ticker, clock=rec.Clock(exchange_time=exchange_time, sequence=sequence))
    key = ticker.encode()
    return Record(mark.SerializeToString(), key=key, partition_key=key)


def outcome_records(outcomes: Sequence[PublishPieceDone | PublishRequestDone]) -> list[Record]:
    values = [_piece_done(each) if isinstance(each, PublishPieceDone) else _request_done(each) for each in outcomes]
    return list(map(Record, values, [_key(each.ticker) for each in outcomes]))


# Both kinds are encoded for every job. Serialised messages may be concatenated, so what many outcomes have in common is
# serialised once.


def _piece_done(done: PublishPieceDone) -> bytes:
    result = done.result
    holes = result.holes
    hole = holes[0] if len(holes) == 1 else None
    request_id, job_id = done.request_id.encode(), done.job_id.encode()
    body = b"\n%b%b\x1a%b%b%b%b" % (
        length(len(request_id)), request_id, length(len(job_id)), job_id, _ticker(rec.PieceDone, done.ticker),
        _range(rec.PieceDone, done.period_seconds, done.start, done.end, result.expected, hole),
    )  # fmt: skip
    if done.number or result.rows or result.reason or done.is_proven or (holes and hole is None):
        piece = rec.PieceDone(piece=done.number, rows=result.rows, reason=result.reason, is_proven=done.is_proven)
        if result.rows:
            piece.partition = result.partition
        for first, last in result.spans:
            span = piece.spans.add()
            span.first_offset = first
            span.last_offset = last
        if hole is None:
            _add_holes(piece.holes, holes)
        body += piece.SerializeToString()
    return b"\n%b%b" % (length(len(body)), body)


def _request_done(done: PublishRequestDone) -> bytes:
    holes = done.holes
    hole = holes[0] if len(holes) == 1 else None
    request_id = done.request_id.encode()
    body = b"\n%b%b%b%b%b" % (
        length(len(request_id)), request_id, _ticker(rec.RequestDone, done.ticker),
        _range(rec.RequestDone, done.period_seconds, done.start, done.end, done.expected, hole),
        _end_of(done.status, done.client_id),
    )  # fmt: skip
    if done.rows or done.error_message or done.closed_until or (holes and hole is None):
        request = rec.RequestDone(rows=done.rows, error_message=done.error_message, closed_until=done.closed_until)
        if hole is None:
            _add_holes(request.holes, holes)
        body += request.SerializeToString()
    return b"\x12%b%b" % (length(len(body)), body)


@lru_cache(maxsize=10_000)
def _key(ticker: str) -> bytes:
    """Also saves the bus from hashing each key again."""
    return ticker.encode()


@lru_cache(maxsize=10_000)
def _ticker(kind: type[rec.PieceDone] | type[rec.RequestDone], ticker: str) -> bytes:
    return kind(ticker=ticker).SerializeToString()


@lru_cache(maxsize=10_000)
def _range(
    kind: type[rec.PieceDone] | type[rec.RequestDone],
    period_seconds: int,
    start: int,
    end: int,
    expected: int,
    hole: Range | None,
) -> bytes:
    message = kind(period_seconds=period_seconds, start_time=start, end_time=end, expected=expected)
    if hole is not None:
        _add_holes(message.holes, (hole,))
    return message.SerializeToString()


@lru_cache(maxsize=1_000)
def _end_of(status: Final, client_id: str) -> bytes:
    return rec.RequestDone(status=_STATUS[status], client_id=client_id).SerializeToString()


def _add_holes(field: Any, holes: Iterable[Range]) -> None:
    for start, end in holes:
        hole = field.add()
        hole.start_time = start
        hole.end_time = end


def question_record(asked: AskProof) -> Record:
    question = rec.ProofQuestion(
        request_id=asked.request_id,
        ticker=asked.ticker,
        period_seconds=asked.period_seconds,
        ranges=[cw.TimeRange(start_time=start, end_time=end) for start, end in asked.ranges],
        limit=asked.limit,
        deadline=asked.deadline,
    )
    return Record(question.SerializeToString(), key=asked.request_id.encode(), partition=0)


def proof_event(record: StoredRecord) -> ProofFound:
    """The event of a record of `proofs`. Raises BadFrame if it is not a Proof."""
    try:
        proof = rec.Proof.FromString(record.value)
    except DecodeError as error:
        raise BadFrame("BAD_RECORD", "not a Proof") from error
    if problem := sound.problem_with_proof(proof):
        raise BadFrame("BAD_RECORD", problem)
    ranges = tuple(
        ProvenRange(
            each.start_time,
            each.end_time,
            each.rows,
            each.expected,
            tuple((hole.start_time, hole.end_time) for hole in each.holes),
        )
        for each in proof.ranges
    )
    return ProofFound(proof.request_id, ranges)


def accepted_piece(done: rec.PieceDone) -> AcceptedPiece:
    holes = tuple((hole.start_time, hole.end_time) for hole in done.holes)
    return AcceptedPiece(done.piece, done.start_time, done.end_time, done.rows, done.expected, holes)


def progress_value(pieces: Iterable[AcceptedPiece]) -> bytes:
    return orjson.dumps([[p.number, p.start, p.end, p.rows, p.expected, p.holes] for p in pieces])


def progress_of(value: bytes | None) -> list[AcceptedPiece]:
    return [
        AcceptedPiece(number, start, end, rows, expected, tuple((first, last) for first, last in holes))
        for number, start, end, rows, expected, holes in orjson.loads(value or b"[]")
    ]


def page_records(pages: PublishPages) -> Iterator[Record]:
    """Pages of at most ROWS_PER_PAGE candles. An optional column is present for the whole page or not at all."""
    key = pages.ticker.encode()
    for _, group in groupby(pages.candles, key=_optional_columns):
        candles = list(group)
        for index in range(0, len(candles), ROWS_PER_PAGE):
            page = _page(pages, candles[index : index + ROWS_PER_PAGE])
            yield Record(page.SerializeToString(), key=key, partition_key=key)


def _optional_columns(candle: Candle) -> tuple[bool, bool]:
    return candle.quote_volume is not None, candle.trade_count is not None


def _page(pages: PublishPages, candles: list[Candle]) -> rec.HistoryPage:
    return rec.HistoryPage(
        request_id=pages.request_id,
        job_id=pages.job_id,
        ticker=pages.ticker,
        period_seconds=pages.period_seconds,
        source="exchange",
        open_time=[candle.open_time for candle in candles],
        open=[candle.open for candle in candles],
        high=[candle.high for candle in candles],
        low=[candle.low for candle in candles],
        close=[candle.close for candle in candles],
        volume=[candle.volume for candle in candles],
        quote_volume=[candle.quote_volume for candle in candles if candle.quote_volume is not None],
        trade_count=[candle.trade_count for candle in candles if candle.trade_count is not None],
    )


def spans_of(positions: Iterable[Position]) -> tuple[tuple[int, int], ...]:
    """The runs of consecutive offsets, both ends included."""
    spans: list[tuple[int, int]] = []
    for position in positions:
        if spans and spans[-1][1] + 1 == position.offset:
            spans[-1] = (spans[-1][0], position.offset)
        else:
            spans.append((position.offset, position.offset))
    return tuple(spans)


def note_value(note: LeaseNote) -> bytes:
    start, end = note.part
    return orjson.dumps(
        [note.request_id, note.number, start, end, note.attempts, note.dispatched_id, note.realtime_ticker]
    )


def note_of(value: bytes) -> LeaseNote | None:
    """The note in a lease; None if the broker did not write it."""
    try:
        fields = orjson.loads(value)
        request_id, number, start, end, attempts, dispatched_id, ticker = fields
        return LeaseNote(
            request_id=str(request_id),
            attempts=int(attempts),
            dispatched_id=dispatched_id,
            number=int(number),
            part=(int(start), int(end)),
            realtime_ticker=ticker,
        )
    except (orjson.JSONDecodeError, TypeError, ValueError):
        return None
