"""`candlewright demo`: follows a request from end to end, on a temporary platform."""

import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

from candlewright.cli import chart
from candlewright.cli.output import print_arrow_table, say, style_of_stdout
from candlewright.cli.progress import RequestProgress
from candlewright.cli.requests import CHART_COLUMNS, CHART_ROWS, candles_of
from candlewright.cli.trigger import lines_of
from candlewright.cli.watch import BAR_COLUMNS, candle_of, columns, row_of
from candlewright.client import Bar, Client, Notification, Outcome, Realtime, Stream, connect
from candlewright.client.history.spark_connect import session_of
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.periods import format_period
from candlewright.wire.times import format_nanoseconds
from candlewright_platform.cli.machine.console import address_of
from candlewright_platform.supervisor import origin
from candlewright_platform.supervisor.private import PrivatePlatform
from core.origin import Origin
from core.settings import Settings

TICKER, PERIOD_SECONDS = "BTC/USDT.BINANCE", 60
#: How much faster than real time the generated exchange's clock runs, so that minutes close while the user watches.
EXCHANGE_SPEED = 20
SHORT_PERIOD_SECONDS, SHOWN_SHORT_BARS, SHOWN_MINUTES = 5, 8, 2
LIVE_TIMEOUT_SECONDS = 120.0
V_SHAPE = """\
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts
  MEASURES S.price AS top, LAST(D.price) AS bottom, LAST(U.price) AS back, COUNT(*) AS trades
  PATTERN (S D+ U+)
  DEFINE D AS price < PREV(price), U AS price > PREV(price)
) AS v"""


@dataclass(slots=True)
class Stage:
    """The results that later steps need."""

    client: Client
    settings: Settings
    final: Notification | None = None
    #: Runs until the platform stops: the trigger finds the ticker live.
    realtime: Realtime | None = None


def run(keep: Path | None, *, leaves_console: bool = False) -> None:
    """Stops everything at the end. Raises CandlewrightError when a step fails. `leaves_console`: keeps running until
    Ctrl-C.
    """
    if keep is not None:
        origin.check(keep.absolute(), Origin.SANDBOX)
    with tempfile.TemporaryDirectory(prefix="candlewright-demo-") as temporary:
        platform = PrivatePlatform(
            keep or Path(temporary),
            ("--sandbox",),
            {"SANDBOX__SPEED": str(EXCHANGE_SPEED)},
            hear=lambda line: say(f"  {line}"),
        )
        tell(1, "starting the platform on free ports, with a generated exchange in place of Binance")
        began = time.monotonic()
        with platform, connect(settings=platform.settings) as client:
            print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
            stage = Stage(client, platform.settings)
            for number, (title, step) in enumerate(STEPS, start=2):
                tell(number, title)
                step(stage)
            if leaves_console:
                leave_console(stage)
            tell(len(STEPS) + 2, "stopping everything")
    print("done", flush=True)


def tell(number: int, title: str) -> None:
    print(f"\n[{number}/{len(STEPS) + 2}] {title}", flush=True)


def leave_console(stage: Stage) -> None:
    query = urlencode({"ticker": TICKER, "period": format_period(PERIOD_SECONDS)}, safe="/")
    print(f"\nthe console: {address_of(stage.settings)}chart?{query}", flush=True)
    print("Ctrl-C stops everything", flush=True)
    stopped = threading.Event()
    previous = signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        stopped.wait()
    except KeyboardInterrupt:
        print()
    finally:
        signal.signal(signal.SIGTERM, previous)


def fetch(stage: Stage) -> None:
    end = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    submitted = stage.client.submit(TICKER, PERIOD_SECONDS, start=end - timedelta(days=1), end=end)
    print(f"request {submitted.request_id} is queued; its notification comes on {submitted.topic}", flush=True)
    began = time.monotonic()
    with RequestProgress(TICKER) as progress:
        stage.final = stage.client.wait(submitted.request_id, progress=progress, timeout=300)
    if stage.final.status is not Outcome.OK:
        raise CandlewrightError(f"the request ended as {stage.final.status}: {stage.final.error_message}")
    took = time.monotonic() - began
    print(f"HistoryReady: {stage.final.row_count} rows in {stage.final.table} after {took:.2f} s", flush=True)


