"""`candlewright keep`: rules for candles that are fetched automatically, and their progress."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from bus import topics
from bus.api import Bus
from candlewright.cli.output import Output, print_rows, say
from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright.wire.nearest import did_you_mean, near_symbols, near_venues
from candlewright.wire.periods import format_period, parse_period
from candlewright.wire.times import format_nanoseconds, iso_seconds
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.records.bus import open_bus
from core.settings import Settings
from core.settings_keep import KeepSettings, Pattern
from relay.keep.rules import Rule, settings_rules
from relay.keep.series import Series
from relay.keep.store import MAX_RULES, added_rules, listed_venues, read_series, read_summary, series_of
from venues.catalogue import CCXT_EXCHANGES, is_known

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_RULE_COLUMNS = ["rule", "from", "tickers", "periods", "since", "series", "behind", "candles_behind", "state"]
_SERIES_COLUMNS = ["ticker", "period", "since", "until", "candles_behind", "state"]


def add(
    tickers: Sequence[str],
    periods: Sequence[str],
    since: str,
    *,
    every: str,
    name: str | None,
    data_dir: Path | None,
    config: Path | None,
) -> None:
    settings = settings_for(config, data_dir)
    try:
        wanted = KeepSettings(
            tickers=tuple(tickers), periods=tuple(periods), since=since, every_seconds=parse_period(every)
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(str(first["msg"]).removeprefix("Value error, ")) from error
    except InvalidRequest as error:
        raise typer.BadParameter(f"--every: {error}") from error
    if name is not None and (not _NAME.fullmatch(name) or name.startswith("settings-")):
        raise typer.BadParameter("--name: letters, digits, - and _; names that begin with settings- are the settings'")
    with open_bus(settings) as bus:
        known = {rule.name for rule in added_rules(bus)}
        if len(known) >= MAX_RULES:
            raise CandlewrightError(f"there are {MAX_RULES} rules already")
        own = name or next(each for number in range(1, MAX_RULES + 1) if (each := f"keep-{number}") not in known)
        rule = Rule.of(own, wanted, is_added=True)
        warnings = _checked(bus, rule)
        value = wanted.model_dump_json().encode()
        if bus.put_new(topics.TABLE_KEEP_RULES, own, value) != value:
            raise CandlewrightError(f"there is another rule {own}: remove it first, or choose another --name")
    for warning in warnings:
        say(f"warning: {warning}")
    say(f"{own} is added: see `candlewright keep list`")


def remove(name: str, data_dir: Path | None, config: Path | None) -> None:
    settings = settings_for(config, data_dir)
    if name in {rule.name for rule in settings_rules(settings.keep)}:
        raise CandlewrightError(f"{name} is in the settings: remove its [[keep]] there, and start the platform again")
    with open_bus(settings) as bus:
        known = [rule.name for rule in added_rules(bus)]
        if name not in known:
            raise CandlewrightError(f"no rule is named {name}; the rules are: {', '.join(known) or 'none'}")
        bus.delete(topics.TABLE_KEEP_RULES, [name])
    say(f"{name} is removed; its candles stay stored")


def list_rules(*, is_by_series: bool, output: Output, data_dir: Path | None, config: Path | None) -> None:
    settings = settings_for(config, data_dir)
    with open_bus(settings) as bus:
        rules = _rules(settings, bus)
        series, summary = read_series(bus), read_summary(bus)
    at = time.time_ns()
    if is_by_series:
        rows = [_series_row(each, at) for each in sorted(series, key=lambda each: each.key)]
        print_rows(rows, output, columns=_SERIES_COLUMNS, empty="no series are kept fresh")
        return
    venues = {each["venue"]: each for each in summary or ()}
    groups = series_of(rules, series)
    rows = [_rule_row(rule, groups[rule.name], venues, at) for rule in rules]
    print_rows(rows, output, columns=_RULE_COLUMNS, empty="nothing is kept fresh: see `candlewright keep add --help`")
    if rules and summary is None and output is Output.table:
        say("the platform has not begun with these rules")
    for venue in summary or () if output is Output.table else ():
        if line := venue_line(venue):
            say(line)


def venue_line(venue: Mapping[str, Any]) -> str:
    """The rate of progress and the failures; empty if there is nothing to report."""
    found = []
    if venue["candles_behind"] and venue["candles_per_second"] is not None:
        found.append(f"{venue['candles_per_second']:,.0f} candles a second in the last hour")
    if venue["failing"]:
        found.append(f"{venue['failing']:,} series fail")
    if venue["error"]:
        found.append(venue["error"])
    return f"{venue['venue']}: {'; '.join(found)}" if found else ""


def _rules(settings: Settings, bus: Bus) -> list[Rule]:
    return settings_rules(settings.keep) + added_rules(bus)


def _checked(bus: Bus, rule: Rule) -> list[str]:
    """Notes for the operator. Raises CandlewrightError for a venue that nothing serves."""
    listed = listed_venues(bus, sorted(rule.venues))
    warnings = []
    for venue in sorted(rule.venues - listed.keys()):
        if not is_known(venue):
            near = near_venues(venue, [each.upper() for each in CCXT_EXCHANGES])
            raise CandlewrightError(f"{venue} is not a known venue{did_you_mean(near)}")
        warnings.append(f"no ingestor serves {venue} now: see `ingestor.venues` in the settings")
    for venue, each in listed.items():
        if each.periods and (missing := set(rule.periods) - each.periods):
            offered = ", ".join(map(format_period, sorted(each.periods)))
            raise CandlewrightError(f"{venue} has no candles of {format_period(min(missing))}; it has: {offered}")
    for pattern in rule.patterns:
        venue_listed = listed.get(pattern.venue)
        if venue_listed and not _matches(pattern, rule, listed):
            near = [] if pattern.is_glob else near_symbols(pattern.symbol, venue_listed.symbols)
            hint = did_you_mean([f"{symbol}.{pattern.venue}" for symbol in near])
            warnings.append(f"{pattern} matches no market that trades now{hint}")
    return warnings


def _matches(pattern: Pattern, rule: Rule, listed: Mapping[str, Any]) -> bool:
    alone = Rule(rule.name, (pattern,), rule.periods, rule.since, rule.every, is_added=True)
    return any(True for _ in alone.keys(listed))


def _rule_row(rule: Rule, series: Sequence[Series], venues: Mapping[str, Mapping[str, Any]], at: int) -> dict[str, Any]:
    behind = [candles for each in series if (candles := _behind(each, rule, at))]
    return {
        "rule": rule.name,
        "from": "command" if rule.is_added else "settings",
        "tickers": " ".join(map(str, rule.patterns)),
        "periods": " ".join(map(format_period, rule.periods)),
        "since": format_nanoseconds(rule.since),
        "series": len(series),
        "behind": len(behind),
        "candles_behind": sum(behind),
        "state": _state(
            series, is_behind=bool(behind), venues=[venues[venue] for venue in rule.venues if venue in venues]
        ),
    }


def _behind(series: Series, rule: Rule, at: int) -> int:
    """A saved series does not say how often it is requested."""
    series.every = max(rule.every, series.period_seconds * 1_000_000_000)
    return series.behind(at)


def _state(series: Sequence[Series], *, is_behind: bool, venues: Iterable[Mapping[str, Any]]) -> str:
    if not series:
        return "no market"
    if not is_behind:
        return "fresh"
    ends = [venue["done_at"] for venue in venues if venue["candles_behind"]]
    if not ends or None in ends:
        return "fetching"
    return f"fresh at {iso_seconds(max(ends) // 1_000_000_000)}"


def _series_row(series: Series, at: int) -> dict[str, Any]:
    return {
        "ticker": series.ticker,
        "period": format_period(series.period_seconds),
        "since": format_nanoseconds(series.begins),
        "until": format_nanoseconds(series.until),
        "candles_behind": max(series.end(at) - series.until, 0) // (series.period_seconds * 1_000_000_000),
        "state": series.error or ("ended" if series.is_over else "fetching" if series.asked else "waiting"),
    }
