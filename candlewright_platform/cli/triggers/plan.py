"""`candlewright trigger plan`: what a trigger keeps, when it fires, what it costs."""

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer

from candlewright.cli.output import Output, json_line, say
from candlewright.cli.trigger import content_of, parameter
from candlewright.client import connect
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ticker import Ticker
from candlewright_cep import TriggerRejected
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.triggers import costs as planning
from candlewright_platform.cli.triggers.text import read_views
from triggers.texts.planned import Measured, PlanStep

_WIDTH = 80
#: Characters that a text contains and an id does not.
_OF_A_TEXT = re.compile(r"[\s<>=(]|^(TRUE|FALSE|NULL)$", re.IGNORECASE)


def plan(
    trigger: str | None,
    file: Path | None,
    tickers: Sequence[str],
    *,
    parameters: Sequence[str],
    view_files: Sequence[Path],
    output: Output,
    data_dir: Path | None,
    config: Path | None,
    timeout: float,
) -> None:
    if (trigger is None) == (file is None):
        raise typer.BadParameter("give a text or an id, or --file F")
    try:
        names = [str(Ticker.parse(each)) for each in tickers]
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    settings = settings_for(config, data_dir)
    values: Mapping[str, str] = dict(map(parameter, parameters))
    views = read_views(view_files, settings)
    readers: Mapping[str, int] = {}
    if trigger is None:
        assert file is not None
        sql = content_of("--file", file)
    elif _OF_A_TEXT.search(trigger):
        sql = trigger
    else:
        with connect(settings=settings, timeout=timeout) as c:
            info = c.triggers.get(trigger)
            known = {name: c.views.show(name) for name in info.views}
        readers = {name: view.trigger_count for name, view in known.items() if name not in views}
        views = {name: view.sql for name, view in known.items()} | views
        sql, values, names = info.sql, {**info.parameters, **values}, names or list(info.tickers)
    try:
        found = planning.run(settings, sql, values, tickers=names, views=views, readers=readers)
    except TriggerRejected as error:
        say(" ".join(str(error).split()))
        raise typer.Exit(1) from error
    if output is Output.json:
        print(json_line(found.to_dict()))
        return
    for line in lines_of(found):
        sys.stdout.write(f"{line}\n")


def lines_of(found: planning.Planned) -> Iterator[str]:
    """Of at most 80 columns."""
    yield from _field("reads", f"{', '.join(found.plan.reads)}; {found.plan.together}")
    for number, step in enumerate(found.plan.steps, start=1):
        yield ""
        yield from _step_lines(number, step)
    yield ""
    for place, sentence in enumerate(found.plan.fires):
        yield from _field("fires" if not place else "", sentence)
    yield ""
    if found.measured is None:
        yield from _field("cost", f"not measured: {found.note}")
    else:
        for place, sentence in enumerate(_costs(found.measured, found.what)):
            yield from _field("cost" if not place else "", sentence)
    for warning in found.warnings:
        yield from _field("warning", warning)


def _step_lines(number: int, step: PlanStep) -> Iterator[str]:
    yield from _field(f"step {number}", step.text)
    yield from _field("  keeps", step.keeps + (f" (bound: {step.bound})" if step.bound else ""))
    yield from _field("  comes", step.fires)


def _costs(measured: Measured, what: str) -> Iterator[str]:
    minutes = measured.span_seconds / 60
    yield (
        f"measured over {measured.rows:,} {what} of {', '.join(measured.tickers)} in {minutes:,.1f} minutes:"
        f" {measured.rows_per_second:,.2f} rows a second"
    )
    yield f"{measured.events:,} events"
    yield (
        f"{measured.cpu_seconds:,.3f} s of CPU: {measured.rows_per_cpu_second:,.0f} rows a second of one core,"
        f" {measured.core_share:.2%} of a core at the speed at which they came"
    )
    yield (
        f"state at the end: {measured.state_bytes:,} bytes, {measured.partitions:,} partitions,"
        f" {measured.kept_rows:,} rows kept"
    )


def _field(label: str, text: str) -> Iterator[str]:
    lines = textwrap.wrap(text, _WIDTH - 9, break_long_words=True) or [""]
    for place, line in enumerate(lines):
        yield f"{label if not place else '':<9}{line}"
