"""Triggers over views give the events of the same text with its views written out, over restarts too."""

import pytest

from protobuf import records_pb2 as records
from tests.triggers.trigger_records import OTHER, TICKER, prices, register
from triggers.partition import TriggerPartition

VIEWS = {
    "risen": "SELECT *, price - LAG(price) OVER (PARTITION BY ticker ORDER BY ts) AS step FROM ticks",
    "jumps": "SELECT ticker, ts, price, step FROM risen WHERE step > 2",
}
RISEN = f"({VIEWS['risen']})"
#: Over views, and written out.
PAIRS = [
    (
        "SELECT ticker, price FROM jumps WHERE price < 90",
        f"SELECT ticker, price FROM {RISEN} WHERE step > 2 AND price < 90",
    ),
    (
        """SELECT * FROM jumps MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES A.price AS a, B.price AS b
        PATTERN (A B) DEFINE B AS B.price > A.price)""",
        f"""SELECT * FROM (SELECT ticker, ts, price, step FROM {RISEN} WHERE step > 2) MATCH_RECOGNIZE (PARTITION BY
        ticker ORDER BY ts MEASURES A.price AS a, B.price AS b PATTERN (A B) DEFINE B AS B.price > A.price)""",
    ),
]
VALUES = [10.0, 14, 12, 20, 21, 30, 28, 33, 50, 49, 53, 60, 58, 95, 99, 10, 14, 19]


def with_views(trigger_id: str, sql: str, *tickers: str, version: int = 1) -> bytes:
    control = records.TriggerControl.FromString(register(trigger_id, sql, *tickers, version=version))
    control.register.views.update(VIEWS)
    return control.SerializeToString()


def events(control: bytes, *, restarts: bool) -> list[bytes]:
    partition = TriggerPartition()
    partition.process([], controls=[control])
    found = []
    for place, value in enumerate(VALUES, 1):
        for ticker in (TICKER, OTHER):
            output = partition.process([prices(place, value, ticker=ticker)])
            found += [event.SerializeToString(deterministic=True) for event in output.events]
        if restarts:
            partition = TriggerPartition.load(partition.save())
    return found


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("over_views", "written_out"), PAIRS)
def test_events_and_their_ids_are_those_of_the_text_written_out(
    over_views: str, written_out: str, restarts: bool
) -> None:
    wanted = events(register("t", written_out, TICKER, OTHER), restarts=False)
    assert wanted
    assert events(with_views("t", over_views, TICKER, OTHER), restarts=restarts) == wanted


def test_triggers_over_one_view_that_differ_in_numbers_share_a_stream() -> None:
    partition = TriggerPartition()
    texts = ("SELECT ticker, price FROM jumps WHERE price < 90", "SELECT ticker, price FROM jumps WHERE price < 70")
    controls = [with_views(f"t{place}", sql, (TICKER, OTHER)[place]) for place, sql in enumerate(texts)]
    partition.process([], controls=controls)
    assert partition.shards == 1
