"""The commands. The bodies of commands are in the neighbouring modules and are loaded when a command runs, so `--help`
is quick.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from candlewright.cli import platform_commands
from candlewright.cli.options import (
    Config,
    DataDir,
    FileOption,
    FileOutputOption,
    OutputOption,
    ParamOption,
    SqlFileOption,
    SqlOption,
    TextArgument,
    Timeout,
    ViewFileOption,
    ViewSqlOption,
    one_text,
)
from candlewright.cli.output import FileOutput, Output


class _Commands(TyperGroup):
    """Leaves out the first words of pydantic's errors, which Typer shows for a value that an option does not take."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="candlewright",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Market data with exact candles: ingestion, tables, triggers. Exit codes: 0 done, 1 refused, 2 wrong usage.",
)
trigger_app = typer.Typer(no_args_is_help=True, help="Triggers in SQL.", rich_markup_mode=None)
app.add_typer(trigger_app, name="trigger")
view_app = typer.Typer(no_args_is_help=True, help="Named queries for triggers.", rich_markup_mode=None)
app.add_typer(view_app, name="view")


def _version(*, is_asked: bool) -> None:
    if is_asked:
        from candlewright.version import VERSION

        print(f"candlewright {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def history(
    ticker: Annotated[str, typer.Argument(help="BASE/QUOTE.VENUE, such as BTC/USDT.BINANCE.")],
    start: Annotated[str, typer.Option("--start", help="First open time, ISO 8601 (UTC).")],
    end: Annotated[str | None, typer.Option("--end", help="Open times before this; default: now.")] = None,
    period: Annotated[str, typer.Option("--period", help="1m, 4h, 1d, … or seconds.")] = "1m",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N candles.")] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Also request ranges that the table proves complete.")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="Fetch nothing; show candles as they were known at that time, ISO 8601 (UTC)."),
    ] = None,
    output: FileOutputOption = FileOutput.table,
    file: FileOption = None,
    data_dir: DataDir = None,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """Fetch, store and show candles. As a chart and a table, or written to a file."""
    from candlewright.cli import requests

    requests.history(
        ticker,
        period=period,
        start=start,
        end=end,
        limit=limit,
        refresh=refresh,
        as_of=as_of,
        output=output,
        file=file,
        data_dir=data_dir,
        config=config,
        timeout=timeout,
    )


