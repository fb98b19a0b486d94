from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from iceberg import GAPS, OHLC, TICKS, TableDefinition, load_table
from iceberg.data_files import write_data_files
from tests.iceberg.rows import candles

_DAY = 86_400_000_000
_TICKS = st.lists(
    st.tuples(st.sampled_from(["A/B.C", "D/E.F", "G/H.I", None]), st.sampled_from([0, 1, _DAY, 3 * _DAY, None])),
    min_size=1,
    max_size=30,
)


def as_written(table: Table, files: Sequence[DataFile]) -> set[tuple[object, ...]]:
    """Partition, row count, statistics and rows of each file, in the order in which they were written."""
    rows = [pa.parquet.read_table(table.io.new_input(file.file_path).open()).to_pylist() for file in files]
    return {
        (str(file.partition), file.record_count, str(file.lower_bounds), str(file.upper_bounds), str(own))
        for file, own in zip(files, rows, strict=True)
    }


def assert_as_pyiceberg(table: Table, rows: pa.Table) -> None:
    files = write_data_files(table, rows)
    wanted = list(_dataframe_to_data_files(table.metadata, rows, table.io))
    assert len(files) == len(wanted)
    assert as_written(table, files) == as_written(table, wanted)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(_TICKS, st.integers(0, 30))
def test_files_are_those_of_pyiceberg(catalog: Catalog, ticks: list[tuple[str | None, int | None]], cut: int) -> None:
    rows = [
        {"ticker": ticker, "trade_id": str(place), "ts": time_us, "price": 1.0}
        for place, (ticker, time_us) in enumerate(ticks)
    ]
    whole = pa.Table.from_pylist(rows, schema=TICKS.arrow_schema)
    assert_as_pyiceberg(load_table(catalog, TICKS), pa.concat_tables([whole.slice(0, cut), whole.slice(cut)]))


@pytest.mark.parametrize(
    ("definition", "rows"),
    [
        (OHLC, candles(range(100))),
        (GAPS, pa.Table.from_pylist([{"ticker": "A/B.C"}, {"ticker": None}], schema=GAPS.arrow_schema)),
    ],
)
def test_one_partition_is_one_file(catalog: Catalog, definition: TableDefinition, rows: pa.Table) -> None:
    assert_as_pyiceberg(load_table(catalog, definition), rows)
    assert len(write_data_files(load_table(catalog, definition), rows)) == 1


def test_many_rows_are_several_files(catalog: Catalog) -> None:
    table = load_table(catalog, OHLC)
    rows = candles(range(1_000))
    with table.transaction() as transaction:
        transaction.set_properties({"write.target-file-size-bytes": str(rows.nbytes // 3)})
    files = write_data_files(table, rows)
    assert [file.record_count for file in files] == [333, 333, 333, 1]
