"""The published clock of the exchange stays behind trades that are still in transit."""

import gzip
import json
from pathlib import Path

import pytest

from ingestor.realtime.lag import MOST_NS, WINDOW_SECONDS, Lag
from ingestor.venues.binance import VENUE
from ingestor.venues.description import MILLISECOND

FLOOR = 250


def test_a_delay_counts_for_a_while_and_never_less_than_the_floor() -> None:
    lag = Lag(FLOOR)
    assert lag.ns(0.0) == FLOOR
    lag.saw(FLOOR + 50, 1.0)
    lag.saw(FLOOR - 50, 2.0)
    assert lag.ns(2.0) == lag.ns(1.0 + WINDOW_SECONDS) == FLOOR + 50
    assert lag.ns(1.0 + 3 * WINDOW_SECONDS) == FLOOR
    lag.saw(FLOOR + 70, 10 * WINDOW_SECONDS)
    assert lag.ns(10 * WINDOW_SECONDS) == FLOOR + 70


def test_trades_from_before_the_connection_do_not_count_as_delays() -> None:
    lag = Lag(FLOOR)
    lag.saw(MOST_NS + 1, 0.0)
    assert lag.ns(0.0) == FLOOR
    lag.saw(MOST_NS, 0.0)
    assert lag.ns(0.0) == MOST_NS


@pytest.mark.parametrize("day", ["08", "09"])
def test_no_recorded_trade_of_binance_is_older_than_the_clock_that_was_published(shared_data: Path, day: str) -> None:
    """Without a lag, 2,129 and 278 trades would be late for triggers, up to 214 ms."""
    messages = recorded(shared_data / "binance" / f"btcusdt_spot_ws_202408{day}.gz")
    # The least that the exchange's clock was ahead of ours, by the fastest message.
    ahead = max(event - received for received, event, _ in messages)
    assert VENUE.stream is not None
    late = {lag: late_trades(messages, ahead, lag) for lag in (0, VENUE.stream.lag_ms)}
    assert late == {0: {"08": 2129, "09": 278}[day], VENUE.stream.lag_ms: 0}


def recorded(file: Path) -> list[tuple[int, int, int]]:
    """Of each trade: when it was received, sent and made (ms)."""
    found = []
    with gzip.open(file, "rt") as lines:
        for line in lines:
            received, _, text = line.partition(" ")
            data = json.loads(text).get("data", {})
            if data.get("e") == "trade":
                found.append((int(received) // MILLISECOND, data["E"], data["T"]))
    return sorted(found, key=lambda trade: trade[0])


def late_trades(messages: list[tuple[int, int, int]], ahead_ms: int, lag_ms: int) -> int:
    """Whether a published clock, ten times a second, passes a trade."""
    lag, late, clock, heard = Lag(lag_ms * MILLISECOND), 0, 0, 0
    due = messages[0][0] + 100
    for received, _, made in messages:
        while received > due:
            if heard:
                allowed = lag.ns(due / 1_000) // MILLISECOND if lag_ms else 0
                clock = max(clock, heard + ahead_ms - allowed)
            due += 100
        late += made < clock
        lag.saw((received + ahead_ms - made) * MILLISECOND, received / 1_000)
        heard = received
    return late
