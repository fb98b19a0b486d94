"""From a client's request to exact candles in Iceberg, through every process of the platform."""

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest

import candlewright as cw
from candlewright.cli.verify import verified
from candlewright.client.history.spark_connect import SparkRows, open_session
from candlewright.wire.times import format_nanoseconds, to_nanoseconds
from tests.system.conftest import MINUTE_MS, SECOND, Rows, System

pytestmark = pytest.mark.timeout(600)

#: 2024-03-05 00:00 UTC
MARCH_5_MS = 1_709_596_800_000
TICKER, SYMBOL = "BTC/USDT.BINANCE", "BTCUSDT"
COLUMNS = ["open", "high", "low", "close", "volume", "quote_volume", "trade_count"]
ExchangeRows = Callable[[str, int, int], Rows]


def rows_of(table: pa.Table) -> Rows:
    times = [int(moment.timestamp() * 1_000) for moment in table["open_time"].to_pylist()]
    return list(zip(times, *(table[name].to_pylist() for name in COLUMNS), strict=True))


def ns(ms: int) -> int:
    return ms * 1_000_000


def test_rows_equal_the_exchange_through_iceberg_and_spark(
    system: System, client: cw.Client, exchange_rows: ExchangeRows
) -> None:
    end_ms = MARCH_5_MS + 3_000 * MINUTE_MS
    got = client.history(TICKER, "1m", start=ns(MARCH_5_MS), end=ns(end_ms))
    expected = exchange_rows(SYMBOL, MARCH_5_MS, end_ms)
    assert len(expected) == 3_000
    assert got.notification.row_count == 3_000
    assert rows_of(got.to_arrow()) == expected
    assert got.holes == ()
    assert set(got.to_arrow()["source"].to_pylist()) == {"exchange"}
    remote = SparkRows(system.platform.settings.spark)
    with system.connect(rows=remote) as far:
        assert rows_of(far.read(got.notification).to_arrow()) == expected


def test_limit_gives_the_first_candles(client: cw.Client, exchange_rows: ExchangeRows) -> None:
    start_ms = MARCH_5_MS - 5_000 * MINUTE_MS
    got = client.history(TICKER, "1m", start=ns(start_ms), end=ns(MARCH_5_MS - 2_000 * MINUTE_MS), limit=7)
    assert rows_of(got.to_arrow()) == exchange_rows(SYMBOL, start_ms, start_ms + 7 * MINUTE_MS)
    assert got.notification.row_count == 7


def test_a_hole_of_the_exchange_is_reported(system: System, client: cw.Client) -> None:
    start_ms = MARCH_5_MS - 1_000 * MINUTE_MS
    hole = (start_ms + 10 * MINUTE_MS, start_ms + 25 * MINUTE_MS)
    system.exchange.call(lambda sandbox: sandbox.add_hole("ETHUSDT", *hole))
    got = client.history("ETH/USDT.BINANCE", "1m", start=ns(start_ms), end=ns(start_ms + 60 * MINUTE_MS))
    assert got.row_count == 45
    assert got.holes == ((ns(hole[0]), ns(hole[1])),)


def test_verify_names_candles_that_the_exchange_no_longer_has(system: System) -> None:
    start_ms = MARCH_5_MS - 300 * MINUTE_MS
    start, end = (format_nanoseconds(ns(start_ms + minutes * MINUTE_MS)) for minutes in (0, 30))
    with system.connect() as client:
        client.history("ETH/USDT.BINANCE", "1m", start=start, end=end)
        assert verified(client, "ETH/USDT.BINANCE", 60, start=to_nanoseconds(start), end=to_nanoseconds(end)) == (
            [],
            30,
        )
        system.exchange.call(lambda sandbox: sandbox.add_hole("ETHUSDT", start_ms, start_ms + 2 * MINUTE_MS))
        found, _ = verified(client, "ETH/USDT.BINANCE", 60, start=to_nanoseconds(start), end=to_nanoseconds(end))
    assert [row["change"] for row in found] == ["not at the exchange"] * 2


