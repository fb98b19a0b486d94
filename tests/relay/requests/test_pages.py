from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zmq

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import CommitUnknown
from candlewright.wire.frames import encode
from core.settings import Settings
from iceberg import OHLC, append, create_tables, load_table, open_catalog
from relay.requests.pages import pages, read_from_iceberg
from tests.relay.conftest import Start
from tests.relay.harness import START, Platform, finish

MINUTE = 60_000_000_000
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
NOT_FOUND = ing.HistoryReadyNotification.NOT_FOUND
ERROR = ing.HistoryReadyNotification.ERROR


def rows(count: int) -> pa.Table:
    """Rows as they are read from `lake.market.ohlc`."""
    return pa.table(
        {
            "ticker": pa.array(["BTC/USDT.BINANCE"] * count, pa.string()),
            "period_seconds": pa.array([60] * count, pa.int32()),
            "open_time": pa.array([FIRST + timedelta(minutes=n) for n in range(count)], pa.timestamp("us", tz="UTC")),
            "open": pa.array([n + 0.1 for n in range(count)], pa.float64()),
            "high": pa.array([n + 0.2 for n in range(count)], pa.float64()),
            "low": pa.array([n + 0.3 for n in range(count)], pa.float64()),
            "close": pa.array([n + 0.4 for n in range(count)], pa.float64()),
            "volume": pa.array([n + 0.5 for n in range(count)], pa.float64()),
            "quote_volume": pa.array([None if n % 2 else float(n) for n in range(count)], pa.float64()),
            "trade_count": pa.array([n if n % 2 else None for n in range(count)], pa.int64()),
            "source": pa.array(["exchange"] * count, pa.string()),
            "complete": pa.array([True] * count, pa.bool_()),
            "updated_at": pa.array([FIRST] * count, pa.timestamp("us", tz="UTC")),
        }
    )


def candle(number: int) -> cw.OHLCV:
    return cw.OHLCV(
        open_time=START + number * MINUTE,
        open=number + 0.1,
        high=number + 0.2,
        low=number + 0.3,
        close=number + 0.4,
        volume=number + 0.5,
        quote_volume=None if number % 2 else float(number),
        trade_count=number if number % 2 else None,
        period_seconds=60,
        ticker="BTC/USDT.BINANCE",
        complete=True,
        source="exchange",
    )


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, [0]), (1, [1]), (1_000, [1_000]), (1_001, [1_000, 1]), (2_500, [1_000, 1_000, 500])]
)
def test_rows_become_pages_of_a_thousand_candles(count: int, sizes: list[int]) -> None:
    made = list(pages("r", rows(count), 1_000))
    assert [len(page.data) for page in made] == sizes
    assert [page.is_final for page in made] == [False] * (len(sizes) - 1) + [True]
    assert {(page.request_id, page.status, page.total_records) for page in made} == {("r", ing.Response.OK, count)}
    candles = [cw.OHLCV.FromString(data) for page in made for data in page.data]
    assert candles == [candle(number) for number in range(count)]


class Reader:
    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, *asked: Any) -> pa.Table:
        self.asked.append(asked)
        return rows(self.count)


def ohlc(request_id: str, **changes: Any) -> ing.OHLCRequest:
    values = {
        "request_id": request_id,
        "ticker": "BTC/USDT.BINANCE",
        "start_time": START,
        "end_time": START + 2_500 * MINUTE,
        "period_seconds": 60,
    }
    return ing.OHLCRequest(**(values | changes))


def wait_until_queued(platform: Platform, request_id: str) -> None:
    """A separate client asks: answers come in order, so the relay has read what was sent before this began."""
    client = platform.client()
    while client.ask(cw.RequestStateQuery(request_id=request_id)).state == "unknown":
        pass


