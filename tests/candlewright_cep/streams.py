"""Runs a text as a trigger: cut anywhere, restarted after every batch, and with rows in another order of arrival."""

import random
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from candlewright_cep import Clock, JoinedStream, ReleaseBuffer, StreamInput, TriggerStream, compile_stream, evaluate
from candlewright_cep.streaming.query import StreamQuery
from tests.rounds import rounds


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in a comparable form, without order and the last digits of sums."""
    return sorted(
        [{key: round(value, 9) if isinstance(value, float) else value for key, value in row.items()} for row in rows],
        key=repr,
    )


class _Running:
    """A text as a trigger, restarted after every batch. A join reads the one input on each of its sides."""

    def __init__(self, query: StreamQuery) -> None:
        self._query = query
        self._stream = self._new()
        leaves = [] if query.joined is None else query.joined.leaves()
        self._sides = sorted({(leaf.name, leaf.period) for leaf in leaves})

    def _new(self) -> TriggerStream:
        return TriggerStream(query=self._query) if self._query.joined is None else JoinedStream(query=self._query)

    def feed(self, rows: pa.Table, clock: Clock) -> list[dict[str, Any]]:
        stream = self._stream
        if isinstance(stream, JoinedStream):
            fed = [stream.feed_input(name, period, rows, clock=clock) for name, period in self._sides]
        else:
            fed = [stream.feed(rows, clock)]
        state = stream.parts()
        self._stream = self._new()
        self._stream.restore_parts(state)
        return [row for events in fed for row in events.table.to_pylist()]


def streamed(
    sql: str, table: pa.Table, cuts: list[int], *, order: list[int] | None = None, name: str = "ticks", time: str = "ts"
) -> list[dict[str, Any]]:
    """The rows of a text over the table `name`. With an order of arrival, rows are held until none can be late."""
    query = compile_stream(sql, {name: StreamInput(table.schema, (time,))}, default_table=name)
    running = _Running(query)
    delay = 0
    if order is not None:
        times = table.column(time).cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy()[order]
        delay = int((np.maximum.accumulate(times) - times).max(initial=0)) + 1
    buffer = ReleaseBuffer(time, "ticker", delay)
    tickers = {name for name in table.column("ticker").to_pylist() if name is not None}
    buffer.advance(dict.fromkeys(tickers, -1))
    arriving = table if order is None else table.take(pa.array(order))
    found: list[dict[str, Any]] = []
    for start, end in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
        found += running.feed(buffer.push(arriving.slice(start, end - start)).rows, buffer.clock)
    assert buffer.late_rows == 0
    return found + running.feed(buffer.close(tickers), buffer.clock)


def assert_streams(sql: str, table: pa.Table, seed: int) -> list[dict[str, Any]]:
    """A stream gives the rows of the finished table, which are returned."""
    rows: list[dict[str, Any]] = evaluate(sql, table).to_pylist()
    expected = ordered(rows)
    chance = random.Random(seed)
    cuts = sorted(chance.sample(range(table.num_rows), min(table.num_rows, chance.choice([2, rounds(120)]))))
    assert ordered(streamed(sql, table, cuts)) == expected
    # Rows of equal time keep their order, which decides between them.
    times = table.column("ts").to_pylist()
    turn = {time: place + chance.uniform(0, 5) for place, time in enumerate(dict.fromkeys(times))}
    order = sorted(range(table.num_rows), key=lambda row: turn[times[row]])
    assert ordered(streamed(sql, table, cuts, order=order)) == expected
    return rows


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all calls, because an instance starts in ten times the time of a query."""
    return duckdb.connect(config={"threads": 1})


def duckdb_rows(sql: str, table: pa.Table) -> list[dict[str, Any]]:
    """DuckDB's rows of `ticks`; times without a zone, which it reads as UTC, get the zone back."""
    place = table.schema.get_field_index("ts")
    naive = table.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    with _database().cursor() as connection:
        connection.register("ticks", table.set_column(place, "ts", naive))
        found = connection.execute(sql).to_arrow_table()
    for place, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type):
            wide = found.column(place).cast(pa.timestamp("ns")).cast(pa.timestamp("ns", "UTC"))
            found = found.set_column(place, field.name, wide)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows
