"""Whether the times of trades can be true: by the exchange's clock, which is asked again before a trade is put aside.

So a trade that is too far ahead by the last look waits, with every trade after it, for the next look; what is too far
ahead even then is put aside. A clock that runs fast or is set, as in a replay, is behind its trades at each look:
there a trade may also follow the previous one.
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

#: No look follows so soon on one that showed a trade to be wild: an exchange may send many of them.
REST_SECONDS = 1.0
#: How far a trade may be ahead of the previous one it while the exchange's clock is not steady.
MAX_STEP_NS = 60 * SECOND


class Doubt:
    """`add` trades as they come by the socket, `settled` where they were requested."""

    def __init__(self, client: VenueClient, max_ahead_ns: int) -> None:
        self._client = client
        self._max_ahead_ns = max_ahead_ns
        self._waiting: deque[Sequence[Trade] | Callable[[], None]] = deque()
        #: Whether there are stand-ins among the trades of this job.
        self.has_replaced = False
        self._newest_ns = 0
        self._rest_until = 0.0

    @property
    def waiting(self) -> int:
        return sum(1 if callable(item) else len(item) for item in self._waiting)

    @property
    def ahead_ns(self) -> int:
        """How far the exchange's clock is ahead of ours, at most, as far as is known."""
        measured_ns = self._client.clock_ahead_at_most or 0
        return measured_ns if self._client.is_clock_steady else max(measured_ns, self._newest_ns - time.time_ns())

    @property
    def allowed_ns(self) -> int:
        """The newest time that the next trade may have now."""
        return time.time_ns() + self.ahead_ns + self._max_ahead_ns

    def add(self, trades: Sequence[Trade]) -> bool:
        """Whether they may go on at once; else they wait for `resolve`."""
        if not self._waiting and self._first_wild(trades) == len(trades):
            return True
        self._waiting.append(trades)
        return False

    def follow(self, event: Callable[[], None]) -> None:
        """Have `event` happen after the trades that wait, at once where there are none."""
        if self._waiting:
            self._waiting.append(event)
        else:
            event()

    async def resolve(self, take: Callable[[Sequence[Trade]], None]) -> None:
        """Until nothing waits: look at the clock, and `take` what was received before that, stand-ins in the place of
        wild trades.
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
        """Trades that are here already, stand-ins in the place of wild ones."""
        if self._first_wild(trades) == len(trades):
            return trades
        await self._look()
        return self._replaced(trades)

    def _first_wild(self, trades: Sequence[Trade]) -> int:
        """The place of the first trade that is too far ahead; their number where none is."""
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
                # Not newer than any trade that may come after it.
                found[place] = stand_in(trade, self.allowed_ns - 2 * self._max_ahead_ns)
        self.has_replaced = True
        self._rest_until = time.monotonic() + REST_SECONDS
        return found

    async def _look(self) -> int:
        """When (by our clock) a look at the exchange's began that is over; one that fails leaves the last one."""
        await asyncio.sleep(max(0.0, self._rest_until - time.monotonic()))
        asked_ns = time.time_ns()
        try:
            await self._client.clock(Progress(), newer_than=0.0)
        except CandlewrightError as error:
            log.info("exchange_clock_unknown", venue=self._client.venue, error=str(error))
        return asked_ns
