"""Recorded trades at their own pace through every process under fifty triggers, while processes are killed or stopped
at random: each trade is once on the bus and once in its table, bars equal those of the file, and each match is exactly
one event.

`KILL_ROUNDS` and `KILL_SEED` in the environment make shorter or repeated runs; `KILL_ROUND_MS` is how much of the
market is played for each round, which takes about 4,000 on an idle machine. The suite has ten rounds, which may outlast
its tape; a long run has 200.
"""
# ruff: noqa: T201

import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import candlewright as cw
from bus import Bus, topics
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from flink_replacement_spark.cep import evaluate
from sandbox.recorded.files import Trade
from sandbox.serving.server import Sandbox
from tests.faults.conftest import ROUNDS
from tests.faults.harness import MINUTE_MS, Platform, until
from tests.faults.hurt import hurt, hurts_of
from tests.faults.replay import PERIODS, bars_of, check, moved, recorded_trades
from tests.flink_replacement_spark.trigger_feed import events as events_of
from tests.flink_replacement_spark.trigger_feed import is_carried_out
from tests.triggers.trigger_records import rows
from triggers.texts.check import INPUTS

DAY_MS, MS = 86_400_000, 1_000_000
PAIRS = tuple(f"HURT{number}/USDT" for number in range(3))
#: From here on, each trigger fires within a minute.
LIVELIEST = 6_000
LONG_ROUNDS = 200
#: Exchange time (ms) for each round, in the suite and in a long run.
ROUND_MS, LONG_ROUND_MS = 6_000, 12_000
#: Exchange time (ms) before the first trade, in which the triggers are registered.
LEAD_MS = 60_000

#: First past a threshold of its start.
RISE = """
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts
  MEASURES A.trade_id AS since, C.trade_id AS past
  PATTERN (A B*? C) WITHIN INTERVAL '30' SECOND
  DEFINE C AS C.price > A.price + :rise
) AS r"""
#: A row decides each match, so that none is left open by the last row.
TURN = """
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts
  MEASURES FIRST(D.trade_id) AS since, U.trade_id AS turned
  PATTERN (D D+? U)
  DEFINE D AS price < PREV(price), U AS price > PREV(price) + :turn
) AS t"""
LARGER = """
SELECT trade_id, size - LAG(size) OVER (PARTITION BY ticker ORDER BY ts) AS more FROM ticks
QUALIFY size > LAG(size) OVER (PARTITION BY ticker ORDER BY ts) + :more"""
SECONDS = """
SELECT window_start, COUNT(*) AS trades, MAX(price) AS high
FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY ticker, window_start, window_end"""
RISING = "close > open + :rise"


@dataclass(frozen=True, slots=True)
class Armed:
    trigger_id: str
    ticker: str
    sql: str
    parameters: Mapping[str, str]


def fifty(trades: Sequence[Trade]) -> list[Armed]:
    """Triggers of each kind, over each of the markets."""
    prices = sorted({float(price) for _, price, *_ in trades}, reverse=True)
    texts: list[tuple[str, dict[str, str]]] = [
        *(("price > :limit", {"limit": str(prices[1 + 5 * step])}) for step in range(5)),
        *((RISE, {"rise": str(4 + 4 * step)}) for step in range(4)),
        *((TURN, {"turn": str(1 + step)}) for step in range(3)),
        *((LARGER, {"more": str((1 + step) / 10)}) for step in range(2)),
        *((RISING, {"rise": str(10 * step), "period_seconds": "60"}) for step in range(2)),
        (SECONDS, {}),
    ]
    armed = [
        Armed(f"{pair[:5].lower()}-{number}", f"{pair}.BINANCE", sql, parameters)
        for pair in PAIRS
        for number, (sql, parameters) in enumerate(texts)
    ]
    assert len(armed) == 51
    return armed


