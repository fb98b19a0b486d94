"""Turns ingestors' frames into events, and commands into frames. Raises only BadFrame, whatever arrived."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, cast

from google.protobuf.message import DecodeError, Message

from broker.commands import CancelWork, Dispatch, StopWork
from broker.events import (
    JOB_ID_LENGTH,
    Candle,
    CandlesReceived,
    Connection,
    Event,
    HeartbeatHeard,
    HistoryEnded,
    JobCompleted,
    JobFailed,
    JobProgressed,
    JobRejected,
    Kind,
    PieceResult,
    Range,
    SlotOffered,
    SnapshotReceived,
    TicksReceived,
)
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame
from candlewright.wire.grid import SECOND, other_unit
from candlewright.wire.varint import length
from core.failures import Failure
from protobuf import far_ahead

MAX_VENUES_PER_SLOT = 64
#: Characters of an ingestor's error message that are passed on to a client.
MAX_TEXT = 1_000
#: See `ticks.max_ahead_seconds`.
MAX_AHEAD_NS = 5 * SECOND

_READY = bytes((frames.type_id_of(ing.WorkerReady),))
#: The type id, and the tags of `request_id` and `job_id`.
_DISPATCH_FORM = bytes((frames.DISPATCH,)) + b"\n%b%b:%b%b%b"
_SHORT_BYTES = 256
#: The bytes before and after one of our job ids in the most frequent frame, a success. Any other encoding of it is
#: decoded in the usual way.
_SAMPLE_ID = "0" * JOB_ID_LENGTH
_DONE = frames.encode_body(ing.WorkComplete(job_id=_SAMPLE_ID, success=True))
_DONE_HEAD, _DONE_TAIL = _DONE.split(_SAMPLE_ID.encode())
_DONE_BYTES = len(_DONE)
_KINDS = {
    ing.ANY: (Kind.HISTORICAL, Kind.REALTIME),
    ing.HISTORICAL: (Kind.HISTORICAL,),
    ing.REALTIME: (Kind.REALTIME,),
}


def event_of(
    connection: Connection, parts: Sequence[bytes], at: float, *, wall_ns: int, max_ahead_ns: int = MAX_AHEAD_NS
) -> Event:
    """The event of an ingestor's message. Raises BadFrame."""
    if len(parts) == 2 and parts[0] == frames.VERSION:
        body = parts[1]
        if body[:1] == _READY:
            if len(body) <= _SHORT_BYTES:
                venues, kinds = _slot_of(body)
                return SlotOffered(connection, venues, kinds, at)
        elif len(body) == _DONE_BYTES and body.startswith(_DONE_HEAD) and body.endswith(_DONE_TAIL):
            job_id = body[len(_DONE_HEAD) : -len(_DONE_TAIL)]
            if job_id.isalnum():
                return JobCompleted(connection, job_id.decode(), at)
    message = frames.decode(parts, frames.INGESTOR_TO_BROKER)
    event = _EVENTS[type(message)](connection, message, at, wall_ns)
    return _without_far(event, wall_ns, max_ahead_ns) if isinstance(event, TicksReceived) else event


@lru_cache(maxsize=1_024)
def _slot_of(body: bytes) -> tuple[tuple[str, ...], tuple[Kind, ...]]:
    """The venues and kinds of an offer. Cached, since most offers repeat byte for byte. Raises BadFrame."""
    return _offer(cast(ing.WorkerReady, frames.decode_body(body, frames.INGESTOR_TO_BROKER)))


def _offer(message: ing.WorkerReady) -> tuple[tuple[str, ...], tuple[Kind, ...]]:
    venues = tuple(message.exchanges)
    kinds = _KINDS.get(message.job_type)
    if kinds is None:
        raise BadFrame("INVALID", f"{message.job_type} is not a SlotType")
    if not 1 <= len(venues) <= MAX_VENUES_PER_SLOT or not all(0 < len(venue) <= 64 for venue in venues):
        raise BadFrame("INVALID", f"a slot is for 1 to {MAX_VENUES_PER_SLOT} exchanges")
    return (tuple(sorted(set(venues))) if len(venues) > 1 else venues), kinds


def _slot(connection: Connection, message: ing.WorkerReady, at: float, wall_ns: int) -> Event:
    return SlotOffered(connection, *_offer(message), at)


