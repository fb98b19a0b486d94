"""Loads a venue's markets and keeps its record on the bus fresh; retries without limit."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type
from tenacity.wait import wait_random_exponential

from bus import KeyedTables
from bus.topics import TABLE_VENUES
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BusError, ExchangeError
from core.background import spare_startup
from core.log import get_logger
from ingestor import metrics
from ingestor.exchange.ccxt_classes import exchange_ids
from ingestor.exchange.client import VenueClient
from ingestor.exchange.pages import source_of
from ingestor.progress import Progress
from ingestor.settings import IngestorConfig
from ingestor.threads import BusThreads
from ingestor.venues import described

log = get_logger()

#: Name of the record that lists every servable venue, as markets whose symbols are the venues' names in lower case.
ALL_VENUES = "*"


class VenueKeeper:
    """`problem` is a sentence for the status page, set while the venue cannot be served; `has_failed`: because the
    exchange did not answer, or refused.
    """

    def __init__(
        self,
        client: VenueClient,
        bus: KeyedTables,
        threads: BusThreads,
        *,
        config: IngestorConfig,
        on_ready: Callable[[], None],
    ) -> None:
        self.client = client
        self.problem = f"{client.venue}: markets are not loaded yet"
        self.has_failed = False
        self._bus = bus
        self._threads = threads
        self._config = config
        self._on_ready = on_ready
        self._progress = Progress()

    async def run(self) -> None:
        """Until cancelled."""
        await self._until_done(self._load)
        self.problem, self.has_failed = "", False
        # Published before slots are offered, because the broker makes its own record of a venue that the bus does not
        # know.
        await self._until_done(self._publish)
        self._on_ready()
        # Live trades would wait for each search of an exchange's markets, which are hundreds of thousands of objects.
        spare_startup()
        loaded_at = time.monotonic()
        while True:
            await asyncio.sleep(self._config.venue_refresh)
            if time.monotonic() - loaded_at >= self._config.markets_refresh:
                await self._until_done(self._load)
                loaded_at = time.monotonic()
            await self._until_done(self._publish)

    async def _load(self) -> None:
        await self.client.load_markets(self._progress)
        log.info("markets_loaded", venue=self.client.venue, markets=len(self.client.markets))

    async def _publish(self) -> None:
        record = venue_record(self.client)
        values = {self.client.venue: record.SerializeToString(), ALL_VENUES: all_venues().SerializeToString()}
        await self._threads.run(
            lambda: self._bus.put(TABLE_VENUES, values, keep_seconds=self._config.venue_keep), self._progress
        )

    async def _until_done(self, step: Callable[[], Awaitable[None]]) -> None:
        attempts = AsyncRetrying(
            # A venue is never given up, because a later answer may differ from any earlier one.
            retry=retry_if_exception_type((ExchangeError, BusError)),
            wait=wait_random_exponential(multiplier=1, max=60),
            before_sleep=self._count_failure,
        )
        await attempts(step)

    def _count_failure(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        metrics.MARKET_LOAD_FAILURES.labels(self.client.venue).inc()
        if not self.client.markets:
            self.has_failed = True
            self.problem = f"{self.client.venue}: its markets cannot be loaded: {error}"
        log.warning("venue_step_failed", venue=self.client.venue, attempt=state.attempt_number, error=str(error))


def venue_record(client: VenueClient) -> cw.Venue:
    source = source_of(client)
    return cw.Venue(
        venue=client.venue,
        period_seconds=sorted(client.periods),
        markets=[
            cw.Market(
                symbol=market.symbol,
                market_id=market.market_id,
                active=market.is_active,
                base_id=market.base_id,
                quote_id=market.quote_id,
            )
            for market in client.markets.values()
        ],
        updated_at=time.time_ns(),
        max_candles_per_request=source.max_candles,
        depth_candles=source.depth,
        market_count=len(client.markets),
        is_live=True,
    )


def all_venues() -> cw.Venue:
    """The record of all venues: ccxt's ids, and venues with other names."""
    names = {*exchange_ids(), *(name.lower() for name in described())}
    markets = [cw.Market(symbol=name) for name in sorted(names)]
    return cw.Venue(venue=ALL_VENUES, markets=markets, market_count=len(names), updated_at=time.time_ns())
