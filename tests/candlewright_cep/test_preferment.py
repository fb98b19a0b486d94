"""Which of several possible mappings a match takes, over a finished table and on a stream."""

import pyarrow as pa
import pytest

from candlewright_cep import evaluate
from tests.candlewright_cep.test_stream_against_batch import streamed

# Row n may be: 1 an A, 2 an A or a B, 3 a C, 4 a B.
TABLE = pa.table(
    {
        "v": pa.array([1, 2, 3, 4], pa.int64()),
        "ts": pa.array([0, 1000, 2000, 3000], pa.int64()).cast(pa.timestamp("ms")),
        "ticker": pa.array(["T"] * 4, pa.string()),
    }
)
SQL = (
    "SELECT v, cl FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES CLASSIFIER() AS cl ALL ROWS PER MATCH "
    "PATTERN ({pattern}) DEFINE A AS v <= 2, B AS v IN (2, 4), C AS v = 3) AS m"
)


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        # The orders of PERMUTE come one after another, each with all its ways, even if two begin alike.
        ("PERMUTE(A{1,2}, B, C)", "ABC"),
        ("PERMUTE((A A | A), B, C)", "ABC"),
        ("PERMUTE(A+, B?, C) B", "AACB"),
        ("PERMUTE(A{2}, B, C)", "AACB"),
        ("PERMUTE(A, B, C)", "ABC"),
        ("(A{1,2} (B C | C B))", "AACB"),
        # A further iteration of a greedy loop takes a row, whatever its content prefers; the first may be empty.
        ("(A*?)+ B? C", "AAC"),
        ("(() | A)* B? C", "AAC"),
        ("((A??){2,})+ B? C", "AAC"),
        ("(A*?)+? B C", "ABC"),
        ("(() | A){2} B C", "ABC"),
    ],
)
def test_the_most_preferred_mapping_is_taken(pattern: str, labels: str) -> None:
    sql = SQL.format(pattern=pattern)
    wanted = list(enumerate(labels, 1))
    assert [tuple(row.values()) for row in evaluate(sql, TABLE).to_pylist()] == wanted
    assert streamed(sql, TABLE, [1, 2, 3], restart=True) == wanted
