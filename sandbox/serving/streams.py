"""One websocket client's subscriptions, and the events due to it at a time. No sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sandbox.markets.candles import Candles
from sandbox.markets.intervals import DAY, INTERVALS, SECOND, Interval
from sandbox.markets.market import Market
from sandbox.markets.ticker import book_top, day_statistics
from sandbox.venues import binance_messages
from sandbox.venues.binance import day_ticker

_BATCH = 500  # trades of one stream at a time
_MAX_CLOSES = 1000
_NOTHING_MS = DAY  # when to check a channel without upcoming events again
_DAY_STREAMS = {"miniTicker": 1000, "ticker": 1000, "bookTicker": 100}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One event for the client; `time` is the exchange's; stream faults apply if `is_trade`."""

    stream: str
    symbol: str
    time: int
    text: str
    is_trade: bool


class Channel(Protocol):
    """One subscribed stream."""

    def due(self, now: int) -> list[Outgoing]:
        """The events due by now and not sent yet; if there are many, only the first ones."""

    def next_due(self, now: int) -> int | None:
        """When the next event is due, as far as known; None if no event is known."""

    def look_again(self) -> None:
        """Drop what was computed ahead, after trades have changed."""

    def restart(self, now: int) -> None:
        """Continue from now, as after subscribing."""

    def drive_to(self, now: int) -> int | None:
        """The time to which this stream lets a driven clock advance; None if it does not drive."""


class _TradeChannel:
    """Raw or aggregate trades, each once, in id order. The next ones are made before their time, so that they are sent
    at it.
    """

    def __init__(self, stream: str, market: Market, now: int, *, aggregated: bool) -> None:
        self._stream = stream
        self._market = market
        self._page = market.orders if aggregated else market.fills
        self._id_at = market.order_at if aggregated else market.fill_at
        self._texts = binance_messages.agg_trade_events if aggregated else binance_messages.trade_events
        self._next_id = self._id_at(now + 1)
        self._ahead: tuple[int, list[Outgoing]] | None = None

    def due(self, now: int) -> list[Outgoing]:
        ahead, self._ahead = self._ahead, None
        found = ahead[1] if ahead is not None and ahead[0] == now else self._events(now)
        self._next_id += len(found)
        return found

    def _events(self, now: int) -> list[Outgoing]:
        trades = self._page(self._next_id, _BATCH, now)
        texts = self._texts(self._market, trades)
        symbol = self._market.symbol
        return [
            Outgoing(self._stream, symbol, time, text, True)
            for time, text in zip(trades.time.tolist(), texts, strict=True)
        ]

    def next_due(self, now: int) -> int | None:
        if len(self._page(self._next_id, 1, now)):
            return now
        time = self._market.next_trade_time(now)
        if time is not None:
            self._ahead = time, self._events(time)
        return time

    def look_again(self) -> None:
        self._ahead = None

    def restart(self, now: int) -> None:
        self._next_id = self._id_at(now + 1)

    def drive_to(self, now: int) -> int | None:
        return self._market.drive_to(now)


