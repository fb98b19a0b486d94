"""What the broker knows about venues, and the records that it renews for venues that no ingestor describes."""

import re

from broker.board import Board
from broker.commands import LookUpVenue, PutServed, PutVenue
from broker.events import Kind, VenueLearned
from broker.work import VenueFacts
from candlewright.wire import grid
from venues.catalogue import is_known

#: A venue's record is read again after this long (s).
VENUE_SECONDS = 30.0
#: The most venues that slots and requests may name.
MAX_VENUES = 10_000
#: The most records kept for venues that only foreign ingestors know; further venues are served without a record.
MAX_OWN_VENUES = 1_000
#: The most that an ingestor may report its venue's clock to be ahead of ours.
MAX_AHEAD_NS = 3_660 * 86_400 * grid.SECOND
#: The most that a venue's clock is assumed to be behind ours, whatever a slow job reports.
MAX_BEHIND_NS = 3_600 * grid.SECOND
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


class VenueBook:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._facts: dict[str, VenueFacts] = {}
        #: Venues whose records on the bus the broker renews.
        self._own: set[str] = set()
        self._put_at = board.at
        #: The published venues with slots, and when they were published.
        self._told: PutServed | None = None
        self._told_at = board.at

    def facts(self, venue: str) -> VenueFacts:
        facts = self._facts.get(venue)
        if facts is None:
            facts = self._facts[venue] = VenueFacts()
        return facts

    def offered(self, venue: str, at: float) -> bool:
        """Note a slot offer for `venue`, whose record is read again from time to time; False if there are too many
        venues.
        """
        facts = self._facts.get(venue)
        if facts is None:
            if len(self._facts) >= MAX_VENUES:
                return False
            facts = self.facts(venue)
        if at - facts.asked_at > VENUE_SECONDS:
            facts.asked_at = at
            self._board.say(LookUpVenue(venue))
        elif facts.is_bare:
            self._keep(venue)
        return True

    def learn(self, event: VenueLearned) -> bool:
        """Take over a venue's record; returns whether the venue was unknown before."""
        facts = self.facts(event.venue)
        page = facts.candles_per_page = max(1, event.candles_per_page)
        facts.candles_per_piece = page * self._board.room.pages_per_piece(page)
        facts.depth_candles = event.depth_candles
        # ccxt's venues are described by their ingestors; do not overwrite their records.
        facts.is_bare = event.is_bare and not is_known(event.venue) and _NAME.fullmatch(event.venue) is not None
        if facts.is_bare:
            self._keep(event.venue)
        else:
            self._own.discard(event.venue)
        is_first = not facts.is_known
        facts.is_known = True
        return is_first

    def refresh(self) -> None:
        """Renew the records of venues that still have a connection with slots."""
        if self._board.at - self._put_at < VENUE_SECONDS:
            return
        self._put_at = self._board.at
        if self._own:
            served = {venue for peer in self._board.slots.peers.values() for venue, _ in peer.keys}
            self._own &= served
            for venue in sorted(self._own):
                self._board.say(PutVenue(venue))

    def tell_served(self) -> None:
        """Publish the venues with slots for the relay, if they have changed or the record is due for renewal."""
        # A connection that returned with a running job may have no other slot to offer.
        keys = self._board.slots.served() | {job.piece.request.key for job in self._board.jobs.values()}
        served = PutServed(
            tuple(sorted(venue for venue, kind in keys if kind is Kind.HISTORICAL)),
            tuple(sorted(venue for venue, kind in keys if kind is Kind.REALTIME)),
        )
        if served != self._told or self._board.at - self._told_at >= VENUE_SECONDS:
            self._told, self._told_at = served, self._board.at
            self._board.say(served)

    def _keep(self, venue: str) -> None:
        if venue not in self._own and len(self._own) < MAX_OWN_VENUES:
            self._own.add(venue)
            self._board.say(PutVenue(venue))


def saw_exchange_time(facts: VenueFacts, exchange_time: int, wall_ns: int) -> None:
    """Learn from a result how far its venue's clock is from ours. The time was read before the result arrived, so the
    clock is at least this far ahead, or at most this far behind.
    """
    ahead_ns = exchange_time - wall_ns
    if facts.ahead_ns < ahead_ns < MAX_AHEAD_NS:
        facts.ahead_ns = ahead_ns
    behind_ns = min(max(-ahead_ns, 0), MAX_BEHIND_NS)
    if facts.behind_ns is None or behind_ns < facts.behind_ns:
        facts.behind_ns = behind_ns