def _complete(connection: Connection, message: ing.WorkComplete, at: float, wall_ns: int) -> Event:
    if message.success:
        return JobCompleted(connection, message.job_id, at)
    return JobFailed(connection, message.job_id, _failure(message.error_message), at)


def _failure(text: str) -> Failure:
    return Failure.parse(text[:MAX_TEXT])


def _heartbeat(connection: Connection, message: ing.WorkHeartbeat, at: float, wall_ns: int) -> Event:
    return HeartbeatHeard(connection, message.job_id, at)


def _reject(connection: Connection, message: ing.WorkReject, at: float, wall_ns: int) -> Event:
    return JobRejected(connection, message.job_id, _failure(message.reason), at)


def _progress(connection: Connection, message: cw.WorkProgress, at: float, wall_ns: int) -> Event:
    return JobProgressed(connection, message.job_id, message.done_candles, at)


def _history_end(connection: Connection, message: cw.HistoryEnd, at: float, wall_ns: int) -> Event:
    spans = tuple((span.first_offset, span.last_offset) for span in message.spans)
    holes = tuple((hole.start_time, hole.end_time) for hole in message.holes)
    if any(first > last for first, last in spans) or any(start >= end for start, end in holes):
        raise BadFrame("INVALID", "a span or hole ends before it begins")
    if bool(message.rows) != bool(spans):
        raise BadFrame("INVALID", f"{message.rows} rows in {len(spans)} spans")
    result = PieceResult(
        partition=message.partition,
        spans=spans,
        rows=message.rows,
        expected=message.expected,
        holes=holes,
        exchange_time=message.exchange_time,
        reason=message.reason,
        closed_until=message.closed_until,
    )
    return HistoryEnded(connection, message.job_id, result, at)


def _data_response(connection: Connection, message: ing.DataResponse, at: float, wall_ns: int) -> Event:
    candles: list[Candle] = []
    periods: set[int] = set()
    tickers: set[str] = set()
    problem = ""
    if message.status == ing.DataResponse.ERROR:
        problem = message.error_message[:MAX_TEXT] or "the ingestor answered with status ERROR"
    for index, entry in enumerate(message.ohlc_data):
        try:
            row = cw.OHLCV.FromString(entry)
        except DecodeError:
            problem = problem or f"entry {index} of ohlc_data is not an OHLCV"
            break
        candles.append(_candle(row))
        periods.add(row.period_seconds)
        tickers.add(row.ticker)
    return CandlesReceived(
        connection=connection,
        dispatched_id=message.request_id,
        candles=tuple(candles),
        period_seconds=frozenset(periods - {0}),
        tickers=frozenset(tickers - {""}),
        total_records=message.total_records,
        problem=problem,
        at=at,
    )


def _candle(row: cw.OHLCV) -> Candle:
    return Candle(
        row.open_time,
        row.open,
        row.high,
        row.low,
        row.close,
        row.volume,
        row.quote_volume if row.HasField("quote_volume") else None,
        row.trade_count if row.HasField("trade_count") else None,
        is_complete=row.complete,
    )


def _snapshot(connection: Connection, message: cw.Snapshot, at: float, wall_ns: int) -> Event:
    message.ClearField("sequence")
    return SnapshotReceived(connection, message, at)


def _tick(connection: Connection, message: cw.Tick, at: float, wall_ns: int) -> Event:
    batch = cw.TickBatch(
        ticker=message.ticker,
        timestamp=[message.timestamp],
        price=[message.price],
        size=[message.size],
        side=[message.side],
        trade_id=[message.trade_id],
        received_at=[message.received_at],
    )
    return _tick_batch(connection, batch, at, wall_ns)


def _tick_batch(connection: Connection, message: cw.TickBatch, at: float, wall_ns: int) -> Event:
    ticks = len(message.timestamp)
    if not message.side:
        message.side.extend([cw.UNKNOWN] * ticks)
    if not message.received_at:
        message.received_at.extend([wall_ns] * ticks)
    columns = (message.price, message.size, message.trade_id, message.side, message.received_at)
    if not ticks or any(len(column) != ticks for column in columns):
        raise BadFrame("INVALID", "the columns of a TickBatch have the same length, which is not 0")
    if not all(map(isfinite, message.price)) or not all(map(isfinite, message.size)):
        raise BadFrame("INVALID", "a price or size is not finite")
    if min(message.size) < 0:
        raise BadFrame("INVALID", "a size is negative")
    if (unit := other_unit(oldest := min(message.timestamp))) is not None:
        raise BadFrame("INVALID", f"the time {oldest} looks like {unit}; times are nanoseconds since 1970, UTC")
    if not all(message.trade_id):
        raise BadFrame("INVALID", "a tick without a trade_id cannot be distinguished from another")
    for field in ("first_sequence", "exchange_ahead"):
        message.ClearField(field)
    return TicksReceived(connection, message, at)


