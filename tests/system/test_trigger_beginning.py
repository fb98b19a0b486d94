"""Where a trigger begins: with no trade from before its registration, and without a hole after it."""

from collections.abc import Iterator

import pytest

import candlewright as cw
from candlewright.client.triggers.trigger_events import TriggerEvent
from tests.system.conftest import System
from tests.system.test_live import PATIENCE_SECONDS, streams_of, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.alone]

#: No other test subscribes this ticker.
TICKER, SYMBOL = "DOGE/USDT.BINANCE", "DOGEUSDT"
EACH = "SELECT trade_id, ts_ns FROM ticks"
COUNTED = """
SELECT trade_id, ts_ns, COUNT(*) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
  AS seen
FROM ticks"""


@pytest.fixture(autouse=True)
def _none_left(client: cw.Client) -> Iterator[None]:
    """Remove the triggers of a failed test, so that later ones do not see them."""
    yield
    for left in client.triggers.list():
        client.triggers.remove(left.trigger_id)


def now_ms(system: System) -> int:
    return int(system.exchange.call(lambda sandbox: sandbox.clock.now()))


def fill_at(system: System, time_ms: int) -> int:
    """The id of the first trade at or after a time of the exchange's clock."""
    return int(system.exchange.call(lambda sandbox: sandbox.markets[SYMBOL].fill_at(time_ms)))


def trade_ids(events: list[TriggerEvent]) -> list[int]:
    return [int(str(event.row["trade_id"])) for event in events]


def events_of(trigger: "cw.Trigger", until_ms: int) -> list[TriggerEvent]:
    """Up to the first one at or after that time."""
    found = [trigger.events().next(timeout=PATIENCE_SECONDS)]
    while int(str(found[-1].row["ts_ns"])) < until_ms * 1_000_000:
        found.append(trigger.events().next(timeout=PATIENCE_SECONDS))
    return found


def assert_begins(system: System, trigger: "cw.Trigger", asked_ms: int, *, told_ms: int) -> list[TriggerEvent]:
    """It was requested at one time of the exchange's clock and acknowledged at the other."""
    events = events_of(trigger, told_ms + 1_000)
    ids = trade_ids(events)
    # The exchange's clock is known up to the way of its answer, on this machine some milliseconds.
    assert fill_at(system, asked_ms - 50) <= ids[0] <= fill_at(system, told_ms)
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    return events


def test_a_trigger_begins_with_its_registration_where_its_tickers_job_does_not(
    system: System, client: cw.Client
) -> None:
    asked_ms = now_ms(system)
    with client.triggers.add(COUNTED, tickers=[TICKER], parameters={"lookback_seconds": "300"}) as looks_back:
        counted_ms = now_ms(system)
        with client.triggers.add(EACH, tickers=[TICKER]) as each:
            told_ms = now_ms(system)
            assert_begins(system, each, counted_ms, told_ms=told_ms)
        events = assert_begins(system, looks_back, asked_ms, told_ms=counted_ms)
        seen = [int(str(event.row["seen"])) for event in events]
        assert seen == list(range(seen[0], seen[0] + len(seen)))
        # What the job began with is older than its registration, and there once.
        first = trade_ids(events)[0] - seen[0] + 1
        assert first < fill_at(system, asked_ms)
        assert first in {
            fill_at(system, minute * 60_000) for minute in range(asked_ms // 60_000 - 1, asked_ms // 60_000 + 2)
        }
        client.triggers.remove(each.id)
        client.triggers.remove(looks_back.id)

    # After a pause the job continues after its last trade, so that the pause is requested as well.
    until(lambda: streams_of(system, SYMBOL) == 0, "the end of the job")
    paused_ms = now_ms(system)
    until(lambda: now_ms(system) > paused_ms + 2_000, "two seconds")
    asked_ms = now_ms(system)
    with client.triggers.add(EACH, tickers=[TICKER]) as again:
        assert_begins(system, again, asked_ms, told_ms=now_ms(system))
        client.triggers.remove(again.id)
