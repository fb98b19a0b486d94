"""Trades that an ingestor fetched over REST arrive late: a trigger sees those since its registration, and none
before.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright.wire.candlewright_pb2 import TickBatch
from candlewright.wire.grid import SECOND
from protobuf import records_pb2 as records
from tests.rounds import rounds
from tests.triggers.records.test_lookback import bars_of, ticks_of
from tests.triggers.trigger_records import IN_ORDER, OTHER, T0, TICKER, V_SHAPE, bar, batch, clock, rows
from triggers.packing import squeezed, unsqueezed
from triggers.partition import TriggerPartition
from triggers.running.saved import archive_of, parts_of, written_meta
from triggers.texts.check import TriggerRules

pytestmark = pytest.mark.timeout(120)

#: The platform's clock when the exchange's is at T0.
WALL = T0 - 7 * SECOND
AHEAD = T0 - WALL
ANY = "price > 0"
SUM = "SELECT ts_ns, SUM(price) OVER (PARTITION BY ticker ORDER BY ts) AS total FROM ticks"


def asked(
    first: int, *trades: tuple[float, str, float], until: float, ticker: str = TICKER, ahead: int = AHEAD
) -> bytes:
    """Like `batch`, for trades that were fetched `until` seconds from T0."""
    found = TickBatch.FromString(batch(first, *trades, ticker=ticker))
    found.clock_ahead = ahead
    found.received_at[:] = [T0 + round(until * SECOND) - ahead] * len(trades)
    return found.SerializeToString()


def seconds(first: int, last: int) -> list[tuple[float, str, float]]:
    """One trade a second; its id and price are the second."""
    return [(float(s), str(s), float(s)) for s in range(first, last + 1)]


def register(trigger_id: str, sql: str, *tickers: str, at: float, **parameters: str) -> bytes:
    """`at`: seconds from T0 by the exchange's clock."""
    registration = records.TriggerRegistration(
        trigger_id=trigger_id, sql=sql, tickers=tickers, parameters=parameters, version=1,
        registered_at=WALL + round(at * SECOND),
    )  # fmt: skip
    return records.TriggerControl(register=registration).SerializeToString()


def run(partition: TriggerPartition, *ticks: bytes, **given: Any) -> list[dict[str, Any]]:
    return [row for event in partition.process(list(ticks), **given).events for row in rows(event)]


def told(found: Sequence[dict[str, Any]], column: str = "price") -> list[Any]:
    return [row[column] for row in found]


def test_trades_from_before_the_registration_that_had_to_be_requested_are_not_seen() -> None:
    partition = TriggerPartition()
    run(partition, controls=[register("t", ANY, TICKER, at=30.5)])
    assert told(run(partition, asked(1, *seconds(1, 33), until=33))) == [31.0, 32.0, 33.0]
    assert told(run(partition, batch(34, *seconds(34, 35)))) == [34.0, 35.0]


def test_trades_that_arrived_as_they_happened_are_seen_whatever_their_time() -> None:
    partition = TriggerPartition()
    run(partition, controls=[register("t", ANY, TICKER, at=1_000)])
    assert told(run(partition, batch(1, *seconds(1, 3)))) == [1.0, 2.0, 3.0]
    # A clock that does not match the times of trades affects only fetched trades.
    assert told(run(partition, asked(4, *seconds(4, 5), until=2_000), batch(6, *seconds(6, 7)))) == [6.0, 7.0]


@pytest.mark.parametrize("sql", [ANY, IN_ORDER])
def test_each_trigger_has_its_own_beginning(sql: str) -> None:
    partition = TriggerPartition()
    run(partition, controls=[register("old", sql, TICKER, at=0), register("new", sql, TICKER, at=20)])
    run(partition, controls=[register("every", sql, at=25)])
    output = partition.process(
        [asked(1, *seconds(10, 30), until=30), asked(1, *seconds(24, 26), until=30, ticker=OTHER)]
    )
    seen: dict[str, list[float]] = {}
    for event in output.events:
        seen.setdefault(f"{event.trigger_id} {event.context['ticker'][:3]}", []).append(rows(event)[0]["price"])
    assert {name: (min(found), max(found), len(found)) for name, found in seen.items()} == {
        "old BTC": (10, 30, 21), "new BTC": (20, 30, 11), "every BTC": (25, 30, 6), "every ETH": (25, 26, 2),
    }  # fmt: skip


