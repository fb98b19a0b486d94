"""Decides whether the times of trades are plausible by the exchange's clock, which is read again before a trade is put
aside.

A trade that is too far ahead by the last reading waits, with every trade after it, for the next reading, and is put
aside if it is still too far ahead. A clock that runs fast or is set, as in a replay, is behind its trades at each
reading; there, a trade may also be up to MAX_STEP_NS after the previous one.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import SECOND
from core.log import get_logger
from ingestor.exchange.client import VenueClient
from ingestor.progress import Progress
from ingestor.trade import RECEIVED_AT, TIME, Trade, stand_in

log = get_logger()

#: The shortest time (s) from a reading that led to a trade being put aside to the next one, since an exchange may send
#: many such trades.
REST_SECONDS = 1.0
#: How far a trade may be ahead of the previous one while the exchange's clock is not steady.
MAX_STEP_NS = 60 * SECOND


class Doubt:
    """Trades from the socket go through `add`, requested ones through `settled`."""

    def __init__(self, client: VenueClient, max_ahead_ns: int) -> None:
        self._client = client
        self._max_ahead_ns = max_ahead_ns
        self._waiting: deque[Sequence[Trade] | Callable[[], None]] = deque()
        #: Whether any trade of this job was replaced by a stand-in.
        self.has_replaced = False
        self._newest_ns = 0
        self._rest_until = 0.0

    @property
    def waiting(self) -> int:
        return sum(1 if callable(item) else len(item) for item in self._waiting)

    @property
    def ahead_ns(self) -> int:
        """The most (ns) that the exchange's clock is ahead of ours, as far as known."""
        measured_ns = self._client.clock_ahead_at_most or 0
        return measured_ns if self._client.is_clock_steady else max(measured_ns, self._newest_ns - time.time_ns())

    @property
    def allowed_ns(self) -> int:
        """The newest time (ns) that the next trade may have now."""
        return time.time_ns() + self.ahead_ns + self._max_ahead_ns

    def add(self, trades: Sequence[Trade]) -> bool:
        """Whether these trades may be used at once; otherwise they wait for `resolve`."""
        if not self._waiting and self._first_wild(trades) == len(trades):
            return True
        self._waiting.append(trades)
        return False

    def follow(self, event: Callable[[], None]) -> None:
        """Call `event` after the waiting trades, or at once if none wait."""
        if self._waiting:
            self._waiting.append(event)
        else:
            event()

    async def resolve(self, take: Callable[[Sequence[Trade]], None]) -> None:
        """Until nothing waits: read the clock, and pass the trades received before that to `take`, with stand-ins for
        implausible ones.
        """
        while self._waiting:
            asked_ns = await self._look()
            while self._waiting:
                item = self._waiting.popleft()
                if callable(item):
                    item()
                    continue
                known = next((place for place, trade in enumerate(item) if trade[RECEIVED_AT] > asked_ns), len(item))
                found = self._replaced(item[:known])
                left = item[known:]
                sound = self._first_wild(left)
                take([*found, *left[:sound]])
                if sound < len(left):
                    self._waiting.appendleft(left[sound:])
                    break

    async def settled(self, trades: Sequence[Trade]) -> Sequence[Trade]:
        """Requested trades, with stand-ins for implausible ones."""
        if self._first_wild(trades) == len(trades):
            return trades
        await self._look()
        return self._replaced(trades)

    def _first_wild(self, trades: Sequence[Trade]) -> int:
        """The index of the first trade that is too far ahead; the number of trades if none is."""
        allowed_ns = self.allowed_ns
        if self._newest_ns and not self._client.is_clock_steady:
            allowed_ns = max(allowed_ns, self._newest_ns + MAX_STEP_NS)
        newest_ns = max((trade[TIME] for trade in trades), default=0)
        if newest_ns <= allowed_ns:
            self._newest_ns = max(self._newest_ns, newest_ns)
            return len(trades)
        for place, trade in enumerate(trades):
            if trade[TIME] > allowed_ns:
                return place
            if not self._client.is_clock_steady:
                self._newest_ns = max(self._newest_ns, trade[TIME])
                allowed_ns = max(allowed_ns, self._newest_ns + MAX_STEP_NS)
        return len(trades)

    def _replaced(self, trades: Sequence[Trade]) -> list[Trade]:
        found = list(trades)
        if self._first_wild(found) == len(found):
            return found
        for place, trade in enumerate(found):
            if self._first_wild([trade]) == 0:
                # Not newer than any trade that may follow.
                found[place] = stand_in(trade, self.allowed_ns - 2 * self._max_ahead_ns)
        self.has_replaced = True
        self._rest_until = time.monotonic() + REST_SECONDS
        return found

    async def _look(self) -> int:
        """Read the exchange's clock; returns when the request began (ns, our clock). If it fails, the last reading
        stays.
        """
        await asyncio.sleep(max(0.0, self._rest_until - time.monotonic()))
        asked_ns = time.time_ns()
        try:
            await self._client.clock(Progress(), newer_than=0.0)
        except CandlewrightError as error:
            log.info("exchange_clock_unknown", venue=self._client.venue, error=str(error))
        return asked_ns
