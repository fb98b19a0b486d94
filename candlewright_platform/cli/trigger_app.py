"""Commands for triggers that need the platform on this machine: `trigger check`, `plan`, `try` and others."""

from pathlib import Path
from typing import Annotated

import typer

from candlewright.cli.options import (
    Config,
    DataDir,
    OutputOption,
    ParamOption,
    SqlFileOption,
    SqlOption,
    TextArgument,
    Timeout,
    one_text,
)
from candlewright.cli.output import Output

trigger_app = typer.Typer(rich_markup_mode=None)

ViewOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--view", metavar="FILE|NAME", help="A view that the text reads: a file (CREATE VIEW …), or a registered one."
    ),
]


@trigger_app.command("check")
def trigger_check(
    text: TextArgument = None,
    sql: SqlOption = None,
    file: SqlFileOption = None,
    ticker: Annotated[list[str] | None, typer.Option("--ticker", help="As for trigger add.")] = None,
    param: ParamOption = None,
    view: ViewOption = None,
    output: OutputOption = Output.table,
    config: Config = None,
) -> None:
    """Check a trigger's text without registering it. Reports all errors at once, warnings, and fixes for obvious slips.

    Example: candlewright trigger check "SELECT prise FROM ticks WHERE prise > :limit" --param limit=70000
    """
    from candlewright_platform.cli.triggers import text as trigger_text

    trigger_text.check(
        one_text(text, sql), file, ticker or [], parameters=param or [], output=output, config=config, views=view or []
    )


@trigger_app.command("format")
def trigger_format(
    text: TextArgument = None,
    sql: SqlOption = None,
    file: SqlFileOption = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write the file instead of printing it.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Print nothing; exit code 1 if the layout would change.")
    ] = False,
) -> None:
    """Print a trigger's text in its canonical layout. Comments and meaning stay.

    Example: candlewright trigger format --file dip.sql --in-place
    """
    from candlewright_platform.cli.triggers import text as trigger_text

    trigger_text.reformat(one_text(text, sql), file, in_place=in_place, check=check)


@trigger_app.command("language")
def trigger_language(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A function, or a clause such as GROUP BY.")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show what a trigger's text may contain. Functions and clauses with signatures, NULL rules and examples.

    Example: candlewright trigger language RSI
    """
    from candlewright_platform.cli.triggers import text as trigger_text

    trigger_text.show_language(name, output)


@trigger_app.command("plan")
def trigger_plan(
    trigger: Annotated[
        str | None, typer.Argument(metavar="[TEXT|ID]", help="A text, or the id of a registered trigger.")
    ] = None,
    file: SqlFileOption = None,
    ticker: Annotated[
        list[str] | None, typer.Option("--ticker", help="Measure over its last stored hour; may be repeated.")
    ] = None,
    param: ParamOption = None,
    view: ViewOption = None,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
    timeout: Timeout = 10,
) -> None:
    """Show what a trigger keeps, when it fires, and what it costs. Measured over the last stored hour of its tickers.

    Example: candlewright trigger plan "price > 70000 AND size > 2" --ticker BTC/USDT.BINANCE
    """
    from candlewright_platform.cli.triggers import plan as trigger_plan

    trigger_plan.plan(
        trigger,
        file,
        ticker or [],
        parameters=param or [],
        view_files=view or [],
        output=output,
        data_dir=data_dir,
        config=config,
        timeout=timeout,
    )


@trigger_app.command("explain")
def trigger_explain(
    trigger_id: Annotated[str, typer.Argument(metavar="ID", help="A registered trigger.")],
    at: Annotated[str | None, typer.Option("--at", help="As of this time, ISO 8601 (UTC; default: now).")] = None,
    ticker: Annotated[str | None, typer.Option("--ticker", help="Which ticker, if the trigger has several.")] = None,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, max=50, help="How many of the closest attempts to show.")
    ] = 3,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
    timeout: Timeout = 10,
) -> None:
    """Show how close a trigger came to firing. Which rows it took, what failed and by how much, what it waits for.

    Example: candlewright trigger explain dip --at 2024-01-01T12:30 --ticker BTC/USDT.BINANCE
    """
    from candlewright_platform.cli.triggers import explain as trigger_explain

    trigger_explain.explain(
        trigger_id, at, ticker, attempts=attempts, output=output, data_dir=data_dir, config=config, timeout=timeout
    )


@trigger_app.command("try")
def trigger_try(
    text: TextArgument = None,
    sql: SqlOption = None,
    file: SqlFileOption = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="[NAME=]FILE", help="Parquet file to read; several with their names, for joins."
        ),
    ] = None,
    table: Annotated[str | None, typer.Option("--table", help="The input's name in the text (default: ticks).")] = None,
    ticker: Annotated[
        str | None,
        typer.Option("--ticker", help="Stored trades of this ticker, or bars with --param period_seconds=60."),
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="From this time on, ISO 8601 (UTC).")] = None,
    as_seen: Annotated[
        bool,
        typer.Option(
            "--as-seen",
            help="Over bars as published after --since, corrections included: reproduces past events.",
        ),
    ] = False,
    param: ParamOption = None,
    view: ViewOption = None,
    batch: Annotated[Path | None, typer.Option("--batch", help="Many cases: JSON lines in, JSON lines out.")] = None,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Run a trigger's text over stored data. Reads a file, or a ticker's stored rows, and draws a chart.

    Example: candlewright trigger try "close > open * 1.01" --param period_seconds=60
    --ticker BTC/USDT.BINANCE --since 2024-01-01
    """
    from candlewright_platform.cli.triggers import trial as trigger_try

    if batch is not None:
        trigger_try.try_batch(batch)
    else:
        trigger_try.try_one(
            one_text(text, sql),
            file,
            inputs or [],
            table=table,
            ticker=ticker,
            since=since,
            parameters=param or [],
            output=output,
            data_dir=data_dir,
            config=config,
            as_seen=as_seen,
            views=view or [],
        )
