"""The live commands: lines, JSON, the screen, and how a watch ends."""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from candlewright.cli import watch as watch_command
from candlewright.cli.app import app
from candlewright.client import Bar, GapError, Tick, TickerNotFound, Venue
from core.settings import Settings
from iceberg import GAPS, append, create_tables, load_table, open_catalog
from tests.candlewright.client.test_twins import Relay

TICKER = "BTC/USDT.BINANCE"
START = 1_704_067_200 * 10**9
Run = Callable[..., Result]


def bar(number: int, revision: int = 0, close: float = 1.5) -> Bar:
    return Bar(
        ticker=TICKER,
        period_seconds=60,
        open_time=START + number * 60 * 10**9,
        open=1.0,
        high=2.0,
        low=0.5,
        close=close,
        volume=10.0,
        quote_volume=None,
        trade_count=3,
        complete=True,
        revision=revision,
        source="ticks",
        sequence=1,
    )


def tick(number: int, price: float = 5.0) -> Tick:
    return Tick(
        ticker=TICKER,
        trade_id=str(number),
        timestamp=START + number * 10**8,
        price=price,
        size=0.25,
        side="buy",
        received_at=START,
        sequence=number,
    )


class FakeStream:
    def __init__(self, items: list[object]) -> None:
        self._items = iter(items)

    def __enter__(self) -> "FakeStream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def next(self) -> object:
        item = next(self._items, None)
        if item is None:
            raise KeyboardInterrupt
        if isinstance(item, Exception):
            raise item
        return item


class FakeClient:
    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def venues(self) -> list[Venue]:
        return [Venue("BINANCE", (60,), 1, 0, True, START), Venue("KRAKEN", (60,), 0, 0, False, 0)]

    def bars(self, ticker: str, period_seconds: int) -> FakeStream:
        assert period_seconds == 60
        return FakeStream([bar(0), GapError("OHLC:x:60", 2, 3), bar(1, close=0.75), bar(0, revision=1)])

    def ticks(self, ticker: str) -> FakeStream:
        return FakeStream([tick(1), tick(2, 6.5)])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch_command, "connect", lambda **_: FakeClient())
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_bars_as_json_lines(run: Run) -> None:
    result = run("watch", TICKER, "--period", "1m", "--output", "json")
    assert result.exit_code == 0
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["open_time"], row["revision"]) for row in rows] == [(START, 0), (START + 60 * 10**9, 0), (START, 1)]
    assert "numbers 2 to 3 were missed" in result.stderr


def test_bars_that_have_yet_to_close_are_announced_and_ticks_are_not(run: Run) -> None:
    said = run("watch", TICKER, "--period", "1m").stderr
    assert re.search(r"waiting for the first 1m bar, which closes at \d{4}-\d\d-\d\dT\d\d:\d\d:00Z", said)
    assert "waiting" not in run("watch", TICKER).stderr
    assert watch_command.waiting_for(3_600, START).endswith("first 1h bar, which closes at 2024-01-01T01:00:00Z")


def test_ticks_as_lines_under_a_head(run: Run) -> None:
    head, first, second = run("watch", TICKER).stdout.splitlines()
    assert head.split() == ["time", "trade_id", "side", "price", "size"]
    assert first.split() == ["2024-01-01T00:00:00.1Z", "1", "buy", "5", "0.25"]
    assert second.split()[3] == "6.5"


def test_count_ends_the_watch(run: Run) -> None:
    assert len(run("watch", TICKER, "--output", "json", "--count", "1").stdout.splitlines()) == 1


