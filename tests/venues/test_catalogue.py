import ccxt
import pytest

from venues.catalogue import CCXT_EXCHANGES, MAIN_VENUES, is_known, native_periods


def test_the_names_are_those_of_the_installed_ccxt() -> None:
    assert frozenset(ccxt.exchanges) == CCXT_EXCHANGES


@pytest.mark.parametrize("venue", [*MAIN_VENUES, "COINBASEEXCHANGE"])
def test_native_periods_are_those_of_the_exchange_itself(venue: str) -> None:
    exchange = getattr(ccxt, venue.lower())
    calendar = {"1M", "3M", "2w", "1y"}
    own = {exchange.parse_timeframe(name) for name in exchange().timeframes if name not in calendar}
    assert native_periods(venue) == own


@pytest.mark.parametrize(
    ("venue", "known"), [("BINANCE", True), ("GDAX", True), ("COINBASEPRO", True), ("NYSE", False)]
)
def test_a_venue_is_known_by_its_ccxt_id(venue: str, known: bool) -> None:
    assert is_known(venue) is known


def test_the_periods_of_other_venues_are_left_to_their_ingestors() -> None:
    assert native_periods("BITSTAMP") is None
