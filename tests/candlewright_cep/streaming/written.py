"""What the steps of a stream write of its state."""

from typing import Protocol

import pyarrow as pa

from candlewright_cep import TriggerStream

#: Rows of a step, and the most parts of the state.
_STEP, _MOST_PARTS = 10, 10


class Fed(Protocol):
    @property
    def stream(self) -> TriggerStream: ...

    def feed(self, rows: pa.Table) -> object: ...


def bytes_written(fed: Fed, table: pa.Table, first: int) -> list[int]:
    """The bytes of the changed parts after each step, for small steps from row `first` of `table` on. Fails if the
    state has many parts.
    """
    known = fed.stream.parts()
    written: list[int] = []
    for at in range(first, table.num_rows, _STEP):
        fed.feed(table.slice(at, _STEP))
        parts = fed.stream.parts()
        written.append(sum(len(part) for name, part in parts.items() if known.get(name) is not part))
        known = parts
        assert len(parts) < _MOST_PARTS
    return written
