import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.periods import format_period, parse_period
from candlewright.wire.ticker import Ticker


def test_a_ticker_splits_at_its_last_dot_and_comes_back_unchanged() -> None:
    ticker = Ticker.parse("BTC.B/USDT.BINANCE")
    assert (ticker.symbol, ticker.venue) == ("BTC.B/USDT", "BINANCE")
    assert str(ticker) == "BTC.B/USDT.BINANCE"


def test_old_names_of_coinbase_exchange_lead_to_it() -> None:
    assert Ticker.parse("BTC/USD.COINBASEPRO").ccxt_id == "coinbaseexchange"
    assert Ticker.parse("BTC/USD.KRAKEN").ccxt_id == "kraken"


@pytest.mark.parametrize(
    "text",
    ["", "BTC/USDT", "BTCUSDT.BINANCE", "BTC/USDT.binance", "/USDT.BINANCE", "BTC/.BINANCE", "BTC/USDT:USDT.BINANCE",
     "BTC/USDT.", "BTC /USDT.BINANCE", "BTC/USDT.BINANCE\n", "B#C/USDT.BINANCE", "A" * 10_000 + "/USDT.BINANCE"],
)  # fmt: skip
def test_an_invalid_ticker_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InvalidRequest, match="ticker"):
        Ticker.parse(text)


@pytest.mark.parametrize(
    "text",
    ["btc/usdt.binance", "BTCUSDT.BINANCE", "btcusdt.BINANCE", "BTC-USDT.BINANCE", "BTC_USDT.BINANCE",
     "BINANCE:BTCUSDT", "BINANCE:BTC/USDT", " BTC/USDT.BINANCE"],
)  # fmt: skip
def test_the_probable_ticker_is_proposed(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"is not a valid ticker .*; did you mean BTC/USDT\.BINANCE\?$"):
        Ticker.parse(text)


@pytest.mark.parametrize("text", ["BTC/USDT", "BTC", "USDT.BINANCE", ""])
def test_without_a_venue_or_a_pair_an_example_is_given(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"expected BASE/QUOTE\.VENUE, such as BTC/USDT\.BINANCE\)$"):
        Ticker.parse(text)


@given(st.text(max_size=120))
def test_no_text_raises_anything_but_invalid_request(text: str) -> None:
    try:
        assert str(Ticker.parse(text)) == text
    except InvalidRequest:
        pass


@pytest.mark.parametrize(("text", "seconds"), [("1m", 60), ("4h", 14_400), ("1w", 604_800), ("60", 60), ("90s", 90)])
def test_periods_are_read_as_people_write_them(text: str, seconds: int) -> None:
    assert parse_period(text) == seconds


@pytest.mark.parametrize("text", ["", "0m", "0", "m", "1M", "1y", "-1m", "1.5h", "9999999m", "４h", "99999999999"])
def test_an_invalid_period_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_period(text)


@given(st.integers(1, 10_000_000))
def test_a_formatted_period_reads_back(seconds: int) -> None:
    try:
        assert parse_period(format_period(seconds)) == seconds
    except InvalidRequest:
        assert seconds >= 1_000_000
