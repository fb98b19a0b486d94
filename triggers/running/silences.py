"""Dead-man triggers: an event when nothing has arrived for too long, by the wall clock."""

from collections.abc import Iterable, Iterator

from triggers.events.firings import Fired, silence
from triggers.records.asked_for import AskedFor
from triggers.records.clocks import NO_ROW, Arrival
from triggers.running.registry import Registry
from triggers.running.trigger import Trigger

__all__ = ["silences", "silences_due"]

Arrivals = dict[int, dict[str, Arrival]]


def silences(registry: Registry, arrivals: Arrivals, asked_for: AskedFor, *, now_ns: int) -> Iterable[Fired]:
    """The silences that are due, each reported once."""
    for trigger, label, ticker, last, due_ns in _awaited(registry, arrivals, asked_for):
        if now_ns >= due_ns and (said := _said(trigger, label, ticker, last, now_ns)) is not None:
            registry.lived(trigger)
            yield said


def silences_due(registry: Registry, arrivals: Arrivals, asked_for: AskedFor) -> Iterator[int]:
    """When each silence is due (wall clock, ns), reported or not, if no row arrives until then."""
    return (due_ns for *_, due_ns in _awaited(registry, arrivals, asked_for))


def _awaited(
    registry: Registry, arrivals: Arrivals, asked_for: AskedFor
) -> Iterator[tuple[Trigger, int, str, Arrival | None, int]]:
    """What each dead-man trigger waits for: its label and ticker, the last row, and when the silence is due."""
    for shard in registry.needs.silent:
        silent_ns = shard.compiled.options.deadman_ns
        labels = [label for label in sorted(arrivals) if shard.takes(label)]
        named = shard.owners
        tickers = named if not shard.takes_every_ticker else {t for label in labels for t in arrivals[label]}
        for ticker in sorted(tickers):
            for trigger_id in shard.group_of(named.get(ticker) or shard.sole):
                trigger = registry.triggers[trigger_id]
                first = trigger.bars_from if shard.compiled.is_on_bars else trigger.ticks_from
                own = {label: arrivals[label].get(ticker) for label in labels}
                found = {
                    label: last
                    for label, last in own.items()
                    if last is not None
                    and last.row >= first
                    and not asked_for.is_past(
                        label, ticker, last.row, time_ns=last.time_ns, registered_at=trigger.asked_ns
                    )
                }
                for label, last in found.items():
                    yield trigger, label, ticker, last, last.at_ns + silent_ns
                if not found and ticker in named and trigger.registered_ns:
                    period = shard.compiled.options.period_seconds
                    yield trigger, period, ticker, None, trigger.registered_ns + silent_ns


def _said(trigger: Trigger, label: int, ticker: str, last: Arrival | None, now_ns: int) -> Fired | None:
    """None if the silence was already reported. `last`: None if no row has arrived since the registration."""
    place = f"{label}/{ticker}"
    row = last.row if last is not None else NO_ROW
    if trigger.silent.get(place) == row:
        return None
    trigger.silent[place] = row
    trigger.events += 1
    since_ns = last.at_ns if last is not None else trigger.registered_ns
    last_ns = last.time_ns if last is not None else None
    firing, schema = silence(label, ticker, row, last_ns=last_ns, since_ns=since_ns, now_ns=now_ns)
    return firing.event(trigger.trigger_id, trigger.version, schema)
