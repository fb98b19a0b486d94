"""Examples with answers from reference engines, on a stream: the same rows, however the input is split."""

import random
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import ReleaseBuffer, SkipFailed, StreamInput, TriggerStream, compile_stream, evaluate
from tests.candlewright_cep.test_examples import _examples, _table
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)

_KEY = "market"


def _input(example: dict[str, Any]) -> pa.Table:
    """The rows in time order, with a ticker: the partition if there is one, otherwise the same for all."""
    table = _table(example)
    names = example["partition_by"]
    key = table.column(names[0]).cast(pa.string()).to_pylist() if names else ["all"] * table.num_rows
    filled = pa.array([str(name) for name in key], pa.string())
    return table.append_column(_KEY, filled).sort_by([(example["order_by"][0], "ascending")])


def _as_time(table: pa.Table, column: str) -> pa.Table:
    """Event times are timestamps; an example ordered by a number gets the number as a timestamp in a further column."""
    if pa.types.is_timestamp(table.schema.field(column).type):
        return table
    return table.append_column("event_time", table.column(column).cast(pa.int64()).cast(pa.timestamp("ns")))


def _streamed(example: dict[str, Any], table: pa.Table, seed: int) -> list[dict[str, Any]]:
    order = example["order_by"][0]
    is_time = pa.types.is_timestamp(table.schema.field(order).type)
    times = (order,) if is_time else ("event_time", order)
    query = compile_stream(example["query"], {"ticks": StreamInput(table.schema, times, _KEY)}, partitions_close=True)
    running = TriggerStream(query=query)
    buffer = ReleaseBuffer(times[0], _KEY)
    chance = random.Random(seed)
    found: list[dict[str, Any]] = []
    place = 0
    while place < table.num_rows:
        size = chance.randint(1, 4)
        found += running.feed(buffer.push(table.slice(place, size)).rows, buffer.clock).table.to_pylist()
        place += size
        state = running.snapshot()
        running = TriggerStream(query=query)
        running.restore(state)
    found += running.feed(buffer.close(set(table.column(_KEY).to_pylist())), buffer.clock).table.to_pylist()
    return found


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("example", _examples(), ids=lambda example: str(example["name"]))
def test_an_example_gives_its_rows_on_a_stream(example: dict[str, Any], seed: int) -> None:
    table = _as_time(_input(example), example["order_by"][0])
    found = _streamed(example, table, seed)
    if example["expected"] is None:
        # What ends a batch only ends a match here: the search continues after it.
        with pytest.raises(SkipFailed):
            evaluate(example["query"], table)
        return
    assert sorted(found, key=repr) == sorted(evaluate(example["query"], table).to_pylist(), key=repr)
    assert len(found) == len(example["expected"])
