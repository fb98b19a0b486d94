"""`candlewright trigger explain`: how close a registered trigger came to firing."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from candlewright.cli.output import Output, cell, json_line, say, wrapped
from candlewright.client import connect
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ticker import Ticker
from candlewright.wire.times import format_nanoseconds, to_nanoseconds
from candlewright_cep import TriggerRejected
from candlewright_platform.cli.machine.loading import settings_for

if TYPE_CHECKING:
    from candlewright_cep.tracing.attempts import Attempt, Row, Tested
    from candlewright_cep.tracing.conditions import Condition
    from candlewright_cep.tracing.explanation import Stage
    from candlewright_platform.cli.triggers.explanation import Explained

#: Rows of one attempt that are printed: the first ones and the last ones.
_FIRST_ROWS, _LAST_ROWS = 3, 8
_ENDS = {
    "matched": "matched",
    "failed": "failed",
    "expired": "failed: WITHIN passed",
    "waiting": "open",
}


def explain(
    trigger_id: str,
    at: str | None,
    ticker: str | None,
    *,
    attempts: int,
    output: Output,
    data_dir: Path | None,
    config: Path | None,
    timeout: float,
) -> None:
    from candlewright_platform.cli.triggers import explanation as explaining

    try:
        moment = to_nanoseconds(at) if at is not None else None
        name = str(Ticker.parse(ticker)) if ticker is not None else None
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    settings = settings_for(config, data_dir)
    with connect(settings=settings, timeout=timeout) as c:
        info = c.triggers.get(trigger_id)
        known = {each: c.views.show(each) for each in info.views}
    views = {name: view.sql for name, view in known.items()}
    readers = {name: view.trigger_count for name, view in known.items()}
    try:
        found = explaining.run(settings, info, views, ticker=name, at=moment, attempts=attempts)
    except TriggerRejected as error:
        say(" ".join(str(error).split()))
        raise typer.Exit(1) from error
    if output is Output.json:
        print(json_line(found.to_dict(trigger_id, readers)))
        return
    for line in lines_of(trigger_id, found, info.registered_at, readers=readers):
        print(wrapped(line, sys.stdout))


def lines_of(trigger_id: str, found: "Explained", registered_at: int, *, readers: Mapping[str, int]) -> Iterator[str]:
    """`readers`: by registered view, the number of triggers that read it."""
    told = found.explanation
    span = f"{_time(told.first)} to {_time(told.last)}"
    yield f"{trigger_id} over {', '.join(found.tickers) or 'all tickers'}: {told.rows:,} {found.what}"
    yield f"{span}: it fired {_count(told.fired, 'time')}"
    if told.first is not None and told.first < registered_at:
        yield f"(rows from before its registration, {format_nanoseconds(registered_at)}, count here as well)"
    for name in found.views:
        count = readers.get(name)
        whom = "all triggers" if count is None else f"the {_count(count, 'trigger')}"
        yield f"view {name}: computed once for {whom} that read{'s' if count == 1 else ''} it"
    for stage in told.stages:
        yield ""
        yield from _stage_lines(stage)


def _stage_lines(stage: "Stage") -> Iterator[str]:
    is_pattern = stage.kind == "MATCH_RECOGNIZE"
    went_on = f"{_count(stage.passed, 'match', 'matches')}" if is_pattern else f"{stage.passed:,} passed"
    failed = f", {_count(stage.failed, 'attempt')} failed" if is_pattern else ""
    if stage.examined < stage.failed:
        failed += f", of which the newest {stage.examined:,} are compared"
    yield f"{stage.kind} over {_count(stage.rows, 'row')}: {went_on}{failed}"
    if not is_pattern:
        yield f"  {stage.text}"
    nearest = 0
    for attempt in stage.attempts:
        if attempt.outcome in ("failed", "expired"):
            nearest += 1
        yield ""
        yield from _attempt_lines(attempt, nearest, is_pattern=is_pattern)


def _attempt_lines(attempt: "Attempt", nearest: int, *, is_pattern: bool) -> Iterator[str]:
    key = " ".join(cell(value) for value in attempt.key.values())
    name = f"nearest {nearest}" if attempt.outcome in ("failed", "expired") else attempt.outcome
    if not is_pattern:
        open_window = "; the window is still open" if attempt.outcome == "waiting" else ""
        yield f"{name}: row of {_time(attempt.start)}" + (f" {key}" if key else "") + open_window
        for test in attempt.nearest:
            yield from _condition_lines(test.condition, 2)
        return
    taken = f"{_count(attempt.taken, 'row')} taken"
    more = f", at least {attempt.missing:,} more needed" if attempt.missing else ""
    yield f"{name}: {key + ', ' if key else ''}{_ENDS[attempt.outcome]}, {taken}{more}"
    yield from _row_lines(attempt.rows, attempt.taken)
    if attempt.outcome == "waiting":
        yield from _waiting_lines(attempt)
    elif attempt.nearest:
        died = "it came nearest" if attempt.outcome == "expired" else "it died"
        yield f"  {died} at {_row_text(attempt.nearest[0].row)}"
        yield from _test_lines(attempt.nearest, "which is not")
    elif attempt.outcome == "expired":
        yield f"  no further row came before {_time(attempt.deadline)}"


def _waiting_lines(attempt: "Attempt") -> Iterator[str]:
    if attempt.nearest:
        yield f"  it came nearest at {_row_text(attempt.nearest[0].row)}"
        yield from _test_lines(attempt.nearest, "which is not")
    until = f" before {_time(attempt.deadline)}" if attempt.deadline is not None else ""
    yield f"  it waits for the next row{until}, as"
    yield from _test_lines(attempt.awaits, "")
    if attempt.can_end:
        yield (
            "    if it is neither, the rows so far are a match" if attempt.awaits else "    the rows so far are a match"
        )


def _test_lines(tests: Sequence["Tested"], words: str) -> Iterator[str]:
    for test in tests:
        prefix = f"    {words} {test.variable}" if words else f"    {test.variable}"
        if test.condition is None:
            yield f"{prefix}: any row"
            continue
        yield f"{prefix}:"
        yield from _condition_lines(test.condition, 6)


def _condition_lines(condition: "Condition | None", indent: int) -> Iterator[str]:
    """One line for each part of an AND, with its values on a separate line."""
    if condition is None:
        return
    if condition.connective == "AND":
        for part in condition.parts:
            yield from _condition_lines(part, indent)
        return
    yield " " * indent + f"{_verdict(condition)}{condition.text}"
    known = [f"{each.text} = {_value(each.value)}" for each in condition.operands if each.is_known]
    if known:
        yield " " * (indent + 6) + ", ".join(known)
    for part in condition.parts:
        yield from _condition_lines(part, indent + 6)


def _verdict(condition: "Condition") -> str:
    if condition.holds is not None:
        return "true  " if condition.holds else "false "
    is_open = any(not each.is_known for each in condition.operands) or bool(condition.parts)
    return "?     " if is_open else "NULL  "


def _value(value: object) -> str:
    return "NULL" if value is None else cell(value)


def _row_lines(rows: Sequence["Row"], taken: int) -> Iterator[str]:
    shown = [*rows[:_FIRST_ROWS], *rows[-_LAST_ROWS:]] if len(rows) > _FIRST_ROWS + _LAST_ROWS else [*rows]
    for place, row in enumerate(shown):
        if place == _FIRST_ROWS and len(shown) < taken:
            yield f"    … {taken - len(shown):,} more rows"
        yield f"    {row.variable} {_row_text(row)}"


def _row_text(row: "Row | None") -> str:
    if row is None:
        return ""
    return " ".join([_time(row.time), *(f"{name}={_value(value)}" for name, value in row.values.items())])


def _time(time: int | None) -> str:
    return "?" if time is None else format_nanoseconds(time)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
