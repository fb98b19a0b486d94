"""What the relay knows about venues: the ingestors' records on the bus, or else the catalogue."""

from collections.abc import Mapping

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.nearest import did_you_mean, near_venues
from candlewright.wire.periods import format_period
from candlewright.wire.ticker import CCXT_IDS, ccxt_id
from venues.catalogue import CCXT_EXCHANGES, MAIN_VENUES, is_known, native_periods

#: Key of the record whose markets list the exchange ids that ccxt knows.
ALL_VENUES = "*"


class VenueBook:
    """Grows by one small entry per known venue; unknown names are not remembered."""

    def __init__(self) -> None:
        self._periods: dict[str, frozenset[int]] = {}
        self._records: dict[str, cw.Venue] = {}
        #: The symbols that each venue lists, as last reported.
        self._symbols: dict[str, tuple[int, frozenset[str]]] = {}
        self._names: frozenset[str] = frozenset()
        self._read_at: dict[str, float] = {}
        #: True if the bus could not be read. Then no request is refused because of unknown venues, since none can be
        #: accepted either.
        self.is_blind = False

    def is_stale(self, venue: str, now: float, refresh_seconds: float) -> bool:
        return now - self._read_at.get(venue, -refresh_seconds) >= refresh_seconds

    def learn(self, records: Mapping[str, cw.Venue | None], now: float) -> None:
        """Take over records just read from the bus; None means that the venue has none."""
        self.is_blind = False
        for name, record in records.items():
            if name == ALL_VENUES:
                if record is not None:
                    self._names = frozenset(market.symbol.lower() for market in record.markets)
            elif record is not None:
                self._periods[name] = frozenset(record.period_seconds)
                self._records[name] = record
            else:
                for known in (self._periods, self._records, self._symbols):
                    known.pop(name, None)
            if name == ALL_VENUES or self.knows(name):
                self._read_at[name] = now

    def knows(self, venue: str) -> bool:
        """Whether ccxt or a live slot has the venue."""
        return venue in self._periods or is_known(venue) or ccxt_id(venue) in self._names

    def check_venue(self, venue: str) -> None:
        """Raises InvalidRequest if neither ccxt nor a live slot has the venue."""
        if not self.knows(venue) and not self.is_blind:
            raise InvalidRequest(self.unknown_venue(venue))

    def unknown_venue(self, venue: str) -> str:
        """A sentence that names similar venues."""
        text = f"The venue {venue[:100]!r} is not known: no ingestor serves it and ccxt does not have it"
        return text + (did_you_mean(self.near(venue)) or ".")

    def near(self, venue: str) -> list[str]:
        known = {*(name.upper() for name in CCXT_EXCHANGES | self._names), *CCXT_IDS, *self._periods}
        # If a complete ticker was given, use its venue.
        return near_venues(venue[:100].rpartition(".")[2], known)

    def symbols(self, venue: str) -> frozenset[str]:
        """The symbols that the venue lists; empty until they are known."""
        record = self._records.get(venue)
        if record is None:
            return frozenset()
        told_at, symbols = self._symbols.get(venue, (-1, frozenset[str]()))
        if told_at != record.updated_at:
            symbols = frozenset(market.symbol for market in record.markets)
            self._symbols[venue] = record.updated_at, symbols
        return symbols

    def check_period(self, venue: str, period_seconds: int) -> None:
        """Raises InvalidRequest if the venue is known not to offer the period.

        If its periods are unknown, the request is accepted, and the ingestor decides.
        """
        offered = self._periods.get(venue) or native_periods(venue)
        if offered is not None and period_seconds not in offered:
            names = ", ".join(format_period(period) for period in sorted(offered))
            raise InvalidRequest(
                f"{venue} does not offer the period {format_period(period_seconds)}; it offers {names}."
            )


def without_markets(record: cw.Venue) -> cw.Venue:
    brief = cw.Venue()
    brief.CopyFrom(record)
    brief.market_count = max(record.market_count, len(record.markets))
    del brief.markets[:]
    return brief


def from_catalogue(venue: str) -> cw.Venue | None:
    """A record for a venue that ccxt has but no ingestor has described."""
    if not is_known(venue):
        return None
    return cw.Venue(venue=venue, period_seconds=sorted(native_periods(venue) or ()))


def list_venues(wanted: str, records: Mapping[str, cw.Venue]) -> list[cw.Venue]:
    """All venues without their markets, or the wanted one with its markets; empty if it is unknown."""
    if wanted:
        found = records.get(wanted) or from_catalogue(wanted)
        return [found] if found is not None and wanted != ALL_VENUES else []
    described = {name: without_markets(record) for name, record in records.items() if name != ALL_VENUES}
    for name in MAIN_VENUES:
        record = from_catalogue(name)
        if record is not None:
            described.setdefault(name, record)
    return [described[name] for name in sorted(described)]
