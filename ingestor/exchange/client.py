"""One venue: markets, periods, the exchange's clock, and calls within the rate budget with retries."""

import asyncio
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

from tenacity import AsyncRetrying, RetryCallState
from tenacity.wait import wait_random_exponential

from candlewright.wire.errors import (
    BadReply,
    CandlewrightError,
    ExchangeError,
    NotOffered,
    RateLimited,
    UnknownTicker,
)
from candlewright.wire.nearest import did_you_mean, near_symbols
from core.log import get_logger
from ingestor import metrics
from ingestor.exchange.budget import Budget
from ingestor.exchange.errors import Reply, UnknownFailure, stated_end, translate
from ingestor.exchange.periods import native_periods
from ingestor.exchange.stock import last_reply
from ingestor.progress import SLACK_SECONDS, Progress
from ingestor.venues.description import Market, Request, VenueDescription
from ingestor.venues.limits import Call

log = get_logger()

Result = TypeVar("Result")

#: Attempts at a call that the exchange refuses with an unknown error.
UNKNOWN_TRIES = 3
#: Concurrent requests. Others wait, and their wait does not count against the exchange's timeout.
MAX_REQUESTS = 20
#: How old (s) a reading of the exchange's clock may be if nothing depends on it.
CLOCK_SECONDS = 5.0
#: If an exchange's clock has moved this far against ours since the last reading, it is read again, because one wrong
#: answer must not end a bar or a candle.
CLOCK_JUMP_NS = 2_000_000_000
STEADY_SECONDS = 4.0
#: How far the Date header may be behind the exchange's clock: it has whole seconds, and it took time to arrive.
DATE_SLACK_NS = 2_000_000_000
MILLISECOND_NS = 1_000_000


class ClockReading(NamedTuple):
    """The exchange reported `told_ns` between these times of our clock. `slack_ns`: how far the report may be behind
    its clock.
    """

    told_ns: int
    asked_ns: int
    answered_ns: int
    slack_ns: int

    @property
    def ahead_ns(self) -> int:
        """The least (ns) that its clock was ahead of ours."""
        return self.told_ns - self.answered_ns

    @property
    def ahead_at_most_ns(self) -> int:
        return self.told_ns + self.slack_ns - self.asked_ns


