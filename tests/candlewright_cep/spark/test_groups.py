import math
import random
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import Limits, TriggerRejected, compile_query, evaluate
from candlewright_cep.spark.groups import Recognition, bunches, recognizer
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(30)

_TEXT = """SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY v MEASURES COUNT(*) AS n, LAST(v) AS last
           PATTERN (A B+) DEFINE B AS v > PREV(v)) AS m"""


def _rows(seed: int) -> pa.Table:
    chance = random.Random(seed)
    keys = sorted(chance.choices(range(8), k=200))
    return pa.table(
        {
            "k": pa.array([None if key == 0 else f"k{key}" for key in keys], pa.string()),
            "v": pa.array([chance.randrange(100) for _ in keys], pa.int64()),
        }
    )


def _cut(table: pa.Table, seed: int) -> list[pa.RecordBatch]:
    chance = random.Random(seed)
    found: list[pa.RecordBatch] = []
    place = 0
    while place < table.num_rows:
        size = chance.randint(0, 25)
        found += table.slice(place, size).combine_chunks().to_batches() or [table.to_batches()[0].slice(0, 0)]
        place += size
    return found


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("size", [1, 40, 10**6])
def test_bunches_hold_whole_groups_in_order(seed: int, size: int) -> None:
    table = _rows(seed)
    parts = list(bunches(_cut(table, seed), ["k"], size))
    assert pa.concat_tables(parts).combine_chunks().to_pydict() == table.to_pydict()
    keys = [[key for key, _ in groupby(part.column("k").to_pylist())] for part in parts]
    whole = [key for part in keys for key in part]
    assert len(set(whole)) == len(whole)
    assert (len(parts) > 1) is (size < 200)


def test_without_keys_all_rows_are_one_group() -> None:
    assert [part.num_rows for part in bunches(_cut(_rows(1), 1), [], 1)] == [200]
    assert list(bunches([], ["k"], 1)) == []


def test_nulls_and_nans_are_groups_and_several_keys_make_one() -> None:
    batch = pa.record_batch(
        {"a": pa.array([None, None, math.nan, math.nan, 1.0, 1.0]), "b": pa.array([1, 1, 1, 1, 1, 2])}
    )
    cut = [batch.slice(place, 1) for place in range(6)]
    assert [part.num_rows for part in bunches(cut, ["a", "b"], 1)] == [2, 2, 1, 1]


@pytest.mark.parametrize("size", [1, 10**6])
def test_groups_give_the_rows_of_one_evaluation(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("candlewright_cep.spark.groups.BUNCH_ROWS", size)
    table = _rows(3)
    run = recognizer(
        Recognition(text=_TEXT, name="t", schema=table.schema, keys=("k",), types=(pa.string(), pa.int64(), pa.int32()))
    )
    found = pa.Table.from_batches(list(run(_cut(table, 3))))
    assert found.schema.names == ["c0", "c1", "c2"]
    assert found.schema.field("c2").type == pa.int32()

    def shown(rows: pa.Table) -> list[Any]:
        return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True), key=repr)

    assert shown(found) == shown(evaluate(_TEXT, table))


def test_work_has_a_limit_on_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    # Smaller than usual, because this test would use up more than two seconds of a processor.
    limits = Limits(steps_per_batch=100_000, steps_per_row=1)
    monkeypatch.setattr("candlewright_cep.spark.groups.compile_query", partial(compile_query, limits=limits))
    text = """SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY v MEASURES C.v AS x
              PATTERN (A B* C) DEFINE C AS C.v > STDDEV(B.v) * 1e9 + 9000) AS m"""
    batch = pa.record_batch({"k": ["a"] * 3_000, "v": list(range(3_000))})
    run = recognizer(
        Recognition(text=text, name="t", schema=batch.schema, keys=("k",), types=(pa.string(), pa.int64()))
    )
    with pytest.raises(TriggerRejected, match=r"took more than 103000 steps over 3000 rows"):
        list(run([batch]))


def test_ties_have_one_order_however_rows_come() -> None:
    rows = pa.table({"t": [2, 1, 2, 1, 2], "id": ["10", "9", "9", "7", "100"], "x": [None, 1.5, 0.5, 2.5, 0.5]})
    plan = Recognition(
        text="", name="t", schema=rows.schema, keys=(), types=(), parameters={}, first="t", numbered="id"
    )
    wanted = {"t": [1, 1, 2, 2, 2], "id": ["7", "9", "9", "10", "100"], "x": [2.5, 1.5, 0.5, None, 0.5]}
    assert plan.in_order(rows).to_pydict() == wanted
    assert plan.in_order(rows.take([4, 2, 0, 3, 1])).to_pydict() == wanted
