"""Streams of a text over random trades, restarted repeatedly from their parts."""

import random
from collections.abc import Mapping

import pyarrow as pa

from candlewright_cep import ReleaseBuffer, StreamInput, TriggerStream, compile_stream

SECOND = 10**9
#: Rows of a step, and the most parts of the state.
_STEP, _MOST_PARTS = 10, 12


def ticks(chance: random.Random, rows: int, tickers: str = "ABC", *, nulls: float = 0.1) -> pa.Table:
    """`nulls`: the share of prices that are NULL."""
    times = sorted(chance.randrange(rows) * SECOND for _ in range(rows))
    return pa.table(
        {
            "ticker": [chance.choice(tickers) for _ in times],
            "ts": pa.array(times).cast(pa.timestamp("ns", "UTC")),
            "p": pa.array(
                [None if chance.random() < nulls else chance.randrange(900) / 7 for _ in times], pa.float64()
            ),
            "n": [chance.randrange(5) for _ in times],
        }
    )


class Running:
    def __init__(self, sql: str, table: pa.Table, *, is_in_order: bool = True) -> None:
        self.query = compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",))}, is_in_order=is_in_order)
        self.stream = TriggerStream(query=self.query)
        self.buffer = ReleaseBuffer("ts", "ticker")
        self.buffer.advance(dict.fromkeys("ABC", -1))
        self.rows: list[dict[str, object]] = []

    def push(self, rows: pa.Table) -> None:
        self.feed(self.buffer.push(rows).rows)

    def feed(self, released: pa.Table) -> None:
        self.rows += self.stream.feed(released, self.buffer.clock).table.to_pylist()

    def restart(self) -> None:
        parts = self.stream.parts()
        self.restore(parts)
        assert self.stream.parts() == parts

    def restore(self, parts: Mapping[str, bytes]) -> None:
        self.stream = TriggerStream(query=self.query)
        self.stream.restore_parts(parts)

    def close(self, tickers: str = "ABC") -> None:
        self.feed(self.buffer.close(set(tickers)))

    @property
    def found(self) -> list[dict[str, object]]:
        return sorted(self.rows, key=repr)

    def bytes_written(self, table: pa.Table, first: int) -> list[int]:
        """The bytes of the changed parts after each step, for small steps from row `first` of `table` on. Fails if the
        state has many parts.
        """
        known = self.stream.parts()
        written: list[int] = []
        for at in range(first, table.num_rows, _STEP):
            self.push(table.slice(at, _STEP))
            parts = self.stream.parts()
            written.append(sum(len(part) for name, part in parts.items() if known.get(name) is not part))
            known = parts
            assert len(parts) < _MOST_PARTS
        return written
