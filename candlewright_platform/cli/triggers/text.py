"""`candlewright trigger check|format|language`: checks of a text without running it, and the language."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from candlewright.cli.output import Output, json_line, say, wrapped
from candlewright.cli.trigger import content_of, parameter, read_text
from candlewright.client import connect
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from candlewright_cep import TriggerRejected, formatted, view_name
from candlewright_cep.binding.binder import closest
from candlewright_platform.cli.machine.loading import settings_for
from core.settings import Settings
from triggers.texts.check import TriggerRules, diagnose_trigger
from triggers.texts.language import language, language_json

#: How long to wait for the platform's answer.
_SECONDS = 10.0


def read_views(given: Sequence[Path], settings: Settings) -> dict[str, str]:
    """Texts of files, by the names in them, and of views that are registered with the platform: a `--view` that is not
    a file is such a name. Raises typer.BadParameter and CandlewrightError.
    """
    names = [str(each) for each in given if str(each).isidentifier() and not each.exists()]
    found = _registered(names, settings) if names else {}
    for file in given:
        if str(file) in names:
            continue
        text = content_of("--view", file)
        try:
            name = view_name(text)
        except TriggerRejected as error:
            raise typer.BadParameter(f"--view {file}: {error}") from error
        if not name:
            raise typer.BadParameter(f"--view {file}: a view is CREATE VIEW name AS SELECT ...")
        found[name] = text
    return found


def _registered(names: Sequence[str], settings: Settings) -> dict[str, str]:
    """Registered views of these names, with the views that they read."""
    with connect(settings=settings, timeout=_SECONDS) as c:
        found = {info.name: info for info in map(c.views.show, names)}
        for name in sorted({name for info in found.values() for name in info.reads} - found.keys()):
            found[name] = c.views.show(name)
    return {name: info.sql for name, info in found.items()}


def check(
    sql: str | None,
    file: Path | None,
    tickers: Sequence[str],
    *,
    parameters: Sequence[str],
    output: Output,
    config: Path | None,
    views: Sequence[Path] = (),
) -> None:
    """Exit code 1 if the text would be refused."""
    text = read_text(sql, file)
    settings = settings_for(config, None)
    rules = TriggerRules.of(settings.triggers, settings.bus.partitions, frozenset(settings.alerts.destinations))
    request = CEPTriggerRequest(
        trigger_id="check", sql_pattern=text, tickers=tickers, parameters=dict(map(parameter, parameters))
    )
    try:
        found = diagnose_trigger(request, rules, read_views(views, settings))
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    if output is Output.json:
        problems = [problem.to_dict() for problem in found.problems]
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
            say("with obvious slips corrected:")
            sys.stdout.write(found.mended.rstrip("\n") + "\n")
        if not found.problems:
            say("the text may be registered")
    if found.problems:
        raise typer.Exit(1)


def show_language(name: str | None, output: Output) -> None:
    """The whole language, or the entry of this name. Exit code 1 for an unknown name."""
    if name is None and output is Output.json:
        print(language_json())
        return
    known = language()
    entries = [*known["functions"], *known["forms"], *known["views"]]
    if name is None:
        for entry in entries:
            _print_entry(entry, labels=())
        return
    wanted = " ".join(name.upper().split())
    found = [entry for entry in entries if entry["name"].upper() == wanted]
    if not found:
        names = {entry["name"] for entry in entries}
        say(f"the trigger language has no {name}. {closest(wanted, names)}".strip())
        raise typer.Exit(1)
    for entry in found:
        if output is Output.json:
            print(json_line(entry))
        else:
            _print_entry(entry, labels=("nulls", "stream", "example"))


def _print_entry(entry: Mapping[str, str], *, labels: Sequence[str]) -> None:
    print(wrapped(entry.get("signature") or entry.get("form") or entry["name"], sys.stdout))
    print(wrapped(f"    {entry['text']}", sys.stdout))
    for label in labels:
        if label in entry:
            print(wrapped(f"    {label + ':':<9}{entry[label]}", sys.stdout))


def reformat(sql: str | None, file: Path | None, *, in_place: bool, check: bool) -> None:
    """Exit code 1 if the text cannot be parsed, or if `check` finds another layout."""
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
