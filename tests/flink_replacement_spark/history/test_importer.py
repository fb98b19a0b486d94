"""Imports over real Iceberg tables and a real bus, without Spark."""

import threading
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bus import topics as bus_topics
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import CommitConflict
from core.imports import Import, differences_of, folder_of, rows_of
from flink_replacement_spark.history import importer
from flink_replacement_spark.history.importer import Importer
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.revisions import RevisionTable
from iceberg import COVERAGE, OHLC, CoverageFiles, Stored, claims_of, load_table, proven_parts, read_ohlc, scan_stored
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import MINUTE, TICKER
from tests.flink_replacement_spark.history.test_writer import Bench
from tests.fresh_bus import FreshBus

START = 10 * MINUTE


class Importing(Bench):
    def __init__(self, data_dir: Path, bus: FreshBus) -> None:
        super().__init__(data_dir, bus)
        self.importer = Importer(bus, self.catalog, TableLocks(), data_dir=data_dir, stopping=threading.Event())
        folder_of(data_dir).mkdir()

    def order(self, minutes: range, close: float = 1.5) -> str:
        import_id = uuid.uuid4().hex
        pq.write_table(candles(minutes, close), rows_of(self.settings.data_dir, import_id))
        self.bus.put(bus_topics.TABLE_IMPORTS, {import_id: Import(import_id=import_id, rows=len(minutes)).to_bytes()})
        return import_id

    def outcome(self, import_id: str) -> Import:
        (value,) = self.bus.get(bus_topics.TABLE_IMPORTS, [import_id])
        assert value is not None
        return Import.from_bytes(value)

    def do(self, minutes: range, close: float = 1.5) -> tuple[str, int, int, int, int]:
        import_id = self.order(minutes, close)
        self.importer.step()
        found = self.outcome(import_id)
        return found.state, found.new, found.same, found.different, found.absent

    def rows(self) -> pa.Table:
        return read_ohlc(self.settings, TICKER, 60, start_ns=0, end_ns=100_000 * MINUTE)