def test_the_same_request_again_is_a_duplicate_with_the_same_final(client: cw.Client) -> None:
    day = {"start": ns(MARCH_5_MS), "end": ns(MARCH_5_MS + 30 * MINUTE_MS)}
    first = client.history(TICKER, 60, **day, request_id="twice")  # type: ignore[arg-type]
    again = client.submit(TICKER, 60, **day, request_id="twice")  # type: ignore[arg-type]
    assert again.is_duplicate
    assert client.wait("twice", timeout=60) == first.notification
    with pytest.raises(cw.InvalidRequest):
        client.submit(TICKER, 300, **day, request_id="twice")  # type: ignore[arg-type]


def test_an_unknown_symbol_ends_as_not_found(client: cw.Client) -> None:
    with pytest.raises(cw.RequestNotFound) as caught:
        client.history("NOSUCH/COIN.BINANCE", start=ns(MARCH_5_MS), end=ns(MARCH_5_MS + 60 * MINUTE_MS), timeout=120)
    assert caught.value.notification is not None
    assert caught.value.notification.row_count == 0


@pytest.mark.parametrize(
    ("ticker", "period", "start", "end"),
    [
        ("BTC/USDT.NOWHERE", 60, 0, 60),
        ("BTCUSDT", 60, 0, 60),
        (TICKER, 61, 0, 60),
        (TICKER, 60, 60, 60),
        (TICKER, 60, 60, 0),
    ],
)
def test_bad_requests_are_invalid_with_a_sentence(
    client: cw.Client, ticker: str, period: int, start: int, end: int
) -> None:
    base = MARCH_5_MS // 1_000
    with pytest.raises(cw.InvalidRequest) as caught:
        client.submit(ticker, period, start=(base + start) * SECOND, end=(base + end) * SECOND)
    assert len(str(caught.value).split()) > 3


def test_cancel_ends_a_long_request(system: System, client: cw.Client) -> None:
    year = 365 * 1_440 * MINUTE_MS
    submitted = client.submit(
        "SOL/USDT.BINANCE", "1m", start=ns(MARCH_5_MS - year), end=ns(MARCH_5_MS), request_id="long"
    )
    assert submitted.topic == f"RESPONSE:{client.client_id}"
    client.cancel("long")
    final = client.wait("long", timeout=120)
    assert final.status is cw.Outcome.ERROR
    assert "cancel" in final.error_message.lower()
    assert client.state("long").state == "done"


def test_legacy_pages_hold_the_same_rows(client: cw.Client, exchange_rows: ExchangeRows) -> None:
    end_ms = MARCH_5_MS + 2_345 * MINUTE_MS
    client.history(TICKER, "1m", start=ns(MARCH_5_MS), end=ns(end_ms))
    got = client.ohlc(TICKER, "1m", start=ns(MARCH_5_MS), end=ns(end_ms))
    assert rows_of(got.to_arrow()) == exchange_rows(SYMBOL, MARCH_5_MS, end_ms)


def test_venues_and_markets_are_known(client: cw.Client) -> None:
    (binance,) = [venue for venue in client.venues() if venue.name == "BINANCE"]
    assert binance.is_live
    assert 60 in binance.period_seconds
    assert TICKER in {market.ticker for market in client.markets("binance")}


def test_a_snapshot_has_prices(client: cw.Client) -> None:
    got = client.snapshot(TICKER)
    assert got.ticker == TICKER
    assert got.last is not None
    assert got.last > 0


async def test_the_async_twin_runs_requests_at_once(system: System, exchange_rows: ExchangeRows) -> None:
    starts = [MARCH_5_MS - (10_000 + 100 * number) * MINUTE_MS for number in range(4)]
    async with system.aconnect() as c:
        got = await asyncio.gather(
            *(c.history(TICKER, "1m", start=ns(start), end=ns(start + 50 * MINUTE_MS)) for start in starts)
        )
    for start, each in zip(starts, got, strict=True):
        assert rows_of(each.to_arrow()) == exchange_rows(SYMBOL, start, start + 50 * MINUTE_MS)


def test_spark_sql_sees_every_row_once(system: System) -> None:
    with open_session(system.platform.settings.spark.connect_bind) as session:
        (row,) = session.sql(
            "SELECT count(*) AS n, count(DISTINCT ticker, period_seconds, open_time) AS keys FROM lake.market.ohlc"
        ).collect()
    assert row["n"] == row["keys"] > 0
