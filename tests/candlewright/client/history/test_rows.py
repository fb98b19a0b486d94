"""Rows of a finished request, read from real tables."""

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder

from candlewright.client.errors import RowsUnavailable
from candlewright.client.history.rows import legacy_table, near_rows
from candlewright.client.history.spark_connect import SparkRows
from candlewright.client.records import Notification, Outcome, Range
from candlewright.settings import ClientConfig
from candlewright.wire import candlewright_pb2 as pb
from candlewright.wire.spark_connect import connect_url
from candlewright_platform.lake import LakeRows
from core.settings import Settings
from iceberg import COVERAGE, OHLC, create_tables, open_catalog

MINUTE = 60 * 10**9


def moment(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)


def final(rows: int, request_id: str = "r1") -> Notification:
    return Notification(
        request_id=request_id,
        ticker="A/B.X",
        period_seconds=60,
        start=0,
        end=10 * MINUTE,
        status=Outcome.OK,
        error_message="",
        table="market.ohlc",
        row_count=rows,
        completed_at=0,
    )


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder: Path = tmp_path_factory.mktemp("lake")
    settings = Settings(data_dir=folder)
    catalog = open_catalog(settings)
    create_tables(catalog)
    candles = [
        {
            "ticker": ticker,
            "period_seconds": 60,
            "open_time": moment(minute),
            "open": 1.0,
            "high": 1.0,
            "low": 1.0,
            "close": float(minute),
            "volume": 1.0,
            "quote_volume": None,
            "trade_count": 3,
            "source": "exchange",
            "complete": True,
            "updated_at": moment(0),
        }
        for ticker in ("A/B.X", "A/C.X")
        for minute in (0, 1, 2, 5, 6, 12)
    ]
    catalog.load_table(OHLC.identifier).append(pa.Table.from_pylist(candles, OHLC.arrow_schema))
    row = {
        "request_id": "r1",
        "ticker": "A/B.X",
        "period_seconds": 60,
        "start": moment(0),
        "end": moment(10),
        "expected": 10,
        "got": 5,
        "holes": [{"start": moment(7), "end": moment(10)}, {"start": moment(3), "end": moment(5)}],
        "status": "OK",
    }
    later = {**row, "request_id": "r2", "holes": None, "closed_until": moment(7)}
    catalog.load_table(COVERAGE.identifier).append(pa.Table.from_pylist([later], COVERAGE.arrow_schema))
    for _ in range(2):
        catalog.load_table(COVERAGE.identifier).append(pa.Table.from_pylist([row], COVERAGE.arrow_schema))
    return settings


def test_rows_and_holes_of_the_range(settings: Settings) -> None:
    got = LakeRows(settings).history(Range("A/B.X", 60, 0, 10 * MINUTE), final(5))
    assert got.to_arrow()["close"].to_pylist() == [0.0, 1.0, 2.0, 5.0, 6.0]
    assert got.holes == ((3 * MINUTE, 5 * MINUTE), (7 * MINUTE, 10 * MINUTE))


def test_a_range_past_the_closed_candles_is_reported_as_such(settings: Settings) -> None:
    rows = LakeRows(settings)
    assert rows.history(Range("A/B.X", 60, 0, 10 * MINUTE), final(5)).closed_until is None
    assert rows.history(Range("A/B.X", 60, 0, 10 * MINUTE), final(5, "r2")).closed_until == 7 * MINUTE


def test_limit_takes_the_first_rows(settings: Settings) -> None:
    got = LakeRows(settings).history(Range("A/B.X", 60, 0, 10 * MINUTE, limit=4), final(4))
    assert got.to_arrow()["close"].to_pylist() == [0.0, 1.0, 2.0, 5.0]


def test_fewer_rows_than_confirmed_is_an_error(settings: Settings) -> None:
    with pytest.raises(RowsUnavailable, match="confirmed 6 rows, 5"):
        LakeRows(settings).history(Range("A/B.X", 60, 0, 10 * MINUTE), final(6))


def test_a_request_without_a_coverage_row_has_no_holes(settings: Settings) -> None:
    assert LakeRows(settings).history(Range("A/B.X", 60, 0, MINUTE), final(1, "other")).holes == ()


def test_tables_are_read_here_if_they_are_here(settings: Settings, tmp_path: Path) -> None:
    assert isinstance(near_rows(settings), LakeRows)
    assert near_rows(Settings(data_dir=tmp_path)) is None
    assert near_rows(ClientConfig(data_dir=settings.data_dir)) is None


