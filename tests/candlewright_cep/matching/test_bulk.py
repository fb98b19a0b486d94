"""Large inputs, whose matches are found in blocks of rows, compared with the row-by-row search."""

from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from candlewright_cep import ReleaseBuffer, StreamInput, TriggerRejected, TriggerStream, compile_stream, evaluate
from candlewright_cep.binding.evaluation import Bounds
from candlewright_cep.limits import Limits
from candlewright_cep.matching import bulk
from candlewright_cep.matching.bulk import BulkSearch, Together
from candlewright_cep.vector import Array

pytestmark = pytest.mark.timeout(120)

_ROWS = 30_000


def _table() -> pa.Table:
    random = np.random.default_rng(3)
    symbols = np.array(["A", "B", "C", "D"])[np.searchsorted([0.6, 0.9, 0.9999], random.random(_ROWS))]
    price = np.round(100 + np.cumsum(random.integers(-3, 4, _ROWS)) / 10, 1)
    ts = np.cumsum(random.integers(0, 3, _ROWS)).tolist()
    for row in random.integers(0, _ROWS, 9).tolist():
        ts[row] = None
    return pa.table({"symbol": symbols, "n": np.arange(_ROWS), "ts": pa.array(ts, pa.timestamp("s")), "price": price})


TABLE = _table()
PATTERNS = {
    "V": ("S D+ U+", "D AS price < PREV(price), U AS price > PREV(price)"),
    "longer V": ("S D{3,} U{3,} E", "D AS price < PREV(price), U AS price > PREV(price), E AS price <= PREV(price)"),
    "gives back": ("S A* D U{3,}", "D AS price < PREV(price), U AS price > PREV(price)"),
    "reluctant": ("(A | B)*? U{2}", "A AS n % 3 = 0, B AS n % 2 = 0, U AS price > PREV(price)"),
    "empty": ("A*", "A AS price > PREV(price)"),
    "nested": ("((A? B){2,} C | PERMUTE(A, C))", "A AS n % 2 = 0, B AS price > PREV(price), C AS price < PREV(price)"),
    "end": ("A B* $", "B AS price <> PREV(price)"),
    "many": (" ".join(f"V{i}?" for i in range(12)) + " Z", ", ".join(f"V{i} AS n % {i + 2} = 0" for i in range(12))),
}


@pytest.mark.parametrize("within", ["", "WITHIN INTERVAL '3' SECOND FROM PREVIOUS ROW"])
@pytest.mark.parametrize("name", PATTERNS)
def test_blocks_agree_with_the_row_by_row_search(name: str, within: str) -> None:
    pattern, define = PATTERNS[name]
    sql = (
        f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY {'ts' if within else 'n'} MEASURES "
        f"MATCH_NUMBER() AS m, CLASSIFIER() AS c, COUNT(*) AS k ALL ROWS PER MATCH PATTERN ({pattern}) {within} "
        f"DEFINE {define}) AS r"
    )
    taken = []

    class Spied(BulkSearch):
        def find(self, masks: Array, bounds: Bounds) -> Together | None:
            taken.append(super().find(masks, bounds))
            return taken[-1]

    with patch("candlewright_cep.matching.matching.BulkSearch", Spied):
        found = evaluate(sql, TABLE)
    # The row-by-row search has patterns with too many states, and those for which a pause is not an end.
    wanted = [] if within and name == "end" else [name != "many"]
    assert [one is not None for one in taken] == wanted
    with patch.object(bulk, "FEWEST_ROWS", _ROWS + 1):
        assert found.equals(evaluate(sql, TABLE))
    assert found.num_rows > 0


@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "end"])
def test_a_stream_in_blocks_agrees_with_one_evaluation(name: str) -> None:
    pattern, define = PATTERNS[name]
    sql = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY n MEASURES MATCH_NUMBER() AS m, "
        f"CLASSIFIER() AS c ALL ROWS PER MATCH PATTERN ({pattern}) DEFINE {define}) AS r"
    )
    query = compile_stream(sql, {"ticks": StreamInput(TABLE.schema, ("n",), "symbol")})
    running, buffer = TriggerStream(query=query), ReleaseBuffer("n", "symbol")
    found = []
    # Large batches use blocks, small ones the row-by-row search: attempts pass from one to the other and back.
    cuts = [0, 9_000, 9_007, 9_500, 17_000, 17_100, _ROWS]
    for start, end in pairwise(cuts):
        found.append(running.feed(buffer.push(TABLE.slice(start, end - start)).rows, buffer.clock).table)
        state = running.snapshot()
        running = TriggerStream(query=query)
        running.restore(state)
    found.append(running.feed(buffer.close({"A", "B", "C", "D"}), buffer.clock).table)
    order = [("symbol", "ascending"), ("n", "ascending")]
    assert pa.concat_tables(found).sort_by(order).equals(evaluate(sql, TABLE).sort_by(order))


def test_the_limit_of_mapped_rows_holds() -> None:
    sql = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY n PATTERN (A B) DEFINE A AS price > 0) AS r"
    )
    with pytest.raises(TriggerRejected, match="mapped rows"):
        evaluate(sql, TABLE, limits=Limits(mapped_rows=1_000))