def candles(minutes: range, close: float = 1.5) -> pa.Table:
    count = len(minutes)
    schema = pa.schema([field for field in OHLC.arrow_schema if field.name != "updated_at"])
    columns = {
        "ticker": [TICKER] * count,
        "period_seconds": [60] * count,
        "open_time": pa.array([minute * MINUTE // 1_000 for minute in minutes]).cast(pa.timestamp("us", "UTC")),
        "open": [1.0] * count,
        "high": [2.0] * count,
        "low": [0.5] * count,
        "close": [close] * count,
        "volume": [10.0] * count,
        "quote_volume": [None] * count,
        "trade_count": [3] * count,
        "source": ["archive"] * count,
        "complete": [True] * count,
    }
    return pa.table(columns, schema=schema)


@pytest.fixture
def bench(tmp_path: Path) -> Importing:
    return Importing(tmp_path, FreshBus())


def test_new_candles_are_one_commit_and_a_second_run_changes_nothing(bench: Importing) -> None:
    assert bench.do(range(5)) == ("done", 5, 0, 0, 0)
    snapshots = len(load_table(bench.catalog, OHLC).metadata.snapshots)
    assert set(bench.rows()["source"].to_pylist()) == {"archive"}
    assert [revision for _, revision, _ in bench.revisions()] == [0] * 5
    assert bench.do(range(7)) == ("done", 2, 5, 0, 0)
    assert bench.do(range(7)) == ("done", 0, 7, 0, 0)
    assert len(load_table(bench.catalog, OHLC).metadata.snapshots) == snapshots + 1
    assert len(bench.revisions()) == 7
    assert [*folder_of(bench.settings.data_dir).iterdir()] == []


def test_stored_candles_are_never_replaced_and_differences_are_listed(bench: Importing) -> None:
    bench.feed.piece("r", range(3), piece=0)
    bench.feed.done("r", 3)
    bench.batch()
    before = bench.rows()
    import_id = bench.order(range(5), close=1.75)
    bench.importer.step()
    found = bench.outcome(import_id)
    assert (found.new, found.different) == (2, 3)
    assert bench.rows().slice(0, 3).equals(before)
    listed = pq.read_table(differences_of(bench.settings.data_dir, import_id)).to_pylist()
    assert [row["stored_close"] for row in listed] == before["close"].to_pylist()
    assert {(row["why"], row["file_close"]) for row in listed} == {("other values are stored", 1.75)}


def test_the_exchanges_own_candle_replaces_an_imported_one(bench: Importing) -> None:
    bench.do(range(3))
    bench.feed.piece("r", range(3), piece=0)
    bench.feed.done("r", 3)
    bench.batch()
    [merged] = bench.spark.merged
    assert merged["source"].to_pylist() == ["exchange"] * 3


def test_an_import_proves_nothing(bench: Importing) -> None:
    bench.do(range(3_000))
    coverage = CoverageFiles().scan(load_table(bench.catalog, COVERAGE), [TICKER])
    table = load_table(bench.catalog, OHLC)
    claims = claims_of(coverage, TICKER, 60)
    assert len(claims.start) == 0

    def look(start: int, end: int) -> Stored:
        return scan_stored(table, TICKER, 60, start=start, end=end)

    found = proven_parts(claims, 60, [(0, 3_000 * MINUTE)], stored=look)
    assert found == []


def test_an_import_that_was_cut_short_after_its_commit_is_finished(
    bench: Importing, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_id = bench.order(range(5))
    with monkeypatch.context() as patched:
        patched.setattr(RevisionTable, "correct", _killed)
        with pytest.raises(CommitConflict):
            bench.importer.step()
    assert bench.outcome(import_id).error == "killed"
    assert bench.revisions() == []
    bench.importer.step()
    assert bench.outcome(import_id).state == "done"
    assert bench.rows().num_rows == len(bench.revisions()) == 5


def _killed(*_: object) -> None:
    raise CommitConflict("killed")


def test_a_commit_that_fails_leaves_nothing(bench: Importing, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.order(range(5))
    monkeypatch.setattr(importer, "append_or_find", _killed)
    with pytest.raises(CommitConflict):
        bench.importer.step()
    assert bench.rows().num_rows == 0 and bench.revisions() == []


def test_an_import_that_fails_keeps_no_other_waiting(bench: Importing, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [bench.order(range(first, first + 2)) for first in (0, 10, 20)]
    real = bench.importer._store
    bad = ids[1]

    def store(running: Import, table: pa.Table) -> Import:
        if running.import_id == bad:
            raise IndexError("the catalog answers nonsense")
        return real(running, table)

    monkeypatch.setattr(bench.importer, "_store", store)
    with pytest.raises(IndexError):
        bench.importer.step()
    assert [bench.outcome(each).is_over for each in ids] == [True, False, True]
    assert bench.outcome(bad).error == "the catalog answers nonsense"
    monkeypatch.undo()
    bench.importer.step()
    assert bench.outcome(bad).new == 2


def test_candles_where_the_exchange_has_none_are_left_out(bench: Importing) -> None:
    bench.feed.piece("r", [0, 1, 5, 6], piece=0)
    done = records.RequestDone(
        request_id="r",
        ticker=TICKER,
        period_seconds=60,
        end_time=7 * MINUTE,
        status=ing.HistoryReadyNotification.OK,
        rows=4,
        expected=7,
        holes=[cw.TimeRange(start_time=2 * MINUTE, end_time=5 * MINUTE)],
    )
    bench.feed.outcomes.append(records.HistoryOutcome(request=done))
    bench.batch()
    assert bench.do(range(2, 9)) == ("done", 2, 0, 2, 3)


@pytest.mark.parametrize("content", [b"", b"PAR1 nonsense"])
def test_a_file_that_the_driver_cannot_read_fails_alone(bench: Importing, content: bytes) -> None:
    bad, good = bench.order(range(3)), bench.order(range(3, 6))
    rows_of(bench.settings.data_dir, bad).write_bytes(content)
    bench.bus.put(bus_topics.TABLE_IMPORTS, {"nonsense": b"{}", "path": b'{"import_id": "../../x"}'})
    bench.importer.step()
    assert bench.outcome(bad).state == "failed" and "cannot read" in bench.outcome(bad).error
    assert bench.outcome(good).state == "done"
    assert set(bench.bus.items(bus_topics.TABLE_IMPORTS)) == {bad, good}
