"""Which alert is delivered where and when. Pure: events in, commands out, with the time as an argument.

Each destination has a queue for each trigger. A queue has at most one message in flight, which keeps its order. A
message that fails is sent again after 1, 2, 4 … seconds, at most 60, for 24 hours, and delays only its own queue. An
alert that names its resolver stays open until an event of that trigger, which is then delivered as its end.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from alerts.alert import Alert, Delivery, Opened, Outcome, Silence, Status
from alerts.commands import Command, Finish, Save, Send
from alerts.destination import Destination
from alerts.events import AlertsRead, Event, Finished, Restored, Saved, SendFailed, Sent, SilencesFound, TimePassed
from alerts.message import body_of
from core.settings_alerts import AlertsSettings

__all__ = ["AlertsState"]

GIVE_UP_SECONDS = 86_400.0
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
#: The range of random variation of a pause, in both directions.
_JITTER = 0.1
#: The most alerts that can be resolved; beyond that, the oldest stay unresolved.
_MAX_OPENED = 100_000


class AlertsState:
    """`jitter` returns numbers from 0 to 1."""

    def __init__(self, settings: AlertsSettings, jitter: Callable[[], float] = random.random) -> None:
        self._routes = settings.route
        self._jitter = jitter
        self._destinations = {name: Destination(name, own) for name, own in settings.destinations.items()}
        self._silences: Sequence[Silence] = ()
        #: Finished deliveries that may still be found in a queue.
        self._over: set[Silence] = set()
        #: Open alerts by resolver and ticker, then by trigger.
        self._opened: dict[tuple[str, str], dict[str, Opened]] = {}
        self._order = 0

    def handle(self, event: Event) -> list[Command]:
        match event:
            case Restored(deliveries, at, opened):
                for each in opened:
                    self._open(each)
                return self._restore(deliveries, at)
            case AlertsRead(alerts, at):
                return self._take(alerts, at)
            case Saved(deliveries, at):
                return self._add(deliveries, at)
            case Sent():
                return self._sent(event)
            case SendFailed():
                return self._failed(event)
            case Finished(destinations, at):
                for name in destinations:
                    self._destinations[name].finished()
                return self._sends(at)
            case SilencesFound(silences):
                self._over &= set(silences)
                self._silences = [each for each in silences if each not in self._over]
                return []
            case TimePassed(at):
                return self._sends(at)

    @property
    def waiting(self) -> int:
        return sum(len(destination.keys) for destination in self._destinations.values())

    def is_failing(self, destination: str) -> bool:
        """Whether its last attempt failed."""
        return bool(self._destinations[destination].last_error)

    def due(self, at: float) -> float | None:
        """When `TimePassed` is due next."""
        found = [due for each in self._destinations.values() if (due := each.due(at)) is not None]
        return min(found, default=None)

    def status(self) -> Mapping[str, Any]:
        return {
            name: {
                "waiting": len(each.keys),
                "delivered": each.counts.delivered,
                "abandoned": each.counts.abandoned,
                "failures": dict(each.counts.failures),
                "recovered": each.counts.recovered,
                "suppressed": each.counts.suppressed,
                "last_error": each.last_error,
            }
            for name, each in self._destinations.items()
        }

    # ---- taking
    def _restore(self, deliveries: Sequence[Delivery], at: float) -> list[Command]:
        known = [delivery for delivery in deliveries if delivery.destination in self._destinations]
        self._order = max([self._order, *(delivery.order for delivery in deliveries)])
        orphans = [
            Outcome(replace(delivery, error="the destination is no longer configured"), Status.ABANDONED, at)
            for delivery in deliveries
            if delivery.destination not in self._destinations
        ]
        commands: list[Command] = [Finish(orphans)] if orphans else []
        return commands + self._add(sorted(known, key=lambda delivery: delivery.order), at)

    def _take(self, alerts: Sequence[Alert], at: float) -> list[Command]:
        found: list[Delivery] = []
        opened: dict[str, Opened] = {}
        over: list[Silence] = []
        for alert in alerts:
            over += self._end_silences(alert)
            taken: set[str] = set()
            for each in self._resolved(alert):
                opened[each.key] = each
                self._open(each)
                found += self._deliver(_end_of(each, alert), self._named(each.destinations), at)
                taken |= {*each.destinations}
            own = self._deliver(alert, (each for each in self._destinations_of(alert) if each.name not in taken), at)
            found += own
            if alert.resolved_by and own:
                each = self._opening(alert, own)
                opened[each.key] = each
                self._open(each)
        new = {each.key: each for each in found if each.key not in self._destinations[each.destination].keys}
        return [Save([*new.values()], [*opened.values()], over)] if new or opened or over else []

    def _deliver(self, alert: Alert, destinations: Iterable[Destination], at: float) -> list[Delivery]:
        found: list[Delivery] = []
        for destination in destinations:
            if self._is_silenced(alert, at) or not destination.lets_through(alert, at):
                destination.counts.suppressed += 1
                continue
            self._order += 1
            found.append(_delivery(alert, destination.name, self._order, at))
        return found

    # ---- what is over
    def _end_silences(self, alert: Alert) -> list[Silence]:
        over = [
            each
            for each in self._silences
            if each.until_trigger and each.until_trigger == alert.trigger_id and fnmatchcase(alert.ticker, each.ticker)
        ]
        if over:
            self._over.update(over)
            self._silences = [each for each in self._silences if each not in self._over]
        return over

    def _resolved(self, alert: Alert) -> list[Opened]:
        """The alerts that this event resolves."""
        if alert.kind != "event":
            return []
        opened = self._opened.get((alert.trigger_id, alert.ticker), {}).values()
        return [replace(each, event_id=alert.alert_id) for each in opened if each.event_id in ("", alert.alert_id)]

    def _opening(self, alert: Alert, deliveries: Sequence[Delivery]) -> Opened:
        """Includes destinations that have yet to receive the resolution of an earlier alert."""
        names = [each.destination for each in deliveries]
        before = self._opened.get((alert.resolved_by, alert.ticker), {}).get(alert.trigger_id)
        if before is not None and not before.event_id:
            names += before.destinations
        return Opened(
            alert_id=alert.alert_id,
            trigger_id=alert.trigger_id,
            ticker=alert.ticker,
            title=alert.title,
            resolved_by=alert.resolved_by,
            destinations=tuple(dict.fromkeys(names)),
        )

    def _open(self, opened: Opened) -> None:
        place = opened.resolved_by, opened.ticker
        # The newest last.
        triggers = self._opened.pop(place, {})
        triggers[opened.trigger_id] = opened
        self._opened[place] = triggers
        if len(self._opened) > _MAX_OPENED:
            del self._opened[next(iter(self._opened))]

    def _destinations_of(self, alert: Alert) -> Iterable[Destination]:
        if alert.to:
            names: Iterable[str] = alert.to
        elif self._routes:
            names = [
                name
                for route in self._routes
                if route.matches(alert.kind, alert.trigger_id, alert.ticker)
                for name in route.to
            ]
        else:
            names = self._destinations if alert.kind == "event" else ()
        return self._named(names)

    def _named(self, names: Iterable[str]) -> list[Destination]:
        return [self._destinations[name] for name in dict.fromkeys(names) if name in self._destinations]

    def _is_silenced(self, alert: Alert, at: float) -> bool:
        return any(
            at < silence.until
            and fnmatchcase(alert.trigger_id or alert.kind, silence.trigger)
            and fnmatchcase(alert.ticker, silence.ticker)
            for silence in self._silences
        )

    def _add(self, deliveries: Iterable[Delivery], at: float) -> list[Command]:
        for delivery in deliveries:
            destination = self._destinations[delivery.destination]
            if delivery.key not in destination.keys:
                destination.add(delivery, at)
        commands: list[Command] = []
        for destination in self._destinations.values():
            if dropped := [Outcome(each, Status.ABANDONED, at) for each in destination.excess()]:
                destination.counts.abandoned += len(dropped)
                commands.append(Finish(dropped))
        return commands + self._sends(at)

    # ---- sending
    def _sends(self, at: float) -> list[Command]:
        found: list[Command] = []
        for destination in self._destinations.values():
            while deliveries := destination.next_message(at):
                found.append(Send(destination.name, deliveries))
        return found

    def _sent(self, event: Sent) -> list[Command]:
        destination = self._destinations[event.destination]
        destination.landed(event.deliveries, (), event.at, due=event.at)
        destination.counts.delivered += len(event.deliveries)
        destination.counts.recovered += bool(destination.last_error)
        destination.last_error = ""
        done = [replace(each, attempts=each.attempts + 1, error="") for each in event.deliveries]
        return [Finish([Outcome(each, Status.DELIVERED, event.at) for each in done], destination=destination.name)]

    def _failed(self, event: SendFailed) -> list[Command]:
        destination, at = self._destinations[event.destination], event.at
        tried = [each.after_failure(event.error) for each in event.deliveries]
        over = [each for each in tried if at >= each.taken_at + GIVE_UP_SECONDS]
        kept = [each for each in tried if at < each.taken_at + GIVE_UP_SECONDS]
        if event.retry_after is not None:
            destination.close_until(at + min(event.retry_after, GIVE_UP_SECONDS))
        due = at + self._pause(min((each.attempts for each in kept), default=1))
        destination.landed(over, kept, at, due=due)
        destination.counts.failures[event.failure] += 1
        destination.counts.abandoned += len(over)
        destination.last_error = event.error
        return [Finish([Outcome(each, Status.ABANDONED, at) for each in over], kept, destination.name)]

    def _pause(self, attempts: int) -> float:
        pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 30))
        return min(MAX_PAUSE_SECONDS, pause * (1 + _JITTER * (2 * self._jitter() - 1)))


def _end_of(opened: Opened, event: Alert) -> Alert:
    """The alert that tells its destinations that this event resolves it."""
    return replace(
        event,
        alert_id=f"resolved:{opened.alert_id}",
        title=f"resolved: {opened.title}",
        trigger_id=opened.trigger_id,
        resolves=opened.alert_id,
        resolved_by="",
    )


def _delivery(alert: Alert, destination: str, order: int, at: float) -> Delivery:
    return Delivery(
        destination=destination,
        alert_id=alert.alert_id,
        kind=alert.kind,
        trigger_id=alert.trigger_id,
        ticker=alert.ticker,
        order=order,
        title=alert.title,
        text=alert.text,
        body=body_of(alert),
        taken_at=at,
    )
