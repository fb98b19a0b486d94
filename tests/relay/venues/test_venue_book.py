import pytest

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import InvalidRequest
from relay.venues.venue_book import ALL_VENUES, VenueBook, list_venues


def venue(name: str, *periods: int, markets: int = 0) -> cw.Venue:
    return cw.Venue(venue=name, period_seconds=periods, markets=[cw.Market(symbol=f"S{n}/X") for n in range(markets)])


def test_the_venues_own_record_goes_before_the_catalogue() -> None:
    book = VenueBook()
    book.check_period("BINANCE", 180)
    book.learn({"BINANCE": venue("BINANCE", 60, 77)}, now=0.0)
    book.check_period("BINANCE", 77)
    with pytest.raises(InvalidRequest, match="it offers 1m, 77s"):
        book.check_period("BINANCE", 180)


def test_a_record_that_went_away_leaves_the_catalogue() -> None:
    book = VenueBook()
    book.learn({"BINANCE": venue("BINANCE", 77)}, now=0.0)
    book.learn({"BINANCE": None}, now=1.0)
    book.check_period("BINANCE", 180)


def test_a_venue_with_a_live_record_is_known_though_ccxt_is_not() -> None:
    book = VenueBook()
    with pytest.raises(InvalidRequest, match="'HOUSE' is not known"):
        book.check_venue("HOUSE")
    book.learn({"HOUSE": venue("HOUSE")}, now=0.0)
    book.check_venue("HOUSE")
    book.check_period("HOUSE", 12_345)


def test_ingestors_may_know_more_exchanges_than_the_catalogue() -> None:
    book = VenueBook()
    book.learn({ALL_VENUES: cw.Venue(venue=ALL_VENUES, markets=[cw.Market(symbol="newexchange")])}, now=0.0)
    book.check_venue("NEWEXCHANGE")


def test_no_request_is_refused_because_of_an_unreadable_record() -> None:
    book = VenueBook()
    book.is_blind = True
    book.check_venue("HOUSE")
    book.learn({"HOUSE": None}, now=0.0)
    with pytest.raises(InvalidRequest):
        book.check_venue("HOUSE")


def test_unknown_names_are_not_remembered() -> None:
    book = VenueBook()
    book.learn({"BINANCE": None, "NOSUCH": None}, now=5.0)
    assert not book.is_stale("BINANCE", 5.5, refresh_seconds=1.0)
    assert book.is_stale("BINANCE", 6.0, refresh_seconds=1.0)
    assert book.is_stale("NOSUCH", 5.5, refresh_seconds=1.0)


def test_the_list_of_all_venues_is_without_markets() -> None:
    records = {"HOUSE": venue("HOUSE", 60, markets=3), ALL_VENUES: venue(ALL_VENUES, markets=100)}
    listed = {record.venue: record for record in list_venues("", records)}
    assert list(listed) == ["BINANCE", "BYBIT", "COINBASE", "HOUSE", "KRAKEN", "OKX"]
    assert listed["HOUSE"].market_count == 3
    assert not listed["HOUSE"].markets
    assert 60 in listed["BINANCE"].period_seconds
    assert len(records["HOUSE"].markets) == 3


def test_one_venue_comes_with_its_markets() -> None:
    records = {"HOUSE": venue("HOUSE", 60, markets=3)}
    assert list_venues("HOUSE", records) == [records["HOUSE"]]
    assert [record.venue for record in list_venues("BITSTAMP", {})] == ["BITSTAMP"]
    assert list_venues("NOSUCH", records) == []
    assert list_venues(ALL_VENUES, {ALL_VENUES: venue(ALL_VENUES)}) == []


@pytest.mark.parametrize("wanted", ["BINANC", "BTC/USDT.BINANCE", "BTC/USDT.BINANC"])
def test_an_unknown_venue_is_refused_with_similar_names(wanted: str) -> None:
    assert "did you mean BINANCE" in VenueBook().unknown_venue(wanted)
