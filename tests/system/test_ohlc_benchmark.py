"""The benchmark of live bars makes the same bars as a direct computation, and reports one that differs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.live import ohlc
from benchmarks.live.ohlc_check import expected_bars, wrong_rows

pytestmark = pytest.mark.timeout(1_200)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_all_bars_are_those_of_the_input(input_file: Path, tmp_path: Path) -> None:
    result = ohlc.run(input_file, tmp_path / "rows.parquet")
    assert result["rows"] == 30_000
    assert result["ratio"] > 0 and result["cpu_ratio"] > 0
    assert result["wrong_rows"] == 0
    assert result["result_rows"] == expected_bars(input_file).num_rows > 50
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == result["result_rows"]


def test_bars_of_the_first_rows_alone_are_expected_where_only_they_run(input_file: Path) -> None:
    assert expected_bars(input_file, 10_000).num_rows < expected_bars(input_file).num_rows
    assert wrong_rows(input_file, expected_bars(input_file, 10_000), 10_000) == 0
    assert wrong_rows(input_file, expected_bars(input_file, 10_000)) > 0


@pytest.mark.parametrize("column", ["open", "close", "volume", "trade_count"])
def test_a_wrong_bar_is_counted(input_file: Path, column: str) -> None:
    bars = expected_bars(input_file)
    values = bars[column].to_pylist()
    values[7] += 1
    place = bars.column_names.index(column)
    assert wrong_rows(input_file, bars.set_column(place, column, pa.array(values))) == 1
    assert wrong_rows(input_file, bars.slice(1)) == 1
    assert wrong_rows(input_file, bars) == 0
