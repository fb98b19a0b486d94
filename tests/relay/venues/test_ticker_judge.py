"""Topics of ticks and bars that can never carry data, and the answer to a subscription of one."""

import pytest

from bus import topics as bus_topics
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BusUnavailable
from protobuf import records_pb2 as rec
from relay.store import RelayStore
from relay.topics import Named, named_topic
from relay.venues.ticker_judge import TickerJudge, Verdict
from tests.fresh_bus import FreshBus
from tests.relay.harness import config
from tests.relay.test_live import put_bar, put_ticks

BINANCE = cw.Venue(
    venue="BINANCE", markets=[cw.Market(symbol=each) for each in ("BTC/USDT", "BTC/USDC", "ETH/USDT")], updated_at=1
)


def named(*topics: str) -> list[Named]:
    found = [named_topic(topic.encode()) for topic in topics]
    assert None not in found
    return [each for each in found if each is not None]


@pytest.fixture
def bus() -> FreshBus:
    bus = FreshBus()
    served = rec.ServedVenues(realtime=["BINANCE"])
    bus.put(bus_topics.TABLE_VENUES, {"BINANCE": BINANCE.SerializeToString()})
    bus.put(bus_topics.TABLE_SERVED, {bus_topics.SERVED_KEY: served.SerializeToString()})
    return bus


@pytest.fixture
def judge(bus: FreshBus) -> TickerJudge:
    return TickerJudge(RelayStore(bus, config()), refresh_seconds=0.0)


def text_of(judge: TickerJudge, topic: str) -> str:
    [found] = judge.judge(named(topic)).values()
    return found.text


@pytest.mark.parametrize(
    "topic", ["TICKS:", "OHLC:", "OHLC:BTC/USDT.BINANCE", "OHLC:BTC/USDT.BINANCE:", "SNAPSHOT:A/B.C", "RESPONSE:x", ""]
)
def test_a_bare_prefix_names_nothing(topic: str) -> None:
    assert named_topic(topic.encode()) is None


def test_topics_of_listed_tickers_are_fine(judge: TickerJudge) -> None:
    found = judge.judge(named("TICKS:BTC/USDT.BINANCE", "OHLC:ETH/USDT.BINANCE:60"))
    assert {each.verdict for each in found.values()} == {Verdict.FINE}


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (
            "TICKS:BTC/USDX.BINANCE",
            "BINANCE does not list BTC/USDX; did you mean BTC/USDT.BINANCE or BTC/USDC.BINANCE?",
        ),
        ("OHLC:QQQ/ZZZ.BINANCE:60", "BINANCE does not list QQQ/ZZZ"),
        (
            "OHLC:BTC/USDT.BINANCE:1m",
            "'1m' is not a period of bars: a topic names it in seconds, from 1 to 604800;"
            " did you mean OHLC:BTC/USDT.BINANCE:60?",
        ),
        ("OHLC:BTC/USDT.BINANCE:0", "'0' is not a period of bars: a topic names it in seconds, from 1 to 604800"),
    ],
)
def test_topics_that_can_never_have_data_are_reported(judge: TickerJudge, topic: str, text: str) -> None:
    assert text_of(judge, topic) == text


@pytest.mark.parametrize("topic", ["TICKS:BTCUSDX.BINANCE", "TICKS:btc/usdx.binance", "OHLC:BTC-USDX.BINANCE:60"])
def test_a_malformed_ticker_of_a_known_venue_gets_near_names(judge: TickerJudge, topic: str) -> None:
    assert "did you mean BTC/USDT.BINANCE" in text_of(judge, topic)


@pytest.mark.parametrize("topic", ["TICKS:BTC", "TICKS:BTC/USDT", "TICKS:BTCUSDT.NOWHERE"])
def test_a_prefix_is_not_a_malformed_ticker(judge: TickerJudge, topic: str) -> None:
    [found] = judge.judge(named(topic)).values()
    assert found.verdict is Verdict.FINE


def test_an_unknown_venue_is_reported_with_the_closest_one(judge: TickerJudge) -> None:
    [found] = judge.judge(named("TICKS:BTC/USDT.BINANCEE")).values()
    assert found.verdict is Verdict.UNKNOWN_VENUE
    assert found.text.startswith("the venue BINANCEE is not known")
    assert "did you mean BTC/USDT.BINANCE" in found.text


def test_no_error_is_sent_before_a_venue_has_reported_its_markets(bus: FreshBus, judge: TickerJudge) -> None:
    [found] = judge.judge(named("TICKS:BTC/USDX.KRAKEN")).values()
    assert (found.verdict, found.text) == (Verdict.OPEN, "")
    bus.put(bus_topics.TABLE_VENUES, {"KRAKEN": BINANCE.SerializeToString()})
    assert text_of(judge, "TICKS:BTC/USDX.KRAKEN").startswith("KRAKEN does not list BTC/USDX")


def test_a_new_listing_is_seen(bus: FreshBus, judge: TickerJudge) -> None:
    assert text_of(judge, "TICKS:NEW/USDT.BINANCE").startswith("BINANCE does not list NEW/USDT")
    listed = cw.Venue(venue="BINANCE", markets=[cw.Market(symbol="NEW/USDT")], updated_at=2)
    bus.put(bus_topics.TABLE_VENUES, {"BINANCE": listed.SerializeToString()})
    assert text_of(judge, "TICKS:NEW/USDT.BINANCE") == ""


def test_topics_of_tickers_that_a_gateway_published_are_fine(bus: FreshBus, judge: TickerJudge) -> None:
    for ticker in ("HOUSE/USDT.BINANCE", "HOUSE/USDT.MINE"):
        put_ticks(bus, ticker, "1")
        assert text_of(judge, f"TICKS:{ticker}") == text_of(judge, f"OHLC:{ticker}:60") == ""
    put_bar(bus, "BARS/USDT.MINE", 60, close=1.5)
    assert text_of(judge, "OHLC:BARS/USDT.MINE:60") == ""
    assert judge.warnings(named("TICKS:HOUSE/USDT.BINANCE")) == []


def test_judging_stops_when_its_time_is_over_and_continues_later(judge: TickerJudge) -> None:
    wrong = named(*(f"TICKS:BTC/USD{letter}.BINANCE" for letter in "XYZ"))
    assert len(judge.judge(wrong, seconds=0.0)) == 1
    assert len(judge.judge(wrong, seconds=60.0)) == 3


def test_a_trigger_gets_warnings_of_wrong_tickers_and_of_venues_without_slots(judge: TickerJudge) -> None:
    topics = named("TICKS:BTC/USDT.BINANCE", "TICKS:BTC/USDX.BINANCE", "TICKS:BTC/USD.KRAKEN")
    assert judge.warnings(topics) == [
        "BINANCE does not list BTC/USDX; did you mean BTC/USDT.BINANCE or BTC/USDC.BINANCE?",
        "waiting for a slot of KRAKEN (served now: BINANCE)",
    ]


def test_thousands_of_wrong_tickers_give_a_few_warnings(judge: TickerJudge) -> None:
    assert len(judge.warnings(named(*(f"TICKS:A{number}/USDT.BINANCE" for number in range(5_000))))) == 10


class Unreachable(FreshBus):
    def get(self, table: str, keys: object) -> list[bytes | None]:
        raise BusUnavailable("away")


def test_without_the_bus_a_triggers_tickers_are_not_judged() -> None:
    judge = TickerJudge(RelayStore(Unreachable(), config()), refresh_seconds=0.0)
    assert judge.warnings(named("TICKS:BTC/USDX.BINANCE")) == []
