"""Reads and writes rules, series, requests and their results on the bus. All methods raise BusError."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from pydantic import ValidationError

from bus import KeyedTables, topics
from bus.api import Bus, Record
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import CandlewrightError
from core.log import get_logger
from core.settings_keep import KeepSettings
from protobuf import records_pb2 as rec
from relay.keep.rules import Key, Listed, Rule
from relay.keep.series import Series
from relay.keep.state import Cancel, Command, Ended, Forget, Save, Submit

log = get_logger()

MAX_RULES = 1_000
#: The sender name of these requests, for fair turns.
_SENDER = "keep"
_SUMMARY = "summary"
_SUMMARY_SECONDS = 60.0


class KeepStore:
    """`timeout_ns`, `registry_seconds`: the deadline of requests, and how long their ids are remembered."""

    def __init__(self, bus: Bus, timeout_ns: int, registry_seconds: float) -> None:
        self._bus = bus
        self._timeout_ns = timeout_ns
        self._registry_seconds = registry_seconds

    def series(self) -> list[Series]:
        return read_series(self._bus)

    def rules(self) -> list[Rule]:
        return added_rules(self._bus)

    def venues(self, names: Iterable[str]) -> dict[str, Listed]:
        return listed_venues(self._bus, sorted(set(names)))

    def ends(self, request_ids: Sequence[str], at: int) -> list[Ended]:
        """The ends of those requests that have their final."""
        finals = self._bus.recall(topics.REGISTRY_FINALS, request_ids)
        ended = [(name, final) for name, final in zip(request_ids, finals, strict=True) if final is not None]
        if not ended:
            return []
        states = self._bus.get(topics.TABLE_REQUEST_STATES, [name for name, _ in ended])
        return [_ended(name, final, state, at) for (name, final), state in zip(ended, states, strict=True)]

    def carry_out(self, commands: Sequence[Command]) -> None:
        """Carry out commands. State is saved before the requests that it names, so that a restart knows them."""
        if saved := {each.series.key.name: each.series.to_bytes() for each in commands if isinstance(each, Save)}:
            self._bus.put(topics.TABLE_KEEP_SERIES, saved)
        for each in commands:
            if isinstance(each, Submit):
                self._submit(each)
            elif isinstance(each, Cancel):
                self._cancel(each.request_id)
        if forgotten := [each.key.name for each in commands if isinstance(each, Forget)]:
            self._bus.delete(topics.TABLE_KEEP_SERIES, forgotten)

    def show(self, summary: Sequence[Mapping[str, Any]]) -> None:
        self._bus.put(topics.TABLE_KEEP, {_SUMMARY: orjson.dumps(summary)}, keep_seconds=_SUMMARY_SECONDS)

    def _submit(self, command: Submit) -> None:
        asked = command.asked
        request = rec.Request(
            historical=ing.SubmitHistoricalRequest(
                request_id=asked.request_id,
                ticker=command.key.ticker,
                period_seconds=command.key.period_seconds,
                start_time=asked.start,
                end_time=asked.end,
            )
        )
        content = request.SerializeToString(deterministic=True)
        request.sender, request.accepted_at = _SENDER, time.time_ns()
        request.deadline = request.accepted_at + self._timeout_ns
        self._bus.publish_once(
            topics.REQUESTS,
            Record(request.SerializeToString(), key=asked.request_id.encode()),
            registry=topics.REGISTRY_REQUESTS,
            name=asked.request_id,
            content=content,
            keep_seconds=self._registry_seconds,
        )

    def _cancel(self, request_id: str) -> None:
        control = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=request_id)
        record = rec.Request(control=control, accepted_at=time.time_ns())
        self._bus.publish(topics.REQUESTS, [Record(record.SerializeToString(), key=request_id.encode())])


def added_rules(bus: KeyedTables) -> list[Rule]:
    """The rules of `candlewright keep add`, by name."""
    found = []
    for name, value in sorted(bus.items(topics.TABLE_KEEP_RULES).items()):
        try:
            found.append(Rule.of(name, KeepSettings.model_validate_json(value), is_added=True))
        except (ValidationError, CandlewrightError) as error:
            log.error("keep_rule_unreadable", rule=name, error=str(error))
    return found


def read_series(bus: KeyedTables) -> list[Series]:
    found = []
    for name, value in bus.items(topics.TABLE_KEEP_SERIES).items():
        try:
            found.append(Series.from_bytes(value))
        except (TypeError, ValueError, KeyError) as error:
            log.error("kept_series_unreadable", series=name, error=str(error))
    return found


def read_summary(bus: KeyedTables) -> list[dict[str, Any]] | None:
    """The summary by venue; None while no relay keeps candles fresh."""
    (value,) = bus.get(topics.TABLE_KEEP, [_SUMMARY])
    return None if value is None else orjson.loads(value)


def listed_venues(bus: KeyedTables, names: Sequence[str]) -> dict[str, Listed]:
    """The venues among `names` that an ingestor describes."""
    found = {}
    for name, value in zip(names, bus.get(topics.TABLE_VENUES, names) if names else (), strict=True):
        if value is not None:
            venue = cw.Venue.FromString(value)
            if venue.markets:
                symbols = frozenset(market.symbol for market in venue.markets if market.active)
                found[name] = Listed(symbols, venue.depth_candles, frozenset(venue.period_seconds))
    return found


def series_of(rules: Iterable[Rule], series: Iterable[Series]) -> dict[str, list[Series]]:
    """Series by name of the rule; a series may belong to several."""
    known = [(each.key, each) for each in series]
    return {rule.name: [each for key, each in known if rule.matches(key)] for rule in rules}


def _ended(name: str, final: bytes, state: bytes | None, at: int) -> Ended:
    note = ing.HistoryReadyNotification.FromString(final)
    closed_until = 0 if state is None else cw.RequestState.FromString(state).closed_until
    is_empty = note.status == ing.HistoryReadyNotification.NOT_FOUND
    # If the venue does not know the market, the request's end says why.
    is_ok = note.status == ing.HistoryReadyNotification.OK or (is_empty and not note.error_message)
    return Ended(name, is_ok=is_ok, is_empty=is_empty, message=note.error_message, closed_until=closed_until, at=at)


__all__ = ["MAX_RULES", "KeepStore", "Key", "added_rules", "listed_venues", "read_series", "read_summary", "series_of"]