def _without_far(event: TicksReceived, wall_ns: int, max_ahead_ns: int) -> TicksReceived:
    """The event without ticks too far ahead. A foreign ingestor does not report the exchange's clock, so ours
    applies.
    """
    batch = event.batch
    allowed = far_ahead.newest_allowed(wall_ns, 0, None, max_ahead_ns=max_ahead_ns)
    newest = max(batch.timestamp)
    if newest <= allowed:
        return event
    far = [row for row, time in enumerate(batch.timestamp) if time > allowed]
    sound = [row for row, time in enumerate(batch.timestamp) if time <= allowed]
    reason = far_ahead.reason_of(batch.ticker, newest, allowed, max_ahead_ns=max_ahead_ns)
    return event._replace(batch=_rows(batch, sound), far=_rows(batch, far), reason=reason)


def _rows(batch: cw.TickBatch, rows: Sequence[int]) -> cw.TickBatch:
    return cw.TickBatch(
        ticker=batch.ticker,
        timestamp=[batch.timestamp[row] for row in rows],
        price=[batch.price[row] for row in rows],
        size=[batch.size[row] for row in rows],
        side=[batch.side[row] for row in rows],
        trade_id=[batch.trade_id[row] for row in rows],
        received_at=[batch.received_at[row] for row in rows],
        clock_ahead=batch.clock_ahead if batch.HasField("clock_ahead") else None,
    )


_EVENTS: dict[type[Message], Callable[[Connection, Any, float, int], Event]] = {
    ing.WorkerReady: _slot,
    ing.WorkComplete: _complete,
    ing.WorkHeartbeat: _heartbeat,
    ing.WorkReject: _reject,
    ing.DataResponse: _data_response,
    cw.WorkProgress: _progress,
    cw.HistoryEnd: _history_end,
    cw.Snapshot: _snapshot,
    cw.Tick: _tick,
    cw.TickBatch: _tick_batch,
}


def dispatch_body(command: Dispatch) -> bytes:
    """The body of the frame that gives a job to an ingestor."""
    asked = command.request
    # Serialised messages may be concatenated, so what many dispatches have in common is serialised once.
    request_id, job_id = command.note.dispatched_id.encode(), command.job_id.encode()
    body = _DISPATCH_FORM % (
        length(len(request_id)), request_id, length(len(job_id)), job_id,
        _subject(asked.type, asked.ticker, asked.client_id),
    )  # fmt: skip
    if asked.period_seconds:
        return body + _range(command.note.part, asked.period_seconds, command.limit)
    if asked.type == ing.DataRequest.REALTIME_TICKS:
        # Bars are made from ticks, so ticks are always wanted.
        periods = asked.ohlc_period_seconds
        realtime = ing.RealtimeParams(include_ticks=True, include_ohlc=bool(periods), ohlc_period_seconds=periods)
        return body + ing.DataRequest(realtime=realtime).SerializeToString()
    return body


@lru_cache(maxsize=10_000)
def _subject(kind: ing.DataRequest.RequestType, ticker: str, client_id: str) -> bytes:
    return ing.DataRequest(type=kind, ticker=ticker, client_id=client_id or None).SerializeToString()


@lru_cache(maxsize=10_000)
def _range(part: Range, period_seconds: int, limit: int | None) -> bytes:
    start, end = part
    historical = ing.HistoricalParams(start_time=start, end_time=end, period_seconds=period_seconds, limit=limit)
    return ing.DataRequest(historical=historical).SerializeToString()


def stop_body(command: StopWork) -> bytes:
    return frames.encode_body(ing.WorkStop(job_id=command.job_id))


def cancel_body(command: CancelWork) -> bytes:
    return frames.encode_body(ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=command.dispatched_id))


HEARTBEAT_BODY = frames.encode_body(ing.IngestorControl(action=ing.IngestorControl.HEARTBEAT))
