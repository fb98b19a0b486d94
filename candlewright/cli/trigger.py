"""`candlewright trigger add|list|show|remove|events`: triggers of the running platform."""

import logging
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.options import GIVE_ONCE
from candlewright.cli.output import Output, cell, json_line, print_rows, say, wrapped
from candlewright.cli.watch import ending_quietly
from candlewright.client import (
    Client,
    GapError,
    InvalidTrigger,
    Stream,
    TriggerEvent,
    TriggerInfo,
    TriggerNotFound,
    connect,
)
from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright.wire.ticker import Ticker
from candlewright.wire.times import format_nanoseconds

LIST_COLUMNS = ("trigger_id", "state", "events", "tickers", "registered", "sql")
_COMMENT_OR_QUOTED = re.compile(r"""--[^\n]*|('(?:[^']|'')*'|"(?:[^"]|"")*")""")
#: Width of a text in a table.
SHOWN_CHARACTERS = 60
_TIME_TYPES = ("TIMESTAMP", "TIMESTAMP_LTZ")


def add(
    sql: str | None,
    *,
    file: Path | None,
    tickers: Sequence[str],
    parameters: Sequence[str],
    trigger_id: str | None,
    callback_id: str | None,
    follow: bool,
    count: int | None,
    output: Output,
    config: Path | None,
    timeout: float,
    replace: bool = False,
) -> None:
    """With `follow`, or `count`, the events follow on stdout, and stderr names what was registered."""
    text = read_text(sql, file)
    values = dict(map(parameter, parameters))
    try:
        names = [str(Ticker.parse(each)) for each in tickers]
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    is_followed = follow or count is not None
    # Its warnings are shown below, phrased for the command line.
    logging.getLogger("candlewright").addHandler(logging.NullHandler())
    with ending_quietly(), connect(settings=settings_for(config)) as c:
        if trigger_id is not None and not replace:
            check_not_replaced(c, trigger_id, text, tickers=names, parameters=values)
        try:
            trigger = c.triggers.add(
                text,
                tickers=names,
                parameters=values,
                trigger_id=trigger_id,
                callback_id=callback_id,
                timeout=timeout,
            )
        except InvalidTrigger as error:
            refuse(error)
        for warning in trigger.warnings:
            say(f"warning: {warning}")
        status = "REGISTERED" if trigger.is_new else "ALREADY_REGISTERED"
        if is_followed:
            say(f"{status} {trigger.id}; Ctrl-C stops watching, `candlewright trigger remove {trigger.id}` removes it")
            show_events(trigger.events(), output, count)
        elif output is Output.json:
            print(json_line({"trigger_id": trigger.id, "status": status, "warnings": trigger.warnings}))
        else:
            print(f"{status} {trigger.id}")


def check_not_replaced(
    client: Client, trigger_id: str, sql: str, *, tickers: Sequence[str], parameters: Mapping[str, str]
) -> None:
    """Raises CandlewrightError if another trigger runs under this id."""
    try:
        known = client.triggers.get(trigger_id)
    except TriggerNotFound:
        return
    same = (known.sql, set(known.tickers), dict(known.parameters)) == (sql, set(tickers), dict(parameters))
    if not same and known.state == "active":
        raise CandlewrightError(
            f"another trigger is registered as {trigger_id}: `candlewright trigger show {trigger_id}` shows it,"
            " --replace replaces it"
        )


