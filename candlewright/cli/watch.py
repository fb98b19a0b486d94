"""`candlewright watch`: live ticks or bars, as a screen on a terminal, as lines elsewhere."""

import os
import signal
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

from candlewright.cli import chart
from candlewright.cli.loading import settings_for
from candlewright.cli.output import Output, cell, json_line, say, style_of_stdout, yes_or_no
from candlewright.client import Bar, Client, GapError, Stream, Tick, connect
from candlewright.client.times import format_nanoseconds
from core.errors import InvalidRequest
from venues.periods import format_period, parse_period
from venues.ticker import Ticker

if TYPE_CHECKING:
    from rich.console import RenderableType

KEPT_CANDLES, KEPT_TICKS = 500, 15
CHART_ROWS, TABLE_ROWS = 14, 8
REFRESHES_PER_SECOND = 8
SECOND = 1_000_000_000
DAY_SECONDS = 86_400
BAR_COLUMNS = ("open_time", "open", "high", "low", "close", "volume", "trades", "revision", "complete")
SCREEN_BAR_COLUMNS = ("time", "open", "high", "low", "close", "volume", "trades", "note")
TICK_COLUMNS = ("time", "trade_id", "side", "price", "size")

Item = Tick | Bar


class Display(Protocol):
    def show(self, item: Item) -> None: ...


def watch(
    ticker: str, period: str | None, output: Output, count: int | None, config: Path | None, timeout: float
) -> None:
    """Ends after `count` items, or cleanly on Ctrl-C and SIGTERM."""
    try:
        parsed = Ticker.parse(ticker)
        period_seconds = parse_period(period) if period is not None else None
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from error
    settings = settings_for(config)
    with ending_quietly(), connect(settings=settings, timeout=timeout) as c:
        check(c, parsed)
        with subscribed(c, ticker, period_seconds) as stream, display_for(ticker, period_seconds, output) as display:
            for shown, item in enumerate(without_gaps(stream), start=1):
                display.show(item)
                if shown == count:
                    return


def check(client: Client, ticker: Ticker) -> None:
    """Somebody answers there; a ticker that will hardly ever have a trade is said to be one."""
    venues = {venue.name for venue in client.venues() if venue.is_live}
    if ticker.venue not in venues:
        say(f"no ingestor is live for {ticker.venue}: waiting for one; `candlewright venues` shows them")
    elif str(ticker) not in {market.ticker for market in client.markets(ticker.venue)}:
        say(f"{ticker.venue} does not list {ticker.symbol}: waiting for it all the same")


def subscribed(client: Client, ticker: str, period_seconds: int | None) -> Stream[Tick] | Stream[Bar]:
    return client.ticks(ticker) if period_seconds is None else client.bars(ticker, period_seconds)


def without_gaps(stream: Stream[Tick] | Stream[Bar]) -> Iterator[Item]:
    """A gap is a line on stderr."""
    while True:
        try:
            yield stream.next()
        except GapError as error:
            say(str(error))


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a reader that has seen enough are how a watch ends: no error."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # What is left in the buffer must not fail a second time at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def display_for(ticker: str, period_seconds: int | None, output: Output) -> Iterator[Display]:
    if output is Output.json:
        yield JsonLines()
    elif not sys.stdout.isatty():
        yield Lines(period_seconds)
    else:
        from rich.live import Live

        screen = Screen(ticker, period_seconds)
        with Live(get_renderable=screen.render, refresh_per_second=REFRESHES_PER_SECOND):
            yield screen


class JsonLines:
    """Every field as it is, times in nanoseconds."""

    def show(self, item: Item) -> None:
        print(json_line(asdict(item)), flush=True)


class Lines:
    """Columns of fixed width under one head."""

    def __init__(self, period_seconds: int | None) -> None:
        print(columns(TICK_COLUMNS if period_seconds is None else BAR_COLUMNS), flush=True)

    def show(self, item: Item) -> None:
        print(columns(row_of(item)), flush=True)


