"""Plays recorded trades to a running platform, at its own pace, and checks the results.

Bars are computed here from the recorded texts with exact decimals, by a plain loop that shares nothing with the
product.
"""

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

import candlewright as cw
from bus import Bus, topics
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BusUnavailable
from sandbox.recorded.files import Trade, read_trades
from sandbox.serving.server import Sandbox
from tests.faults.harness import MINUTE_MS, Platform, Row, until

#: An exchange shows its newest 1,000 trades, and up to 735 share a millisecond: if more trades than this are not on the
#: bus yet, the market waits for the platform.
MOST_BEHIND = 200
STEP = 60
PERIODS = (1, 60, 300)

Markets = dict[str, list[Trade]]


def recorded_trades(shared_data: Path) -> list[Trade]:
    """(id, price, size, ms, taker bought) of BTC/USDT across a midnight, ascending."""
    files = [shared_data / "binance" / f"btcusdt_spot_ws_202408{day}.gz" for day in ("08", "09")]
    trades = sorted(read_trades(files)["BTCUSDT"])
    assert len(trades) == 19_904
    return trades


def moved(trades: Sequence[Trade], *, ids: int = 0, milliseconds: int = 0) -> list[Trade]:
    return [(number + ids, price, size, at + milliseconds, side) for number, price, size, at, side in trades]


