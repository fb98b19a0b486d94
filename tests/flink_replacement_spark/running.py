"""A running driver over a real Redis, for tests."""

import pyarrow as pa

from bus import Bus
from bus.connect import connect
from candlewright.wire import ingestor_pb2 as ing
from core.settings import Settings
from flink_replacement_spark.server import Driver
from iceberg import COVERAGE, load_table, open_catalog, read_ohlc
from iceberg.filters import equal
from tests.flink_replacement_spark.harness import MINUTE, Feed, final_of, wait_for


class Platform:
    def __init__(self, settings: Settings, driver: Driver) -> None:
        self.settings = settings
        self.driver = driver
        self.bus: Bus = connect(settings.bus)

    def feed(self, ticker: str) -> Feed:
        return Feed(self.bus, ticker)

    def final(self, request_id: str) -> ing.HistoryReadyNotification:
        return wait_for(lambda: final_of(self.bus, request_id), 90)

    def rows(self, ticker: str) -> pa.Table:
        return read_ohlc(self.settings, ticker, 60, start_ns=0, end_ns=10**6 * MINUTE)

    def coverage(self, request_id: str) -> int:
        table = load_table(open_catalog(self.settings), COVERAGE)
        return int(table.scan(row_filter=equal("request_id", request_id)).to_arrow().num_rows)

    def stop_query(self) -> str:
        """The run id of the query that was stopped."""
        query = self.driver.queries[0].query
        assert query is not None
        query.stop()
        return str(query.runId)

    def wait_for_next_query(self, run_id: str) -> None:
        def another() -> bool | None:
            query = self.driver.queries[0].query
            return True if query is not None and query.isActive and str(query.runId) != run_id else None

        wait_for(another, 60)