@app.command()
def load(
    ticker: Annotated[str, typer.Argument(help="BASE/QUOTE.VENUE, such as BTC/USDT.BINANCE.")],
    start: Annotated[str, typer.Option("--start", help="First open time, ISO 8601 (UTC).")],
    end: Annotated[str, typer.Option("--end", help="Open times before this, ISO 8601 (UTC).")],
    period: Annotated[str, typer.Option("--period", help="1m, 4h, 1d, … or seconds.")] = "1m",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N candles.")] = None,
    output: FileOutputOption = FileOutput.table,
    file: FileOption = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Show or write stored candles, without a request. Needs no running platform."""
    from candlewright.cli import requests

    requests.load(
        ticker,
        period=period,
        start=start,
        end=end,
        limit=limit,
        output=output,
        file=file,
        data_dir=data_dir,
        config=config,
    )


@app.command()
def verify(
    tickers: Annotated[
        list[str] | None, typer.Argument(metavar="TICKER…", help="BASE/QUOTE.VENUE, such as BTC/USDT.BINANCE.")
    ] = None,
    start: Annotated[str | None, typer.Option("--start", help="First open time, ISO 8601 (UTC).")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Open times before this, ISO 8601 (UTC).")] = None,
    period: Annotated[str, typer.Option("--period", help="1m, 4h, 1d, … or seconds.")] = "1m",
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", metavar="FILE", help="Check exported files instead, without the exchange."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The exported files (default: the manifest's folder).")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="PUBLIC", help="The signer's public key, or a file that holds it.")
    ] = None,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """Compare stored candles with the exchange again. Or check exported files against their signed manifest.

    Exit code 1 if there is a difference. After a comparison with the exchange, the tables hold its current values;
    lake.market.ohlc_revisions keeps the previous ones.

    Example: candlewright verify --manifest data/manifest.json --key 3b6a27bc…
    """
    from candlewright.cli import verify

    if manifest is not None:
        is_same = verify.verify_manifest(tickers or [], manifest=manifest, data=data, key=key, output=output)
    else:
        is_same = verify.verify(
            tickers or [],
            period=period,
            start=start,
            end=end,
            output=output,
            data_dir=data_dir,
            config=config,
            timeout=timeout,
        )
    if not is_same:
        raise typer.Exit(1)


@app.command("requests")
def list_requests(
    request_id: Annotated[str | None, typer.Argument(help="Only this request.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel it; its final notification is ERROR.")] = False,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """List requests, their progress, and how they ended."""
    from candlewright.cli import requests

    requests.list_requests(request_id, cancel=cancel, output=output, data_dir=data_dir, config=config, timeout=timeout)


@app.command()
def snapshot(
    ticker: Annotated[str, typer.Argument(help="BASE/QUOTE.VENUE.")],
    output: OutputOption = Output.table,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """The newest prices of a ticker."""
    from candlewright.cli import requests

    requests.snapshot(ticker, output=output, config=config, timeout=timeout)


@app.command()
def watch(
    ticker: Annotated[str, typer.Argument(help="BASE/QUOTE.VENUE.")],
    period: Annotated[
        str | None, typer.Option("--period", help="Bars of 1s, 1m, 1h, …; without it every trade.")
    ] = None,
    output: OutputOption = Output.table,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after N trades or bars.")] = None,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """Show live trades or bars. A chart and a table on a terminal, lines elsewhere; Ctrl-C ends it."""
    from candlewright.cli import watch

    watch.watch(ticker, period=period, output=output, count=count, config=config, timeout=timeout)


@app.command()
def venues(output: OutputOption = Output.table, config: Config = None, timeout: Timeout = 10.0) -> None:
    """The venues that the platform's ingestors offer."""
    from candlewright.cli import requests

    requests.venues(output, config, timeout)


@app.command()
def markets(
    venue: Annotated[str, typer.Argument(help="Such as BINANCE.")],
    output: OutputOption = Output.table,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """The markets of a venue."""
    from candlewright.cli import requests

    requests.markets(venue, output=output, config=config, timeout=timeout)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="Spark SQL; the tables are ohlc, ticks and so on.")],
    output: FileOutputOption = FileOutput.table,
    file: FileOption = None,
    config: Config = None,
) -> None:
    """Run Spark SQL on the tables. Needs a running platform; MATCH_RECOGNIZE and queries in the trigger language work
    over any table.

    Examples: candlewright sql "SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time
    MEASURES LAST(F.close) AS low PATTERN (F{3}) DEFINE F AS close < PREV(close))"; candlewright sql "SELECT ticker,
    RSI(close, 14) OVER (PARTITION BY ticker ORDER BY open_time) AS rsi FROM ohlc WHERE period_seconds = 3600"
    """
    from candlewright.cli import tables

    tables.sql(statement, output=output, file=file, config=config)


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds, until Ctrl-C.")] = False,
    output: OutputOption = Output.table,
    config: Config = None,
) -> None:
    """Live tickers, queries, parts and roles of the platform. Exit code 1 if a part is unhealthy."""
    from candlewright.cli import status as platform_status

    platform_status.status(output, config=config, watch=watch)


@app.command()
def mcp(
    allow_write: Annotated[
        bool, typer.Option("--allow-write", help="Also fetch history, add and remove triggers.")
    ] = False,
    config: Config = None,
) -> None:
    """Serve data and triggers to an AI assistant, over stdio. Read-only unless --allow-write is given.

    The assistant starts this command itself: docs/how-to/mcp.md has the lines for its settings.
    """
    from candlewright.cli import mcp

    mcp.serve(allow_write=allow_write, config=config)


@trigger_app.callback()
def trigger() -> None:
    """Triggers in SQL: conditions, windows and row patterns (MATCH_RECOGNIZE) over live ticks and bars."""


TriggerId = Annotated[str, typer.Argument(help="The trigger's id.")]
FollowOption = Annotated[bool, typer.Option("--follow", help="Show events as they arrive, until Ctrl-C.")]
CountOption = Annotated[int | None, typer.Option("--count", min=1, help="End after N events.")]
AddTimeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait until it is done.")]


