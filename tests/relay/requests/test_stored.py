"""Stored candles over the socket, read by the client from real tables that it does not reach itself."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import candlewright as cw
from candlewright.client.errors import InvalidRequest, RowsUnavailable
from candlewright.client.records import Notification, Outcome
from candlewright.settings import ClientConfig
from candlewright.wire import candlewright_pb2 as pb
from core.settings import Settings
from iceberg import COVERAGE, OHLC, OHLC_REVISIONS, append, create_tables, load_table, open_catalog
from relay.requests.stored import stored_in_iceberg
from relay.settings import RelayLimits
from tests.iceberg.rows import TICKER
from tests.relay.conftest import Start
from tests.relay.requests.test_pages import FIRST, MINUTE, rows

START = int(FIRST.timestamp()) * 10**9
COUNT = 25
END = START + (COUNT + 5) * MINUTE


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """25 minutes are stored; the venue has no candle in the three after them, and then some had not closed."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("far"))
    catalog = open_catalog(settings)
    create_tables(catalog)
    stored = rows(COUNT).cast(OHLC.arrow_schema)
    append(load_table(catalog, OHLC), stored.set_column(0, "ticker", pa.array([TICKER] * COUNT)), {})
    hole = {"start": (START + COUNT * MINUTE) // 1_000, "end": (START + (COUNT + 3) * MINUTE) // 1_000}
    covered = {
        "request_id": "r", "ticker": TICKER, "period_seconds": 60, "status": "OK", "holes": [hole],
        "closed_until": hole["end"],
    }  # fmt: skip
    append(load_table(catalog, COVERAGE), pa.Table.from_pylist([covered], schema=COVERAGE.arrow_schema), {})
    known = {
        **stored.slice(0, 1).drop_columns(["updated_at"]).to_pylist()[0],
        "ticker": TICKER, "revision": 0, "known_at": START // 1_000 + 90_000_000,
    }  # fmt: skip
    append(load_table(catalog, OHLC_REVISIONS), pa.Table.from_pylist([known], schema=OHLC_REVISIONS.arrow_schema), {})
    return settings


@pytest.fixture
def client(start_relay: Start, settings: Settings, tmp_path: Path) -> Iterator[cw.Client]:
    limits = RelayLimits(max_stored_rows=10)
    platform = start_relay(read_stored=stored_in_iceberg(settings), limits=limits)
    config = ClientConfig(data_dir=tmp_path / "nothing")
    with cw.connect(platform.relay.requests_address, platform.relay.notifications_address, settings=config) as client:
        yield client


def test_stored_candles_come_in_several_answers_as_one_table(client: cw.Client) -> None:
    got = client.load(TICKER, "1m", START, END)
    table = got.to_arrow()
    assert table.schema == OHLC.arrow_schema
    assert table["close"].to_pylist() == [number + 0.4 for number in range(COUNT)]
    assert list(got.holes) == [(START + COUNT * MINUTE, START + (COUNT + 3) * MINUTE)]
    assert list(got.unknown) == [(START + (COUNT + 3) * MINUTE, END)]


@pytest.mark.parametrize("limit", [1, 10, 11, 20, 25, 26])
def test_a_limit_takes_the_first_rows(client: cw.Client, limit: int) -> None:
    assert client.load(TICKER, "1m", START, END, limit=limit).row_count == min(limit, COUNT)


def test_rows_of_a_request_bring_its_holes_and_are_as_many_as_were_confirmed(client: cw.Client) -> None:
    final = Notification(
        request_id="r",
        ticker=TICKER,
        period_seconds=60,
        start=START,
        end=END,
        status=Outcome.OK,
        error_message="",
        table="market.ohlc",
        row_count=COUNT,
        completed_at=0,
    )
    got = client.read(final)
    assert (got.row_count, list(got.holes)) == (COUNT, [(START + COUNT * MINUTE, START + (COUNT + 3) * MINUTE)])
    assert got.closed_until == START + (COUNT + 3) * MINUTE
    with pytest.raises(RowsUnavailable, match="confirmed 26 rows, 25"):
        client.read(replace(final, row_count=COUNT + 1))


def test_candles_as_they_were_known(client: cw.Client) -> None:
    assert client.history(TICKER, start=START, end=END, as_of=START + MINUTE).row_count == 0
    got = client.history(TICKER, start=START, end=END, as_of=START + 2 * MINUTE)
    assert got.to_arrow()["close"].to_pylist() == [0.4]
    assert got.to_arrow().schema == OHLC_REVISIONS.arrow_schema


def test_impossible_queries_are_refused_with_a_sentence(client: cw.Client, start_relay: Start) -> None:
    with pytest.raises(InvalidRequest, match="nanoseconds"):
        client.load(TICKER, "1m", 0, 60)
    relay = start_relay().client()
    for query in (pb.StoredQuery(request_id="q", ticker="nothing"), pb.StoredQuery(request_id="q", ticker=TICKER)):
        answer = relay.ask(query)
        assert (answer.code, answer.request_id) == ("INVALID", "q")