class _CandleChannel:
    """Candles of one interval: an update every two seconds (every second for 1s), and each candle once at its close."""

    def __init__(self, stream: str, market: Market, now: int, *, interval: Interval) -> None:
        self._stream = stream
        self._market = market
        self._interval = interval
        self._period = SECOND if interval.step_ms == SECOND else 2 * SECOND
        self._reached = now

    def due(self, now: int) -> list[Outgoing]:
        if now <= self._reached:
            return []
        found = self._closed(now)
        if now // self._period > self._reached // self._period:
            found += self._update(now)
        self._reached = now
        return found

    def _closed(self, now: int) -> list[Outgoing]:
        first = self._interval.floor(self._reached)
        last = self._interval.shift(self._interval.floor(now), -1)
        last = min(last, self._interval.shift(first, _MAX_CLOSES))
        if last < first:
            return []
        candles = self._market.candles(self._interval, first, last, now=now)
        return [self._event(candles, row, int(candles.close_time[row]) + 1, closed=True) for row in range(len(candles))]

    def _update(self, now: int) -> list[Outgoing]:
        opened = self._interval.floor(now)
        candles = self._market.candles(self._interval, opened, opened, now=now)
        if not len(candles) or not candles.count[-1]:
            return []
        return [self._event(candles, len(candles) - 1, now, closed=False)]

    def _event(self, candles: Candles, row: int, at: int, *, closed: bool) -> Outgoing:
        text = binance_messages.kline_event(self._market, self._interval, candles, row=row, now=at, closed=closed)
        return Outgoing(self._stream, self._market.symbol, at, text, False)

    def next_due(self, now: int) -> int | None:
        update = (now // self._period + 1) * self._period
        return min(update, self._interval.shift(self._interval.floor(now), 1))

    def look_again(self) -> None:
        """Nothing is computed ahead."""

    def restart(self, now: int) -> None:
        self._reached = now

    def drive_to(self, now: int) -> int | None:
        return self._market.drive_to(now)


class _StatisticsChannel:
    """24-hour tickers, sent in each period with a trade."""

    def __init__(
        self, stream: str, market: Market, now: int, *, period: int, text: Callable[[int], str | None]
    ) -> None:
        self._stream = stream
        self._market = market
        self._period = period
        self._text = text
        self._reached = now
        self._last_id = -1

    def due(self, now: int) -> list[Outgoing]:
        if now // self._period <= self._reached // self._period:
            return []
        self._reached = now
        newest = self._market.fill_at(now + 1)
        text = self._text(now) if newest != self._last_id else None
        self._last_id = newest
        return [] if text is None else [Outgoing(self._stream, self._market.symbol, now, text, False)]

    def next_due(self, now: int) -> int | None:
        return (now // self._period + 1) * self._period

    def look_again(self) -> None:
        """Nothing is computed ahead."""

    def restart(self, now: int) -> None:
        self._reached = now

    def drive_to(self, now: int) -> int | None:
        return self._market.drive_to(now)


class StreamSession:
    """The subscriptions of one client."""

    def __init__(self, markets: Mapping[str, Market]) -> None:
        self._markets = markets
        self._channels: dict[str, Channel] = {}
        #: When each channel's next event is due. Only due channels are computed, so that a client may have hundreds.
        self._due_at: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """The subscribed streams, in subscription order."""
        return list(self._channels)

    def subscribe(self, names: list[str], now: int) -> None:
        """Add streams; unknown names are accepted and stay silent, as on the exchange."""
        for name in names:
            if name in self._channels:
                continue
            channel = self._open(name, now)
            if channel is not None:
                self._channels[name] = channel

    def unsubscribe(self, names: list[str]) -> None:
        """Remove streams; unknown names are ignored."""
        for name in names:
            self._channels.pop(name, None)
            self._due_at.pop(name, None)

    def due(self, now: int) -> list[Outgoing]:
        """All events due by now, in time order."""
        found: list[Outgoing] = []
        for name, channel in self._channels.items():
            if self._due_at.get(name, now) <= now:
                self._due_at.pop(name, None)
                found += channel.due(now)
        if len(self._channels) > 1:
            found.sort(key=lambda event: event.time)
        return found

    def next_due(self, now: int) -> int | None:
        """The time of the next event."""
        for name, channel in self._channels.items():
            if name not in self._due_at:
                time = channel.next_due(now)
                self._due_at[name] = now + _NOTHING_MS if time is None else time
        return min(self._due_at.values(), default=None)

    def look_again(self) -> None:
        """Recompute when events are due, after they have changed."""
        self._due_at.clear()
        for channel in self._channels.values():
            channel.look_again()

    def drive_to(self, now: int) -> int | None:
        """The time to which a driven clock may advance."""
        times = [time for channel in self._channels.values() if (time := channel.drive_to(now)) is not None]
        return min(times, default=None)

    def restart(self, now: int) -> None:
        """Continue all streams from now."""
        self.look_again()
        for channel in self._channels.values():
            channel.restart(now)

    def _open(self, name: str, now: int) -> Channel | None:
        pair, at, kind = name.partition("@")
        market = self._markets.get(pair.upper())
        if market is None or not at or market.status != "TRADING":
            return None
        if kind in ("trade", "aggTrade"):
            return _TradeChannel(name, market, now, aggregated=kind == "aggTrade")
        if kind.startswith("kline_") and kind[6:] in INTERVALS:
            return _CandleChannel(name, market, now, interval=INTERVALS[kind[6:]])
        if kind in _DAY_STREAMS:
            return _StatisticsChannel(name, market, now, period=_DAY_STREAMS[kind], text=_statistics_text(market, kind))
        return None


def _statistics_text(market: Market, kind: str) -> Callable[[int], str | None]:
    def text(now: int) -> str | None:
        if kind == "ticker":
            return binance_messages.ticker_event(day_ticker(market, now), now)
        if kind == "miniTicker":
            day = day_statistics(market, now)
            return None if day is None else binance_messages.mini_ticker_event(market, day, now)
        top = book_top(market, now)
        return None if top is None else binance_messages.book_ticker_event(market, top)

    return text