def test_trades_missed_while_a_job_moved_are_seen_by_existing_triggers() -> None:
    partition = TriggerPartition()
    run(partition, controls=[register("t", ANY, TICKER, at=0)])
    run(partition, batch(1, *seconds(1, 5)))
    assert told(run(partition, asked(6, *seconds(4, 9), until=9))) == [6.0, 7.0, 8.0, 9.0]


def test_trades_that_wait_for_their_turn_are_distinguished_when_it_comes_also_after_a_restart() -> None:
    rules = TriggerRules(watermark_delay_ns=2 * SECOND)
    partition = TriggerPartition(rules)
    run(partition, controls=[register("t", IN_ORDER, TICKER, at=30.5)])
    assert told(run(partition, asked(1, *seconds(28, 31), until=32))) == []
    partition = TriggerPartition.load(partition.save(), rules)
    assert run(partition, batch(5, *seconds(32, 36))) == [
        {"price": 31.0, "before": None}, {"price": 32.0, "before": 31.0}, {"price": 33.0, "before": 32.0},
    ]  # fmt: skip


def test_the_first_window_begins_with_the_registration() -> None:
    sql = "SELECT ticker, COUNT(*) AS trades FROM ticks GROUP BY ticker, TUMBLE(ts, INTERVAL '1' MINUTE)"
    partition = TriggerPartition()
    run(partition, controls=[register("t", sql, TICKER, at=30.5)])
    run(partition, asked(1, *seconds(0, 40), until=40), batch(42, *seconds(41, 59)))
    assert told(run(partition, marks=[clock(61, 60)]), "trades") == [29]