def gaining_a_digit(trades: Sequence[Trade]) -> list[Trade]:
    """The trades with ids that grow from five to six digits in the middle of the fullest millisecond."""
    counts: dict[int, int] = defaultdict(int)
    for trade in trades:
        counts[trade[3]] += 1
    fullest = max(counts, key=lambda at: counts[at])
    inside = [trade[0] for trade in trades if trade[3] == fullest]
    assert len(inside) == 735
    return moved(trades, ids=100_000 - inside[len(inside) // 2])


def bars_of(trades: Iterable[tuple[int, str, str, int, Any]], period_seconds: int) -> list[Row]:
    """The bars as rows of the table: open time (ms), open, high, low, close, volume, quote volume, trades."""
    groups: dict[int, list[tuple[int, Decimal, Decimal]]] = defaultdict(list)
    for number, price, size, at, _ in trades:
        groups[at - at % (period_seconds * 1_000)].append((number, Decimal(price), Decimal(size)))
    rows = []
    for opened, group in sorted(groups.items()):
        group.sort()
        prices = [price for _, price, _ in group]
        volume = sum((size for _, _, size in group), Decimal(0))
        quote = sum((price * size for _, price, size in group), Decimal(0))
        first, last = float(prices[0]), float(prices[-1])
        rows.append(
            (opened, first, float(max(prices)), float(min(prices)), last, float(volume), float(quote), len(group))
        )
    return rows


@dataclass
class Tape:
    """One market's times (ms, ascending), and a function that advances its clock by milliseconds."""

    ticker: str
    times: Sequence[int]
    advance: Callable[[int], Any]
    now: int
    most_behind: int = MOST_BEHIND
    base: int = 0

    def __post_init__(self) -> None:
        self.times = list(accumulate(self.times, max))

    @property
    def shown(self) -> int:
        return bisect_right(self.times, self.now)


@dataclass
class Replay:
    """Plays tapes that share one clock. `behind`: how many shown trades are not on the bus."""

    bus: Bus
    tapes: list[Tape]
    log: list[str] = field(default_factory=list)

    def behind(self) -> int | None:
        """The most trades of a ticker that were shown but are not on the bus yet; None while the bus is down."""
        try:
            return max(tape.shown - self.bus.last_sequence(f"TICKS:{tape.ticker}") for tape in self.tapes)
        except BusUnavailable:
            return None

    def play(self, count: int, patience: float = 120.0, step: int = STEP) -> None:
        """Show trades up to the `count`-th of the first tape, without waiting for the last of them to reach the bus."""
        give_up = time.monotonic() + patience
        lead = self.tapes[0]
        while lead.shown < min(count, len(lead.times)):
            behind = self.behind()
            if behind is None or behind > min(tape.most_behind for tape in self.tapes):
                assert time.monotonic() < give_up, f"{behind} trades behind at {lead.shown} for {patience:g} s"
                time.sleep(0.01)
                continue
            give_up = time.monotonic() + patience
            to = lead.times[min(lead.shown + step, count, len(lead.times)) - 1]
            self.pass_time(to - lead.now)

    def pass_time(self, milliseconds: int) -> None:
        """Advance the clocks of all tapes."""
        self.tapes[0].advance(milliseconds)
        for tape in self.tapes:
            tape.now += milliseconds

    def finish(self, patience: float = 120.0) -> None:
        """Wait until the bus has all shown trades."""
        until(lambda: self.behind() == 0, patience, f"all trades on the bus, {self.behind()} missing")


def replay(platform: Platform, bus: Bus, markets: Markets, *, stack: ExitStack, periods: Sequence[int]) -> Replay:
    """The markets are listed, the clock is ahead of their first trades, and a client has requested all of them."""
    start = min(trades[0][3] for trades in markets.values()) - 1

    def list_markets(sandbox: Sandbox) -> None:
        for pair, trades in markets.items():
            sandbox.add_trades(pair, trades, drive=False)
        sandbox.clock.set(start, 0.0)

    platform.exchange.call(list_markets)
    # A job starts by a clock that was read up to a second ago, and real clocks do not jump by days.
    time.sleep(1.1)
    client = stack.enter_context(cw.connect(settings=platform.up.settings, timeout=60.0))
    for pair in markets:
        stack.enter_context(client.realtime(f"{pair}.BINANCE", ohlc_periods=periods))

    def advance(milliseconds: int) -> None:
        platform.exchange.call(lambda sandbox: sandbox.clock.advance(milliseconds))

    tapes = [Tape(f"{p}.BINANCE", [trade[3] for trade in trades], advance, start) for p, trades in markets.items()]
    return Replay(bus, tapes)


def streamed(platform: Platform) -> set[str]:
    """Symbols whose trades have a subscriber."""
    names = platform.exchange.call(
        lambda sandbox: [name for each in sandbox.connections for name in each.session.names]
    )
    return {name.partition("@")[0].upper() for name in names}


def published_bars(bus: Bus, ticker: str) -> dict[tuple[int, int], Row]:
    """The newest revision of each (period, open time in ms) on the topic; the last value is `complete`.

    Fails if a revision has two contents, or if a revision or a sequence number is missing.
    """
    contents: dict[tuple[int, int, int], Row] = {}
    sequences: dict[int, list[int]] = defaultdict(list)
    for partition, _ in enumerate(bus.state(topics.OHLC)):
        offset = bus.state(topics.OHLC)[partition].first
        while found := bus.read(topics.OHLC, partition, offset, max_records=10_000):
            offset = found[-1].offset + 1
            for record in found:
                bar = OHLCV.FromString(record.value)
                if bar.ticker != ticker:
                    continue
                key = (bar.period_seconds, bar.open_time // 1_000_000, bar.revision)
                row = (
                    key[1], bar.open, bar.high, bar.low, bar.close, bar.volume, bar.quote_volume, bar.trade_count,
                    bar.complete,
                )  # fmt: skip
                assert contents.setdefault(key, row) == row, f"two contents of {ticker} {key}"
                sequences[bar.period_seconds].append(bar.sequence)
    for period, numbers in sequences.items():
        assert numbers == list(range(1, len(numbers) + 1)), f"sequence of OHLC:{ticker}:{period}"
    newest: dict[tuple[int, int], Row] = {}
    for period, opened, revision in sorted(contents):
        assert revision == 0 or (period, opened, revision - 1) in contents, f"{ticker} {period} {opened} {revision}"
        newest[period, opened] = contents[period, opened, revision]
    return newest


def ids_of(ticks: pa.Table) -> list[int]:
    return sorted(int(text) for text in ticks["trade_id"].to_pylist())


def tick_rows(ticks: pa.Table) -> list[tuple[Any, ...]]:
    """(id, ms, price, size, side), ascending."""
    columns = (ticks[name].to_pylist() for name in ("trade_id", "ts_ns", "price", "size", "side"))
    return sorted((int(number), at // 1_000_000, *rest) for number, at, *rest in zip(*columns, strict=True))


def expected_ticks(trades: Iterable[Trade]) -> list[tuple[Any, ...]]:
    return [
        (number, at, float(price), float(size), "buy" if bought else "sell")
        for number, price, size, at, bought in trades
    ]


def check(
    platform: Platform, bus: Bus, pair: str, *, trades: Sequence[Trade], lead_ms: int = 0, patience: float = 180.0
) -> None:
    """Check the results for a market whose trades were all shown: bars on the topic and in the table, and ticks.

    `lead_ms`: how long before its first trade it was requested.
    """
    ticker = f"{pair}.BINANCE"
    expected = {period: bars_of(trades, period) for period in PERIODS}
    count = sum(map(len, expected.values()))

    def count_of(table: str) -> int:
        found: int = platform.table(table, ticker=ticker).num_rows
        return found

    until(lambda: count_of("ohlc") == count, patience, f"{count} bars of {ticker} in the table")
    until(lambda: count_of("ticks") >= len(trades), patience / 3, f"all ticks of {ticker}")
    assert tick_rows(platform.table("ticks", ticker=ticker)) == expected_ticks(trades)
    assert bus.last_sequence(f"TICKS:{ticker}") == len(trades), "some trades are on the bus twice"
    assert platform.table("gaps", ticker=ticker).num_rows == 0

    def stored() -> bool:
        return all(platform.all_rows(ticker, period) == rows for period, rows in expected.items())

    # A bar that was closed by the clock may still be revised by a late trade.
    until(stored, patience / 3, f"the right bars of {ticker} in the table")
    # The exchange starts with the recording, so it cannot know the earlier part of the first minute.
    since = min(trades[0][3] - trades[0][3] % MINUTE_MS, trades[0][3] - lead_ms)
    said = published_bars(bus, ticker)
    for period, rows in expected.items():
        assert [row for (own, _), row in said.items() if own == period] == [(*row, row[0] >= since) for row in rows]
    found = platform.table("ohlc", ticker=ticker)
    assert sum(found["complete"].to_pylist()) == sum(row[0] >= since for rows in expected.values() for row in rows)
