"""Fetches closed candles of the exchange for the longer bars in progress when a ticker starts."""

from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import open_containing
from core.log import get_logger
from ingestor.candles import Candles, joined
from ingestor.exchange.client import VenueClient
from ingestor.exchange.pages import source_of
from ingestor.history.fetch import HistoryFetch, HistoryJob
from ingestor.history.trade_candles import older_candles_of
from ingestor.progress import Progress
from protobuf import records_pb2 as records

log = get_logger()

#: (period of the candles, the longer period to whose start they reach back), shortest first.
STEPS = ((60, 3_600), (3_600, 86_400), (86_400, 604_800))


class Seeds:
    def __init__(self, client: VenueClient, symbol: str) -> None:
        self._client = client
        self._symbol = symbol

    async def before(self, covered_from: int, progress: Progress) -> list[records.Seed]:
        """One-minute candles since the hour, hours since the day, and days since Monday, each up to the start of the
        shorter ones. Unavailable candles are omitted; bars that would need them stay incomplete.
        """
        seeds: list[records.Seed] = []
        end = open_containing(covered_from, 60)
        if end != covered_from:
            return seeds
        for period, longer in STEPS:
            start = open_containing(end, longer)
            if start < end:
                try:
                    seed = await self._candles(period, start, end, progress)
                except CandlewrightError as error:
                    log.info("seed_unavailable", symbol=self._symbol, period_seconds=period, error=str(error))
                    break
                if seed is None:
                    break
                seeds.append(seed)
            end = start
        return seeds

    async def _candles(self, period: int, start: int, end: int, progress: Progress) -> records.Seed | None:
        if period not in self._client.periods:
            return None
        parts: list[Candles] = []

        async def emit(candles: Candles, source: str) -> None:
            parts.append(candles)

        job = HistoryJob(self._symbol, period, start, end, None)
        fetch = HistoryFetch(
            self._client,
            source_of(self._client),
            job,
            progress=progress,
            emit=emit,
            older=older_candles_of(self._client),
        )
        await fetch.run()
        if not parts:
            return None
        candles = joined(parts)
        return records.Seed(
            period_seconds=period,
            open_time=candles.open_time.tolist(),
            open=candles.open.tolist(),
            high=candles.high.tolist(),
            low=candles.low.tolist(),
            close=candles.close.tolist(),
            volume=candles.volume.tolist(),
            quote_volume=[] if candles.quote_volume is None else candles.quote_volume.tolist(),
            trade_count=[] if candles.trade_count is None else candles.trade_count.tolist(),
        )
