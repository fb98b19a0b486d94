"""The benchmark of a row pattern finds what the library finds in the same ticks, and reports a match that differs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.triggers import match

pytestmark = pytest.mark.timeout(1_200)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_all_matches_are_those_of_the_library(input_file: Path, tmp_path: Path) -> None:
    result = match.run(input_file, tmp_path / "rows.parquet")
    assert result["rows"] == 30_000
    assert result["wrong_rows"] == 0
    assert result["result_rows"] == match.expected_rows(input_file).num_rows > 50
    assert {"seconds", "rows_per_second", "seconds_to_topic", "floor_rows_per_second", "ratio"} <= result.keys()
    assert 0 < result["seconds_to_topic"] <= result["seconds"]
    assert pq.read_table(tmp_path / "rows.parquet").column_names == list(match.COLUMNS)


@pytest.mark.parametrize("column", ["t1", "first_price", "bottom", "top"])
def test_a_wrong_match_is_counted(input_file: Path, column: str) -> None:
    found = match.expected_rows(input_file)
    values = found[column].to_pylist()
    values[7] += 1
    place = found.column_names.index(column)
    assert match.wrong_rows(input_file, found.set_column(place, column, pa.array(values))) == 1
    assert match.wrong_rows(input_file, found.slice(1)) == 1
    assert match.wrong_rows(input_file, found) == 0
