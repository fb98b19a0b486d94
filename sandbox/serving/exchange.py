"""The exchange that the sandbox serves: its markets, clock, rules and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox.behaviour.clock import ExchangeClock
from sandbox.behaviour.faults import Fault
from sandbox.generated.market import GeneratedMarket
from sandbox.generated.tape import Kept
from sandbox.markets.instruments import DEFAULT_INSTRUMENTS, make_instrument, utc_ms
from sandbox.markets.market import Market
from sandbox.recorded.files import Trade, read_candles, read_trades
from sandbox.recorded.markets import RecordedCandles, RecordedTrades, WireRow
from sandbox.serving.sockets import StreamConnection
from sandbox.serving.state import ExchangeState


class Exchange:
    """The listed markets, and how the exchange behaves.

    `symbols` are pairs (BASE/QUOTE) listed besides the built-in ones. `clock` is the exchange's time at the start, as
    ISO text or ms (None: the real time), `speed` how fast it runs. The same `seed`, symbol and time give the same data
    in every process. `candles` are recordings to serve, each PAIR:INTERVAL=FILE; `trades` are files of recorded frames
    to replay, which drive the clock if none is given.
    Raises ValueError for a malformed symbol, time, speed or file, OSError for a file that cannot be read.
    """

    def __init__(
        self,
        *,
        seed: int = 1,
        symbols: Sequence[str] = (),
        clock: str | int | None = None,
        speed: float = 1.0,
        rate_limit: bool = True,
        candles: Sequence[str] = (),
        trades: Sequence[str] = (),
    ) -> None:
        self.markets: dict[str, Market] = {}
        kept = Kept()
        for instrument in (*DEFAULT_INSTRUMENTS, *map(make_instrument, symbols)):
            self.markets.setdefault(instrument.symbol, GeneratedMarket(instrument, seed, kept))
        self.clock = ExchangeClock(utc_ms(clock) if isinstance(clock, str) else clock, speed)
        self.state = ExchangeState(rate_limit=rate_limit, seed=seed)
        self.stream_counters: Counter[str] = Counter()
        self.connections: set[StreamConnection] = set()
        self._load(candles, trades, drive=clock is None)

    def add_candles(self, symbol: str, interval: str, rows: Iterable[WireRow]) -> None:
        """Serve these candles for a pair (BASE/QUOTE) instead of generated data; see RecordedCandles.add."""
        market = RecordedCandles(symbol)
        present = self.markets.get(market.symbol)
        market = present if isinstance(present, RecordedCandles) else market
        market.add(interval, rows)
        self.markets[market.symbol] = market

    def add_trades(self, symbol: str, trades: Iterable[Trade], *, drive: bool = True) -> None:
        """Serve these trades for a pair, and everything derived from them; see RecordedTrades.

        With `drive` the clock starts just before the first trade and advances as fast as websocket clients read
        trades; after the last one it runs in real time.
        """
        market = RecordedTrades(symbol, trades)
        self.markets[market.symbol] = market
        if drive:
            self.clock.driven = True
            self.clock.set(market.first_time - 1, 0.0)

    def add_fault(self, fault: Fault) -> int:
        """Add a fault rule; returns its id."""
        return self.state.faults.add(fault)

    def clear_faults(self) -> None:
        """Remove all fault rules."""
        self.state.faults.clear()

    def add_hole(self, symbol: str, start_ms: int, end_ms: int) -> None:
        """Add a downtime: the symbol has no candles and no trades in [start, end). Raises KeyError, ValueError."""
        self.markets[symbol.replace("/", "")].add_hole(start_ms, end_ms)
        self._look_again()

    def clear_holes(self) -> None:
        """Remove all downtimes."""
        for market in self.markets.values():
            market.clear_holes()
        self._look_again()

    def _look_again(self) -> None:
        for connection in self.connections:
            connection.session.look_again()

    def _load(self, candles: Sequence[str], trades: Sequence[str], *, drive: bool) -> None:
        for source in candles:
            name, equals, path = source.partition("=")
            pair, colon, interval = name.partition(":")
            if not equals or not colon:
                raise ValueError(f"{source!r} is not of the form BASE/QUOTE:INTERVAL=FILE")
            self.add_candles(pair, interval, read_candles(Path(path)))
        for symbol, found in read_trades(map(Path, trades)).items():
            self.add_trades(symbol, found, drive=drive)
