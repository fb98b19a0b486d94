"""Compares a sample of closed one-minute bars, built from the published trades, with the exchange's own candles."""

from collections.abc import Sequence

import numpy as np

from bars import exact, from_trades
from candlewright.wire.errors import BadReply, CandlewrightError
from candlewright.wire.grid import SECOND
from core.log import get_logger
from ingestor.exchange.client import VenueClient
from ingestor.exchange.pages import source_of
from ingestor.progress import Progress
from ingestor.realtime import metrics
from ingestor.trade import ORDER, PRICE, SIZE, TIME, Trade
from ingestor.venues.description import Query

log = get_logger()

MINUTE = 60 * SECOND
#: How long after its end a minute is compared; by then late trades, and the exchange's own corrections, have arrived.
SETTLE_NS = 5 * SECOND
#: Spreads the chosen minutes evenly, and identically in every process.
_STRIDE = 2_654_435_761


class BarSampler:
    """`share` (0 to 1) of the minutes are chosen; only those seen from their beginning are compared."""

    def __init__(self, client: VenueClient, symbol: str, share: float) -> None:
        self._client = client
        self._symbol = symbol
        self._share = share
        self._minutes: dict[int, list[Trade]] = {}
        self._complete_from: int | None = None

    def add(self, trades: Sequence[Trade]) -> None:
        if self._share <= 0 or not trades:
            return
        if self._complete_from is None:
            self._complete_from = trades[0][TIME] // MINUTE + 1
        first, last = trades[0][TIME] // MINUTE, trades[-1][TIME] // MINUTE
        if first == last:
            if self._is_chosen(first):
                self._minutes.setdefault(first, []).extend(trades)
            return
        for trade in trades:
            minute = trade[TIME] // MINUTE
            if self._is_chosen(minute):
                self._minutes.setdefault(minute, []).append(trade)

    def _is_chosen(self, minute: int) -> bool:
        is_complete = self._complete_from is not None and minute >= self._complete_from
        return is_complete and minute * _STRIDE % 10_000 < self._share * 10_000

    def forget(self, start: int, end: int) -> None:
        """Do not compare minutes in [start, end) (ns), since trades are missing."""
        for minute in range(start // MINUTE, end // MINUTE + 1):
            self._minutes.pop(minute, None)

    def is_due(self, exchange_time: int) -> bool:
        return any((minute + 1) * MINUTE + SETTLE_NS <= exchange_time for minute in self._minutes)

    async def compare(self, exchange_time: int) -> None:
        """Compare the minutes that have closed; count and log differences."""
        due = [minute for minute in self._minutes if (minute + 1) * MINUTE + SETTLE_NS <= exchange_time]
        for minute in due:
            trades = self._minutes.pop(minute)
            try:
                differing = await self._differing(minute * MINUTE, trades, exchange_time)
            except CandlewrightError as error:
                metrics.SAMPLES.labels(self._client.venue, "unknown").inc()
                log.info("bar_not_compared", symbol=self._symbol, error=str(error))
                continue
            metrics.SAMPLES.labels(self._client.venue, "different" if differing else "equal").inc()
            if differing:
                log.warning("bar_differs", symbol=self._symbol, open_time=minute * MINUTE, fields=differing)

    async def _differing(self, open_time: int, trades: Sequence[Trade], now: int) -> list[str]:
        """The fields in which the bar made from `trades` differs from the exchange's candle."""
        progress = Progress()
        market = await self._client.market(self._symbol, progress)
        source, timeframe = source_of(self._client), self._client.timeframe(60)
        query = Query(market, timeframe, 60, open_time, open_time + 2 * MINUTE, now)
        page = await self._client.call(lambda: source.page(query, progress), progress)
        if max(page.candles.last_open if len(page.candles) else 0, page.unfinished or 0) <= open_time:
            raise BadReply("no later candle shows that this one is whole")
        candles = page.candles.between(open_time, open_time + MINUTE)
        if len(candles) != 1:
            return ["open_time"]
        bars = from_trades(
            np.zeros(len(trades), np.int64),
            np.array([trade[TIME] for trade in trades], np.int64),
            np.array([trade[ORDER] for trade in trades], np.int64),
            price=np.array([trade[PRICE] for trade in trades], np.float64),
            size=np.array([trade[SIZE] for trade in trades], np.float64),
            period_seconds=60,
        )
        ours = {name: float(getattr(bars, name)[0]) for name in ("open", "high", "low", "close")}
        ours["volume"] = float(exact.to_doubles(bars.volume)[0])
        if candles.trade_count is not None:
            ours["trade_count"] = float(bars.trade_count[0])
        return [name for name, value in ours.items() if float(getattr(candles, name)[0]) != value]
