"""The last stored events of triggers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from core.settings import Settings
from iceberg import create_tables, open_catalog
from iceberg.read import read_last_events
from iceberg.tables import TRIGGER_EVENTS

START = datetime(2024, 1, 1, tzinfo=UTC)
START_NS = int(START.timestamp()) * 1_000_000_000
SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """An event a second of `a`, `b` and `c` in turn, in two files that overlap in time; `c` is on another ticker."""
    return stored_events(tmp_path_factory.mktemp("events"))


def stored_events(folder: Path) -> Table:
    catalog = open_catalog(Settings(data_dir=folder))
    create_tables(catalog)
    table = catalog.load_table(TRIGGER_EVENTS.identifier)
    rows = [
        {
            "trigger_id": "abc"[second % 3],
            "event_id": f"{second:02}",
            "fired_at": START + timedelta(seconds=second),
            "ticker": "ETH/USDT.BINANCE" if second % 3 == 2 else "BTC/USDT.BINANCE",
            "columns": '{"close": 1.5}' if second % 2 else '[{"x": 1}, {"x": 2}]',
            "context": {},
        }
        for second in range(30)
    ]
    for part in (rows[::2], rows[1::2]):
        table.append(pa.Table.from_pylist(part, schema=TRIGGER_EVENTS.arrow_schema))
    return table


def test_the_newest_are_read_in_order(table: Table) -> None:
    found = read_last_events(table, start_ns=START_NS, end_ns=START_NS + 20 * SECOND, limit=4)
    assert found["event_id"].to_pylist() == ["16", "17", "18", "19"]
    assert (
        read_last_events(table, start_ns=START_NS + 18 * SECOND, end_ns=START_NS + 20 * SECOND, limit=9).num_rows == 2
    )
    assert read_last_events(table, start_ns=0, end_ns=START_NS, limit=4).num_rows == 0


def test_triggers_are_chosen_or_left_out(table: Table) -> None:
    everything = {"start_ns": START_NS, "end_ns": START_NS + 60 * SECOND, "limit": 2}
    assert read_last_events(table, **everything, trigger_id="a")["event_id"].to_pylist() == ["24", "27"]
    assert read_last_events(table, **everything, without=["a", "c"])["event_id"].to_pylist() == ["25", "28"]
    assert read_last_events(table, **everything, without=["a", "b"], ticker="BTC/USDT.BINANCE").num_rows == 0
    assert read_last_events(table, **everything, trigger_id="a", without=["a"]).num_rows == 0