class Screen:
    """A chart and the newest rows. Ticks are drawn as candles of one second; a revision replaces its bar."""

    def __init__(self, ticker: str, period_seconds: int | None) -> None:
        self._title = f"{ticker} {'ticks' if period_seconds is None else format_period(period_seconds)}"
        self._columns = TICK_COLUMNS if period_seconds is None else SCREEN_BAR_COLUMNS
        self._candles: OrderedDict[int, chart.Candle] = OrderedDict()
        self._bars: dict[int, Bar] = {}
        self._ticks: deque[Tick] = deque(maxlen=KEPT_TICKS)
        self._count = 0

    def show(self, item: Item) -> None:
        self._count += 1
        # Built aside: the screen is drawn by another thread.
        candles = OrderedDict(self._candles)
        if isinstance(item, Bar):
            candles[item.open_time] = candle_of(item)
            self._bars = {**self._bars, item.open_time: item}
        else:
            second = item.timestamp // SECOND
            candles[second] = with_trade(candles.get(second), second, item)
            self._ticks.append(item)
        candles = OrderedDict(sorted(candles.items())[-KEPT_CANDLES:])
        self._bars = {open_time: bar for open_time, bar in self._bars.items() if open_time in candles}
        self._candles = candles

    def render(self) -> "RenderableType":
        from rich import box
        from rich.console import Console, Group
        from rich.table import Table
        from rich.text import Text

        width = Console().width
        shown = list(self._candles.values())[-max(1, width - 14) :]
        lines = chart.render(shown, width, CHART_ROWS, style_of_stdout()) if shown else ["(waiting for the first one)"]
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in self._columns:
            table.add_column(column, no_wrap=True)
        newest: Sequence[Item] = list(self._ticks) or [self._bars[key] for key in sorted(self._bars)]
        for item in newest[-TABLE_ROWS:]:
            table.add_row(*(row_of(item) if isinstance(item, Tick) else short_row_of(item)))
        return Group(f"{self._title}  ({self._count} so far, Ctrl-C ends)", Text.from_ansi("\n".join(lines)), table)


def candle_of(bar: Bar) -> chart.Candle:
    return chart.Candle(bar.open_time / SECOND, bar.open, bar.high, bar.low, bar.close, bar.volume)


def with_trade(candle: chart.Candle | None, second: int, tick: Tick) -> chart.Candle:
    if candle is None:
        return chart.Candle(float(second), tick.price, tick.price, tick.price, tick.price, tick.size)
    return replace(
        candle,
        high=max(candle.high, tick.price),
        low=min(candle.low, tick.price),
        close=tick.price,
        volume=candle.volume + tick.size,
    )


def row_of(item: Item) -> tuple[str, ...]:
    if isinstance(item, Tick):
        time = format_nanoseconds(item.timestamp)
        return time, item.trade_id, item.side, cell(item.price), cell(item.size)
    prices = (cell(price) for price in (item.open, item.high, item.low, item.close, item.volume))
    complete = yes_or_no(item.complete)
    return format_nanoseconds(item.open_time), *prices, cell(item.trade_count), str(item.revision), complete


def short_row_of(bar: Bar) -> tuple[str, ...]:
    """For 80 columns: the day is below the chart, and what is as it should be is not said."""
    time, *prices, trades, revision, complete = row_of(bar)
    notes = [f"rev {revision}"] if bar.revision else []
    notes += ["incomplete"] if complete == "no" else []
    day, _, clock = time.partition("T")
    return clock.rstrip("Z") if bar.period_seconds < DAY_SECONDS else day, *prices, trades, " ".join(notes)


def columns(cells: Sequence[str]) -> str:
    """One line of fixed widths; the first is that of a time."""
    first, *others = cells
    return f"{first:<26}" + " ".join(f"{each:>12}" for each in others)
