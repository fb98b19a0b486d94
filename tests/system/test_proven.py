"""Rows that the table proves are not fetched again: calls are counted at the exchange itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import candlewright as cw
from candlewright.client.history.spark_connect import session_of
from sandbox.serving.server import Sandbox
from sandbox.serving.state import Refuse, RequestArrived, Serve
from tests.system.conftest import MINUTE_MS, Rows, System
from tests.system.test_history import ns, rows_of

pytestmark = pytest.mark.timeout(600)

#: 2023-06-05 00:00 UTC, of a market that no other test requests.
START_MS = 1_685_923_200_000
TICKER, SYMBOL = "XRP/USDT.BINANCE", "XRPUSDT"
PAGE = 1_000
ExchangeRows = Callable[[str, int, int], Rows]


@contextmanager
def counted(system: System) -> Iterator[list[RequestArrived]]:
    """The requests for candles of SYMBOL that reach the exchange meanwhile."""
    seen: list[RequestArrived] = []

    def listen(sandbox: Sandbox) -> Callable[[RequestArrived], Serve | Refuse]:
        handle = sandbox.state.handle

        def count(event: RequestArrived) -> Serve | Refuse:
            if event.path.endswith("/klines") and event.symbol == SYMBOL:
                seen.append(event)
            return handle(event)

        sandbox.state.handle = count  # type: ignore[method-assign]
        return handle

    handle = system.exchange.call(listen)
    try:
        yield seen
    finally:
        system.exchange.call(lambda sandbox: setattr(sandbox.state, "handle", handle))


def at(minute: int) -> int:
    return ns(START_MS + minute * MINUTE_MS)


def test_proven_candles_are_not_fetched_again(system: System, client: cw.Client, exchange_rows: ExchangeRows) -> None:
    hole = (START_MS + 100 * MINUTE_MS, START_MS + 110 * MINUTE_MS)
    system.exchange.call(lambda sandbox: sandbox.add_hole(SYMBOL, *hole))
    expected = exchange_rows(SYMBOL, START_MS, START_MS + 6_000 * MINUTE_MS)

    def fetch(start: int, end: int, *, limit: int | None = None, refresh: bool = False) -> int:
        with counted(system) as calls:
            got = client.history(TICKER, "1m", start=at(start), end=at(end), limit=limit, refresh=refresh)
        rows = [
            row for row in expected if START_MS + start * MINUTE_MS <= int(str(row[0])) < START_MS + end * MINUTE_MS
        ]
        rows = rows if limit is None else rows[:limit]
        assert rows_of(got.to_arrow()) == rows
        assert got.notification.row_count == len(rows)
        if limit is None:
            assert got.holes == ((ns(hole[0]), ns(hole[1])),)
        return len(calls)

    assert fetch(0, 4_000) >= 4_000 / PAGE
    assert fetch(0, 4_000) == 0
    assert fetch(50, 3_000) == 0
    assert fetch(0, 4_000, limit=1_500) == 0
    # Of an overlapping range only the missing part is fetched.
    assert 2 <= fetch(0, 6_000) <= 3
    assert fetch(0, 6_000) == 0
    assert fetch(0, 6_000, refresh=True) >= 6_000 / PAGE
    # Rows that a user deletes from the table are gone, even if an earlier request has proven them.
    with session_of(system.platform.settings.spark) as session:
        deleted = " AND ".join(
            f"open_time {sign} TIMESTAMP_MILLIS({START_MS + minute * MINUTE_MS})"
            for sign, minute in ((">=", 2_000), ("<", 2_500))
        )
        session.sql(f"DELETE FROM lake.market.ohlc WHERE ticker = '{TICKER}' AND {deleted}").collect()
    assert 1 <= fetch(0, 6_000) <= 2
    assert fetch(0, 6_000) == 0