@pytest.mark.timeout(14_400)
@pytest.mark.usefixtures("past")
def test_hurt_processes_cost_no_trade_no_bar_and_no_event(
    platform: Platform, bus: Bus, shared_data: Path, choice: random.Random, request: pytest.FixtureRequest
) -> None:
    is_long = request.config.option.long
    rounds = int(os.environ.get("KILL_ROUNDS") or (LONG_ROUNDS if is_long else ROUNDS))
    round_ms = int(os.environ.get("KILL_ROUND_MS") or (LONG_ROUND_MS if is_long else ROUND_MS))
    tape = repeated(recorded_trades(shared_data)[LIVELIEST:], rounds * round_ms)
    # A day later than what other tests play, because the clock only advances.
    markets = {pair: moved(tape, ids=number, milliseconds=DAY_MS) for number, pair in enumerate(PAIRS)}
    first_ms, last_ms = tape[0][3] + DAY_MS, tape[-1][3] + DAY_MS
    armed = fifty(tape)
    platform.wait_until_well()

    def begin(sandbox: Sandbox) -> None:
        for pair, trades in markets.items():
            sandbox.add_trades(pair, trades, drive=False)
        # It runs at the speed of our clock, so that no ingestor believes it to be ahead of its real time.
        sandbox.clock.set(first_ms - LEAD_MS, 1.0)

    def now_ms() -> int:
        return int(platform.exchange.call(lambda sandbox: sandbox.clock.now()))

    with ExitStack() as stack:
        platform.exchange.call(begin)
        # A job starts by a clock that was read up to a second ago, and real clocks do not jump by days.
        time.sleep(1.1)
        client = stack.enter_context(cw.connect(settings=platform.up.settings, timeout=60.0))
        for pair in markets:
            stack.enter_context(client.realtime(f"{pair}.BINANCE", ohlc_periods=PERIODS))
        arm(platform, bus, armed)
        assert now_ms() < first_ms, "the triggers are there before the first trade"
        until(lambda: now_ms() > first_ms, LEAD_MS / 1_000, "the first trade")
        for number, what in enumerate(hurts_of(choice, rounds), 1):
            time.sleep(choice.uniform(0.0, 1.0))
            print(f"{time.strftime('%H:%M:%S')} {number}: {what}; {(now_ms() - first_ms) / 1_000:.0f} s played")
            hurt(platform, what, choice)
            if choice.random() < 0.7:
                # Otherwise the next process is hurt while this one is still restarting.
                platform.wait_until_well()
        print(f"all hurt; {(now_ms() - first_ms) / 1_000:.0f} of {(last_ms - first_ms) / 1_000:.0f} s played")
        until(lambda: now_ms() > last_ms, (last_ms - first_ms) / 1_000 + 120, "the whole tape")
        platform.wait_until_well(240)
        topics_of = {f"TICKS:{pair}.BINANCE": len(trades) for pair, trades in markets.items()}
        until(lambda: all(bus.last_sequence(topic) == count for topic, count in topics_of.items()), 120, "all trades")
        # For the bars of five minutes.
        platform.exchange.call(lambda sandbox: sandbox.clock.advance(6 * MINUTE_MS))
        platform.wait_until_well(240)
        for pair, played in markets.items():
            check(platform, bus, pair, trades=played, lead_ms=LEAD_MS)
        check_events(platform, bus, armed, markets=markets)