@trigger_app.command("add")
def trigger_add(
    text: TextArgument = None,
    sql: SqlOption = None,
    file: SqlFileOption = None,
    ticker: Annotated[
        list[str] | None,
        typer.Option(
            "--ticker", help="BASE/QUOTE.VENUE, fetched live; may be repeated (default: every active ticker)."
        ),
    ] = None,
    param: ParamOption = None,
    identity: Annotated[
        str | None,
        typer.Option(
            "--id", help="The trigger's id (default: derived from its content); an existing one needs --replace."
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another trigger under this id.")] = False,
    callback: Annotated[
        str | None, typer.Option("--callback", help="Events go to the topic RESPONSE:{CALLBACK} as well.")
    ] = None,
    alert: Annotated[
        list[str] | None, typer.Option("--alert", help="Deliver its events to this destination; may be repeated.")
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", help='The alert\'s text, as "{{ ticker }} fell to {{ price }}".')
    ] = None,
    resolved_by: Annotated[
        str | None,
        typer.Option("--resolved-by", metavar="TRIGGER", help="Its events resolve this trigger's alerts."),
    ] = None,
    follow: FollowOption = False,
    count: CountOption = None,
    output: OutputOption = Output.table,
    config: Config = None,
    timeout: AddTimeout = 60.0,
) -> None:
    """Register a trigger; it runs until it is removed.

    Example: candlewright trigger add "price > :limit" --param limit=70000 --ticker BTC/USDT.BINANCE --follow
    """
    from candlewright.cli import trigger

    own = [f"alert_to={','.join(alert)}"] if alert else []
    own += [f"alert_message={message}"] if message else []
    own += [f"alert_resolved_by={resolved_by}"] if resolved_by else []
    parameters = [*(param or []), *own]
    trigger.add(
        one_text(text, sql),
        file=file,
        tickers=ticker or [],
        parameters=parameters,
        trigger_id=identity,
        callback_id=callback,
        follow=follow,
        count=count,
        output=output,
        config=config,
        timeout=timeout,
        replace=replace,
    )


@trigger_app.command("list")
def trigger_list(output: OutputOption = Output.table, config: Config = None, timeout: Timeout = 10.0) -> None:
    """List triggers, their state and number of events.

    Example: candlewright trigger list --output json
    """
    from candlewright.cli import trigger

    trigger.list_triggers(output, config, timeout)


@trigger_app.command("show")
def trigger_show(
    trigger_id: TriggerId, output: OutputOption = Output.table, config: Config = None, timeout: Timeout = 10.0
) -> None:
    """Show a trigger with its whole text.

    Example: candlewright trigger show breakout
    """
    from candlewright.cli import trigger

    trigger.show(trigger_id, output=output, config=config, timeout=timeout)


@trigger_app.command("remove")
def trigger_remove(
    trigger_id: TriggerId, output: OutputOption = Output.table, config: Config = None, timeout: AddTimeout = 60.0
) -> None:
    """Remove a trigger. Its events stay in lake.market.trigger_events.

    Example: candlewright trigger remove breakout
    """
    from candlewright.cli import trigger

    trigger.remove(trigger_id, output=output, config=config, timeout=timeout)


@trigger_app.command("events")
def trigger_events(
    trigger_id: TriggerId,
    follow: FollowOption = False,
    count: CountOption = None,
    quiet: Annotated[
        float | None, typer.Option("--timeout", min=0.1, help="End after this many seconds without an event.")
    ] = None,
    hops: Annotated[bool, typer.Option("--hops", help="Also show how long the data took on each hop.")] = False,
    output: OutputOption = Output.table,
    config: Config = None,
) -> None:
    """Show the events of a trigger. Those still kept, and with --follow, --count or --timeout those to come.

    Example: candlewright trigger events breakout --count 1 --timeout 60 --output json
    """
    from candlewright.cli import trigger

    trigger.events(trigger_id, follow=follow, count=count, quiet_seconds=quiet, output=output, config=config, hops=hops)


platform_commands.join(app)


@view_app.callback()
def view() -> None:
    """Views: named queries that triggers and other views read like tables."""


ViewName = Annotated[str, typer.Argument(help="The view's name.")]


@view_app.command("add")
def view_add(
    name: ViewName,
    sql: ViewSqlOption = None,
    file: ViewFileOption = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace another text under this name; triggers that read it start afresh."),
    ] = False,
    output: OutputOption = Output.table,
    config: Config = None,
    timeout: AddTimeout = 60.0,
) -> None:
    """Register a view. Triggers read it by its name.

    Example: candlewright view add large --sql "SELECT * FROM ticks WHERE size >= 2"
    """
    from candlewright.cli import view

    view.add(name, sql=sql, file=file, replace=replace, output=output, config=config, timeout=timeout)


@view_app.command("list")
def view_list(
    built_in: Annotated[
        bool, typer.Option("--built-in", help="List the built-in views instead: the candle patterns of ohlc.")
    ] = False,
    output: OutputOption = Output.table,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """List views, and how many triggers read each.

    Example: candlewright view list --output json
    """
    from candlewright.cli import view

    view.list_views(output, config, timeout, built_in=built_in)


@view_app.command("show")
def view_show(
    name: ViewName, output: OutputOption = Output.table, config: Config = None, timeout: Timeout = 10.0
) -> None:
    """One view: its columns, what it reads, what reads it, and its text.

    Example: candlewright view show large
    """
    from candlewright.cli import view

    view.show(name, output=output, config=config, timeout=timeout)


@view_app.command("remove")
def view_remove(
    name: ViewName, output: OutputOption = Output.table, config: Config = None, timeout: AddTimeout = 60.0
) -> None:
    """Remove a view. A view that triggers or other views read is kept, and its readers are named.

    Example: candlewright view remove large
    """
    from candlewright.cli import view

    view.remove(name, output=output, config=config, timeout=timeout)