class VenueClient:
    """Shared by all jobs of one venue in this process."""

    def __init__(
        self, description: VenueDescription, exchange: Any, budget: Budget, *, request_timeout: float, patience: float
    ) -> None:
        self.venue = description.name
        self.description = description
        self.exchange = exchange
        self.budget = budget
        self.markets: Mapping[str, Market] = {}
        self.periods: Mapping[int, str] = native_periods(exchange.timeframes)
        self.one_at_a_time = asyncio.Lock()
        self._requests = asyncio.Semaphore(MAX_REQUESTS)
        self._clock_turn = asyncio.Lock()
        self._request_timeout = request_timeout
        self._patience = patience
        self._loaded_at = float("-inf")
        self._clock_ns = 0
        self._clock_read_at = float("-inf")
        #: When the last reading, finished or not, began.
        self._clock_asked_at = float("-inf")
        #: How far (ns) the exchange's clock was ahead of this machine's at the last reading, at least and at most; None
        #: before the first one.
        self.clock_ahead: int | None = None
        self.clock_ahead_at_most: int | None = None
        #: Whether it runs at the speed of ours, judged by our own clock or by readings at least STEADY_SECONDS apart; a
        #: replay's clock runs fast and can be set.
        self.is_clock_steady = False
        #: None until tried. Once an exchange has reported its time, the time is never estimated.
        self._tells_time: bool | None = None
        #: The newest Date headers minus their time of arrival (monotonic ns, because our wall clock may be set).
        self._dates_ns: deque[int] = deque(maxlen=3)

    def set_request_timeout(self, seconds: float) -> None:
        self._request_timeout = seconds
        self.exchange.timeout = int(seconds * 1_000)

    # ---- markets

    async def load_markets(self, progress: Progress) -> None:
        """Read the exchange's list of markets; raises ExchangeError or BusUnavailable after one try."""
        await self.attempt(Call.MARKETS, lambda: self.exchange.load_markets(True), progress, scale=6)
        chosen: dict[str, Any] = {}
        for listed in (self.exchange.markets_by_id or {}).values():
            for market in listed:
                if market.get("spot") and market.get("id"):
                    symbol = market["symbol"]
                    chosen[symbol] = min(chosen.get(symbol, market), market, key=_preference)
        # If two markets share a symbol (dark pools, relisted coins), ccxt keeps the one it saw last.
        self.exchange.markets.update(chosen)
        markets = {
            symbol: Market(
                symbol, market["id"], market.get("active") is not False, market["baseId"] or "", market["quoteId"] or ""
            )
            for symbol, market in chosen.items()
        }
        if not markets:
            raise BadReply(f"{self.venue} listed no spot market")
        if not self.description.needs_raw_markets:
            for market in self.exchange.markets.values():
                market["info"] = {}
        self.markets = markets
        self._loaded_at = time.monotonic()

    async def market(self, symbol: str, progress: Progress) -> Market:
        """The spot market `symbol`. Reloads the list once if it is missing; raises UnknownTicker."""
        market = self.markets.get(symbol)
        if market is None and time.monotonic() - self._loaded_at > 30:
            await self.call(lambda: self.load_markets(progress), progress)
            market = self.markets.get(symbol)
        if market is None:
            near = [f"{each}.{self.venue}" for each in near_symbols(symbol, self.markets)]
            raise UnknownTicker(f"{self.venue} has no spot market {symbol}{did_you_mean(near)}")
        return market

    def timeframe(self, period_seconds: int) -> str:
        """ccxt's name of a period; raises NotOffered if the venue does not have it."""
        name = self.periods.get(period_seconds)
        if name is None:
            raise NotOffered(f"{self.venue} does not serve candles of {period_seconds} seconds")
        return name

    # ---- clock

    async def clock(self, progress: Progress, *, newer_than: float = CLOCK_SECONDS) -> int:
        """A time (ns) that the exchange's clock had reached, read at most `newer_than` seconds ago."""
        if time.monotonic() - self._clock_read_at <= newer_than:
            return self._clock_ns
        asked_at = time.monotonic()
        async with progress.turn(self._clock_turn):
            # If many jobs want it at once, one reads it for all.
            if self._clock_asked_at < asked_at:
                self._clock_asked_at = time.monotonic()
                reading = await self._believable(progress)
                self._clock_ns = reading.told_ns
                self.clock_ahead, self.clock_ahead_at_most = reading.ahead_ns, reading.ahead_at_most_ns
                self._clock_read_at = time.monotonic()
                metrics.CLOCK_SKEW.labels(self.venue).set(reading.ahead_ns / 1e9)
        return self._clock_ns

    async def _believable(self, progress: Progress) -> ClockReading:
        """A reading, confirmed by a second one if it does not continue from the last. The first is compared with our
        own clock.
        """
        known_ns = self.clock_ahead or 0
        reading = await self._read_clock(progress)
        has_jumped = abs(reading.ahead_ns - known_ns) > CLOCK_JUMP_NS
        if has_jumped or self.clock_ahead is None or time.monotonic() - self._clock_read_at >= STEADY_SECONDS:
            self.is_clock_steady = not has_jumped
        if not has_jumped:
            return reading
        metrics.CLOCK_JUMPS.labels(self.venue).inc()
        again = await self._read_clock(progress)
        return min(reading, again, key=lambda found: found.ahead_ns) if reading.ahead_ns > known_ns else again

    async def _read_clock(self, progress: Progress) -> ClockReading:
        if self.exchange.has.get("fetchTime") and self._tells_time is not False:
            try:
                reading: ClockReading = await self.call(
                    lambda: self.attempt(Call.TIME, self._fetch_time, progress), progress
                )
            except ExchangeError as error:
                if self._tells_time or (error.retryable and not isinstance(error, UnknownFailure)):
                    raise
                self._tells_time = False
                log.warning("exchange_time_unavailable", venue=self.venue, error=str(error))
            else:
                self._tells_time = True
                return reading
        # The header has whole seconds, so a candle may be delayed by one but is never taken too early.
        now = time.time_ns()
        told_ns = statistics.median_low(self._dates_ns) + time.monotonic_ns() if self._dates_ns else now
        return ClockReading(told_ns, now, now, DATE_SLACK_NS)

    async def _fetch_time(self) -> ClockReading:
        asked_ns = time.time_ns()
        milliseconds = await self.exchange.fetch_time()
        answered_ns = time.time_ns()
        if not isinstance(milliseconds, int) or milliseconds <= 0:
            problem = f"{self.venue} reported no time"
            raise BadReply(problem) if self._tells_time else UnknownFailure(problem)
        return ClockReading(milliseconds * MILLISECOND_NS, asked_ns, answered_ns, MILLISECOND_NS)

    def _note_date(self, reply: Reply | None) -> None:
        date = reply.headers.get("date") if reply is not None else None
        if reply is not None and date:
            try:
                date_ns = int(parsedate_to_datetime(date).timestamp()) * 1_000_000_000
            except ValueError:
                return
            if self._tells_time is not True:
                self._dates_ns.append(date_ns - time.monotonic_ns())

    # ---- calls

    async def call(self, ask: Callable[[], Awaitable[Result]], progress: Progress) -> Result:
        """The result of `ask()`. Temporary failures are retried with full jitter, up to the client's patience.

        Raises the last ExchangeError, or BusError if the shared budget cannot be reached.
        """
        attempts = AsyncRetrying(
            retry=self._may_pass,
            wait=self._pause,
            stop=self._is_enough,
            sleep=progress.sleep,
            before_sleep=self._count_retry,
            reraise=True,
        )

        async def run() -> Result:
            return await ask()

        return await attempts(run)

    async def ask(self, request: Request, progress: Progress) -> Any:
        """The decoded reply to one attempt at a raw call."""
        method = getattr(self.exchange, request.method)
        return await self.attempt(request.call, lambda: method(dict(request.parameters)), progress)

    async def attempt(
        self, kind: Call, ask: Callable[[], Awaitable[Any]], progress: Progress, *, scale: float = 1
    ) -> Any:
        """One attempt. `scale`: the most requests that ccxt makes for it."""
        await self.budget.take(kind, progress)
        failure: Exception | None = None
        async with progress.turn(self._requests):
            progress.expect(self._request_timeout * scale + SLACK_SECONDS)
            metrics.REQUESTS.labels(self.venue).inc()
            try:
                result = await ask()
            except Exception as error:
                failure = error
        if failure is not None:
            raise await self._translated(failure, progress) from failure
        reply = last_reply()
        self._note_date(reply)
        await self.budget.learn(reply, progress)
        return result

    async def _translated(self, error: Exception, progress: Progress) -> Exception:
        reply = getattr(error, "reply", None)
        self._note_date(reply)
        translated = translate(error, self.description.limits, reply)
        if isinstance(translated, RateLimited):
            has_said_when = stated_end(str(error), reply) is not None
            return await self.budget.block(translated, progress, has_said_when=has_said_when)
        return translated

    def _may_pass(self, state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, BadReply):
            metrics.BAD_REPLIES.labels(self.venue).inc()
        return isinstance(error, CandlewrightError) and error.retryable

    def _pause(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, RateLimited):
            # Otherwise every caller that had to stop would return at the same instant.
            return max(error.retry_at - time.time(), 0.0) + _JITTER(state) / 10
        return _JITTER(state)

    def _is_enough(self, state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, UnknownFailure) and state.attempt_number >= UNKNOWN_TRIES:
            return True
        return (state.seconds_since_start or 0.0) + self._pause_floor(error) > self._patience

    @staticmethod
    def _pause_floor(error: BaseException | None) -> float:
        return error.retry_at - time.time() if isinstance(error, RateLimited) else 0.0

    def _count_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        metrics.RETRIES.labels(self.venue, type(error).__name__).inc()
        log.info("exchange_call_repeated", venue=self.venue, attempt=state.attempt_number, error=str(error))


_JITTER = wait_random_exponential(multiplier=1, max=60)


def _preference(market: Any) -> tuple[bool, int, str]:
    """Sort key for markets that share a symbol: one that trades comes first, then one with a plain id."""
    return (market.get("active") is False, len(market["id"]), market["id"])
