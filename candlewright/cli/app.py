"""The commands. Bodies live in the modules beside this one and are loaded when a command runs: `--help` is quick."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from candlewright.cli.output import FileOutput, Output

app = typer.Typer(
    name="candlewright",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Market data with exact candles: ingestion, tables, triggers. Exit codes: 0 done, 1 refused, 2 wrong usage.",
)
config_app = typer.Typer(no_args_is_help=True, help="The settings in force.", rich_markup_mode=None)
app.add_typer(config_app, name="config")
trigger_app = typer.Typer(no_args_is_help=True, help="Triggers in SQL.", rich_markup_mode=None)
app.add_typer(trigger_app, name="trigger")

letters_app = typer.Typer(no_args_is_help=True, help="Records that a part could not digest.", rich_markup_mode=None)
app.add_typer(letters_app, name="dead-letters")

keys_app = typer.Typer(no_args_is_help=True, help="Keys of clients.", rich_markup_mode=None)
app.add_typer(keys_app, name="keys")


class UdfFunction(StrEnum):
    ohlc = "ohlc"
    match = "match"
    publish = "publish"


Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: candlewright.toml).")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Data directory (default: ./data).")]
OutputOption = Annotated[Output, typer.Option("--output", help="table, or json: JSON lines and nothing else.")]
FileOutputOption = Annotated[FileOutput, typer.Option("--output", help="How to write the rows.")]
FileOption = Annotated[Path | None, typer.Option("--file", help="Write there instead of to stdout.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer of the platform.")]


def _version(is_asked: bool) -> None:
    if is_asked:
        from core.version import VERSION

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
def up(
    data_dir: DataDir = None,
    config: Config = None,
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Start a generated exchange and use it as BINANCE.")
    ] = False,
    exchange_url: Annotated[
        list[str] | None,
        typer.Option("--exchange-url", metavar="VENUE=URL", help="Another server for a venue; may be repeated."),
    ] = None,
    ingestors: Annotated[int, typer.Option("--ingestors", min=0, max=64, help="How many ingestors.")] = 1,
    parts: Annotated[
        str | None, typer.Option("--parts", help="Only these, with commas, over the bus that bus.url names.")
    ] = None,
) -> None:
    """Start the platform in the foreground; prints `ready` when all its parts are."""
    from candlewright.cli import platform

    platform.up(data_dir, config, sandbox, exchange_url or [], ingestors, parts)


@app.command()
def history(
    ticker: Annotated[str, typer.Argument(help="BASE/QUOTE.VENUE, such as BTC/USDT.BINANCE.")],
    start: Annotated[str, typer.Option("--start", help="First open time, ISO 8601 (UTC).")],
    end: Annotated[str, typer.Option("--end", help="Open times before this, ISO 8601 (UTC).")],
    period: Annotated[str, typer.Option("--period", help="1m, 4h, 1d, … or seconds.")] = "1m",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N candles.")] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Ask the venue for what the table proves, too.")] = False,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="Fetch nothing: candles as they were known then, ISO 8601 (UTC).")
    ] = None,
    output: FileOutputOption = FileOutput.table,
    file: FileOption = None,
    data_dir: DataDir = None,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """Fetch and store candles, and show them as a chart and a table, or write them."""
    from candlewright.cli import requests

    requests.history(ticker, period, start, end, limit, refresh, as_of, output, file, data_dir, config, timeout)


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
    """Show or write candles that are stored, without a request; needs no running platform."""
    from candlewright.cli import requests

    requests.load(ticker, period, start, end, limit, output, file, data_dir, config)


@app.command("requests")
def list_requests(
    request_id: Annotated[str | None, typer.Argument(help="Only this request.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="End it; its final notification says ERROR.")] = False,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """What was asked for, how far it is, and how it ended."""
    from candlewright.cli import requests

    requests.list_requests(request_id, cancel, output, data_dir, config, timeout)


@app.command()
def snapshot(
    ticker: Annotated[str, typer.Argument(help="BASE/QUOTE.VENUE.")],
    output: OutputOption = Output.table,
    config: Config = None,
    timeout: Timeout = 10.0,
) -> None:
    """The newest prices of a ticker."""
    from candlewright.cli import requests

    requests.snapshot(ticker, output, config, timeout)


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
    """Live trades or bars: a chart and a table on a terminal, lines elsewhere. Ctrl-C ends it."""
    from candlewright.cli import watch

    watch.watch(ticker, period, output, count, config, timeout)


@app.command()
def gaps(
    ticker: Annotated[str, typer.Argument(help="BASE/QUOTE.VENUE.")],
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Trades that were missed while a ticker was followed, repaired or not."""
    from candlewright.cli import gaps

    gaps.gaps(ticker, output, data_dir, config)


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

    requests.markets(venue, output, config, timeout)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="Spark SQL; the tables are lake.market.ohlc and so on.")],
    output: FileOutputOption = FileOutput.table,
    file: FileOption = None,
    config: Config = None,
) -> None:
    """Run Spark SQL on the tables of the running platform; MATCH_RECOGNIZE works over any of them.

    Example: candlewright sql "SELECT * FROM lake.market.ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time
    MEASURES LAST(F.close) AS low PATTERN (F{3}) DEFINE F AS close < PREV(close))"
    """
    from candlewright.cli import tables

    tables.sql(statement, output, file, config)


