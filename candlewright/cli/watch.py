"""`candlewright watch`: live ticks or bars, as a screen on a terminal, as lines elsewhere."""

import os
import signal
import sys
import time
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
from candlewright.client import Bar, Client, GapError, PlatformRefused, Stream, Tick, TickerNotFound, connect
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import open_containing
from candlewright.wire.periods import format_period, parse_period
from candlewright.wire.ticker import Ticker
from candlewright.wire.times import format_nanoseconds

if TYPE_CHECKING:
    from rich.console import RenderableType

KEPT_CANDLES, KEPT_TICKS = 500, 15
CHART_ROWS, TABLE_ROWS = 14, 8
REFRESHES_PER_SECOND = 8
#: How often the forming bar includes new trades.
FORMING_SECONDS = 0.2
SECOND = 1_000_000_000
DAY_SECONDS = 86_400
BAR_COLUMNS = ("open_time", "open", "high", "low", "close", "volume", "trades", "revision", "complete")
#: From this width on there are two spaces between columns.
ROOMY_COLUMNS = 100
SCREEN_BAR_COLUMNS = ("time", "open", "high", "low", "close", "volume", "trades", "note")
TICK_COLUMNS = ("time", "trade_id", "side", "price", "size")

Item = Tick | Bar


class Display(Protocol):
    def show(self, item: Item) -> None: ...


