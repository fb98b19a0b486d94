"""Requests that have not ended, as the bus knows them: running ones, and those that wait for a slot."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from bus import KeyedTables, Log, topics
from bus.api import Bus
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.periods import format_period
from candlewright.wire.times import format_nanoseconds
from protobuf import records_pb2 as rec
from venues.served import waiting_for_slot

Row = dict[str, Any]
Kind = TypeVar("Kind", bound=Message)


def unfinished(bus: Bus) -> list[Row]:
    """Historical requests in the order of their submission, then live ones and snapshots; raises BusError."""
    submitted = {request.request_id: request for request in _submitted(bus)}
    ended = bus.recall(topics.REGISTRY_FINALS, list(submitted))
    waiting = [request for request, final in zip(submitted.values(), ended, strict=True) if final is None]
    states = _table(bus, topics.TABLE_REQUEST_STATES, cw.RequestState)
    live = _table(bus, topics.TABLE_REALTIME, ing.DataRequest)
    served = _served(bus)
    rows = [_historical(request, states.get(request.request_id), served) for request in waiting]
    rows += [_live(request, states.get(name), served) for name, request in live.items()]
    others = (state for name, state in states.items() if name not in submitted and name not in live)
    return rows + [_progress(state) | {"ticker": state.notification.ticker or None} for state in _open(others)]


def _submitted(bus: Log) -> Iterator[ing.SubmitHistoricalRequest]:
    """The broker holds the topic from its oldest unfinished request on."""
    for partition in range(bus.partitions(topics.REQUESTS)):
        offset = bus.state(topics.REQUESTS)[partition].first
        while records := bus.read(topics.REQUESTS, partition, offset):
            offset = records[-1].offset + 1
            requests = (_parsed(rec.Request, record.value) for record in records)
            yield from (request.historical for request in requests if request and request.HasField("historical"))


def _served(bus: KeyedTables) -> rec.ServedVenues | None:
    """None while no broker reports it."""
    (value,) = bus.get(topics.TABLE_SERVED, [topics.SERVED_KEY])
    return None if value is None else _parsed(rec.ServedVenues, value)


def _table(bus: KeyedTables, table: str, kind: type[Kind]) -> dict[str, Kind]:
    found = {name: _parsed(kind, value) for name, value in bus.items(table).items()}
    return {name: message for name, message in found.items() if message is not None}


def _parsed(kind: type[Kind], value: bytes) -> Kind | None:
    """None for a record of an unknown writer, which the broker puts aside."""
    try:
        return kind.FromString(value)
    except DecodeError:
        return None


def _open(states: Iterable[cw.RequestState]) -> Iterator[cw.RequestState]:
    return (state for state in states if state.state != "done")


def _historical(
    request: ing.SubmitHistoricalRequest, state: cw.RequestState | None, served: rec.ServedVenues | None
) -> Row:
    named = {
        "ticker": request.ticker,
        "period": format_period(request.period_seconds),
        "start": format_nanoseconds(request.start_time),
        "end": format_nanoseconds(request.end_time),
    }
    reason = _waiting(request.ticker, served.historical) if served is not None else ""
    if state is not None:
        return _progress(state) | named | {"reason": reason}
    # The broker does not report that a request waits: a request has no state until its first piece is being fetched.
    queued = {"request_id": request.request_id, "state": "queued", "done_candles": 0, "expected_candles": None}
    return queued | named | {"reason": reason}


def _live(request: ing.DataRequest, state: cw.RequestState | None, served: rec.ServedVenues | None) -> Row:
    periods = [format_period(seconds) for seconds in request.realtime.ohlc_period_seconds]
    row = _progress(state or cw.RequestState(request_id=request.request_id, state="queued"))
    if waiting := _waiting(request.ticker, served.realtime) if served is not None else "":
        row["reason"] = waiting
    return row | {"ticker": request.ticker, "period": " ".join(periods) or "ticks", "expected_candles": None}


def _waiting(ticker: str, served: Collection[str]) -> str:
    return waiting_for_slot(ticker.rpartition(".")[2], served)


def _progress(state: cw.RequestState) -> Row:
    return {
        "request_id": state.request_id,
        "state": state.state,
        "done_candles": state.done_candles,
        "expected_candles": state.expected_candles,
        "reason": state.notification.error_message if state.state == "queued" else "",
    }
