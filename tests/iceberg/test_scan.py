"""Scans with cached manifests agree with pyiceberg's own, and a commit's cost does not grow with the kept snapshots."""

import copy
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table

from iceberg import OHLC, append, load_table, scan_table
from iceberg import scan as scans
from iceberg.filters import at_least, equal
from iceberg.read import iso
from iceberg.scan import read_rows
from tests.iceberg.rows import candles

TICKERS = ("BTC/USDT.BINANCE", "ETH/USDT.BINANCE", "SOL/USDT.BINANCE")


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    scans._entries.clear()


def filled(catalog: Catalog, commits: int) -> Table:
    for number in range(commits):
        rows = candles(range(number * 5, number * 5 + 5), TICKERS[number % len(TICKERS)])
        append(load_table(catalog, OHLC), rows, {"number": str(number)})
    return load_table(catalog, OHLC)


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: (row["ticker"], row["open_time"]))


def test_the_rows_are_those_that_pyiceberg_finds_at_first_and_again(catalog: Catalog) -> None:
    # There are more commits than separate manifests, so some were merged.
    table = filled(catalog, 25)
    table.delete(And(equal("ticker", TICKERS[0]), at_least("open_time", iso(90 * 60_000_000))))
    table = load_table(catalog, OHLC)
    filters: list[BooleanExpression | None] = [
        None,
        equal("ticker", TICKERS[0]),
        at_least("open_time", iso(33 * 60_000_000)),
        And(equal("ticker", TICKERS[1]), at_least("open_time", iso(33 * 60_000_000))),
        equal("ticker", "NONE/USDT.BINANCE"),
    ]
    for _ in range(2):
        for wanted in filters:
            stock = table.scan() if wanted is None else table.scan(row_filter=wanted)
            assert in_order(scan_table(table, wanted).to_arrow()) == in_order(stock.to_arrow())
            rows = read_rows(table, OHLC, AlwaysTrue() if wanted is None else wanted)
            assert rows.schema == OHLC.arrow_schema
            assert in_order(rows) == in_order(stock.to_arrow())
    assert len(scan_table(table, selected_fields=("ticker",), limit=3).to_arrow()) == 3
    assert scan_table(table, selected_fields=("ticker",)).to_arrow().column_names == ["ticker"]


def test_an_empty_table_has_no_rows(catalog: Catalog) -> None:
    assert scan_table(load_table(catalog, OHLC)).to_arrow().num_rows == 0
    assert read_rows(load_table(catalog, OHLC), OHLC, AlwaysTrue()).num_rows == 0


def test_a_filter_may_name_columns_that_are_not_read(catalog: Catalog) -> None:
    found = read_rows(filled(catalog, 3), OHLC, equal("ticker", TICKERS[1]), columns=("open_time", "volume"))
    assert found.column_names == ["open_time", "volume"]
    assert sorted(found["volume"].to_pylist()) == [5.0, 6.0, 7.0, 8.0, 9.0]


def test_a_column_that_the_table_does_not_have_yet_is_null(catalog: Catalog) -> None:
    table = filled(catalog, 1)
    with table.update_schema() as update:
        update.delete_column("quote_volume")
    table = load_table(catalog, OHLC)
    table.append(candles([9]).drop_columns("quote_volume"))
    found = read_rows(table, OHLC, AlwaysTrue(), columns=("volume", "quote_volume"))
    assert found["volume"].to_pylist() == [9.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    assert found["quote_volume"].to_pylist()[0] is None


def test_each_manifest_is_read_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()
    new_input = PyArrowFileIO.new_input

    def count(self: PyArrowFileIO, location: str) -> PyArrowFile:
        opened[location.rpartition("/")[2]] += 1
        return new_input(self, location)

    table = filled(catalog, 3)
    monkeypatch.setattr(PyArrowFileIO, "new_input", count)
    for _ in range(4):
        assert scan_table(table).to_arrow().num_rows == 15
    append(load_table(catalog, OHLC), candles([100]), {})
    assert scan_table(load_table(catalog, OHLC)).to_arrow().num_rows == 16
    manifests = {
        name: times for name, times in opened.items() if name.endswith(".avro") and not name.startswith("snap-")
    }
    assert len(manifests) == 4
    assert set(manifests.values()) == {1}


def test_the_cache_of_manifests_is_bounded(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_entries", type(scans._entries)(3, getsizeof=len))
    monkeypatch.setattr(scans, "MAX_ENTRIES", 3)
    table = filled(catalog, 8)
    for _ in range(2):
        assert scan_table(table).to_arrow().num_rows == 40
    assert scans._entries.currsize <= 3


def test_a_commit_copies_none_of_the_snapshots_before_it(catalog: Catalog) -> None:
    table = filled(catalog, 3)
    copied = copy.deepcopy(table.metadata)
    assert copied is not table.metadata
    assert all(one is other for one, other in zip(copied.snapshots, table.metadata.snapshots, strict=True))
    before = [snapshot.model_dump() for snapshot in table.metadata.snapshots]
    append(table, candles([50]), {"number": "3"})
    after = [snapshot.model_dump() for snapshot in load_table(catalog, OHLC).metadata.snapshots]
    assert after[:3] == before
    assert [snapshot["summary"]["number"] for snapshot in after] == ["0", "1", "2", "3"]