def test_a_legacy_request_is_fetched_and_answered_in_pages(start_relay: Start) -> None:
    reader = Reader(2_500)
    platform = start_relay(read_rows=reader)
    client = platform.client()
    client.socket.send_multipart(encode(ohlc("r", limit=2_400)))
    wait_until_queued(platform, "r")
    finish(platform.bus, "r", row_count=2_500)
    answers = [client.answer() for _ in range(3)]
    assert [(len(page.data), page.is_final) for page in answers] == [(1_000, False), (1_000, False), (500, True)]
    assert reader.asked == [("BTC/USDT.BINANCE", 60, START, START + 2_500 * MINUTE, 2_400)]
    assert platform.queued()[0].historical.limit == 2_400


def test_the_same_legacy_request_is_answered_again_from_the_table(start_relay: Start) -> None:
    platform = start_relay(read_rows=Reader(10))
    client = platform.client()
    client.socket.send_multipart(encode(ohlc("r")))
    wait_until_queued(platform, "r")
    finish(platform.bus, "r", row_count=10)
    assert len(client.answer().data) == 10
    assert len(client.ask(ohlc("r")).data) == 10
    assert len(platform.queued()) == 1


def test_a_req_gets_one_page_or_the_advice_to_use_a_dealer(start_relay: Start) -> None:
    reader = Reader(1_000)
    platform = start_relay(read_rows=reader)
    finish(platform.bus, "small")
    finish(platform.bus, "large")
    client = platform.client()
    for request_id in ("small", "large"):
        client.socket.send_multipart(encode(ohlc(request_id)))
        wait_until_queued(platform, request_id)
    req = platform.client(zmq.REQ)
    assert len(req.ask(ohlc("small")).data) == 1_000
    reader.count = 1_001
    error = req.ask(ohlc("large"))
    assert (error.code, error.request_id) == ("USE_DEALER", "large")


@pytest.mark.parametrize(("status", "wanted"), [(NOT_FOUND, ing.Response.NOT_FOUND), (ERROR, ing.Response.ERROR)])
def test_a_legacy_request_that_fails_reports_it(start_relay: Start, status: Any, wanted: Any) -> None:
    platform = start_relay()
    client = platform.client()
    client.socket.send_multipart(encode(ohlc("r")))
    wait_until_queued(platform, "r")
    finish(platform.bus, "r", status=status, error_message="because")
    answer = client.answer()
    assert (answer.status, answer.error_message, answer.is_final) == (wanted, "because", True)


def test_an_invalid_legacy_request_is_answered_at_once(start_relay: Start) -> None:
    answer = start_relay().client().ask(ohlc("r", period_seconds=61))
    assert (answer.status, answer.is_final) == (ing.Response.ERROR, True)
    assert "does not offer" in answer.error_message


@pytest.mark.parametrize("failure", [CommitUnknown("not now"), KeyError("open")])
def test_a_table_that_cannot_be_read_is_reported(start_relay: Start, failure: Exception) -> None:
    def broken(*asked: Any) -> pa.Table:
        raise failure

    platform = start_relay(read_rows=broken)
    client = platform.client()
    client.socket.send_multipart(encode(ohlc("r")))
    wait_until_queued(platform, "r")
    finish(platform.bus, "r")
    answer = client.answer()
    assert (answer.status, answer.is_final) == (ing.Response.ERROR, True)
    assert "cannot be read now" in answer.error_message


def test_a_legacy_request_is_answered_from_a_real_table(start_relay: Start, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    catalog = open_catalog(settings)
    create_tables(catalog)
    append(load_table(catalog, OHLC), rows(1_500).cast(OHLC.arrow_schema), {"made-by": "test"})
    platform = start_relay(read_rows=read_from_iceberg(settings))
    client = platform.client()
    client.socket.send_multipart(encode(ohlc("r", start_time=START + 10 * MINUTE, limit=1_200)))
    wait_until_queued(platform, "r")
    finish(platform.bus, "r", row_count=1_200)
    answers = [client.answer() for _ in range(2)]
    candles = [cw.OHLCV.FromString(data) for page in answers for data in page.data]
    assert candles == [candle(number) for number in range(10, 1_210)]