def test_a_trigger_that_looks_back_has_them_as_its_past() -> None:
    partition = TriggerPartition()
    output = partition.process([], controls=[register("t", SUM, TICKER, at=30.5, lookback_seconds="20")], now_ns=WALL)
    (request,) = output.lookbacks
    partition.look_back(request, ticks_of(batch(1, (15.0, "15", 100.0))), output)
    # Trades from more than 20 seconds before, and the one that is already stored, count once or not at all.
    missed = asked(1, *seconds(5, 9), (15.0, "15", 100.0), *seconds(16, 31), until=31)
    assert run(partition, missed) == []
    partition = TriggerPartition.load(partition.save())
    found = run(partition, batch(25, *seconds(32, 34)))
    assert [(row["ts_ns"] - T0) // SECOND for row in found] == [31, 32, 33]
    assert told(found, "total")[0] == 100 + sum(range(16, 32))


def test_a_trigger_that_looks_back_over_a_ticker_that_was_never_stored_has_them_too() -> None:
    partition = TriggerPartition()
    run(partition, controls=[register("t", SUM, TICKER, at=30.5, lookback_seconds="20")])
    assert run(partition, asked(1, *seconds(5, 32), until=32)) == [
        {"ts_ns": T0 + 31 * SECOND, "total": float(sum(range(11, 32)))}
    ]


def test_a_pattern_may_begin_in_the_past_and_end_in_the_present() -> None:
    partition = TriggerPartition()
    run(partition, controls=[register("t", V_SHAPE, TICKER, at=30, lookback_seconds="20")])
    shape = [(21.0, "1", 5.0), (22.0, "2", 4.0), (23.0, "3", 5.0), (24.0, "4", 4.5), (25.0, "5", 3.0), (31.0, "6", 6.0)]
    found = run(partition, asked(1, *shape, until=31), batch(7, (32.0, "7", 1.0), (33.0, "8", 1.0)))
    assert [(row["top"], row["bottom"], row["back"]) for row in found] == [(4.5, 3.0, 6.0)]


def test_bars_that_ended_before_the_registration_are_not_seen_when_their_trades_had_to_be_requested() -> None:
    def begun() -> TriggerPartition:
        partition = TriggerPartition()
        run(partition, controls=[register("t", "close > 0", TICKER, at=150, period_seconds="60")])
        return partition

    partition = begun()
    run(partition, asked(1, *seconds(10, 155), until=155))
    partition = TriggerPartition.load(partition.save())
    assert told(run(partition, bars=[bar(0, 1.0), bar(1, 2.0)]), "close") == []
    # The bar in progress, complete.
    assert told(run(partition, bars=[bar(2, 3.0), bar(3, 4.0)]), "close") == [3.0, 4.0]
    assert told(run(begun(), bars=[bar(0, 1.0), bar(1, 2.0)]), "close") == [1.0, 2.0]


def test_bars_of_trades_that_were_requested_just_before_the_registration_are_not_seen_either() -> None:
    partition = TriggerPartition()
    run(partition, controls=[register("other", ANY, TICKER, at=0)])
    run(partition, asked(1, *seconds(10, 155), until=155))
    run(partition, controls=[register("t", "close > 0", TICKER, at=181, period_seconds="60")])
    # The third bar also ended before the registration, but its end was waited for.
    assert told(run(partition, bars=[bar(0, 1.0), bar(1, 2.0), bar(2, 3.0)]), "close") == [3.0]


def test_the_marks_of_trades_that_no_trigger_was_on_count_as_well() -> None:
    partition = TriggerPartition()
    run(partition, controls=[register("other", ANY, OTHER, at=0)])
    run(partition, asked(1, *seconds(10, 155), until=155))
    run(partition, controls=[register("t", "close > 0", TICKER, at=156, period_seconds="60")])
    assert told(run(partition, bars=[bar(0, 1.0), bar(1, 2.0), bar(2, 3.0)]), "close") == [3.0]


def wanted(*periods: int) -> bytes:
    return records.TickMark(ticker=TICKER, wanted=records.Wanted(period_seconds=periods)).SerializeToString()


@pytest.mark.parametrize("asked_until", [None, 20.0], ids=["live", "fetched"])
@pytest.mark.parametrize("is_first", [False, True])
def test_bars_of_a_period_that_was_not_requested_before_begin_with_the_registration(
    is_first: bool, asked_until: float | None
) -> None:
    """They are made of trades that were there, from the oldest that the bar maker still has."""
    partition = TriggerPartition()
    if not is_first:
        run(partition, controls=[register("any", ANY, OTHER, at=0)])
        if asked_until is not None:
            run(partition, asked(1, *seconds(10, 20), until=asked_until), now_ns=WALL + 20 * SECOND)
        run(partition, batch(12, *seconds(21, 140)), marks=[wanted(60)], now_ns=WALL + 140 * SECOND)
    control = register("t", "close > 0", TICKER, at=140.5, period_seconds="30")
    run(partition, controls=[control], now_ns=WALL + 141 * SECOND)
    # Where the ticker is quiet, its clock tells the time.
    run(partition, batch(132, (152.0, "152", 1.0)), marks=[clock(153, 132)], now_ns=WALL + 153 * SECOND)
    run(partition, marks=[wanted(30, 60)], now_ns=WALL + 153 * SECOND)
    partition = TriggerPartition.load(partition.save())
    made = [bar(minute, 1.0 + minute, 30) for minute in range(3)]
    assert told(run(partition, bars=made, now_ns=WALL + 154 * SECOND), "close") == [3.0]
    assert told(run(partition, bars=[bar(3, 4.0, 30)], now_ns=WALL + 211 * SECOND), "close") == [4.0]


def test_bars_made_of_trades_that_were_requested_are_the_past_of_a_look_back() -> None:
    sql = "SELECT close, SUM(close) OVER (PARTITION BY ticker ORDER BY open_time) AS total FROM ohlc"
    partition = TriggerPartition()
    control = register("t", sql, TICKER, at=150, period_seconds="60", lookback_seconds="3600")
    output = partition.process([], controls=[control], now_ns=WALL + 150 * SECOND)
    partition.look_back(output.lookbacks[0], bars_of(bar(-1, 10.0)), output)
    run(partition, asked(1, *seconds(10, 155), until=155))
    assert run(partition, bars=[bar(0, 1.0), bar(1, 2.0), bar(2, 3.0)]) == [{"close": 3.0, "total": 16.0}]


def test_silence_is_counted_from_the_registration_where_only_older_trades_came() -> None:
    partition = TriggerPartition()
    control = register("t", "FALSE", TICKER, at=30, deadman_seconds="30")
    run(partition, controls=[control], now_ns=WALL + 30 * SECOND)
    run(partition, asked(1, *seconds(10, 20), until=31), now_ns=WALL + 31 * SECOND)
    assert run(partition, now_ns=WALL + 59 * SECOND) == []
    assert run(partition, now_ns=WALL + 60 * SECOND) == [{"ticker": TICKER, "last_time": None, "silent_seconds": 30.0}]


def test_states_of_older_versions_are_read() -> None:
    partition = TriggerPartition()
    run(partition, controls=[register("t", ANY, TICKER, at=30)], now_ns=WALL + 31 * SECOND)
    parts = parts_of(partition.save())
    (name,) = (name for name in parts if name.startswith("triggers/"))
    triggers, meta = (json.loads(unsqueezed(parts.pop(part))) for part in (name, "meta"))
    del meta["ticks"]["asked_for"]
    older = parts | {
        "triggers": squeezed(json.dumps([own[:8] for own in triggers]).encode()),
        "meta": written_meta(meta | {"histories": {"t": ["", 3, 0, {}, {}]}}),
    }
    partition = TriggerPartition.load(archive_of(older))
    assert partition.triggers["t"].events == 3
    assert told(run(partition, asked(1, *seconds(29, 33), until=33))) == [31.0, 32.0, 33.0]


# ---- whatever comes, however it is cut into micro-batches and restarted


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Registrations at the exchange's current time, and records of trades up to it, live or fetched. A ticker's records
    come in order; others are late.
    """
    found: list[tuple[str, Any]] = []
    now = number = 1
    reached = {TICKER: 0, OTHER: 0}
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["register", "live", "asked"]))
        if kind == "register":
            found.append((kind, (f"t{len(found)}", draw(st.sampled_from([TICKER, OTHER, ""])), now)))
            now += 1
            continue
        ticker = draw(st.sampled_from([TICKER, OTHER]))
        start = draw(st.integers(max(reached[ticker] + 1, now - 8), now)) if kind == "asked" else now
        now = reached[ticker] = max(now, start + draw(st.integers(0, 4)))
        trades = [
            (float(second), str(number + at), float(number + at)) for at, second in enumerate(range(start, now + 1))
        ]
        number += len(trades)
        now += 1
        found.append((kind, (ticker, trades, now)))
    return found


def expected(history: list[tuple[str, Any]]) -> set[tuple[str, float]]:
    seen = set()
    for place, (kind, said) in enumerate(history):
        if kind != "register":
            continue
        trigger_id, ticker, at = said
        for later, (name, trades, _) in history[place:]:
            if later != "register" and ticker in ("", name):
                seen |= {(trigger_id, price) for second, _, price in trades if later == "live" or second >= at}
    return seen


@settings(max_examples=rounds(40), deadline=None)
@given(histories(), st.integers(0, 2**40 - 1))
def test_a_trigger_sees_rows_that_arrive_and_happen_after_its_registration(
    history: list[tuple[str, Any]], cuts: int
) -> None:
    """`cuts`: its bits say where a micro-batch ends, and where the state goes to another process."""
    partition = TriggerPartition(TriggerRules())
    seen: list[tuple[str, float]] = []
    ticks: list[bytes] = []

    def is_next() -> bool:
        nonlocal cuts
        cuts, bit = divmod(cuts, 2)
        return bool(bit)

    def flush() -> None:
        nonlocal partition, ticks
        for event in partition.process(ticks).events:
            seen.extend((event.trigger_id, row["price"]) for row in rows(event))
        ticks = []
        if is_next():
            partition = TriggerPartition.load(partition.save())

    for kind, said in history:
        if kind == "register":
            # Registrations follow the rows of their micro-batch.
            flush()
            trigger_id, ticker, at = said
            partition.process([], controls=[register(trigger_id, ANY, *([ticker] if ticker else []), at=at)])
            continue
        ticker, trades, until = said
        made = batch(1, *trades, ticker=ticker) if kind == "live" else asked(1, *trades, until=until, ticker=ticker)
        ticks.append(made)
        if is_next():
            flush()
    flush()
    assert len(seen) == len(set(seen))
    assert set(seen) == expected(history)