def test_errors_about_the_ticker_are_shown_and_the_watch_continues(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told = TickerNotFound("TICKS:ETH/USDX.BINANCE", "BINANCE does not list ETH/USDX")
    monkeypatch.setattr(FakeClient, "ticks", lambda *_: FakeStream([told, tick(1)]))
    result = run("watch", "ETH/USDX.BINANCE", "--output", "json")
    assert "BINANCE does not list ETH/USDX" in result.stderr
    assert len(result.stdout.splitlines()) == 1


def test_a_venue_without_an_ingestor_is_reported_and_waited_for(run: Run) -> None:
    assert "no ingestor is live for KRAKEN" in run("watch", "ETH/USDT.KRAKEN").stderr
    assert "no ingestor is live for NOWHERE" in run("watch", "ETH/USDT.NOWHERE").stderr


def drawn(screen: watch_command.Screen, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    with console.file:
        console.print(screen.render())
        return console.export_text()


def test_the_bar_that_is_forming_is_on_the_screen_until_it_closes() -> None:
    screen = watch_command.FormingScreen(TICKER, 60)
    second = 10**9

    def trade(at: int, price: float) -> None:
        screen.form(replace(tick(at, price), timestamp=START + at * second))

    trade(20, 5.0)
    trade(21, 7.0)
    text = drawn(screen)
    assert "waiting" not in text and "(0 so far, forming since 00:00:20" in text
    (row,) = [line.split() for line in text.splitlines() if line.lstrip().startswith("00:00:00") and "forming" in line]
    assert row == ["00:00:00", "5", "7", "5", "7", "0.5", "2", "forming"]
    trade(61, 9.0)
    screen.show(bar(0, close=6.0))
    # Late: its bar is closed.
    trade(59, 1.0)
    rows = [line.split() for line in drawn(screen).splitlines() if line.lstrip().startswith("00:0") and "-" not in line]
    assert [(row[0], row[4], row[-1]) for row in rows] == [("00:00:00", "6", "3"), ("00:01:00", "9", "forming")]
    assert "the last is forming" in drawn(screen)
    screen.show(bar(1))
    assert "forming" not in drawn(screen)


@pytest.mark.parametrize("width", [80, 140])
def test_no_price_and_no_note_of_the_forming_bar_is_cut(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen = watch_command.FormingScreen(TICKER, 60)
    screen.form(replace(tick(1, 134836.56), size=0.01098))
    (line,) = [line for line in drawn(screen, width).splitlines() if line.rstrip().endswith("forming")]
    assert line.split() == ["00:00:00", *["134836.56"] * 4, "0.01098", "1", "forming"]


def test_trades_go_into_the_forming_bar_while_closed_ones_come() -> None:
    class Items(FakeStream):
        def next(self, timeout: float | None = None) -> object:
            item = next(self._items, None)
            if item is None and timeout == 0:
                raise TimeoutError
            return super().next() if item is None else _given(item)

    class Both(FakeClient):
        def ticks(self, ticker: str) -> FakeStream:
            return Items([tick(1, 3.0), GapError("TICKS:x", 2, 3), TimeoutError(), tick(4, 8.0)])

    screen = watch_command.FormingScreen(TICKER, 60)
    seen = []
    with pytest.raises(KeyboardInterrupt):
        for item in watch_command.with_forming(Both(), Items([TimeoutError(), bar(-1)]), screen):  # type: ignore[arg-type]
            seen.append(item)
            screen.show(item)
    assert seen == [bar(-1)]
    text = drawn(screen)
    # What preceded the gap is not in it.
    assert "forming since 00:00:00" in text
    (row,) = [line.split() for line in text.splitlines() if line.split()[-1:] == ["forming"]]
    assert row[1:] == ["8", "8", "8", "8", "0.25", "1", "forming"]


def _given(item: object) -> object:
    if isinstance(item, Exception):
        raise item
    return item


def test_a_revision_replaces_its_bar_on_the_screen() -> None:
    screen = watch_command.Screen(TICKER, 60)
    assert "waiting" in drawn(screen)
    for item in (bar(0), bar(1), bar(0, revision=1, close=1.75)):
        screen.show(item)
    text = drawn(screen)
    assert f"{TICKER} 1m  (3 so far" in text
    rows = [line.split() for line in text.splitlines() if " 00:0" in f" {line.lstrip()}" and "-" not in line]
    assert [(row[0], row[4], row[7:]) for row in rows] == [
        ("00:00:00", "1.75", ["rev", "1"]),
        ("00:01:00", "1.5", []),
    ]


def test_the_chart_uses_the_terminals_encoding_whatever_wraps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    screen = watch_command.Screen(TICKER, None)
    for number in range(5):
        screen.show(tick(number, 5.0 + number))
    # As rich does while it draws: it has no encoding.
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert "┤" in drawn(screen)


def test_ticks_of_a_second_are_one_candle_on_the_screen() -> None:
    screen = watch_command.Screen(TICKER, None)
    for number in range(25):
        screen.show(tick(number, 5.0 + number))
    first, *_, last = screen._candles.values()
    assert len(screen._candles) == 3
    assert (first.open, first.high, first.low, first.close, first.volume) == (5.0, 14.0, 5.0, 14.0, 2.5)
    assert last.close == 29.0
    assert "29" in drawn(screen)


@pytest.fixture
def relay() -> Iterator[Relay]:
    relay = Relay()
    yield relay
    relay.close()


@pytest.mark.processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_screen_with_exit_code_0(relay: Relay, number: signal.Signals) -> None:
    master, slave = pty.openpty()
    environment = {
        **os.environ,
        "CANDLEWRIGHT_RELAY__REQUESTS_BIND": relay.requests,
        "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": relay.notifications,
        "TERM": "xterm",
    }
    command = [sys.executable, "-m", "candlewright", "watch", TICKER, "--period", "1m"]
    # As a terminal starts it, even if the tests themselves run in the background, which ignores SIGINT.
    process = subprocess.Popen(
        command,
        stdout=slave,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(slave)
    seen = bytearray()
    shows_bar = threading.Event()

    def read() -> None:
        # The terminal must be read continuously, or the child blocks in its writes.
        # Linux reports the end of a terminal whose other side was closed as EIO.
        with suppress(OSError):
            while part := os.read(master, 4096):
                seen.extend(part)
                if b"00:00:00.000000001" in seen:
                    shows_bar.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        relay.wait_for_subscription(f"OHLC:{TICKER}:60")
        relay.add_bars(1)
        assert shows_bar.wait(30), seen
        process.send_signal(number)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(master)
        assert process.stderr is not None
        process.stderr.close()


def test_gaps_are_listed_repaired_or_not(run: Run, tmp_path: Path) -> None:
    catalog = open_catalog(Settings(data_dir=tmp_path / "lake"))
    create_tables(catalog)
    rows = [
        {"ticker": TICKER, "from_trade_id": "7", "to_trade_id": "9", "from_ts": 2, "missing": 3, "repaired": False},
        {"ticker": TICKER, "from_trade_id": "1", "to_trade_id": "2", "from_ts": 1, "missing": 2, "repaired": True},
        {"ticker": "ETH/USDT.BINANCE", "from_trade_id": "1", "from_ts": 1, "repaired": True},
    ]
    append(load_table(catalog, GAPS), pa.Table.from_pylist(rows, schema=GAPS.arrow_schema), {"a": "b"})
    options = ("--data-dir", str(tmp_path / "lake"))
    found = [json.loads(line) for line in run("gaps", TICKER, *options, "--output", "json").stdout.splitlines()]
    assert [(row["from_trade_id"], row["missing"], row["repaired"]) for row in found] == [
        ("1", 2, True),
        ("7", 3, False),
    ]
    table = run("gaps", TICKER, *options)
    assert table.exit_code == 0
    assert "no" in table.stdout.split()
    nothing = run("gaps", "SOL/USDT.BINANCE", *options)
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "no gaps" in nothing.stderr


def test_the_newest_trades_fit_on_a_small_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    screen = watch_command.Screen(TICKER, None)
    for number in range(1, 41):
        screen.show(tick(number, 5.0 + number))
    lines = drawn(screen).splitlines()
    assert len(lines) < 24
    assert any(line.split()[1:2] == ["40"] for line in lines)
