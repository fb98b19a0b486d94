import pytest
from hypothesis import given
from hypothesis import strategies as hyp

from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import EARLIEST_NS, LATEST_NS
from relay.requests import validation
from relay.settings import SECOND_NS
from relay.venues.venue_book import VenueBook
from tests.relay.harness import HOUR, START, submit

BOOK = VenueBook()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"request_id": ""}, "The request_id is empty."),
        ({"request_id": "x" * 201}, "The request_id has 201 bytes; at most 200 are allowed."),
        ({"request_id": "é" * 101}, "The request_id has 202 bytes"),
        ({"request_id": "x" * 10_000}, "10000 bytes"),
        ({"request_id": "a#1"}, "holds the character '#'"),
        ({"client_id": "c" * 201}, "The client_id has 201 bytes"),
        ({"client_id": "a#b"}, "The client_id holds the character '#'"),
        ({"ticker": ""}, "The ticker is malformed"),
        ({"ticker": "BTCUSDT.BINANCE"}, "The ticker is malformed"),
        ({"ticker": "BTC/USDT"}, "The ticker is malformed"),
        ({"ticker": "BTC/USDT.binance"}, "The ticker is malformed"),
        ({"ticker": "BTC/USDT:USDT.BINANCE"}, "The ticker is malformed"),
        ({"ticker": "B" * 10_000 + "/USDT.BINANCE"}, "The ticker is malformed"),
        ({"ticker": "BTC/USDT.NYSE"}, "The venue 'NYSE' is not known"),
        ({"period_seconds": 0}, "The period_seconds is 0"),
        ({"period_seconds": 61}, "BINANCE does not offer the period 61s; it offers 1s, 1m, 3m"),
        ({"period_seconds": 2_592_000}, "does not offer the period 30d"),
        ({"ticker": "BTC/USD.KRAKEN", "period_seconds": 1_209_600}, "KRAKEN does not offer"),
        ({"ticker": "BTC/USD.COINBASE", "period_seconds": 1}, "COINBASE does not offer"),
        ({"start_time": START, "end_time": START}, "The start_time is not before the end_time"),
        ({"start_time": START + HOUR, "end_time": START}, "The start_time is not before the end_time"),
        ({"limit": 0}, "The limit is 0"),
        ({"start_time": START // 10**9}, "The start_time 1704067200 looks like seconds"),
        ({"end_time": (START + HOUR) // 10**6}, "looks like milliseconds"),
        ({"end_time": (START + HOUR) // 10**3}, "looks like microseconds"),
        ({"start_time": 0}, "The start_time 0 is not between the years 1990 and 2200"),
        ({"end_time": 2**64 - 1}, "is not between the years 1990 and 2200"),
        ({"end_time": 2**63}, "is not between the years 1990 and 2200"),
    ],
)
def test_each_broken_rule_is_refused_with_a_sentence(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        validation.historical(submit(**{"request_id": "r"} | changes), BOOK)
    assert sentence in str(refusal.value)
    assert str(refusal.value)[0].isupper()
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    "changes",
    [
        {"request_id": "x" * 200},
        {"limit": 1},
        {"client_id": "somebody"},
        {"start_time": START + 1},
        {"end_time": LATEST_NS - 1},
        {"start_time": EARLIEST_NS},
        {"ticker": "NOSUCH/COIN.BINANCE"},
        {"ticker": "BTC/USD.BITSTAMP", "period_seconds": 12_345},
        {"ticker": "BTC/USD.GDAX", "period_seconds": 300},
        {"period_seconds": 604_800},
    ],
)
def test_valid_requests_are_accepted(changes: dict[str, object]) -> None:
    message = submit(**{"request_id": "r"} | changes)
    assert validation.historical(message, BOOK) == message


def test_an_empty_client_id_counts_as_none() -> None:
    assert validation.historical(submit("r", client_id=""), BOOK) == submit("r")


def test_fields_of_later_protocols_are_not_part_of_the_content() -> None:
    message = ing.SubmitHistoricalRequest.FromString(submit("r").SerializeToString() + b"\xf8\x07\x01")
    assert validation.historical(message, BOOK).SerializeToString() == submit("r").SerializeToString()


@given(hyp.integers(min_value=0, max_value=2**64 - 1))
def test_a_time_is_taken_exactly_when_it_is_plausible_in_nanoseconds(value: int) -> None:
    plausible = 631_152_000 * SECOND_NS <= value < 7_258_118_400 * SECOND_NS
    if plausible:
        validation.check_time("start_time", value)
    else:
        with pytest.raises(InvalidRequest):
            validation.check_time("start_time", value)


@given(hyp.text(max_size=300))
def test_an_id_is_refused_exactly_when_empty_too_long_or_with_a_hash(value: str) -> None:
    if value and len(value.encode("utf-8", "surrogatepass")) <= 200 and "#" not in value:
        validation.check_id("request_id", value)
    else:
        with pytest.raises(InvalidRequest):
            validation.check_id("request_id", value)


def data(**changes: object) -> ing.DataRequest:
    values = {"request_id": "r", "type": ing.DataRequest.TICKER_SNAPSHOT, "ticker": "BTC/USDT.BINANCE"}
    return ing.DataRequest(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (data(request_id=""), "The request_id is empty."),
        (data(client_id="#"), "The client_id holds"),
        (data(ticker="x"), "The ticker is malformed"),
        (data(ticker="BTC/USDT.NYSE"), "is not known"),
        (data(type=ing.DataRequest.HISTORICAL_OHLC), "SubmitHistoricalRequest"),
        (data(type=7), "The request type 7 is not known."),
        (data(realtime=ing.RealtimeParams(ohlc_period_seconds=[60, 0])), "Bars of 0 seconds are not made"),
        (data(realtime=ing.RealtimeParams(ohlc_period_seconds=[604_801])), "Bars of 604801 seconds are not made"),
    ],
)
def test_each_broken_rule_of_a_data_request_is_refused(message: ing.DataRequest, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        validation.data_request(message, BOOK)
    assert sentence in str(refusal.value)


def test_a_client_cannot_set_the_fields_of_the_broker() -> None:
    sent = data(job_id="mine", historical=ing.HistoricalParams(start_time=1))
    assert validation.data_request(sent, BOOK) == data()


def test_a_legacy_request_becomes_a_historical_one() -> None:
    message = ing.OHLCRequest(
        request_id="r", ticker="BTC/USDT.BINANCE", start_time=START, end_time=START + HOUR, period_seconds=60, limit=5
    )
    assert validation.legacy(message, "inner", BOOK, max_rows=1_000) == submit("r", client_id="inner", limit=5)


def test_a_legacy_request_for_too_many_candles_is_refused_unless_its_limit_is_small() -> None:
    message = ing.OHLCRequest(
        request_id="r", ticker="BTC/USDT.BINANCE", start_time=START, end_time=START + HOUR, period_seconds=60
    )
    with pytest.raises(InvalidRequest, match="This would be 60 candles"):
        validation.legacy(message, "inner", BOOK, max_rows=59)
    message.limit = 59
    assert validation.legacy(message, "inner", BOOK, max_rows=59).limit == 59
