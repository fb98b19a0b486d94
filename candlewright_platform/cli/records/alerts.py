"""`candlewright alerts`: where events are delivered, and which ones were not."""

import asyncio
import secrets
import time
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

import typer

from alerts.alert import Alert, Delivery, Silence
from alerts.message import body_of
from alerts.senders.sender import DeliveryFailed
from alerts.senders.senders import sender_of
from alerts.store import AlertStore
from bus import topics
from candlewright.cli.output import Output, print_rows, say
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.periods import parse_period
from candlewright.wire.times import iso_seconds
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.records.bus import open_bus
from core.http import supervisor_page
from core.settings_alerts import KINDS, DestinationSettings, RouteSettings

#: The longest time of a silence that an event of a trigger ends.
_LONGEST_SILENCE_SECONDS = 30 * 86_400


def list_destinations(output: Output, data_dir: Path | None, config: Path | None) -> None:
    settings = settings_for(config, data_dir)
    with open_bus(settings) as bus:
        store = AlertStore(bus)
        waiting, abandoned = store.waiting(), store.abandoned()
    routes = settings.alerts.route
    page = supervisor_page(settings.data_dir) or {}
    counts = page.get("parts", {}).get("alerts", {}).get("status", {}).get("destinations", {})
    rows = [
        {
            "name": name,
            "kind": "webhook" if own.is_webhook else own.scheme,
            "gets": _gets(name, routes),
            "waiting": sum(each.destination == name for each in waiting),
            "delivered": counts.get(name, {}).get("delivered"),
            "failures": _failures(counts.get(name, {}).get("failures"), output),
            "recovered": counts.get(name, {}).get("recovered"),
            "abandoned": sum(each.destination == name for each in abandoned),
            "last_error": next((each.error for each in waiting if each.destination == name and each.error), ""),
        }
        for name, own in settings.alerts.destinations.items()
    ]
    print_rows(
        rows, output, columns=[*rows[0]] if rows else [], empty="no destinations: add [alerts.NAME] to the settings"
    )


def test(name: str, data_dir: Path | None, config: Path | None) -> None:
    """Exit code 1 unless the destination accepted it."""
    own = settings_for(config, data_dir).alerts.destinations
    settings = own.get(name.lower())
    if settings is None:
        known = ", ".join(own) or "none"
        raise CandlewrightError(f"no destination {name} in the settings; configured: {known}")
    try:
        asyncio.run(_send_test(name.lower(), settings))
    except DeliveryFailed as error:
        raise CandlewrightError(f"{name} did not accept the test alert: {error}") from error
    say(f"{name} took the test alert")


async def _send_test(name: str, settings: DestinationSettings) -> None:
    now = time.time()
    text = "This is a test of the destination; nothing has happened."
    alert = Alert(
        alert_id=f"test-{secrets.token_hex(8)}",
        kind="test",
        time_ns=int(now * 1e9),
        title="candlewright: test alert",
        text=text,
    )
    delivery = Delivery(
        destination=name,
        alert_id=alert.alert_id,
        kind=alert.kind,
        trigger_id="",
        ticker="",
        order=0,
        title=alert.title,
        text=text,
        body=body_of(alert),
        taken_at=now,
    )
    sender = sender_of(name, settings)
    try:
        await sender.send([delivery])
    finally:
        await sender.close()


def silence(
    trigger: str | None,
    duration: str | None,
    ticker: str,
    *,
    until: str | None,
    is_over: bool,
    output: Output,
    data_dir: Path | None,
    config: Path | None,
) -> None:
    with open_bus(settings_for(config, data_dir)) as bus:
        store = AlertStore(bus)
        if trigger is None:
            if duration or until or is_over:
                raise typer.BadParameter("name the trigger")
            rows = [
                {
                    "trigger": each.trigger,
                    "ticker": each.ticker,
                    "until": iso_seconds(each.until),
                    "until_trigger": each.until_trigger,
                }
                for each in store.silences()
            ]
            print_rows(rows, output, columns=["trigger", "ticker", "until", "until_trigger"], empty="no silences")
            return
        if is_over:
            ids = [each.silence_id for each in store.silences() if (each.trigger, each.ticker) == (trigger, ticker)]
            if not ids:
                raise CandlewrightError(f"{trigger} is not silenced for {ticker}")
            store.end_silences(ids)
            say(f"{trigger} alerts again")
            return
        if duration is None and until is None:
            raise typer.BadParameter("say for how long: --for 2h, or --until TRIGGER")
        if until is not None and not bus.get(topics.TABLE_TRIGGERS, [until])[0]:
            raise CandlewrightError(f"no trigger {until} is registered")
        seconds = _LONGEST_SILENCE_SECONDS if duration is None else parse_period(duration)
        end = time.time() + seconds
        store.silence(Silence(f"{trigger} {ticker}", trigger, ticker, end, until or ""), seconds)
        known = [*bus.items(topics.TABLE_TRIGGERS), *KINDS]
        if not any(fnmatchcase(each, trigger) for each in known):
            near = get_close_matches(trigger, known, n=1)
            say(f"no trigger {trigger} is registered now" + (f"; did you mean {near[0]}?" if near else ""))
        fires = f"{until} fires, at most until " if until else ""
        say(f"no alerts of {trigger} until {fires}{iso_seconds(end)}")


def dead_letters(again: list[str], *, is_all: bool, output: Output, data_dir: Path | None, config: Path | None) -> None:
    with open_bus(settings_for(config, data_dir)) as bus:
        store = AlertStore(bus)
        found = {each.key: each for each in store.abandoned()}
        if again or is_all:
            keys = [*found] if is_all else again
            if unknown := [key for key in keys if key not in found]:
                raise CandlewrightError(f"not an abandoned delivery: {', '.join(unknown)}")
            store.send_again(keys)
            say(f"{len(keys)} will be sent again")
            return
    rows = [
        {
            "key": key,
            "trigger": each.trigger_id or each.kind,
            "ticker": each.ticker,
            "taken_at": iso_seconds(each.taken_at),
            "attempts": each.attempts,
            "error": each.error,
        }
        for key, each in found.items()
    ]
    print_rows(
        rows,
        output,
        columns=["key", "trigger", "ticker", "taken_at", "attempts", "error"],
        empty="no abandoned deliveries",
    )


def _failures(counts: dict[str, int] | None, output: Output) -> object:
    if counts is None or output is Output.json:
        return counts
    return [f"{failure} {count:,}" for failure, count in sorted(counts.items())]


def _gets(name: str, routes: tuple[RouteSettings, ...]) -> str:
    if not routes:
        return "every trigger event"
    texts = []
    for route in routes:
        if name in route.to:
            of = [*(f"kind {kind}" for kind in route.kind), *route.triggers, *route.tickers]
            texts.append(" ".join(of) or "everything")
    return "; ".join(texts) or "what triggers send to it"