@app.command()
def status(output: OutputOption = Output.table, config: Config = None) -> None:
    """How the parts of the running platform are. Exit code 1 when one is not well."""
    from candlewright.cli import platform

    platform.status(output, config)


@app.command()
def doctor(output: OutputOption = Output.table, data_dir: DataDir = None, config: Config = None) -> None:
    """Check this machine and the settings, and say what to do. Exit code 1 when something is missing."""
    from candlewright.cli import doctor

    doctor.run(output, data_dir, config)


@config_app.command("show")
def config_show(output: OutputOption = Output.table, data_dir: DataDir = None, config: Config = None) -> None:
    """All settings in force, secrets hidden."""
    from candlewright.cli import platform

    platform.config_show(output, data_dir, config)


@keys_app.callback()
def keys() -> None:
    """Keys of clients: who is let in where [relay] has `curve = true`. A change needs no restart."""


KeyName = Annotated[str, typer.Argument(help="The client's name; what belongs to it begins with that.")]


@keys_app.command("new")
def keys_new(
    name: KeyName,
    file: Annotated[
        Path | None, typer.Option("--file", help="Where the client's key is written (default: NAME.key).")
    ] = None,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Make a client's key. The secret half is written to one file, once; clients name it as client.key.

    Example: candlewright keys new alice --file alice.key, then CANDLEWRIGHT_CLIENT__KEY=alice.key candlewright venues
    """
    from candlewright.cli import keys

    keys.new(name, file, output, data_dir, config)


@keys_app.command("list")
def keys_list(output: OutputOption = Output.table, data_dir: DataDir = None, config: Config = None) -> None:
    """The clients that are let in."""
    from candlewright.cli import keys

    keys.list_keys(output, data_dir, config)


@keys_app.command("remove")
def keys_remove(
    name: KeyName, output: OutputOption = Output.table, data_dir: DataDir = None, config: Config = None
) -> None:
    """Let a client in no more, and end its connections."""
    from candlewright.cli import keys

    keys.remove(name, output, data_dir, config)


@letters_app.callback()
def dead_letters_help() -> None:
    """Records that a part could not digest. Each was moved out of its stream's way, and is kept for a week."""


LetterPart = Annotated[str | None, typer.Option("--part", help="Only those that this part put aside.")]
LetterTopic = Annotated[str | None, typer.Option("--topic", help="Only those of this topic.")]


@letters_app.command("list")
def dead_letters_list(
    part: LetterPart = None,
    topic: LetterTopic = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Only the newest N.")] = 100,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """What was put aside, by whom and why, oldest first."""
    from candlewright.cli import dead_letters

    dead_letters.list_letters(part, topic, limit, output, data_dir, config)


@letters_app.command("show")
def dead_letters_show(
    number: Annotated[int, typer.Argument(min=0, help="Its number in the list.")],
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """One record whole: its place, the reason, the bytes, and the message where it can be read as one."""
    from candlewright.cli import dead_letters

    dead_letters.show(number, output, data_dir, config)


@letters_app.command("replay")
def dead_letters_replay(
    numbers: Annotated[list[int] | None, typer.Argument(help="Their numbers in the list.")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="All that are kept.")] = False,
    part: LetterPart = None,
    topic: LetterTopic = None,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Publish records to their topics again, each once, after what kept a part from digesting them was mended.

    All readers of the topic get them, also those that took them the first time. What clients read is checked and gets
    a new number; a record that is still bad is put aside again.
    """
    from candlewright.cli import dead_letters

    dead_letters.replay(numbers or [], all_of_them, part, topic, output, data_dir, config)


@trigger_app.callback()
def trigger() -> None:
    """Triggers in SQL: conditions, windows and row patterns (MATCH_RECOGNIZE) over live ticks and bars."""


SqlOption = Annotated[str | None, typer.Option("--sql", help="The trigger's text.")]
SqlFileOption = Annotated[Path | None, typer.Option("--file", help="File with the trigger's text.")]
ParamOption = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="Value of :NAME in the text; may be repeated.")
]
TriggerId = Annotated[str, typer.Argument(help="The trigger's id.")]
FollowOption = Annotated[bool, typer.Option("--follow", help="Show events as they come, until Ctrl-C.")]
CountOption = Annotated[int | None, typer.Option("--count", min=1, help="End after N events.")]
AddTimeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait until that is done.")]


