"""Columns that no trigger reads are not built, without affecting any event."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright.wire.candlewright_pb2 import TickBatch
from candlewright.wire.grid import SECOND
from tests.rounds import rounds
from tests.triggers.trigger_records import OTHER, T0, TICKER, register, remove, rows
from triggers.partition import TriggerPartition

pytestmark = pytest.mark.timeout(120)

PATTERN = """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES %s
  PATTERN (A B) DEFINE B AS B.%s > A.%s) AS m"""
TEXTS = {
    "price": PATTERN % ("A.price AS a, B.price AS b", "price", "price"),
    "size": PATTERN % ("A.size AS a, B.side AS b", "size", "size"),
    "id": PATTERN % ("A.trade_id AS a, B.received_at AS b", "trade_id", "trade_id"),
    "row": "SELECT size * 2 AS twice FROM ticks WHERE price > 3",
    "mean": "SELECT trade_id, AVG(size) OVER (PARTITION BY ticker ORDER BY ts ROWS 2 PRECEDING) AS m FROM ticks",
    "windows": "SELECT MAX(size) AS top FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '2' SECOND)) "
    "WHERE side = 'buy' GROUP BY ticker, window_start HAVING MIN(trade_id) > '1001'",
}
#: Run beside all others, so that rows are read and numbered. Its events are left out.
LITTLE, WHOLE = TEXTS["price"], "SELECT * FROM ticks WHERE price > 0"


def ticks(first: int, trades: list[tuple[int, int, int]], ticker: str) -> bytes:
    """(seconds since the last one, price, size)."""
    found = TickBatch(ticker=ticker, first_sequence=first)
    for place, (seconds, price, size) in enumerate(trades):
        number = first + place
        found.timestamp.append(T0 + (number // 2 + seconds) * SECOND)
        found.trade_id.append(str(1_000 + number))
        found.price.append(float(price))
        found.size.append(float(size))
        found.side.append(1 + number % 2)
        found.received_at.append(T0 + number if number % 3 else 0)
    return found.SerializeToString()


Step = tuple[list[tuple[str, list[tuple[int, int, int]]]], str, bool]
_TRADES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)
_BATCHES = st.lists(st.tuples(st.sampled_from([TICKER, OTHER]), _TRADES), max_size=4)
STEPS = st.lists(st.tuples(_BATCHES, st.sampled_from([*TEXTS, ""]), st.booleans()), min_size=2, max_size=8)


def events(steps: list[Step], *, with_whole: bool) -> list[tuple[Any, ...]]:
    """Each step registers a text, or removes it if it runs; `True`: the state is saved and loaded."""
    partition = TriggerPartition()
    partition.process([], controls=[register("beside", WHOLE if with_whole else LITTLE)])
    found: list[tuple[Any, ...]] = []
    counts = {TICKER: 1, OTHER: 1}
    version = 1
    for batches, name, is_restarted in steps:
        values = []
        for ticker, trades in batches:
            values.append(ticks(counts[ticker], trades, ticker))
            counts[ticker] += len(trades)
        version += 1
        control = remove(name) if name in partition.triggers else register(name, TEXTS.get(name, ""), version=version)
        output = partition.process(values, controls=[control] if name else [])
        found += [(event.trigger_id, event.context["event_id"], repr(rows(event))) for event in output.events]
        if is_restarted:
            partition = TriggerPartition.load(partition.save())
    return sorted(each for each in found if each[0] != "beside")


@settings(max_examples=rounds(30), deadline=None)
@given(STEPS)
def test_triggers_give_the_same_events_whatever_columns_are_read(steps: list[Step]) -> None:
    assert events(steps, with_whole=False) == events(steps, with_whole=True)


def test_a_later_trigger_reads_columns_that_held_rows_lack() -> None:
    trades = [(0, price, price) for price in (1, 2, 3, 4, 5, 6)]
    steps: list[Step] = [
        ([(TICKER, trades)], "size", True),
        ([(TICKER, trades)], "mean", False),
        ([(TICKER, trades)], "", True),
    ]
    found = events(steps, with_whole=False)
    assert found == events(steps, with_whole=True)
    assert {trigger_id for trigger_id, *_ in found} == {"size", "mean"}
