"""The end of each delivery of an alert is one row of `lake.market.deliveries`, whatever fails in between."""

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from alerts.alert import Outcome, Status
from alerts.store import AlertStore
from bus import Record
from bus import topics as bus_topics
from core.settings import Settings
from flink_replacement_spark.tables.appended import AppendedTable
from flink_replacement_spark.tables.deliveries import APPENDED_DELIVERIES
from flink_replacement_spark.tables.follower import Follower, Taken
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import DELIVERIES, create_tables, load_table, open_catalog
from tests.alerts.deliveries import delivery
from tests.fresh_bus import FreshBus

AT = datetime(2026, 1, 5, 12, 0, 0, 250_000, tzinfo=UTC)


def test_every_end_is_one_row_although_a_commit_is_repeated(tmp_path: Path) -> None:
    bus, catalog = FreshBus(), open_catalog(Settings(data_dir=tmp_path))
    create_tables(catalog)
    alerts = AlertStore(bus)
    alerts.open()
    alerts.finish(
        [
            Outcome(delivery=delivery("dip-1", attempts=1), status=Status.DELIVERED, at=AT.timestamp()),
            Outcome(delivery=delivery("dip-2", attempts=40, error="503"), status=Status.ABANDONED, at=AT.timestamp()),
        ]
    )
    # A foreign record on the topic costs no other its row.
    bus.publish(bus_topics.DELIVERIES, [Record(value) for value in (b"[]", b"{}", b"?", b'{"attempts": "many"}')])
    table = AppendedTable(catalog, TableLocks(), APPENDED_DELIVERIES)

    def store_and_die(taken: Taken) -> None:
        table.store(taken)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        Follower(bus, APPENDED_DELIVERIES.followed, store_and_die, stopping=threading.Event()).step()
    successor = Follower(bus, APPENDED_DELIVERIES.followed, table.store, stopping=threading.Event())
    while successor.step():
        pass
    rows = load_table(catalog, DELIVERIES).scan().to_arrow().sort_by("event_id").to_pylist()
    assert rows == [
        {
            "event_id": event_id,
            "destination": "hook",
            "attempts": attempts,
            "status": status,
            "delivered_at": AT,
            "error": error,
        }
        for event_id, attempts, status, error in (("dip-1", 1, "delivered", ""), ("dip-2", 40, "abandoned", "503"))
    ]
