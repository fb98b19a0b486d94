"""New trades into the table, without Spark: each once, also where the checkpoint of the query before was lost."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from core.settings import Settings
from flink_replacement_spark import live_writer
from flink_replacement_spark.live_results import TICKS as TICK_COLUMNS
from flink_replacement_spark.live_results import LiveResults
from flink_replacement_spark.live_writer import LiveWriter
from iceberg import TICKS, create_tables, load_table, open_catalog
from venues.grid import SECOND

T0 = 1_709_164_799 * SECOND


def _ticks(ticker: str, *ids: str) -> LiveResults:
    rows = [
        {
            "ticker": ticker, "trade_id": trade_id, "time_ns": T0 + int(trade_id) * SECOND + 1, "price": 1.0,
            "size": 1.0, "side": 1, "received_ns": T0,
        }
        for trade_id in ids
    ]  # fmt: skip
    return LiveResults(ticks=pa.Table.from_pylist(rows, schema=TICK_COLUMNS))


def test_what_a_query_with_a_lost_checkpoint_stored_is_not_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(Settings.model_validate({"data_dir": tmp_path}))
    create_tables(catalog)
    merger: Any = None
    writer = LiveWriter(catalog, merger, threading.Lock(), threading.Event())
    writer.write("lost", 40, _ticks("A/B.C", "1", "2", "3"))
    writer.write("new", 0, _ticks("A/B.C", "2"))
    writer.write("new", 1, _ticks("A/B.C", "3", "4"))
    writer.write("new", 2, _ticks("D/E.F", "3"))
    monkeypatch.setattr(live_writer, "scan_trade_ids", None)
    # The state of the query knows its own trades.
    writer.write("new", 40, _ticks("A/B.C", "5"))
    found = load_table(catalog, TICKS).scan().to_arrow()
    stored = sorted(zip(found["ticker"].to_pylist(), found["trade_id"].to_pylist(), strict=True))
    assert stored == [*(("A/B.C", str(number)) for number in range(1, 6)), ("D/E.F", "3")]
