"""Commands that need the platform on this machine; they join the command line by an entry point.

As in `candlewright.cli.app`, the bodies of commands are in the neighbouring modules and are loaded when a command runs.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from candlewright.cli.options import (
    Config,
    DataDir,
    OutputOption,
)
from candlewright.cli.output import Output
from candlewright_platform.cli.trigger_app import ViewOption, trigger_app

app = typer.Typer(rich_markup_mode=None)
config_app = typer.Typer(no_args_is_help=True, help="The settings in force.", rich_markup_mode=None)
app.add_typer(config_app, name="config")
app.add_typer(trigger_app, name="trigger")
letters_app = typer.Typer(no_args_is_help=True, help="Records that a part could not process.", rich_markup_mode=None)
app.add_typer(letters_app, name="dead-letters")
alerts_app = typer.Typer(no_args_is_help=True, help="Where events are delivered.", rich_markup_mode=None)
app.add_typer(alerts_app, name="alerts")
keep_app = typer.Typer(no_args_is_help=True, help="Rules that keep candles fresh.", rich_markup_mode=None)
app.add_typer(keep_app, name="keep")
keys_app = typer.Typer(
    no_args_is_help=True, help="Keys of clients and ingestors, tokens for HTTP.", rich_markup_mode=None
)
app.add_typer(keys_app, name="keys")


class UdfFunction(StrEnum):
    ohlc = "ohlc"
    match = "match"
    publish = "publish"


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
        str | None, typer.Option("--parts", help="Start only these parts (comma-separated), over the bus at bus.url.")
    ] = None,
) -> None:
    """Start the platform in the foreground. Prints `ready` once every part is ready."""
    from candlewright_platform.cli.machine import platform

    platform.up(data_dir, config, sandbox=sandbox, exchange_urls=exchange_url or [], ingestors=ingestors, parts=parts)


@app.command()
def relocate(data_dir: DataDir = None, config: Config = None) -> None:
    """Repair the paths in a moved data directory. Also in a copied one; the platform must be stopped."""
    from candlewright_platform.cli.machine import platform

    platform.relocate(data_dir, config)


@app.command()
def doctor(output: OutputOption = Output.table, data_dir: DataDir = None, config: Config = None) -> None:
    """Check this machine and the settings. Suggests fixes; exit code 1 if something is missing."""
    from candlewright_platform.cli.machine import doctor

    doctor.run(output, data_dir, config)


@app.command()
def gaps(
    ticker: Annotated[str, typer.Argument(help="BASE/QUOTE.VENUE.")],
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List missed trades of a ticker, repaired or not."""
    from candlewright_platform.cli.stored import gaps

    gaps.gaps(ticker, output, data_dir, config=config)


