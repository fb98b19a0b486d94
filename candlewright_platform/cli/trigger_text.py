"""`candlewright trigger check` and `trigger format`: a text, looked at without running it."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from candlewright.cli.output import Output, json_line, say
from candlewright.cli.trigger import content_of, parameter, read_text
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from candlewright_cep import TriggerRejected, formatted, view_name
from candlewright_platform.cli.loading import settings_for
from triggers.check import TriggerRules, diagnose_trigger


def read_views(files: Sequence[Path]) -> dict[str, str]:
    """Texts by the names that they give themselves. Raises typer.BadParameter."""
    found: dict[str, str] = {}
    for file in files:
        text = content_of("--view", file)
        try:
            name = view_name(text)
        except TriggerRejected as error:
            raise typer.BadParameter(f"--view {file}: {error}") from error
        if not name:
            raise typer.BadParameter(f"--view {file}: a view is CREATE VIEW name AS SELECT ...")
        found[name] = text
    return found


def check(
    sql: str | None,
    file: Path | None,
    tickers: Sequence[str],
    parameters: Sequence[str],
    output: Output,
    config: Path | None,
    views: Sequence[Path] = (),
) -> None:
    """Exit code 1 where the text would be refused."""
    text = read_text(sql, file)
    settings = settings_for(config, None)
    rules = TriggerRules.of(settings.triggers, settings.bus.partitions, frozenset(settings.alerts.destinations))
    request = CEPTriggerRequest(
        trigger_id="check", sql_pattern=text, tickers=tickers, parameters=dict(map(parameter, parameters))
    )
    try:
        found = diagnose_trigger(request, rules, read_views(views))
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    if output is Output.json:
        problems = [asdict(problem) for problem in found.problems]
        first = {name: problems[0][name] for name in ("line", "column", "hint")} if problems else {}
        print(
            json_line(
                {"ok": not problems, **first, "errors": problems, "warnings": found.warnings, "mended": found.mended}
            )
        )
    else:
        for problem in found.problems:
            hint = f" ({problem.hint})" if problem.hint else ""
            say(f"INVALID_SQL {problem.line}:{problem.column}: {problem.message}{hint}")
        for warning in found.warnings:
            say(f"warning: {warning}")
        if found.mended is not None:
            say("with its obvious slips mended:")
            sys.stdout.write(found.mended.rstrip("\n") + "\n")
        elif not found.problems:
            say("the text may be registered")
    if found.problems:
        raise typer.Exit(1)


def reformat(sql: str | None, file: Path | None, *, in_place: bool, check: bool) -> None:
    """Exit code 1 where the text cannot be read, or `check` finds another layout."""
    if in_place and file is None:
        raise typer.BadParameter("--in-place needs --file")
    text = read_text(sql, file)
    try:
        found = formatted(text)
    except TriggerRejected as error:
        say(str(error))
        raise typer.Exit(1) from error
    if check:
        raise typer.Exit(0 if found.rstrip("\n") == text.rstrip("\n") else 1)
    if in_place and file is not None:
        file.write_text(found)
    else:
        sys.stdout.write(found)
