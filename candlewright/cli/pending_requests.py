"""Requests that have not ended, as the bus knows them: those in work, and those that wait for a slot."""

from collections.abc import Iterator
from typing import Any

from bus import topics
from bus.api import Bus
from candlewright.client.times import format_nanoseconds
from protobuf import candlewright_pb2 as cw
from protobuf import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from venues.periods import format_period

Row = dict[str, Any]


def unfinished(bus: Bus) -> list[Row]:
    """Historical requests in the order of their submission, then live ones; raises BusError."""
    submitted = {request.request_id: request for request in _submitted(bus)}
    ended = bus.recall(topics.REGISTRY_FINALS, list(submitted))
    waiting = [request for request, final in zip(submitted.values(), ended, strict=True) if final is None]
    states = {name: cw.RequestState.FromString(value) for name, value in bus.items(topics.TABLE_REQUEST_STATES).items()}
    rows = [_historical(request, states.get(request.request_id)) for request in waiting]
    live = (state for name, state in states.items() if name not in submitted and state.state != "done")
    return rows + [_progress(state) | {"ticker": state.notification.ticker or None} for state in live]


def _submitted(bus: Bus) -> Iterator[ing.SubmitHistoricalRequest]:
    """The broker holds the topic from its oldest unfinished request on."""
    for partition in range(bus.partitions(topics.REQUESTS)):
        offset = bus.state(topics.REQUESTS)[partition].first
        while records := bus.read(topics.REQUESTS, partition, offset):
            offset = records[-1].offset + 1
            requests = (rec.Request.FromString(record.value) for record in records)
            yield from (request.historical for request in requests if request.HasField("historical"))


def _historical(request: ing.SubmitHistoricalRequest, state: cw.RequestState | None) -> Row:
    named = {
        "ticker": request.ticker,
        "period": format_period(request.period_seconds),
        "start": format_nanoseconds(request.start_time),
        "end": format_nanoseconds(request.end_time),
    }
    # That a request waits, the broker does not say: it has no state until its first piece is at work.
    if state is None:
        return {
            "request_id": request.request_id,
            "state": "queued",
            "done_candles": 0,
            "expected_candles": None,
        } | named
    return _progress(state) | named


def _progress(state: cw.RequestState) -> Row:
    return {
        "request_id": state.request_id,
        "state": state.state,
        "done_candles": state.done_candles,
        "expected_candles": state.expected_candles,
    }