@app.command()
def tables(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table that the printed commands read.")] = "ohlc",
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List the tables, and how DuckDB and Polars read them."""
    from candlewright_platform.cli.stored import table_list

    table_list.run(table, output, data_dir=data_dir, config=config)


StoredTickers = Annotated[
    list[str], typer.Argument(metavar="TICKER…", help="BASE/QUOTE.VENUE of stored candles; * and ? are wildcards.")
]
StoredPeriods = Annotated[
    list[str] | None, typer.Option("--period", help="Only candles of this length; may be repeated (default: all).")
]


@app.command()
def export(
    tickers: StoredTickers,
    to: Annotated[
        str, typer.Option("--to", metavar="LAYOUT", help="parquet, csv, freqtrade, nautilus, backtrader or lean.")
    ] = "parquet",
    period: StoredPeriods = None,
    start: Annotated[str | None, typer.Option("--start", help="First open time, ISO 8601 (default: all).")] = None,
    end: Annotated[str | None, typer.Option("--end", help="End of the range, excluded (default: all).")] = None,
    directory: Annotated[Path, typer.Option("--dir", help="The folder to write to.")] = Path("export"),
    manifest: Annotated[
        Path | None, typer.Option("--manifest", metavar="FILE", help="Sign the files, for verify --manifest.")
    ] = None,
    trades: Annotated[bool, typer.Option("--trades", help="With --manifest: the stored trades as well.")] = False,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Write stored candles as files for other tools. Fetches nothing, and reports what is not stored.

    Example: candlewright export --to freqtrade --dir user_data/data "*/USDT.BINANCE" --period 1m
    """
    from candlewright_platform.cli.stored import exporting

    exporting.export(
        tickers,
        to,
        period or [],
        start=start,
        end=end,
        folder=directory,
        manifest=manifest,
        with_trades=trades,
        output=output,
        data_dir=data_dir,
        config=config,
    )


@app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files of one ticker.")],
    of: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="binance-klines, kraken, freqtrade, csv; of trades binance-trades, binance-aggtrades, kraken-trades.",
        ),
    ],
    ticker: Annotated[str, typer.Option("--ticker", help="The ticker of the files, BASE/QUOTE.VENUE.")],
    period: Annotated[
        str | None, typer.Option("--period", help="Length of a candle, if the files do not state it.")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--mapping", metavar="NAME=COLUMN", help="For csv: the column names of the file."),
    ] = None,
    differences: Annotated[
        Path, typer.Option("--differences", help="File for rows that differ from stored ones.")
    ] = Path("import-differences.csv"),
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Store candles or trades from files. Stored ones are never replaced: what differs is listed.

    Example: candlewright import BTCUSDT-1m-2024-*.zip --format binance-klines --ticker BTC/USDT.BINANCE
    """
    from candlewright_platform.cli.stored import importing

    importing.import_files(
        files,
        of,
        ticker,
        period=period,
        mapping=mapping or [],
        differences=differences,
        output=output,
        data_dir=data_dir,
        config=config,
    )


@app.command()
def quality(
    tickers: StoredTickers,
    period: StoredPeriods = None,
    start: Annotated[str | None, typer.Option("--start", help="First open time, ISO 8601 (default: all).")] = None,
    end: Annotated[str | None, typer.Option("--end", help="End of the range, excluded (default: all).")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write one HTML page there as well.")] = None,
    trades: Annotated[bool, typer.Option("--trades/--no-trades", help="Compare candles with stored trades.")] = True,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Examine stored candles: holes, gaps, jumps, revisions. Also whether they equal the trades that were received.

    Example: candlewright quality "BTC/*" --period 1m --html quality.html
    """
    from candlewright_platform.cli.stored import quality

    quality.quality(
        tickers,
        period or [],
        start=start,
        end=end,
        html=html,
        with_trades=trades,
        output=output,
        data_dir=data_dir,
        config=config,
    )


@config_app.command("show")
def config_show(output: OutputOption = Output.table, data_dir: DataDir = None, config: Config = None) -> None:
    """Print all settings in force, with secrets hidden."""
    from candlewright_platform.cli.machine import platform

    platform.config_show(output, data_dir, config)


@keys_app.callback()
def keys() -> None:
    """Keys of clients and ingestors (with `curve = true` in [security]), and tokens for HTTP. A change needs no
    restart.
    """


class KeyRole(StrEnum):
    """As `core.doors.Role`, which is loaded when a command runs."""

    client = "client"
    ingestor = "ingestor"
    viewer = "viewer"
    operator = "operator"


KeyName = Annotated[str, typer.Argument(help="The holder's name; a client's ids begin with it.")]


