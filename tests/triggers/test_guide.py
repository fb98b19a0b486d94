"""docs/triggers.md is accurate: its examples are extracted and run."""

import random

import pytest

from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from candlewright_cep import evaluate
from tests.rounds import seeds
from tests.triggers import guide, market
from tests.triggers.trigger_records import T0, TICKER, batch, clock, prices, register, rows
from triggers.partition import TriggerPartition
from triggers.texts.check import check_trigger

pytestmark = pytest.mark.timeout(60)

EXAMPLES = guide.examples()
#: No row can show that a ticker is silent.
BY_ROWS = {name: example for name, example in EXAMPLES.items() if name != "Dead-man"}
_TICKERS = ("BTC/USDT.BINANCE", "BTC/USDT.KRAKEN", "ETH/USDT.BINANCE")


def test_the_guide_has_the_ten_examples() -> None:
    assert list(EXAMPLES) == [
        "Breakout", "V-shape", "Volume spike", "Three falling bars", "Spread of two tickers", "Dead-man",
        "Session high", "Moving-average cross", "Stop hunt", "Double bottom",
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(guide.texts())))
def test_every_text_of_the_guide_may_be_registered_without_warning(number: int) -> None:
    text = guide.texts()[number]
    request = CEPTriggerRequest(trigger_id="t", sql_pattern=text.sql, tickers=text.tickers, parameters=text.parameters)
    assert check_trigger(request).warnings == ()


@pytest.mark.parametrize("name", BY_ROWS)
def test_an_example_gives_its_event_over_its_rows(name: str) -> None:
    example = BY_ROWS[name]
    text = example.text
    own = market.completed(example.rows, text.input, text.tickers[0])
    live, end = market.streamed({name: text}, market.records_of(own), random.Random(1))
    assert [row for event in live for row in rows(event)] == [example.event]
    assert end == []
    found = evaluate(text.sql, market.table_of(own, text.input), text.parameters)
    assert market.as_rows(found) == [example.event]


def test_the_dead_man_gives_its_event_when_the_time_has_passed() -> None:
    example = EXAMPLES["Dead-man"]
    own = market.completed(example.rows, "ticks", example.text.tickers[0])
    partition = TriggerPartition()
    partition.process([], controls=[register("d", example.text.sql, *example.text.tickers, **example.text.parameters)])
    for row, (_, record) in zip(own, market.records_of(own), strict=True):
        assert partition.process([record], now_ns=row["time"]).events == []
    last = own[-1]["time"]
    assert partition.process([], now_ns=last + 30 * SECOND - 1).events == []
    (event,) = partition.process([], now_ns=last + 30 * SECOND).events
    assert rows(event) == [example.event]


def test_a_silence_by_event_time_is_seen_by_the_exchanges_clock() -> None:
    (text,) = (text for text in guide.texts() if "WITH TIMEOUT ROWS" in text.sql)
    partition = TriggerPartition()
    partition.process([], controls=[register("q", text.sql)])
    output = partition.process([prices(1, 5, 6)])
    assert output.events == []
    assert partition.process([], marks=[clock(31.9, 2)]).events == []
    (event,) = partition.process([], marks=[clock(32, 2)]).events
    assert rows(event) == [{"ticker": TICKER, "last_trade": T0 + 2 * SECOND, "next_trade": None}]
    assert event.context["timed_out"] == event.context["partial"] == "true"
    assert partition.process([batch(3, (40, "3", 7), (41, "4", 8))], marks=[clock(50, 4)]).events == []


@pytest.mark.parametrize("seed", seeds(3))
def test_examples_give_the_same_events_on_a_stream_as_over_the_whole_market(seed: int) -> None:
    start = guide.nanoseconds("2023-12-31 22:00")
    trades = market.trades(seed, _TICKERS, 1_500, start_ns=start)
    bars = market.bars(seed, _TICKERS, 500, start_ns=start)
    chance = random.Random(seed)
    texts = {name: example.text for name, example in BY_ROWS.items()}
    live, end = market.streamed(texts, market.records_of([*trades, *bars]), chance, restarts=seed != 1)
    for name, text in texts.items():
        seen = [row for row in (bars if text.period_seconds else trades) if row["ticker"] in text.tickers]
        wanted = market.as_rows(evaluate(text.sql, market.table_of(seen, text.input), text.parameters))
        found = [row for event in [*live, *end] if event.trigger_id == name for row in rows(event)]
        assert sorted(found, key=repr) == sorted(wanted, key=repr), name
        assert found, name
    ids = [event.context["event_id"] for event in [*live, *end]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("restarts", [False, True])
def test_joins_of_the_guide_give_the_same_events_on_a_stream_as_over_tables(*, restarts: bool) -> None:
    start = guide.nanoseconds("2024-01-01 00:00")
    trades = [row | {"price": 700 * row["price"]} for row in market.trades(5, _TICKERS, 600, start_ns=start)]
    prices = ("open", "high", "low", "close")
    bars = [row | {name: 70 * row[name] for name in prices} for row in market.bars(5, _TICKERS, 100, start_ns=start)]
    joins = {str(number): text for number, text in enumerate(guide.texts()) if " JOIN " in text.sql}
    others = {str(number) for number, text in enumerate(guide.texts()) if text in [e.text for e in EXAMPLES.values()]}
    # Those with events are in test_joined_events.py.
    texts = {name: text for name, text in joins.items() if name not in others and "trigger_events" not in text.sql}
    assert len(texts) == 6
    # All bars arrive after all trades: event time decides.
    live, end = market.streamed(texts, market.records_of([*trades, *bars]), random.Random(5), restarts=restarts)
    fired = 0
    for name, text in texts.items():
        seen = [[row for row in rows_of if row["ticker"] in (text.tickers or _TICKERS)] for rows_of in (trades, bars)]
        tables = {"ticks": market.table_of(seen[0], "ticks"), "ohlc": market.table_of(seen[1], "ohlc")}
        wanted = market.as_rows(evaluate(text.sql, tables, text.parameters))
        found = [row for event in [*live, *end] if event.trigger_id == name for row in rows(event)]
        assert sorted(found, key=repr) == sorted(wanted, key=repr), text.sql
        fired += bool(found)
    assert fired == 5