def read(stage: Stage) -> None:
    assert stage.final is not None
    with session_of(stage.settings.spark) as session:
        query = (
            "SELECT open_time, open, high, low, close, volume, trade_count FROM lake.market.ohlc"
            f" WHERE ticker = '{TICKER}' AND period_seconds = {PERIOD_SECONDS} ORDER BY open_time"
        )
        print(f"{stage.settings.spark.connect_bind}> {query}", flush=True)
        table = session.sql(query).toArrow()
    if table.num_rows < stage.final.row_count:
        raise CandlewrightError(f"{stage.final.row_count} rows were confirmed, Spark SQL finds {table.num_rows}")
    print_arrow_table(table)
    print(f"\n{TICKER}, one-minute candles from {format_nanoseconds(stage.final.start)}")
    for line in chart.render(candles_of(table), CHART_COLUMNS, height=CHART_ROWS, style=style_of_stdout()):
        print(line)


def follow(stage: Stage) -> None:
    client = stage.client
    periods = (SHORT_PERIOD_SECONDS, PERIOD_SECONDS)
    with client.bars(TICKER, periods[0]) as short, client.bars(TICKER, periods[1]) as minutes:
        stage.realtime = client.realtime(TICKER, ticks=True, ohlc_periods=periods)
        print(f"realtime request {stage.realtime.request_id}; the exchange's clock runs {EXCHANGE_SPEED} times faster")
        print(columns((*BAR_COLUMNS, "period")), flush=True)
        shown: list[Bar] = []
        while len(shown) < SHOWN_SHORT_BARS:
            shown.append(next_bar(short))
        for _ in range(SHOWN_MINUTES):
            next_bar(minutes)
    print(f"\n{TICKER}, live bars of {SHORT_PERIOD_SECONDS} seconds")
    for line in chart.render(
        [candle_of(bar) for bar in shown], CHART_COLUMNS, height=CHART_ROWS, style=style_of_stdout()
    ):
        print(line)


def next_bar(stream: Stream[Bar]) -> Bar:
    try:
        bar = stream.next(timeout=LIVE_TIMEOUT_SECONDS)
    except TimeoutError as error:
        raise CandlewrightError(f"no live bar arrived: {error}") from error
    print(columns((*row_of(bar), format_period(bar.period_seconds))), flush=True)
    return bar


def catch(stage: Stage) -> None:
    """Print the trigger's first event, then remove the trigger."""
    print(V_SHAPE, flush=True)
    began = time.monotonic()
    with stage.client.triggers.add(V_SHAPE, tickers=[TICKER]) as trigger:
        print(f"trigger {trigger.id} is registered and active after {time.monotonic() - began:.2f} s", flush=True)
        try:
            event = trigger.events().next(timeout=LIVE_TIMEOUT_SECONDS)
        except TimeoutError as error:
            raise CandlewrightError(f"the trigger did not fire: {error}") from error
        for line in lines_of(event):
            print(line)
        print(f"event {event.event_id}, {time.monotonic() - began:.2f} s after the registration began", flush=True)
        trigger.remove()
    print(f"trigger {trigger.id} is removed", flush=True)


STEPS: tuple[tuple[str, Callable[[Stage], None]], ...] = (
    (f"asking for a day of {TICKER} by the minute, and waiting for HistoryReady", fetch),
    ("reading the rows from Iceberg with Spark SQL, over Spark Connect", read),
    (f"starting live trades of {TICKER}, and watching its bars close", follow),
    (f"registering a trigger on them, for a V in the trades of {TICKER}, and waiting for its first event", catch),
)