def watch(
    ticker: str, *, period: str | None, output: Output, count: int | None, config: Path | None, timeout: float
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
            if isinstance(display, FormingScreen):
                items = with_forming(c, stream, display)
            else:
                items = without_gaps(stream)
                if period_seconds is not None:
                    say(waiting_for(period_seconds, time.time_ns()))
            for shown, item in enumerate(items, start=1):
                display.show(item)
                if shown == count:
                    return


def check(client: Client, ticker: Ticker) -> None:
    """Raises PlatformUnreachable if nothing answers; reports if no ingestor serves the venue."""
    venues = {venue.name for venue in client.venues() if venue.is_live}
    if ticker.venue not in venues:
        say(f"no ingestor is live for {ticker.venue}: waiting for one; `candlewright venues` shows them")


def waiting_for(period_seconds: int, now: int) -> str:
    """`now` in ns. A bar is sent when it closes, which may be long after a watch began."""
    close = open_containing(now, period_seconds) + period_seconds * SECOND
    return f"waiting for the first {format_period(period_seconds)} bar, which closes at {format_nanoseconds(close)}"


def subscribed(client: Client, ticker: str, period_seconds: int | None) -> Stream[Tick] | Stream[Bar]:
    return client.ticks(ticker) if period_seconds is None else client.bars(ticker, period_seconds)


def without_gaps(stream: Stream[Tick] | Stream[Bar]) -> Iterator[Item]:
    """Prints gaps, and the platform's errors about the ticker, to stderr."""
    while True:
        try:
            yield stream.next()
        except (GapError, TickerNotFound, PlatformRefused) as error:
            say(str(error))


def with_forming(client: Client, bars: Stream[Tick] | Stream[Bar], screen: "FormingScreen") -> Iterator[Item]:
    """Closed bars, while the ticker's trades update the forming bar on the screen."""
    with client.ticks(screen.ticker) as ticks:
        while True:
            try:
                while True:
                    screen.form(ticks.next(timeout=0))
            except TimeoutError:
                pass
            except (GapError, TickerNotFound, PlatformRefused):
                # The stream of bars reports what concerns the ticker.
                screen.miss()
            try:
                yield bars.next(timeout=FORMING_SECONDS)
            except TimeoutError:
                pass
            except (GapError, TickerNotFound, PlatformRefused) as error:
                say(str(error))


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed pipe end a watch without an error."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # The rest of the buffer must not fail a second time when the interpreter exits.
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

        screen = Screen(ticker, None) if period_seconds is None else FormingScreen(ticker, period_seconds)
        with Live(get_renderable=screen.render, refresh_per_second=REFRESHES_PER_SECOND):
            yield screen


class JsonLines:
    """Every field unchanged, times in nanoseconds."""

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
        #: The terminal itself: while the screen is drawn, standard output is a wrapper around it.
        self._style = style_of_stdout()

    def show(self, item: Item) -> None:
        self._count += 1
        # Built separately, because another thread draws the screen.
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

    def _unfinished(self) -> tuple[Bar | None, str]:
        """The forming bar, and its title."""
        return None, ""

    def render(self) -> "RenderableType":
        from rich import box
        from rich.console import Console, Group
        from rich.table import Table
        from rich.text import Text

        width, height = Console().size
        forming, note = self._unfinished()
        # The newest rows stay on the screen: chart and table leave eight lines for the rest.
        chart_rows = max(chart.MIN_HEIGHT, min(CHART_ROWS, height - TABLE_ROWS - 8))
        candles = [*self._candles.values(), *([candle_of(forming)] if forming is not None else [])]
        shown = candles[-max(1, width - 14) :]
        lines = (
            chart.render(shown, width, height=chart_rows, style=self._style)
            if shown
            else ["(waiting for the first one)"]
        )
        # At 80 columns, nine digits of each price and the note fit.
        table = Table(box=box.SIMPLE_HEAD, padding=(0, int(width >= ROOMY_COLUMNS), 0, 0))
        for column in self._columns:
            table.add_column(column, no_wrap=True)
        newest: Sequence[Item] = list(self._ticks) or [self._bars[key] for key in sorted(self._bars)]
        for item in newest[-(TABLE_ROWS - (forming is not None)) :]:
            table.add_row(*(row_of(item) if isinstance(item, Tick) else short_row_of(item)))
        if forming is not None:
            table.add_row(*short_row_of(forming)[:-1], "forming", style="dim")
        return Group(
            f"{self._title}  ({self._count} so far, {note}Ctrl-C ends)", Text.from_ansi("\n".join(lines)), table
        )


class FormingScreen(Screen):
    """Closed bars, and as the last row and candle the forming one, from the trades seen."""

    def __init__(self, ticker: str, period_seconds: int) -> None:
        super().__init__(ticker, period_seconds)
        self.ticker = ticker
        self._period_seconds = period_seconds
        self._forming: Bar | None = None
        #: The time (ns) since which all its trades were seen; 0 if all were.
        self._since = 0
        self._has_missed = True

    def show(self, item: Item) -> None:
        super().show(item)
        if self._forming is not None and isinstance(item, Bar) and item.open_time >= self._forming.open_time:
            self._forming = None

    def form(self, tick: Tick) -> None:
        """Add a trade; late trades of closed bars are left to revisions."""
        opened = open_containing(tick.timestamp, self._period_seconds)
        forming = self._forming
        if opened < (forming.open_time if forming is not None else 0) or opened in self._bars:
            return
        if self._has_missed or forming is None or opened > forming.open_time:
            self._since = tick.timestamp if self._has_missed else 0
            self._has_missed = False
            self._forming = Bar(
                ticker=tick.ticker,
                period_seconds=self._period_seconds,
                open_time=opened,
                open=tick.price,
                high=tick.price,
                low=tick.price,
                close=tick.price,
                volume=tick.size,
                quote_volume=None,
                trade_count=1,
                complete=False,
                revision=0,
                source="ticks",
                sequence=0,
            )
            return
        self._forming = replace(
            forming,
            high=max(forming.high, tick.price),
            low=min(forming.low, tick.price),
            close=tick.price,
            volume=forming.volume + tick.size,
            trade_count=(forming.trade_count or 0) + 1,
        )

    def miss(self) -> None:
        """Trades are missing: the bar restarts with the next one."""
        self._has_missed = True

    def _unfinished(self) -> tuple[Bar | None, str]:
        if self._forming is None:
            return None, ""
        since = format_nanoseconds(self._since).partition("T")[2][:8]
        return self._forming, f"forming since {since}, " if self._since else "the last is forming, "


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
    """For 80 columns: the day is below the chart, and normal states are omitted."""
    time, *prices, trades, revision, complete = row_of(bar)
    notes = [f"rev {revision}"] if bar.revision else []
    notes += ["incomplete"] if complete == "no" else []
    day, _, clock = time.partition("T")
    return clock.rstrip("Z") if bar.period_seconds < DAY_SECONDS else day, *prices, trades, " ".join(notes)


def columns(cells: Sequence[str]) -> str:
    """One line of fixed widths; the first is that of a time."""
    first, *others = cells
    return f"{first:<26}" + " ".join(f"{each:>12}" for each in others)
