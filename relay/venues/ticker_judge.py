"""Judges whether topics that clients want can have data, by what venues list and what gateways have published."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from candlewright.wire import streams
from candlewright.wire.errors import BusError, InvalidRequest
from candlewright.wire.grid import WEEK_SECONDS
from candlewright.wire.nearest import did_you_mean, near_symbols
from candlewright.wire.periods import parse_period
from candlewright.wire.ticker import Ticker, refusal
from core.log import get_logger
from relay import metrics
from relay.store import RelayStore
from relay.topics import Named
from relay.venues.venue_book import ALL_VENUES, VenueBook
from venues.served import waiting_for_slot

#: The most sentences for one trigger.
_MAX_WARNINGS = 10
#: How long (s) other work of the thread waits for judgements.
_TURN_SECONDS = 0.05
log = get_logger()


class Verdict(Enum):
    FINE = auto()
    #: The topic cannot exist, or its venue does not list the ticker.
    WRONG = auto()
    #: Neither ccxt nor an ingestor has the venue; a gateway may be about to publish the ticker.
    UNKNOWN_VENUE = auto()
    #: What the venue lists is not known yet.
    OPEN = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    """`text` is a sentence without its full stop; empty if nothing is wrong."""

    verdict: Verdict
    text: str = ""


_FINE = Judgement(Verdict.FINE)


class TickerJudge:
    """For use by one thread. Methods that read the bus raise BusError."""

    def __init__(self, relay_store: RelayStore, refresh_seconds: float) -> None:
        self.book = VenueBook()
        self._relay_store = relay_store
        self._refresh_seconds = refresh_seconds

    def refresh(self, venues: Iterable[str]) -> None:
        """Read the records of these venues, unless that was done a moment ago."""
        now = time.monotonic()
        stale = sorted(venue for venue in set(venues) if self.book.is_stale(venue, now, self._refresh_seconds))
        if stale:
            self.book.learn(self._relay_store.venues([*stale, ALL_VENUES]), now)

    def judge(self, topics: Sequence[Named], seconds: float = _TURN_SECONDS) -> dict[str, Judgement]:
        """Judgements by name, at least one and as many as fit in `seconds`; finding a similar name takes about 20
        ms.
        """
        doubtful = self._doubtful(topics)
        found = {topic.name: _FINE for topic in set(topics).difference(doubtful)}
        until = time.monotonic() + seconds
        for topic in doubtful:
            found[topic.name] = judgement(topic, self.book)
            if time.monotonic() >= until:
                break
        return found

    def warnings(self, topics: Sequence[Named]) -> list[str]:
        """Warnings about the topics that a trigger reads; empty if the bus cannot be reached."""
        try:
            return self._warnings(topics)
        except BusError as error:
            log.warning("tickers_unchecked", error=str(error))
            metrics.BUS_FAILURES.labels("ticker_checks").inc()
            return []

    def _warnings(self, topics: Sequence[Named]) -> list[str]:
        found = [judgement(topic, self.book) for topic in self._doubtful(topics)[:_MAX_WARNINGS]]
        served = self._relay_store.served()
        waiting = {waiting_for_slot(topic.venue, served.realtime) for topic in topics} if served is not None else set()
        return [*filter(None, (each.text for each in found)), *sorted(filter(None, waiting))[:_MAX_WARNINGS]]

    def _doubtful(self, topics: Sequence[Named]) -> list[Named]:
        """The topics that no venue lists and no gateway has published to."""
        self.refresh(topic.venue for topic in topics)
        unlisted = [topic for topic in topics if not self._is_listed(topic)]
        names = [name for topic in unlisted for name in (topic.name, streams.ticks(topic.text))]
        numbers = iter(self._relay_store.newest_numbers(names) if names else ())
        return [topic for topic in unlisted if not max(next(numbers), next(numbers))]

    def _is_listed(self, topic: Named) -> bool:
        if topic.ticker is None or (topic.period and topic.period_seconds is None):
            return False
        return topic.ticker.symbol in self.book.symbols(topic.venue)


def judgement(topic: Named, book: VenueBook) -> Judgement:
    """The judgement of a topic by the venues' records only."""
    if topic.ticker is None:
        # With an unknown venue, it is a prefix, or a topic that only a gateway can have.
        return Judgement(Verdict.WRONG, _malformed(topic, book)) if book.knows(topic.venue) else _FINE
    if topic.period and topic.period_seconds is None:
        return Judgement(Verdict.WRONG, _wrong_period(topic))
    if not book.knows(topic.venue):
        text = f"the venue {topic.venue} is not known: no ingestor serves it and ccxt does not have it"
        proposals = [str(Ticker(topic.ticker.symbol, venue)) for venue in book.near(topic.venue)]
        return Judgement(Verdict.UNKNOWN_VENUE, text + did_you_mean(proposals))
    symbols = book.symbols(topic.venue)
    if not symbols:
        return Judgement(Verdict.OPEN)
    if topic.ticker.symbol in symbols:
        return _FINE
    text = f"{topic.venue} does not list {topic.ticker.symbol}"
    return Judgement(Verdict.WRONG, text + _proposals(topic.ticker.symbol, topic.venue, book))


def _malformed(topic: Named, book: VenueBook) -> str:
    near = near_symbols(topic.text.rpartition(".")[0], book.symbols(topic.venue))
    return refusal(topic.text, [f"{symbol}.{topic.venue}" for symbol in near])


def _wrong_period(topic: Named) -> str:
    try:
        seconds = parse_period(topic.period)
    except InvalidRequest:
        seconds = 0
    near = [streams.bars(topic.text, seconds)] if 0 < seconds <= WEEK_SECONDS else []
    text = f"{topic.period!r} is not a period of bars: a topic names it in seconds, from 1 to {WEEK_SECONDS}"
    return text + did_you_mean(near)


def _proposals(symbol: str, venue: str, book: VenueBook) -> str:
    return did_you_mean([f"{near}.{venue}" for near in near_symbols(symbol, book.symbols(venue))])
