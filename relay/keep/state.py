"""All decisions about keeping candles fresh: events in, commands out. No clock, no bus.

A venue has a few requests open at a time; updates of nearly fresh series, history to fetch, and checks for gaps take
turns. The broker hands out pages of these requests only while no client's request waits, and fetches nothing that the
tables prove.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, islice, zip_longest
from typing import Any

from candlewright.wire.grid import SECOND
from core.failures import Failure, FailureCode
from relay.keep.rules import Key, Listed, Rule, wanted_series
from relay.keep.series import Asked, Series

#: Requests of one venue that may be open at a time.
MAX_OPEN = 8
#: The most series kept; further ones are omitted and reported.
MAX_SERIES = 50_000
#: A request that has not ended this long after its deadline counts as lost, because its store was lost or the broker is
#: down.
LOST_NS = 300 * SECOND
#: The longest and the shortest time over which the speed is measured.
_MEASURED_NS, _LEAST_MEASURED_NS = 3_600 * SECOND, 60 * SECOND
_MEASURE_STEP_NS = 10 * SECOND

# ---- events


@dataclass(frozen=True, slots=True)
class Restored:
    """The state that an earlier process saved."""

    series: Sequence[Series]
    at: int


@dataclass(frozen=True, slots=True)
class RulesRead:
    """The rules, and the ingestors' descriptions of their venues; a venue without an ingestor is missing."""

    rules: Sequence[Rule]
    venues: Mapping[str, Listed]
    at: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A request has its final notification. `closed_until`: the open time of the first candle that had not closed, or
    0.
    """

    request_id: str
    is_ok: bool
    is_empty: bool
    message: str
    closed_until: int
    at: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    at: int


Event = Restored | RulesRead | Ended | TimePassed

# ---- commands


@dataclass(frozen=True, slots=True)
class Save:
    series: Series


@dataclass(frozen=True, slots=True)
class Submit:
    """Send requests, after all `Save`s; may be repeated."""

    key: Key
    asked: Asked


@dataclass(frozen=True, slots=True)
class Cancel:
    request_id: str


@dataclass(frozen=True, slots=True)
class Forget:
    key: Key


Command = Save | Submit | Cancel | Forget


@dataclass(slots=True)
class _Speed:
    """The recently fetched candles of one venue, counted every ten seconds."""

    began_at: int
    steps: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, at: int, candles: int) -> None:
        if self.steps and at - self.steps[-1][0] < _MEASURE_STEP_NS:
            began, known = self.steps.pop()
            self.steps.append((began, known + candles))
        else:
            self.steps.append((at, candles))

    def per_second(self, at: int) -> float | None:
        """Candles per second; None before anything was measured."""
        while self.steps and self.steps[0][0] < at - _MEASURED_NS:
            self.steps.popleft()
        length = min(at - self.began_at, _MEASURED_NS)
        if length < _LEAST_MEASURED_NS:
            return None
        return sum(candles for _, candles in self.steps) * SECOND / length


class KeepState:
    """`new_id` returns ids that never repeat; a request without a final after `timeout_ns` has failed."""

    def __init__(self, new_id: Callable[[], str], timeout_ns: int) -> None:
        self._new_id = new_id
        self._lost_ns = timeout_ns + LOST_NS
        self._series: dict[Key, Series] = {}
        self._by_request: dict[str, Key] = {}
        self._open: Counter[str] = Counter()
        self._venues: Mapping[str, Listed] = {}
        self._speeds: dict[str, _Speed] = {}
        #: Venues named in rules that no ingestor serves.
        self._unserved: set[str] = set()
        #: The number of series beyond the bound.
        self.left_out = 0

    def handle(self, event: Event) -> list[Command]:
        match event:
            case Restored():
                return self._restore(event)
            case RulesRead():
                return self._apply_rules(event)
            case Ended():
                return self._end(event)
            case TimePassed():
                return self._expire(event.at) + self._ask(event.at)

    @property
    def open_requests(self) -> list[str]:
        return [*self._by_request]

    @property
    def is_idle(self) -> bool:
        return not self._series

    # ---- series
    def _restore(self, event: Restored) -> list[Command]:
        commands: list[Command] = []
        for series in event.series:
            self._series[series.key] = series
            self._speed(series.key.venue, event.at)
            if series.asked is not None:
                self._opened(series.key, series.asked)
                commands.append(Submit(series.key, series.asked))
        return commands

    def _apply_rules(self, event: RulesRead) -> list[Command]:
        self._venues = event.venues
        self._unserved = {venue for rule in event.rules for venue in rule.venues} - event.venues.keys()
        wanted = wanted_series(event.rules, event.venues)
        changed: list[Command] = []
        self.left_out = 0
        for key, each in wanted.items():
            series = self._series.get(key)
            if series is None and len(self._series) >= MAX_SERIES:
                self.left_out += 1
            elif series is None:
                self._series[key] = Series.begun(key, each, event.at)
                self._speed(key.venue, event.at)
                changed.append(Save(self._series[key]))
            else:
                asked = series.asked
                if series.want(each):
                    if asked is not None and series.asked is None:
                        changed.append(self._closed(key, asked))
                    changed.append(Save(series))
        for key, series in [*self._series.items()]:
            if key in wanted:
                continue
            if not any(rule.matches(key) for rule in event.rules):
                del self._series[key]
                if series.asked is not None:
                    changed.append(self._closed(key, series.asked))
                changed.append(Forget(key))
            elif key.venue in event.venues and not series.ended_at:
                series.ended_at = event.at
                changed.append(Save(series))
        return changed

    # ---- requests
    def _expire(self, at: int) -> list[Command]:
        found: list[Command] = []
        for key in [*self._by_request.values()]:
            series = self._series[key]
            if series.asked is not None and at >= series.asked.at + self._lost_ns:
                found.append(self._closed(key, series.asked))
                series.failed(at, "the request was not answered in time")
                found.append(Save(series))
        return found

    def _ask(self, at: int) -> list[Command]:
        asked: list[tuple[Series, Asked]] = []
        for venue, room in self._rooms().items():
            for series, (start, end, is_check) in islice(self._due(venue, at, room), room):
                request = Asked(self._new_id(), start, end, is_check, at)
                series.ask(request)
                self._opened(series.key, request)
                asked.append((series, request))
        saves: list[Command] = [Save(series) for series, _ in asked]
        return saves + [Submit(series.key, request) for series, request in asked]

    def _rooms(self) -> dict[str, int]:
        """By venue, how many more requests may be open."""
        found = {venue: MAX_OPEN - self._open[venue] for venue in self._venues}
        return {venue: room for venue, room in found.items() if room > 0}

    def _due(self, venue: str, at: int, room: int) -> Iterable[tuple[Series, tuple[int, int, bool]]]:
        """Series with a request due, longest-waiting first; updates, history and checks for gaps take turns."""
        kinds: tuple[list[tuple[int, Series, tuple[int, int, bool]]], ...] = ([], [], [])
        for series in self._series.values():
            if series.key.venue == venue and (found := series.next_range(at)) is not None:
                if found[2]:
                    kinds[2].append((series.checked_at, series, found))
                elif series.is_backfill(at):
                    kinds[1].append((series.until, series, found))
                else:
                    kinds[0].append((series.fresh_at, series, found))
        first = [nsmallest(room, each, key=lambda item: item[0]) for each in kinds]
        in_turn = chain.from_iterable(zip_longest(*first))
        return ((item[1], item[2]) for item in in_turn if item is not None)

    def _end(self, event: Ended) -> list[Command]:
        key = self._by_request.get(event.request_id)
        if key is None:
            return []
        series = self._series[key]
        assert series.asked is not None
        self._closed(key, series.asked)
        if event.is_ok:
            further = series.succeeded(event.at, is_empty=event.is_empty, closed_until=event.closed_until)
            self._speed(key.venue, event.at).add(event.at, further)
        elif event.message.startswith(FailureCode.DEPTH):
            depth = self._venues.get(key.venue, Listed(frozenset())).depth_candles
            oldest = event.at - depth * key.period_seconds * SECOND if depth else 0
            series.skip_to(oldest, event.message)
        else:
            is_final = Failure.parse(event.message).code.is_final
            series.failed(event.at, event.message, is_final=is_final)
        return [Save(series)]

    def _opened(self, key: Key, asked: Asked) -> None:
        self._by_request[asked.request_id] = key
        self._open[key.venue] += 1

    def _closed(self, key: Key, asked: Asked) -> Cancel:
        """The command that cancels a request that has not ended."""
        del self._by_request[asked.request_id]
        self._open[key.venue] -= 1
        return Cancel(asked.request_id)

    def _speed(self, venue: str, at: int) -> _Speed:
        return self._speeds.setdefault(venue, _Speed(at))

    # ---- progress
    def summary(self, at: int) -> list[dict[str, Any]]:
        """The progress by venue. `done_at`: the estimated end (ns) at the current speed; None if unknown."""
        groups: defaultdict[str, list[Series]] = defaultdict(list)
        for key, series in self._series.items():
            groups[key.venue].append(series)
        return [self._summary_of(venue, groups[venue], at) for venue in sorted({*groups, *self._unserved})]

    def _summary_of(self, venue: str, group: Sequence[Series], at: int) -> dict[str, Any]:
        behind = [candles for series in group if (candles := series.behind(at))]
        speed = self._speeds[venue].per_second(at) if venue in self._speeds else None
        total = sum(behind)
        errors = [series.error for series in group if series.error and not series.is_over]
        return {
            "venue": venue,
            "series": len(group),
            "behind": len(behind),
            "candles_behind": total,
            "ended": sum(series.is_over for series in group),
            "failing": len(errors),
            "error": errors[0] if errors else f"no ingestor serves {venue}" if venue in self._unserved else "",
            "candles_per_second": None if speed is None else round(speed, 1),
            "done_at": at + int(total / speed * SECOND) if total and speed else None,
        }