@pytest.mark.processes
def test_a_command_loads_the_table_reader_while_its_request_runs(settings: Settings) -> None:
    code = (
        "import sys\nfrom candlewright.client.history.rows import near_rows\nfrom core.settings import Settings\n"
        f"settings = Settings(data_dir={str(settings.data_dir)!r})\nassert near_rows(settings, is_command=True)\n"
        "import threading\n[each.join() for each in threading.enumerate() if each.name == 'load-tables']\n"
        "print('iceberg.read' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("bind", ["127.0.0.1:15002", "sc://127.0.0.1:15002", "0.0.0.0:15002", "*:15002"])
def test_spark_connect_url_of_a_bind(bind: str) -> None:
    assert connect_url(bind) == "sc://127.0.0.1:15002"


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1:15002", "sc://localhost:15002/;token=a%2Fb%3D"),
        ("[::]:15002", "sc://localhost:15002/;token=a%2Fb%3D"),
        ("sc://spark.example:443/;use_ssl=true", "sc://spark.example:443/;use_ssl=true;token=a%2Fb%3D"),
        ("sc://spark.example:443/;token=own", "sc://spark.example:443/;token=own"),
    ],
)
def test_a_token_goes_into_the_spark_connect_url(bind: str, url: str) -> None:
    assert connect_url(bind, "a/b=") == url
    assert DefaultChannelBuilder(url).token in ("a/b=", "own")


# Spark's client warns if it cannot close its session, through a deprecated method.
@pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated")
def test_the_token_of_the_settings_is_shown_to_spark_connect(tmp_path: Path) -> None:
    seen: list[str] = []

    class Door(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            seen.extend(value for name, value in details.invocation_metadata if name == "authorization")

            def refuse(request: bytes, context: grpc.ServicerContext) -> None:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, "closed")

            return grpc.unary_unary_rpc_method_handler(refuse)

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=(Door(),))
        port = server.add_secure_port("localhost:0", grpc.local_server_credentials())
        server.start()
        spark = {"connect_bind": f"127.0.0.1:{port}", "conf": {"spark.connect.authenticate.token": "a/b="}}
        settings = Settings.model_validate({"data_dir": tmp_path, "spark": spark})
        try:
            with pytest.raises(RowsUnavailable, match=f"localhost:{port}/? cannot be reached|closed"):
                SparkRows(settings.spark).history(Range("A/B.X", 60, 0, MINUTE), final(1))
        finally:
            server.stop(None).wait()
    assert set(seen) == {"Bearer a/b="}


def test_stock_pyspark_sends_a_token_in_the_clear_to_localhost_alone() -> None:
    """It requires TLS for any other name, including 127.0.0.1, as docs/threats.md says."""
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        port = server.add_secure_port("localhost:0", grpc.local_server_credentials())
        server.start()
        try:
            with DefaultChannelBuilder(f"sc://localhost:{port}/;token=t").toChannel() as channel:
                grpc.channel_ready_future(channel).result(10)
            socket.create_connection(("127.0.0.1", port)).close()
            by_number = DefaultChannelBuilder(f"sc://127.0.0.1:{port}/;token=t")
            with by_number.toChannel() as channel, pytest.raises(grpc.FutureTimeoutError):
                grpc.channel_ready_future(channel).result(0.3)
        finally:
            server.stop(None).wait()


def test_legacy_candles_become_columns() -> None:
    table = legacy_table([pb.OHLCV(open_time=MINUTE, close=2.0, ticker="A/B.X", period_seconds=60, trade_count=4)])
    (row,) = table.to_pylist()
    assert (row["open_time"], row["close"], row["trade_count"], row["quote_volume"]) == (moment(1), 2.0, 4, None)


@pytest.mark.processes
def test_the_command_reads_tables_without_loading_pandas(settings: Settings) -> None:
    day = ("--start", "1970-01-01", "--end", "1970-01-02", "--output", "csv", "--data-dir", str(settings.data_dir))
    command = [sys.executable, "-X", "importtime", "-m", "candlewright", "load", "A/B.X", *day]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert len(done.stdout.splitlines()) > 1
    lines = done.stderr.splitlines()
    assert [line for line in lines if "Error" in line] == []
    loaded = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "pyiceberg" in loaded
    assert "pandas.core" not in loaded
