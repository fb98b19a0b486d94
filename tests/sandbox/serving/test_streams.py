"""The messages that a websocket client receives, without a socket."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
import pytest

from sandbox.generated.blocks import BlockMaker
from sandbox.generated.cache import Recent
from sandbox.generated.market import GeneratedMarket
from sandbox.generated.tape import Kept
from sandbox.markets.instruments import DEFAULT_INSTRUMENTS, make_instrument, utc_ms
from sandbox.markets.intervals import INTERVALS, MINUTE, SECOND
from sandbox.markets.market import Market
from sandbox.serving.streams import Outgoing, StreamSession

START = utc_ms("2024-03-05T14:00:17")
MARKETS: dict[str, Market] = {i.symbol: GeneratedMarket(i, 7) for i in DEFAULT_INSTRUMENTS}
BTC = MARKETS["BTCUSDT"]
KEPT = Kept()


def session(*streams: str) -> StreamSession:
    made = StreamSession(MARKETS)
    made.subscribe(list(streams), START)
    return made


def drain(of: StreamSession, now: int) -> list[Outgoing]:
    events: list[Outgoing] = []
    while found := of.due(now):
        events += found
    return events


def texts(events: list[Outgoing]) -> list[dict[str, Any]]:
    return [orjson.loads(event.text) for event in events]


def test_trades_after_the_subscription_arrive_once_and_in_order_for_any_steps() -> None:
    at_once = texts(drain(session("btcusdt@trade"), START + 3 * MINUTE))
    stepping, step_by_step = session("btcusdt@trade"), []
    for now in range(START, START + 3 * MINUTE + 1, 777):
        step_by_step += texts(drain(stepping, now))
    step_by_step += texts(drain(stepping, START + 3 * MINUTE))
    assert step_by_step == at_once
    first = BTC.fill_at(START + 1)
    assert [event["t"] for event in at_once] == list(range(first, BTC.fill_at(START + 3 * MINUTE + 1)))


def test_streamed_trades_are_those_of_rest() -> None:
    events = texts(drain(session("btcusdt@trade"), START + MINUTE))
    trades = BTC.fills(events[0]["t"], len(events), START + MINUTE)
    assert [event["T"] for event in events] == trades.time.tolist()
    assert [event["m"] for event in events] == [not bought for bought in trades.bought.tolist()]
    assert [round(float(event["p"]) * 100) for event in events] == trades.price.tolist()


def test_aggregates_are_a_separate_stream() -> None:
    events = texts(drain(session("btcusdt@aggTrade"), START + MINUTE))
    assert [event["a"] for event in events] == list(range(BTC.order_at(START + 1), BTC.order_at(START + MINUTE + 1)))
    assert all(later["f"] == earlier["l"] + 1 for earlier, later in pairwise(events))


def test_next_due_is_the_next_trade() -> None:
    quiet = session("ltcbnb@trade")
    due = quiet.next_due(START)
    assert due is not None
    assert quiet.due(due - 1) == []
    assert len(quiet.due(due)) > 0


def test_closed_candles_come_once_each_and_equal_the_klines() -> None:
    events = [event["k"] for event in texts(drain(session("btcusdt@kline_1m"), START + 5 * MINUTE)) if event["k"]["x"]]
    opened = START // MINUTE * MINUTE
    assert [event["t"] for event in events] == [opened + n * MINUTE for n in range(5)]
    rows = orjson.loads(BTC.kline_page(INTERVALS["1m"], opened, None, limit=5, now=START + 10 * MINUTE))
    names = ("t", "o", "h", "l", "c", "v", "T", "q", "n", "V", "Q")
    assert [[event[name] for name in names] for event in events] == [row[:11] for row in rows]
    assert all(event["L"] - event["f"] + 1 == event["n"] for event in events)


def test_candle_updates_come_every_two_seconds() -> None:
    stream, events = session("btcusdt@kline_1h"), []
    for now in range(START, START + 20 * SECOND, 250):
        events += texts(stream.due(now))
    assert len(events) == 10
    assert not any(event["k"]["x"] for event in events)


@pytest.mark.parametrize(("stream", "kind"), [("miniTicker", "24hrMiniTicker"), ("ticker", "24hrTicker")])
def test_tickers_come_each_second_with_trades(stream: str, kind: str) -> None:
    tickers, events = session(f"btcusdt@{stream}"), []
    for now in range(START, START + 5 * SECOND, 100):
        events += texts(tickers.due(now))
    assert 1 <= len(events) <= 5
    assert {event["e"] for event in events} == {kind}
    newest = BTC.fills(BTC.fill_at(events[-1]["E"] + 1) - 1, 1, events[-1]["E"])
    assert round(float(events[-1]["c"]) * 100) == newest.price[0]


def test_book_ticker_has_a_bid_under_the_ask() -> None:
    found = session("btcusdt@bookTicker")
    event = texts(drain(found, START + 10 * SECOND))[-1]
    assert float(event["b"]) < float(event["a"])


def test_unknown_streams_and_pairs_that_do_not_trade_stay_silent() -> None:
    silent = session("nope@trade", "btcusdt@nonsense", "btcusdt", "wavesusdt@trade", "btcusdt@kline_7m")
    assert silent.names == []
    assert silent.next_due(START) is None


def test_unsubscribed_stream_ends_and_a_second_subscription_changes_nothing() -> None:
    both = session("btcusdt@trade", "ethusdt@trade")
    drain(both, START + 5 * SECOND)
    both.subscribe(["btcusdt@trade"], START + 8 * SECOND)
    both.unsubscribe(["ethusdt@trade", "never@trade"])
    events = drain(both, START + 10 * SECOND)
    assert {event.symbol for event in events} == {"BTCUSDT"}
    assert orjson.loads(events[0].text)["t"] == BTC.fill_at(START + 5 * SECOND + 1)


def test_events_of_several_streams_are_merged_by_time() -> None:
    events = session("btcusdt@trade", "ethusdt@trade").due(START + 20 * SECOND)
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert len({event.symbol for event in events}) == 2


def test_restart_continues_from_now() -> None:
    stream = session("btcusdt@trade")
    stream.restart(START + MINUTE)
    assert orjson.loads(drain(stream, START + 2 * MINUTE)[0].text)["t"] == BTC.fill_at(START + MINUTE + 1)


def test_trades_are_made_before_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, expected = session("btcusdt@trade"), texts(drain(session("btcusdt@trade"), START + MINUTE))
    due = stream.next_due(START)
    assert due is not None
    with monkeypatch.context() as patch:
        patch.setattr(GeneratedMarket, "fills", None)
        at_once = texts(stream.due(due))
    assert at_once
    assert at_once + texts(drain(stream, START + MINUTE)) == expected


def test_trades_made_ahead_are_dropped_if_a_downtime_removes_them() -> None:
    market = GeneratedMarket(DEFAULT_INSTRUMENTS[0], 7)
    stream = StreamSession({market.symbol: market})
    stream.subscribe([f"{market.symbol.lower()}@trade"], START)
    due = stream.next_due(START)
    assert due is not None
    market.add_hole(START // MINUTE * MINUTE, START // MINUTE * MINUTE + MINUTE)
    stream.look_again()
    assert stream.due(due) == []


def test_only_due_streams_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"T{number}/USDT" for number in range(100)]
    markets: dict[str, Market] = {
        made.symbol: made for made in (GeneratedMarket(make_instrument(name), 7, KEPT) for name in names)
    }
    asked = 0
    fills = GeneratedMarket.fills

    def counted(self: GeneratedMarket, *arguments: int) -> Any:
        nonlocal asked
        asked += 1
        return fills(self, *arguments)

    monkeypatch.setattr(GeneratedMarket, "fills", counted)
    made = StreamSession(markets)
    made.subscribe([f"{symbol.lower()}@trade" for symbol in markets], START)
    now, found = START, 0
    while found < 50:
        now = made.next_due(now) or now + SECOND
        found += len(drain(made, now))
    # Once each at the beginning, and then a few times for a trade, not a hundred times.
    assert asked < 2 * len(markets) + 6 * found


def test_the_trades_of_more_markets_than_kept_blocks_are_not_computed_repeatedly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Kept()
    kept.blocks, kept.segments = Recent(2), Recent(2)
    markets = [GeneratedMarket(make_instrument(f"T{number}/USDT"), 7, kept) for number in range(8)]
    made = 0
    make = BlockMaker.make

    def counted(self: BlockMaker, *arguments: int) -> Any:
        nonlocal made
        made += 1
        return make(self, *arguments)

    monkeypatch.setattr(BlockMaker, "make", counted)
    counts = []
    for now in range(START, START + 10 * SECOND, SECOND):
        for market in markets:
            first = market.fill_at(now)
            market.fills(first - 5, 5, now)
            market.next_trade_time(now)
        counts.append(made)
    assert counts[0] > 0 and counts[1:] == [counts[0]] * 9
