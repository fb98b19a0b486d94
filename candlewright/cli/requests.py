"""Commands that talk to the relay."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from candlewright.cli import chart
from candlewright.cli.loading import settings_for
from candlewright.cli.output import FileOutput, Output, print_arrow, print_rows, say, style_of_stdout, yes_or_no
from candlewright.cli.progress import RequestProgress
from candlewright.cli.status import running_elsewhere
from candlewright.client import (
    Client,
    History,
    PlatformUnreachable,
    RequestTimedOut,
    RowsUnavailable,
    Stored,
    connect,
)
from candlewright.client.history.rows import near_rows
from candlewright.client.records import Notification, Range
from candlewright.extensions import PlatformMissing, extension
from candlewright.settings import ClientConfig
from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright.wire.grid import SECOND
from candlewright.wire.periods import format_period, parse_period
from candlewright.wire.ticker import Ticker
from candlewright.wire.times import format_nanoseconds, to_nanoseconds

if TYPE_CHECKING:
    import pyarrow as pa

CHART_COLUMNS, CHART_ROWS = 120, 16
#: The most candles that `history` reads from the relay: a week of minutes.
_SMALL_CANDLES = 10_080
#: Ranges without rows that are named one by one.
SHOWN_RANGES = 10
COLUMNS = ["open_time", "open", "high", "low", "close", "volume", "quote_volume", "trade_count", "source"]


def history(
    ticker: str,
    *,
    period: str,
    start: str,
    end: str | None,
    limit: int | None,
    refresh: bool,
    as_of: str | None,
    output: FileOutput,
    file: Path | None,
    data_dir: Path | None,
    config: Path | None,
    timeout: float,
) -> None:
    until = format_nanoseconds(time.time_ns()) if end is None and as_of is None else end or as_of or ""
    wanted = replace(_range(ticker, period, start, until, limit, output, file), refresh=refresh)
    if refresh and as_of is not None:
        raise typer.BadParameter("--as-of fetches nothing: leave out --refresh")
    settings = settings_for(config, data_dir)
    relayed = Relayed(settings) if as_of is None and _is_small(wanted) else None
    with connect(settings=settings, rows=relayed or near_rows(settings, is_command=True), timeout=timeout) as c:
        if relayed is not None:
            relayed.client = c
        if as_of is not None:
            _put_out(_stored(c, wanted, as_of), output, file)
            return
        got = _followed(c, wanted)
    _put_out(got, output, file)
    _say_closed(got)


def load(
    ticker: str,
    *,
    period: str,
    start: str,
    end: str,
    limit: int | None,
    output: FileOutput,
    file: Path | None,
    data_dir: Path | None,
    config: Path | None,
) -> None:
    wanted = _range(ticker, period, start, end, limit, output, file)
    settings = settings_for(config, data_dir)
    try:
        with connect(settings=settings, rows=near_rows(settings, is_command=True)) as c:
            got = _stored(c, wanted, None)
    except PlatformUnreachable as error:
        raise RowsUnavailable(
            f"found no tables in {settings.data_dir}: name the platform's folder with --data-dir; {error}"
        ) from error
    _put_out(got, output, file)
    if not got.row_count:
        near = extension("near_stored")
        say(f"nothing of {ticker} is stored in this range{near(settings, ticker) if near is not None else ''}")


class Relayed:
    """Reads the rows of a small answer from the relay, which has the libraries that read tables loaded; loading them
    here takes longer than the request. Reads the tables if the relay cannot return the rows.
    """

    def __init__(self, settings: ClientConfig) -> None:
        self._settings = settings
        self.client: Client | None = None

    def history(self, wanted: Range, final: Notification) -> History:
        assert self.client is not None
        try:
            return self.client.run(lambda ask: ask.rows.of(wanted, final))
        except (RowsUnavailable, PlatformUnreachable):
            if (near := near_rows(self._settings)) is None:
                raise
            return near.history(wanted, final)

    def histories(self, wanted: Sequence[Range], finals: Sequence[Notification]) -> list[History | RowsUnavailable]:
        return [self.history(each, final) for each, final in zip(wanted, finals, strict=True)]

    def stored(self, wanted: Range, as_of: int | None) -> Stored:
        assert self.client is not None
        return self.client.run(lambda ask: ask.rows.stored(wanted, as_of))


def _is_small(wanted: Range) -> bool:
    candles = (wanted.end - wanted.start) // (wanted.period_seconds * SECOND)
    return min(candles, wanted.limit or candles) <= _SMALL_CANDLES


def _range(
    ticker: str, period: str, start: str, end: str, limit: int | None, output: FileOutput, file: Path | None
) -> Range:
    """The requested range; raises typer.BadParameter."""
    try:
        Ticker.parse(ticker)
        wanted = Range(ticker, parse_period(period), to_nanoseconds(start), to_nanoseconds(end), limit)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    if wanted.start >= wanted.end:
        raise typer.BadParameter(f"--start {start} must be before --end {end}")
    if output is FileOutput.parquet and file is None and sys.stdout.isatty():
        raise typer.BadParameter("--output parquet needs --file, or a pipe")
    if output is FileOutput.table and file is not None:
        raise typer.BadParameter("--file needs --output csv, json or parquet")
    return wanted


def _stored(client: Client, wanted: Range, as_of: str | None) -> Stored:
    """Raises typer.BadParameter unless the text is a time in the past."""
    what = (wanted.ticker, wanted.period_seconds)
    try:
        if as_of is None:
            return client.load(*what, wanted.start, wanted.end, limit=wanted.limit)
        return client.history(*what, start=wanted.start, end=wanted.end, limit=wanted.limit, as_of=as_of)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error


def _put_out(got: History | Stored, output: FileOutput, file: Path | None) -> None:
    if output is FileOutput.table:
        show(got)
    else:
        print_arrow(got.to_arrow(), output, file)
    if isinstance(got, Stored):
        _say_unknown(got)


def _say_unknown(got: Stored) -> None:
    what = "not stored" if got.as_of is None else f"not known at {format_nanoseconds(got.as_of)}"
    for first, last in got.unknown[:SHOWN_RANGES]:
        say(f"{what}: from {format_nanoseconds(first)} until {format_nanoseconds(last)}")
    if len(got.unknown) > SHOWN_RANGES:
        say(f"{what}: {len(got.unknown) - SHOWN_RANGES} further ranges")


def _followed(client: Client, wanted: Range) -> History:
    """While waiting, show the id by which the request can be inspected and cancelled, also on Ctrl-C."""
    request_id = client.new_request_id()
    hint = f"request {request_id} has no candle yet: `candlewright requests {request_id} --cancel` ends it"
    what = f"{wanted.ticker} {format_period(wanted.period_seconds)}"
    with RequestProgress(what, hint=hint) as progress:
        try:
            return client.history(
                wanted.ticker,
                wanted.period_seconds,
                start=wanted.start,
                end=wanted.end,
                limit=wanted.limit,
                refresh=wanted.refresh,
                progress=progress,
                request_id=request_id,
            )
        except KeyboardInterrupt:
            say(f"request {request_id} continues: `candlewright requests {request_id}` shows it, --cancel ends it")
            raise


def show(got: History | Stored) -> None:
    """A chart and a table on stdout; holes on stderr."""
    from rich.console import Console

    table = got.to_arrow()
    of = got.wanted if isinstance(got, Stored) else got.notification
    print(f"{of.ticker} {format_period(of.period_seconds)}: {got.row_count} candles")
    for line in chart.render(
        candles_of(table), min(Console().width, CHART_COLUMNS), height=CHART_ROWS, style=style_of_stdout()
    ):
        print(line)
    print_arrow(table.select([name for name in COLUMNS if name in table.column_names]), FileOutput.table, None)
    for first, last in got.holes:
        say(f"no candles at the venue from {format_nanoseconds(first)} until {format_nanoseconds(last)}")


def _say_closed(got: History) -> None:
    if got.closed_until is not None:
        say(f"closed until {format_nanoseconds(got.closed_until)}: later candles had not closed and are left out")


def candles_of(table: "pa.Table") -> list[chart.Candle]:
    columns = [table[name].to_pylist() for name in ("open_time", "open", "high", "low", "close", "volume")]
    return [chart.Candle(row[0].timestamp(), *row[1:]) for row in zip(*columns, strict=True)]


def venues(output: Output, config: Path | None, timeout: float) -> None:
    with _client(config, timeout) as c:
        rows = [asdict(venue) for venue in c.venues()]
    if output is Output.table:
        for row in rows:
            row["is_live"] = yes_or_no(row["is_live"])
            row["periods"] = " ".join(map(format_period, row["period_seconds"]))
            seen = row["updated_at"] // 10**9 * 10**9
            row["updated"] = format_nanoseconds(seen) if seen else "never"
    columns = ["name", "market_count", "is_live", "periods", "updated"]
    print_rows(rows, output, columns=columns, empty="no ingestor has announced a venue yet")


def markets(venue: str, *, output: Output, config: Path | None, timeout: float) -> None:
    with _client(config, timeout) as c:
        rows = [asdict(market) for market in c.markets(venue)]
    if output is Output.table:
        for row in rows:
            row["is_active"] = yes_or_no(row["is_active"])
    print_rows(
        rows,
        output,
        columns=["ticker", "market_id", "is_active"],
        empty=f"no ingestor has reported the markets of {venue} yet",
    )


def snapshot(ticker: str, *, output: Output, config: Path | None, timeout: float) -> None:
    try:
        Ticker.parse(ticker)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    with _client(config, timeout) as c:
        row = asdict(c.snapshot(ticker))
    if output is Output.table:
        row["exchange_time"] = format_nanoseconds(row["exchange_time"])
        columns = ["ticker", "exchange_time", "last", "bid", "bid_size", "ask", "ask_size", "volume_24h"]
    else:
        columns = list(row)
    print_rows([row], output, columns=columns, empty="")


def list_requests(
    request_id: str | None, *, cancel: bool, output: Output, data_dir: Path | None, config: Path | None, timeout: float
) -> None:
    """With `cancel`, a request is cancelled, and its last state is shown."""
    if cancel and request_id is None:
        raise typer.BadParameter("--cancel needs the request's id")
    settings = settings_for(config, data_dir)
    if request_id is not None:
        with connect(settings=settings, timeout=timeout) as c:
            if cancel:
                _cancel(c, request_id, timeout)
            state = asdict(c.state(request_id))
        if state["state"] == "unknown":
            raise CandlewrightError(f"the platform knows no request {request_id}")
        final = state.pop("notification") or {}
        rows = [{**state, **{key: final.get(key) for key in ("ticker", "status", "row_count", "error_message")}}]
        columns = [
            "request_id",
            "state",
            "reason",
            "done_candles",
            "expected_candles",
            "status",
            "row_count",
            "error_message",
        ]
    else:
        all_requests = extension("requests")
        if all_requests is None:
            raise PlatformMissing("`candlewright requests` without a request's id")
        rows = all_requests(settings)
        if output is Output.table:
            for row in rows:
                row["candles"] = _of_all(row["done_candles"], row["expected_candles"])
        # The columns that fit 80 characters come first.
        columns = ["ticker", "period", "state", "status", "candles", "request_id", "start", "end"]
        if sys.stdout.isatty():
            for reason in dict.fromkeys(row.get("reason") for row in rows):
                if reason:
                    say(f"{sum(row.get('reason') == reason for row in rows)} of them: {reason}")
        else:
            columns.append("reason")
    print_rows(rows, output, columns=columns, empty=f"no requests yet in {settings.data_dir}")
    if not rows and (elsewhere := running_elsewhere(settings)):
        say(elsewhere)


def _of_all(done: int, expected: int | None) -> str:
    return str(done) if expected is None else f"{done}/{expected}"


def _cancel(client: Client, request_id: str, timeout: float) -> None:
    """Returns once the request has ended; one that had already ended is unchanged, and a message says so."""
    if client.cancel(request_id).state == "done":
        say(f"request {request_id} had ended before")
    elif not request_id.startswith("subscription:"):
        with suppress(RequestTimedOut):
            client.wait(request_id, timeout=timeout)


def _client(config: Path | None, timeout: float) -> Client:
    return connect(settings=settings_for(config), timeout=timeout)