def repeated(trades: list[Trade], milliseconds: int) -> list[Trade]:
    """These trades, repeated until this much time has passed."""
    found: list[Trade] = []
    step, span = len(trades), trades[-1][3] - trades[0][3] + 1
    for turn in range(-(-milliseconds // span)):
        found += moved(trades, ids=turn * step, milliseconds=turn * span)
    return [trade for trade in found if trade[3] - found[0][3] <= milliseconds]


def arm(platform: Platform, bus: Bus, armed: Sequence[Armed]) -> None:
    """Register them, and wait until every partition runs them."""
    with cw.connect(settings=platform.up.settings, timeout=60.0) as client:
        for each in armed:
            client.triggers.add(
                each.sql, tickers=[each.ticker], parameters=each.parameters, trigger_id=each.trigger_id
            ).events().close()
    newest = bus.state(topics.TRIGGER_CONTROLS)[0].end - 1
    until(lambda: is_carried_out(bus, newest), 60, "every partition runs the triggers")


def check_events(
    platform: Platform, bus: Bus, armed: Sequence[Armed], *, markets: Mapping[str, Sequence[Trade]]
) -> None:
    """Each match is one event, under one id, with the next number of its trigger, on the topic and in the table."""
    inputs = {f"{pair}.BINANCE": ticks_of(f"{pair}.BINANCE", trades) for pair, trades in markets.items()}
    expected = {
        each.trigger_id: rising_bars(each, markets[each.ticker.removesuffix(".BINANCE")])
        if each.sql == RISING
        else in_numbers(evaluate(each.sql, inputs[each.ticker], parameters=each.parameters))
        for each in armed
    }
    assert all(expected.values())

    numbers = {name: len(rows) for name, rows in expected.items()}

    def found() -> dict[str, list[CEPTriggerEvent]]:
        by_trigger: dict[str, list[CEPTriggerEvent]] = {name: [] for name in expected}
        for event in events_of(bus, *expected):
            by_trigger[event.trigger_id].append(event)
        return by_trigger

    def counts(events: Mapping[str, Sequence[CEPTriggerEvent]]) -> dict[str, int]:
        return {name: len(own) for name, own in events.items()}

    with suppress(AssertionError):
        until(lambda: counts(found()) == numbers, 90, "all events")
    events = found()
    assert counts(events) == numbers
    ids: list[str] = []
    for name, wanted in expected.items():
        mine = events[name]
        assert [int(event.context["sequence"]) for event in mine] == list(range(1, len(wanted) + 1)), name
        got = [row for event in mine for row in rows(event)]
        assert [{key: row.get(key) for key in right} for row, right in zip(got, wanted, strict=True)] == wanted
        ids += [event.context["event_id"] for event in mine]
    assert max(Counter(ids).values()) == 1

    def stored() -> list[str] | None:
        rows = platform.table("trigger_events").select(["trigger_id", "event_id"]).to_pylist()
        mine = sorted(row["event_id"] for row in rows if row["trigger_id"] in expected)
        return mine if len(mine) >= len(ids) else None

    assert until(stored, 120, "all events in the table") == sorted(ids)


def ticks_of(ticker: str, trades: Sequence[Trade]) -> pa.Table:
    schema = INPUTS["ticks"].schema
    columns: dict[str, list[Any]] = {
        "ticker": [ticker] * len(trades),
        "trade_id": [str(number) for number, *_ in trades],
        "price": [float(price) for _, price, *_ in trades],
        "size": [float(size) for _, _, size, *_ in trades],
        "side": ["buy" if bought else "sell" for *_, bought in trades],
    }
    times = [at * MS for _, _, _, at, _ in trades]
    columns |= dict.fromkeys(("ts", "ts_ns", "received_at"), times)
    return pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)


def in_numbers(found: pa.Table) -> list[dict[str, Any]]:
    """Its rows, times as ns since the epoch, without the time of receipt, which differs."""
    names = [name for name in found.schema.names if name != "received_at"]
    columns = {name: found[name] for name in names}
    times = {name: column.cast(pa.int64()) for name, column in columns.items() if pa.types.is_timestamp(column.type)}
    return pa.table({**columns, **times}).to_pylist()


def rising_bars(each: Armed, trades: Sequence[Trade]) -> list[dict[str, Any]]:
    rise = float(each.parameters["rise"])
    return [
        {"open_time": row[0] * MS, "open": row[1], "close": row[4]}
        for row in bars_of(trades, 60)
        if row[4] > row[1] + rise
    ]
