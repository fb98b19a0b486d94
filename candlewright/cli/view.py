"""`candlewright view add|list|show|remove`: registered views of the running platform."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from candlewright.cli.loading import settings_for
from candlewright.cli.output import Output, json_line, print_rows, say
from candlewright.cli.trigger import read_text, refuse, shortened, without_comments
from candlewright.client import InvalidTrigger, ViewInfo, connect
from candlewright.wire.times import format_nanoseconds

BUILT_IN_COLUMNS = ("name", "sql")
LIST_COLUMNS = ("name", "version", "triggers", "read_by", "sql")


def add(
    name: str,
    *,
    sql: str | None,
    file: Path | None,
    replace: bool,
    output: Output,
    config: Path | None,
    timeout: float,
) -> None:
    text = read_text(sql, file, "give the text once: --sql TEXT or --file F")
    with connect(settings=settings_for(config)) as c:
        try:
            view = c.views.add(name, text, replace=replace, timeout=timeout)
        except InvalidTrigger as error:
            refuse(error)
    for warning in view.warnings:
        say(f"warning: {warning}")
    status = "REGISTERED" if view.is_new else "ALREADY_REGISTERED"
    if output is Output.json:
        print(
            json_line(
                {
                    "name": view.name,
                    "status": status,
                    "version": view.version,
                    "restarted": view.restarted,
                    "warnings": view.warnings,
                }
            )
        )
        return
    for trigger_id in view.restarted:
        say(f"trigger {trigger_id} reads the view and starts afresh")
    print(f"{status} {view.name}")


def list_views(output: Output, config: Path | None, timeout: float, *, built_in: bool) -> None:
    with connect(settings=settings_for(config), timeout=timeout) as c:
        infos = c.views.list(built_in=built_in)
    rows = [asdict(each) for each in infos]
    if output is Output.table:
        for row, info in zip(rows, infos, strict=True):
            row["triggers"] = info.trigger_count
            row["read_by"] = shortened(" ".join(info.read_by))
            row["sql"] = shortened(without_comments(info.sql))
    columns = BUILT_IN_COLUMNS if built_in else LIST_COLUMNS
    print_rows(rows, output, columns=columns, empty="no view is registered; --built-in lists those that need not be")


def show(name: str, *, output: Output, config: Path | None, timeout: float) -> None:
    with connect(settings=settings_for(config), timeout=timeout) as c:
        info = c.views.show(name)
    if output is Output.json:
        print(json_line(asdict(info)))
    else:
        for line in _described(info):
            print(line)


def remove(name: str, *, output: Output, config: Path | None, timeout: float) -> None:
    with connect(settings=settings_for(config), timeout=timeout) as c:
        c.views.remove(name, timeout=timeout)
    if output is Output.json:
        print(json_line({"name": name, "status": "REMOVED"}))
    else:
        print(f"REMOVED {name}")


def _described(info: ViewInfo) -> Iterator[str]:
    yield f"view        {info.name}"
    yield f"version     {info.version or '(built in)'}"
    if info.version:
        yield f"registered  {format_nanoseconds(info.registered_at)}"
    yield f"columns     {', '.join(f'{name} {kind}' for name, kind in info.columns.items())}"
    if info.version:
        yield from _used(info)
    yield ""
    yield from info.sql.splitlines()


def _used(info: ViewInfo) -> Iterator[str]:
    yield f"reads       {' '.join(info.reads) or '(no view)'}"
    yield f"read by     {' '.join(info.read_by) or '(no view)'}"
    more = f" and {info.trigger_count - len(info.triggers)} more" if info.trigger_count > len(info.triggers) else ""
    yield f"triggers    {' '.join(info.triggers) or '(none)'}{more}"
