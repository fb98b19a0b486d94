"""Detects problems of the platform itself: parts that are down, tickers without trades or bars, a full disk. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from alerts.alert import Alert

__all__ = ["Snapshot", "Watch"]

#: A part that restarts is ready again within this time.
DOWN_SECONDS = 30.0
#: A ticker is stale after this time, or after several times its longest usual pause.
STALE_SECONDS = 60.0
_STALE_PAUSES = 3.0
#: The longest usual pause decays by this factor with each further pause, so that a single long one is forgotten.
_DECAY = 0.99
#: A disk is low below either limit, and sufficient again above twice as much.
LOW_BYTES = 2 << 30
LOW_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`parts`: the supervisor's page of each part. `at` in seconds since the epoch."""

    parts: Mapping[str, Mapping[str, Any]]
    free_bytes: int
    total_bytes: int
    at: float


@dataclass(slots=True)
class _Pauses:
    """The pauses of one ticker: its age when last examined, and the longest pause that ended."""

    age: float = 0.0
    longest: float = 0.0

    def look(self, age: float) -> bool:
        """Whether the current pause is longer than usual."""
        if age < self.age:
            self.longest = max(self.age, self.longest * _DECAY)
        self.age = age
        return age > max(STALE_SECONDS, _STALE_PAUSES * self.longest)


@dataclass(slots=True)
class Watch:
    """Each problem is one alert, however long it lasts, and another one when it is over."""

    _down_since: dict[str, float] = field(default_factory=dict)
    _pauses: dict[str, _Pauses] = field(default_factory=dict)
    #: Problems that were reported and are not over.
    _reported: dict[str, Alert] = field(default_factory=dict)
    is_well: bool = False

    def look(self, seen: Snapshot) -> list[Alert]:
        found = [*self._parts(seen), *self._tickers(seen), *self._bars(seen), *self._disk(seen)]
        self.is_well = bool(seen.parts) and not self._down_since
        return found

    def _parts(self, seen: Snapshot) -> Iterable[Alert]:
        for part, page in seen.parts.items():
            if page.get("ready") or page.get("standby"):
                self._down_since.pop(part, None)
                yield from self._is_over(f"part {part}", seen.at, f"{part} is ready again")
                continue
            since = self._down_since.setdefault(part, seen.at)
            if seen.at - since >= DOWN_SECONDS and f"part {part}" not in self._reported:
                problems = "; ".join(page.get("problems", ()))
                text = f"{part} has not been ready for {seen.at - since:.0f} s" + (f": {problems}" if problems else "")
                yield self._report(f"part {part}", _alert("part_down", part, since, seen.at, f"{part} is down", text))

    def _tickers(self, seen: Snapshot) -> Iterable[Alert]:
        ages: dict[str, float] = {}
        for page in seen.parts.values():
            for ticker, age in page.get("status", {}).get("last_frame_seconds_ago", {}).items():
                ages[ticker] = min(age, ages.get(ticker, age))
        for ticker in self._pauses.keys() - ages.keys():
            del self._pauses[ticker]
            yield from self._is_over(f"ticker {ticker}", seen.at, f"the platform has stopped following {ticker}")
        for ticker, age in ages.items():
            trouble = f"ticker {ticker}"
            if not self._pauses.setdefault(ticker, _Pauses()).look(age):
                yield from self._is_over(trouble, seen.at, f"{ticker} has frames again")
            elif trouble not in self._reported:
                text = f"{ticker} has been silent for {age:.0f} s, longer than usual"
                alert = _alert("stale", ticker, seen.at - age, seen.at, f"{ticker} is silent", text, ticker)
                yield self._report(trouble, alert)

    def _bars(self, seen: Snapshot) -> Iterable[Alert]:
        ages: dict[str, float] = {}
        for page in seen.parts.values():
            status = page.get("status", {})
            newest = status.get("newest_bar_seconds_ago", {})
            ages |= {ticker: newest.get(ticker, 0.0) for ticker in status.get("tickers_without_bars", ())}
        for trouble in [name for name in self._reported if name.startswith("bars ") and name[5:] not in ages]:
            yield from self._is_over(trouble, seen.at, f"{trouble[5:]} has bars again, or is not followed now")
        for ticker, age in ages.items():
            if f"bars {ticker}" not in self._reported:
                text = f"{ticker} has had no bar for {age:.0f} s although its trades arrive"
                alert = _alert("no_bars", ticker, seen.at - age, seen.at, f"{ticker} has no bars", text, ticker)
                yield self._report(f"bars {ticker}", alert)

    def _disk(self, seen: Snapshot) -> Iterable[Alert]:
        low = max(LOW_BYTES, int(seen.total_bytes * LOW_SHARE))
        if seen.free_bytes > 2 * low:
            yield from self._is_over("disk", seen.at, f"{_gib(seen.free_bytes)} are free again")
        elif seen.free_bytes < low and "disk" not in self._reported:
            free = _gib(seen.free_bytes)
            text = f"{free} are free on the disk of the data directory"
            yield self._report("disk", _alert("disk_low", "disk", seen.at, seen.at, f"only {free} are free", text))

    def _report(self, trouble: str, alert: Alert) -> Alert:
        self._reported[trouble] = alert
        return alert

    def _is_over(self, trouble: str, at: float, text: str) -> Iterable[Alert]:
        if (alert := self._reported.pop(trouble, None)) is not None:
            yield replace(
                alert,
                alert_id=f"resolved:{alert.alert_id}",
                time_ns=round(at * 1e9),
                title=f"resolved: {alert.title}",
                text=text,
                resolves=alert.alert_id,
            )


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _alert(kind: str, name: str, since: float, at: float, title: str, text: str, ticker: str = "") -> Alert:
    return Alert(
        alert_id=f"{kind}:{name}:{since:.0f}", kind=kind, time_ns=round(at * 1e9), title=title, text=text, ticker=ticker
    )