@trigger_app.command("add")
def trigger_add(
    sql: SqlOption = None,
    file: SqlFileOption = None,
    ticker: Annotated[
        list[str] | None, typer.Option("--ticker", help="BASE/QUOTE.VENUE, fetched live; may be repeated. None: all.")
    ] = None,
    param: ParamOption = None,
    identity: Annotated[
        str | None, typer.Option("--id", help="Its id (default: made of its content); a known one needs --replace.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another trigger under this id.")] = False,
    callback: Annotated[
        str | None, typer.Option("--callback", help="Events go to the topic RESPONSE:{CALLBACK} as well.")
    ] = None,
    follow: FollowOption = False,
    count: CountOption = None,
    output: OutputOption = Output.table,
    config: Config = None,
    timeout: AddTimeout = 60.0,
) -> None:
    """Register a trigger; it runs until it is removed.

    Example: candlewright trigger add --sql "price > :limit" --param limit=70000 --ticker BTC/USDT.BINANCE --follow
    """
    from candlewright.cli import trigger

    trigger.add(
        sql, file, ticker or [], param or [], identity, callback, follow, count, output, config, timeout, replace
    )


@trigger_app.command("list")
def trigger_list(output: OutputOption = Output.table, config: Config = None, timeout: Timeout = 10.0) -> None:
    """All registered triggers, their state and how often they fired.

    Example: candlewright trigger list --output json
    """
    from candlewright.cli import trigger

    trigger.list_triggers(output, config, timeout)


@trigger_app.command("show")
def trigger_show(
    trigger_id: TriggerId, output: OutputOption = Output.table, config: Config = None, timeout: Timeout = 10.0
) -> None:
    """One trigger with its whole text.

    Example: candlewright trigger show breakout
    """
    from candlewright.cli import trigger

    trigger.show(trigger_id, output, config, timeout)


@trigger_app.command("remove")
def trigger_remove(
    trigger_id: TriggerId, output: OutputOption = Output.table, config: Config = None, timeout: AddTimeout = 60.0
) -> None:
    """Take a trigger away; what it gave stays in lake.market.trigger_events.

    Example: candlewright trigger remove breakout
    """
    from candlewright.cli import trigger

    trigger.remove(trigger_id, output, config, timeout)


@trigger_app.command("events")
def trigger_events(
    trigger_id: TriggerId,
    follow: FollowOption = False,
    count: CountOption = None,
    quiet: Annotated[
        float | None, typer.Option("--timeout", min=0.1, help="End after so many seconds without an event.")
    ] = None,
    output: OutputOption = Output.table,
    config: Config = None,
) -> None:
    """The events of a trigger that are still kept, and with --follow, --count or --timeout those to come.

    Example: candlewright trigger events breakout --count 1 --timeout 60 --output json
    """
    from candlewright.cli import trigger

    trigger.events(trigger_id, follow, count, quiet, output, config)


@trigger_app.command("try")
def trigger_try(
    sql: SqlOption = None,
    file: SqlFileOption = None,
    table_file: Annotated[Path | None, typer.Option("--input", help="Parquet file to read.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="What the text calls the input (default: ticks).")
    ] = None,
    ticker: Annotated[
        str | None,
        typer.Option("--ticker", help="Stored trades of this ticker, or bars with --param period_seconds=60."),
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="From this time on, ISO 8601 (UTC).")] = None,
    as_seen: Annotated[
        bool,
        typer.Option(
            "--as-seen",
            help="Over bars as they were published after --since, corrections included: the events of then again.",
        ),
    ] = False,
    param: ParamOption = None,
    batch: Annotated[Path | None, typer.Option("--batch", help="Many cases: JSON lines in, JSON lines out.")] = None,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Run a trigger's text over stored data: a file, or what the tables have of a ticker, with a chart.

    Example: candlewright trigger try --sql "close > open * 1.01" --param period_seconds=60
    --ticker BTC/USDT.BINANCE --since 2024-01-01
    """
    from candlewright.cli import trigger_try

    if batch is not None:
        trigger_try.try_batch(batch)
    else:
        trigger_try.try_one(sql, file, table_file, table, ticker, since, param or [], output, data_dir, config, as_seen)


@app.command()
def demo(
    keep: Annotated[Path | None, typer.Option("--data-dir", help="Keep the demo's data there.")] = None,
) -> None:
    """Start everything with a generated exchange: candles, live bars, a trigger's first event; then stop everything."""
    from candlewright.cli import demo

    demo.run(keep)


@app.command("kapacitor-udf")
def kapacitor_udf(
    function: Annotated[UdfFunction, typer.Argument(help="What it does with points.")],
    batch: Annotated[bool, typer.Option("--batch", help="Take and give batches instead of single points.")] = False,
    socket: Annotated[
        str | None, typer.Option("--socket", help="Serve many tasks on this unix socket instead of stdin and stdout.")
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", help="Of such a server: host:port of its status page and metrics.")
    ] = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """A function for a Kapacitor daemon: trades to bars, a trigger's text over points, points onto the bus.

    Example, in kapacitor.conf: [udf.functions.ohlc] prog = "candlewright", args = ["kapacitor-udf", "ohlc"]
    """
    from candlewright.cli import kapacitor

    kapacitor.serve(function.value, batch, socket, http, data_dir, config)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def bench(context: typer.Context, name: Annotated[str | None, typer.Argument(metavar="NAME")] = None) -> None:
    """Run a benchmark; its own options follow the name. --output json: one line of JSON."""
    from candlewright.cli import bench

    bench.run(name, context.args)
