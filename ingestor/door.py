"""Turns the broker's frames into events. Raises only BadFrame, whatever arrived."""

from collections.abc import Sequence
from dataclasses import replace

from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame, InvalidRequest
from candlewright.wire.ticker import Ticker
from core.failures import Failure, FailureCode
from ingestor.events import Dispatched, DispatchRefused, Job, Kind

_KINDS = {
    ing.DataRequest.HISTORICAL_OHLC: Kind.HISTORICAL,
    ing.DataRequest.REALTIME_TICKS: Kind.REALTIME,
    ing.DataRequest.TICKER_SNAPSHOT: Kind.SNAPSHOT,
}
_MAX_TIME = 1 << 63

FromBroker = ing.DataRequest | ing.WorkStop | ing.IngestorControl | cw.Error


def message_of(parts: Sequence[bytes]) -> FromBroker:
    message: Message = frames.decode(parts, frames.BROKER_TO_INGESTOR)
    if not isinstance(message, (ing.DataRequest, ing.WorkStop, ing.IngestorControl, cw.Error)):
        raise BadFrame("UNEXPECTED_TYPE", f"{message.DESCRIPTOR.name} is not for an ingestor")
    return message


def dispatch_of(connection: int, request: ing.DataRequest, at: float) -> Dispatched | DispatchRefused:
    """A dispatch as a job, or as a refusal with the reason; raises BadFrame for a dispatch without a job id."""
    if not request.job_id:
        raise BadFrame("INVALID", "a dispatch without a job_id", request.request_id)
    try:
        return Dispatched(connection, job_of(request), at)
    except InvalidRequest as error:
        return DispatchRefused(connection, request.job_id, Failure(FailureCode.REFUSED, str(error)), at)


def job_of(request: ing.DataRequest) -> Job:
    """The job of a dispatch. Raises InvalidRequest with the reason why it cannot be done."""
    ticker = Ticker.parse(request.ticker)
    kind = _KINDS.get(request.type)
    if kind is None:
        raise InvalidRequest(f"{request.type} is not a RequestType")
    job = Job(
        job_id=request.job_id,
        request_id=request.request_id,
        ticker=request.ticker,
        venue=ticker.venue,
        symbol=ticker.symbol,
        kind=kind,
    )
    if kind is not Kind.HISTORICAL:
        return job
    asked = request.historical
    if not 0 <= asked.start_time < asked.end_time < _MAX_TIME:
        raise InvalidRequest("the range must begin before it ends, in nanoseconds since the epoch")
    if asked.period_seconds == 0 or (asked.HasField("limit") and asked.limit == 0):
        raise InvalidRequest("period and limit must be over 0")
    limit = asked.limit if asked.HasField("limit") else None
    return replace(job, period_seconds=asked.period_seconds, start=asked.start_time, end=asked.end_time, limit=limit)