def list_triggers(output: Output, config: Path | None, timeout: float) -> None:
    with _client(config, timeout) as c:
        infos = c.triggers.list()
    rows = [asdict(each) for each in infos]
    if output is Output.table:
        for row, info in zip(rows, infos, strict=True):
            row["tickers"] = shortened(" ".join(row["tickers"])) or "(all)"
            row["registered"] = format_nanoseconds(row["registered_at"] // 10**9 * 10**9)
            row["sql"] = shortened(without_comments(row["sql"]))
            row["state"] = _state(info)
    print_rows(rows, output, columns=LIST_COLUMNS, empty="no trigger is registered")


def show(trigger_id: str, *, output: Output, config: Path | None, timeout: float) -> None:
    with _client(config, timeout) as c:
        info = c.triggers.get(trigger_id)
    if output is Output.json:
        print(json_line(asdict(info)))
    else:
        for line in _described(info):
            print(line)


def remove(trigger_id: str, *, output: Output, config: Path | None, timeout: float) -> None:
    with _client(config, timeout) as c:
        c.triggers.remove(trigger_id, timeout=timeout)
    if output is Output.json:
        print(json_line({"trigger_id": trigger_id, "status": "REMOVED"}))
    else:
        print(f"REMOVED {trigger_id}")


def events(
    trigger_id: str,
    *,
    follow: bool,
    count: int | None,
    quiet_seconds: float | None,
    output: Output,
    config: Path | None,
    hops: bool = False,
) -> None:
    """Shows kept events, and with `follow`, `count` or `quiet_seconds` new ones. Exit code 1 if fewer than `count`
    arrived in time, if the trigger never existed, or if it is suspended while more events are awaited.
    """
    with ending_quietly(), connect(settings=settings_for(config)) as c:
        newest = c.triggers.newest_number(trigger_id)
        if not newest:
            # A removed trigger that had fired still has events; an unknown one without events is a mistake.
            info = c.triggers.get(trigger_id)
        is_endless = follow or count is not None or quiet_seconds is not None
        if not newest and not is_endless:
            how = f"it is {_state(info)}" if info.reason else "--follow waits for them"
            say(f"trigger {trigger_id} has not fired yet; {how}")
            return
        with c.triggers.events(trigger_id, timeout=quiet_seconds, from_sequence=1) as stream:
            tell = tracer(c) if hops else None
            shown = show_events(stream, output, count, newest=None if is_endless else newest, trace=tell)
        if count is not None and shown < count:
            say(f"{shown} of {count} events came before {quiet_seconds:g} s passed without one")
            raise typer.Exit(1)


#: The times of an event's hops, by the names that `--hops` shows.
Trace = Callable[[TriggerEvent], dict[str, int | None]]


def show_events(
    stream: Stream[TriggerEvent],
    output: Output,
    count: int | None,
    *,
    newest: int | None = None,
    trace: Trace | None = None,
) -> int:
    """Stops after `count` events, after number `newest`, or after the stream's quiet time; returns how many were
    shown."""
    shown = 0
    for event in without_gaps(stream):
        passed = trace(event) if trace else None
        if output is Output.json:
            print(json_line(plain(event) | ({} if passed is None else {"hops": passed})), flush=True)
        else:
            for line in [*lines_of(event), *([] if passed is None else [way_of(passed)])]:
                print(wrapped(line, sys.stdout), flush=True)
        shown += 1
        if shown == count or (newest is not None and event.sequence >= newest):
            break
    return shown


def tracer(client: Client) -> Trace:
    """For events of the topic as they arrive: `here` is None for those older than this call."""
    began = time.time_ns()

    def trace(event: TriggerEvent) -> dict[str, int | None]:
        here = time.time_ns()
        found = client.triggers.hops(event)
        is_live = found.event_at is not None and found.event_at >= began
        return {
            "exchange": found.exchange_at,
            "ingestor": found.ingestor_at,
            "bus": found.bus_at,
            "event": found.event_at,
            "here": here if is_live else None,
        }

    return trace


def way_of(passed: Mapping[str, int | None]) -> str:
    """The known hops, and the milliseconds between them."""
    known = [(name, at) for name, at in passed.items() if at is not None]
    steps = [f"{(at - before) / 1e6:.1f} ms → {name}" for (_, before), (name, at) in pairwise(known)]
    return "    " + " → ".join([name for name, _ in known[:1]] + steps) if steps else "    its timing was not kept"


def without_gaps(stream: Stream[TriggerEvent]) -> Iterator[TriggerEvent]:
    """If the topic no longer keeps some events, a line on stderr says that they are in the table."""
    while True:
        try:
            yield from stream
            return
        except GapError as error:
            say(f"{error}; all events are in lake.market.trigger_events")


def plain(event: TriggerEvent) -> dict[str, Any]:
    """Every field unchanged, times in nanoseconds; values that are not JSON numbers become text."""
    row = asdict(event)
    for name in ("columns", "column_types"):
        del row[name]
    row["rows"] = [{name: _number(value) for name, value in each.items()} for each in event.rows]
    return row


def _number(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def lines_of(event: TriggerEvent) -> list[str]:
    """One line per row: time, trigger, and the values by name."""
    match = f" #{event.match_number}" if event.match_number is not None else ""
    notes = [f"({name})" for name in ("deadman", "timed_out", "partial", "truncated") if event.context.get(name)]
    head = f"{format_nanoseconds(event.time):<30} {event.trigger_id}{match}"
    ticker = event.ticker and f" {event.ticker}"
    return [" ".join([head + ticker, *_named_values(event, row), *notes]) for row in event.rows]


def _named_values(event: TriggerEvent, row: dict[str, Any]) -> Iterable[str]:
    for name, kind in zip(event.columns, event.column_types, strict=True):
        value = row[name]
        if isinstance(value, int) and value >= 0 and kind.partition("(")[0] in _TIME_TYPES:
            value = format_nanoseconds(value)
        if (name, value) != ("ticker", event.ticker):
            yield f"{name}={'NULL' if value is None else cell(value)}"


def refuse(error: InvalidTrigger) -> None:
    """One line on stderr; on a terminal the place in the text as well."""
    say(str(error) if sys.stderr.isatty() else error.one_line)
    raise typer.Exit(1) from error


def read_text(sql: str | None, file: Path | None, wanted: str = GIVE_ONCE) -> str:
    """Raises typer.BadParameter (exit code 2), with `wanted`, unless exactly one of them gives the text."""
    if (sql is None) == (file is None):
        raise typer.BadParameter(wanted)
    if sql is not None:
        return sql
    assert file is not None
    return content_of("--file", file)


def content_of(option: str, file: Path) -> str:
    """Raises typer.BadParameter (exit code 2) if the text cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{option} {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{option} {file} is not UTF-8 text") from error


def parameter(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"--param {text!r}: write name=value")
    return name, value


def _described(info: TriggerInfo) -> Iterator[str]:
    yield f"trigger     {info.trigger_id}"
    yield f"state       {_state(info)}"
    yield f"events      {info.events}"
    yield f"registered  {format_nanoseconds(info.registered_at)}"
    yield f"tickers     {' '.join(info.tickers) or '(every active one)'}"
    values = [f"{name}={value}" for name, value in sorted(info.parameters.items())]
    yield f"parameters  {' '.join(values) or '(none)'}"
    if info.views:
        yield f"views       {' '.join(info.views)}"
    if info.state_bytes:
        kept = f"{info.partitions:,} partitions, {info.state_bytes:,} bytes of state"
        yield f"cost        {kept}, {info.steps:,} steps so far"
    if info.row_ns:
        behind = f"{info.waiting_rows:,} rows wait, {info.behind_ns / 1e9:.3g} s behind"
        yield f"slow        {behind}; a row takes {info.row_ns / 1e6:.3g} ms"
    yield ""
    yield from info.sql.splitlines()


def _state(info: TriggerInfo) -> str:
    if info.is_starting:
        return "starting"
    return f"{info.state}: {info.reason}" if info.reason else info.state


def without_comments(sql: str) -> str:
    return _COMMENT_OR_QUOTED.sub(lambda found: found[1] or " ", sql)


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _client(config: Path | None, timeout: float) -> Client:
    return connect(settings=settings_for(config), timeout=timeout)