@keys_app.command("new")
def keys_new(
    name: KeyName,
    role: Annotated[
        KeyRole, typer.Option("--role", help="Where it is accepted: relay, broker, or HTTP (viewer, operator).")
    ] = KeyRole.client,
    file: Annotated[Path | None, typer.Option("--file", help="Where the key is written (default: NAME.key).")] = None,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Make a key, or a token for HTTP. The key is written to one file; the token is printed.

    Example: candlewright keys new alice --file alice.key, then CANDLEWRIGHT_CLIENT__KEY=alice.key candlewright venues
    """
    from candlewright_platform.cli.machine import keys
    from core.doors import Role

    keys.new(name, Role(role), file, output=output, data_dir=data_dir, config=config)


@keys_app.command("list")
def keys_list(output: OutputOption = Output.table, data_dir: DataDir = None, config: Config = None) -> None:
    """List the keys that are accepted."""
    from candlewright_platform.cli.machine import keys

    keys.list_keys(output, data_dir, config)


@keys_app.command("remove")
def keys_remove(
    name: KeyName, output: OutputOption = Output.table, data_dir: DataDir = None, config: Config = None
) -> None:
    """End the access of a key or token, and its connections."""
    from candlewright_platform.cli.machine import keys

    keys.remove(name, output, data_dir, config=config)


@app.command("secrets")
def secrets_command(
    folder: Annotated[Path, typer.Option("--folder", help="Where compose.yaml is.")] = Path(),
    output: OutputOption = Output.table,
) -> None:
    """Make the passwords and keys that compose.yaml needs. Existing ones are kept."""
    from candlewright_platform.cli.machine import secrets

    secrets.make(folder.absolute(), output)


@letters_app.callback()
def dead_letters_help() -> None:
    """Records that a part could not process. Each was put aside, and is kept for a week."""


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
    """List the records that were put aside, oldest first. Each with its part and the reason."""
    from candlewright_platform.cli.records import dead_letters

    dead_letters.list_letters(part, topic, limit, output=output, data_dir=data_dir, config=config)


@letters_app.command("show")
def dead_letters_show(
    number: Annotated[int, typer.Argument(min=0, help="Its number in the list.")],
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Show one record. Prints its place, the reason, its bytes, and its message if it can be decoded."""
    from candlewright_platform.cli.records import dead_letters

    dead_letters.show(number, output, data_dir, config=config)


@letters_app.command("replay")
def dead_letters_replay(
    numbers: Annotated[list[int] | None, typer.Argument(help="Their numbers in the list.")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Replay every record that is kept.")] = False,
    part: LetterPart = None,
    topic: LetterTopic = None,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Publish records to their topics again, each once. Use it once the cause is fixed.

    All readers of the topic get them, even those that accepted them before. What clients read is checked and gets
    a new number; a record that is still bad is put aside again.
    """
    from candlewright_platform.cli.records import dead_letters

    dead_letters.replay(
        numbers or [], is_all=all_of_them, part=part, topic=topic, output=output, data_dir=data_dir, config=config
    )


@keep_app.callback()
def keep_help() -> None:
    """Keep candles stored and fresh: history back to a time, then every few minutes. Also [[keep]] in the settings."""


@keep_app.command("add")
def keep_add(
    tickers: Annotated[
        list[str], typer.Argument(metavar="TICKER…", help="BASE/QUOTE.VENUE; * and ? match any market of a venue.")
    ],
    since: Annotated[str, typer.Option("--since", help="First open time, ISO 8601 (UTC).")],
    period: Annotated[
        list[str] | None, typer.Option("--period", help="Length of a candle; may be repeated (default: 1m).")
    ] = None,
    every: Annotated[str, typer.Option("--every", metavar="DURATION", help="How often new ones are fetched.")] = "15m",
    name: Annotated[str | None, typer.Option("--name", help="The rule's name (default: keep-1, …).")] = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Fetch candles since a given time, and then keep them fresh. Markets that are listed later join.

    Example: candlewright keep add "*/USDT.BINANCE" --period 1m --since 2020-01-01
    """
    from candlewright_platform.cli.records import keep

    keep.add(tickers, period or ["1m"], since, every=every, name=name, data_dir=data_dir, config=config)


@keep_app.command("list")
def keep_list(
    series: Annotated[bool, typer.Option("--series", help="List each ticker and period instead of the rules.")] = False,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List the rules: which candles lag, and when they will be fresh."""
    from candlewright_platform.cli.records import keep

    keep.list_rules(is_by_series=series, output=output, data_dir=data_dir, config=config)


@keep_app.command("remove")
def keep_remove(
    name: Annotated[str, typer.Argument(help="The rule's name in the list.")],
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Remove a rule. What it fetched stays stored."""
    from candlewright_platform.cli.records import keep

    keep.remove(name, data_dir, config)


@alerts_app.callback()
def alerts_help() -> None:
    """Alerts: destinations are [alerts.NAME] in the settings, [[alerts.route]] says which events each one gets."""


@alerts_app.command("list")
def alerts_list(output: OutputOption = Output.table, data_dir: DataDir = None, config: Config = None) -> None:
    """List the destinations and their pending deliveries. Also the events that each one gets."""
    from candlewright_platform.cli.records import alerts

    alerts.list_destinations(output, data_dir, config)


@alerts_app.command("test")
def alerts_test(
    name: Annotated[str, typer.Argument(help="The destination's name in the settings.")],
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Send one test alert to a destination. Exit code 1 unless the destination accepted it."""
    from candlewright_platform.cli.records import alerts

    alerts.test(name, data_dir, config)


@alerts_app.command("silence")
def alerts_silence(
    trigger: Annotated[
        str | None, typer.Argument(help="A trigger's id; * matches any. Without it, the silences are listed.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long, such as 30m, 2h or 1d.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TRIGGER", help="Until this trigger fires: a condition in SQL.")
    ] = None,
    ticker: Annotated[str, typer.Option("--ticker", help="Only this ticker; * matches any.")] = "*",
    is_over: Annotated[bool, typer.Option("--end", help="End a silence before its time.")] = False,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Suppress the alerts of a trigger for a while. Its events are still published.

    Example: candlewright alerts silence dip --for 2h
    """
    from candlewright_platform.cli.records import alerts

    alerts.silence(
        trigger, duration, ticker, until=until, is_over=is_over, output=output, data_dir=data_dir, config=config
    )


@alerts_app.command("dead-letters")
def alerts_dead_letters(
    again: Annotated[list[str] | None, typer.Option("--send", metavar="KEY", help="Send this one again.")] = None,
    all_of_them: Annotated[bool, typer.Option("--send-all", help="Send all of them again.")] = False,
    output: OutputOption = Output.table,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List deliveries given up after 24 hours of attempts. They are kept for a week."""
    from candlewright_platform.cli.records import alerts

    alerts.dead_letters(again or [], is_all=all_of_them, output=output, data_dir=data_dir, config=config)


@app.command()
def demo(
    keep: Annotated[Path | None, typer.Option("--data-dir", help="Keep the demo's data there.")] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Leave the console open afterwards, until Ctrl-C.")
    ] = False,
) -> None:
    """Run everything once with a generated exchange. Shows candles, live bars and a trigger's first event."""
    from candlewright_platform.cli.machine import demo

    demo.run(keep, leaves_console=console)


@app.command()
def console(
    ticker: Annotated[str | None, typer.Argument(help="Open the chart of this market.")] = None,
    period: Annotated[str, typer.Option("--period", help="The chart's period, such as 1m, 1h or 1d.")] = "1m",
    is_printed: Annotated[bool, typer.Option("--print", help="Only print the address.")] = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Open the running platform's console in the browser. Prints its address.

    Example: candlewright console BTC/USDT.BINANCE --period 1h
    """
    from candlewright_platform.cli.machine.console import open_console

    open_console(ticker, period, is_printed=is_printed, data_dir=data_dir, config=config)


@app.command("language-server")
def language_server(view: ViewOption = None, config: Config = None) -> None:
    """Help an editor with trigger texts, over stdio.

    Completion, errors and fixes, by the Language Server Protocol. The editor starts this command itself:
    docs/how-to/editor.md has the lines for its settings.
    """
    from candlewright_platform.cli.triggers.language_server import serve

    serve(view or [], config)


@app.command("kapacitor-udf")
def kapacitor_udf(
    function: Annotated[UdfFunction, typer.Argument(help="What it does with points.")],
    batch: Annotated[bool, typer.Option("--batch", help="Read and write batches instead of single points.")] = False,
    socket: Annotated[
        str | None, typer.Option("--socket", help="Serve many tasks on this unix socket instead of stdin and stdout.")
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", help="With --socket: host:port of the status page and metrics.")
    ] = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Serve a function to a Kapacitor daemon. It makes bars, runs a trigger's text over points, or publishes points.

    Example, in kapacitor.conf: [udf.functions.ohlc] prog = "candlewright", args = ["kapacitor-udf", "ohlc"]
    """
    from candlewright_platform.cli.machine import kapacitor

    kapacitor.serve(function.value, is_batch=batch, path=socket, http=http, data_dir=data_dir, config=config)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def bench(context: typer.Context, name: Annotated[str | None, typer.Argument(metavar="NAME")] = None) -> None:
    """Run a benchmark; its own options follow the name. --output json: one line of JSON."""
    from candlewright_platform.cli.machine import bench

    bench.run(name, context.args)
