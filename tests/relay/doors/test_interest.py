import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.doors.interest import Interest
from relay.topics import OHLC, TICKS, live_topic

TEXTS = st.sampled_from(
    [
        b"",
        b"T",
        b"TICKS:",
        b"TICKS:A/B.X",
        b"TICKS:A/B.XY",
        b"OHLC:",
        b"OHLC:A/B.X",
        b"OHLC:A/B.X:",
        b"OHLC:A/B.X:60",
        b"OHLC:A/B.X:600",
        b"RESPONSE:a",
        b"SNAPSHOT:A/B.X",
    ]
)


@given(st.lists(st.tuples(st.booleans(), TEXTS), max_size=40))
def test_a_topic_is_wanted_exactly_if_a_subscription_is_its_prefix(steps: list[tuple[bool, bytes]]) -> None:
    interest = Interest()
    held: set[bytes] = set()
    for is_added, subscription in steps:
        (interest.add if is_added else interest.remove)(subscription)
        (held.add if is_added else held.discard)(subscription)
        topics = [b"TICKS:A/B.X", b"TICKS:A/B.XYZ", b"OHLC:A/B.X:60", b"OHLC:C/D.X:60"]
        for topic in topics:
            assert interest.wants(topic) == any(topic.startswith(one) for one in held)
        for kind in (TICKS, OHLC):
            assert interest.follows(kind) == any(one.startswith(kind) or kind.startswith(one) for one in held)
        for ticker in (b"A/B.X", b"A/B.XY", b"C/D.X"):
            head = b"OHLC:" + ticker + b":"
            assert interest.wants_bars_of(ticker) == any(one.startswith(head) or head.startswith(one) for one in held)


@pytest.mark.parametrize(
    ("subscription", "ticker", "period"),
    [
        (b"TICKS:BTC/USDT.BINANCE", "BTC/USDT.BINANCE", 0),
        (b"OHLC:BTC/USDT.BINANCE:60", "BTC/USDT.BINANCE", 60),
        (b"OHLC:BTC/USDT.BINANCE:604800", "BTC/USDT.BINANCE", 604_800),
    ],
)
def test_a_complete_topic_names_its_ticker_and_period(subscription: bytes, ticker: str, period: int) -> None:
    topic = live_topic(subscription)
    assert topic is not None
    assert (topic.name.encode(), str(topic.ticker), topic.period_seconds) == (subscription, ticker, period)


@pytest.mark.parametrize(
    "subscription",
    [
        b"",
        b"TICKS:",
        b"TICKS:BTC",
        b"TICKS:BTC/USDT",
        b"TICKS:BTC/USDT.",
        b"TICKS:btc/usdt.binance",
        b"OHLC:BTC/USDT.BINANCE",
        b"OHLC:BTC/USDT.BINANCE:",
        b"OHLC:BTC/USDT.BINANCE:0",
        b"OHLC:BTC/USDT.BINANCE:060",
        b"OHLC:BTC/USDT.BINANCE:1m",
        b"OHLC:BTC/USDT.BINANCE:604801",
        b"OHLC::60",
        b"SNAPSHOT:BTC/USDT.BINANCE",
        b"TICKS:\xff\xfe",
    ],
)
def test_a_bare_prefix_or_an_invalid_topic_is_none(subscription: bytes) -> None:
    assert live_topic(subscription) is None
