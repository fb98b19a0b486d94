"""Rows that wait for a slow trigger, so that it does not delay the others in its partition.

A trigger that keeps exceeding its share of a step gets its rows after all others: when it has its turn, as many as
seem to fit the share, by the cost of its last turn. Much of that does not depend on the rows, so their number grows
from turn to turn, at most to twice as many. It is part of the state, so a repeated step takes the same rows.
"""

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from candlewright_cep import Clock
from candlewright_cep.streaming.rows.release import SEQUENCE
from candlewright_cep.table_bytes import bytes_of, table_of
from triggers.packing import squeezed, unsqueezed
from triggers.records.asked_for import Ages
from triggers.records.moved import Moved

__all__ = ["Backlog"]

#: Name of the part of a state that lists the other parts, and the prefix of their names.
_PARTS = "backlog"
_HEADER = b"candlewright"
#: Batches smaller than this are merged.
_SMALL_ROWS = 512
#: In one turn.
_MOST_ROWS = 1 << 16


@dataclass(kw_only=True, frozen=True, slots=True)
class _Batch:
    """A batch of one input, as `Moved` describes it. `rows`: ticker by ticker. `ages`: by row number, see `Ages`.
    `is_whole`: the rows must be taken together.
    """

    label: int
    rows: pa.Table
    tickers: frozenset[str]
    watermarks: Mapping[str, int]
    closed: frozenset[str]
    ages: Mapping[int, int]
    is_whole: bool

    def joined(self, other: "_Batch") -> "_Batch | None":
        """This batch and the next one, unless something has to happen between the two."""
        if self.label != other.label or self.is_whole or other.is_whole:
            return None
        if self.closed & other.tickers or self.rows.num_rows + other.rows.num_rows > _SMALL_ROWS:
            return None
        rows = Moved.of(pa.concat_tables([self.rows, other.rows]), set(), Clock()).rows
        return _Batch(
            label=self.label,
            rows=rows,
            tickers=self.tickers | other.tickers,
            watermarks={**self.watermarks, **other.watermarks},
            closed=self.closed | other.closed,
            ages={**self.ages, **other.ages},
            is_whole=False,
        )

    def packed(self) -> bytes:
        told = {
            "label": self.label,
            "tickers": sorted(self.tickers),
            "watermarks": self.watermarks,
            "closed": sorted(self.closed),
            "ages": list(self.ages.items()),
            "whole": self.is_whole,
        }
        return squeezed(bytes_of(self.rows.replace_schema_metadata({_HEADER: json.dumps(told).encode()})))

    @classmethod
    def unpacked(cls, written: bytes) -> "_Batch":
        rows = table_of(unsqueezed(written))
        told = json.loads(rows.schema.metadata[_HEADER])
        return cls(
            label=told["label"],
            rows=rows.replace_schema_metadata(None),
            tickers=frozenset(told["tickers"]),
            watermarks=told["watermarks"],
            closed=frozenset(told["closed"]),
            ages=dict(told["ages"]),
            is_whole=told["whole"],
        )


@dataclass(kw_only=True)
class Backlog:
    """`cost_ns`, `turn_ns`: processor time of a row and of all rows, in the last turn. `most`: rows to take in the next
    one. `clocks`: for each input, how far its rows have been taken. `taken`: how many rows of the oldest batch have
    been taken; batches are numbered, and those before `first` are done.
    """

    cost_ns: float
    turn_ns: float
    clocks: dict[int, Clock]
    most: int = 1
    first: int = 0
    taken: int = 0
    rows: int = 0
    _batches: deque[_Batch] = field(default_factory=deque)
    _packed: dict[int, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of batches; a batch may have a clock but no rows."""
        return len(self._batches)

    @property
    def behind_ns(self) -> int:
        """From the event time of the next row to the newest known time."""
        for batch in self._batches:
            if batch.rows.num_rows:
                known = [time for each in self._batches for time in each.watermarks.values()]
                skipped = self.taken if batch is self._batches[0] else 0
                return max(0, max(known, default=0) - _time(batch, skipped))
        return 0

    def put(self, label: int, moved: Moved, rows: pa.Table, *, ages: Ages | None, is_whole: bool) -> None:
        """Append a batch. `rows`: those of `moved` that belong to the trigger."""
        old = ages(rows) if ages is not None else None
        past = {} if old is None else dict(zip(rows[SEQUENCE].to_pylist(), old.tolist(), strict=True))
        watermarks = moved.clock.watermarks
        batch = _Batch(
            label=label,
            rows=rows,
            tickers=moved.tickers,
            watermarks={ticker: watermarks[ticker] for ticker in moved.tickers if ticker in watermarks},
            closed=moved.tickers & moved.clock.closed,
            ages={number: age for number, age in past.items() if age},
            is_whole=is_whole,
        )
        self.rows += rows.num_rows
        last = len(self._batches) - 1
        joined = self._batches[-1].joined(batch) if last > 0 or (last == 0 and not self.taken) else None
        if joined is None:
            self._batches.append(batch)
        else:
            self._batches[-1] = joined
            self._packed.pop(self.first + last, None)

    def measure(self, nanoseconds: int, rows: int, *, share_ns: int) -> None:
        """After a turn: decide how many rows the next one takes."""
        self.cost_ns, self.turn_ns = nanoseconds / rows, nanoseconds
        if rows >= self.most or nanoseconds > share_ns:
            fitting = rows * share_ns / max(1, nanoseconds)
            # Rounded up within the share, so that even one row a turn grows to more.
            fitting = math.ceil(fitting) if nanoseconds <= share_ns else math.floor(fitting)
            self.most = max(1, min(fitting, 2 * rows, _MOST_ROWS))

    def take(self, most: int) -> Iterator[tuple[int, Moved, Ages | None]]:
        """Take at least one row, if there is one, and at most `most`, unless rows must be taken together."""
        while self._batches and most > 0:
            batch = self._batches[0]
            left = batch.rows.slice(self.taken)
            count = left.num_rows if batch.is_whole else min(most, left.num_rows)
            part, rest = left.slice(0, count), left.slice(count)
            moved = self._moved(batch, part, rest)
            most -= max(1, count)
            self.rows -= count
            self.taken += count
            if not rest.num_rows:
                self._batches.popleft()
                self._packed.pop(self.first, None)
                self.first, self.taken = self.first + 1, 0
            yield batch.label, moved, _ages_of(batch.ages)

    def _moved(self, batch: _Batch, part: pa.Table, rest: pa.Table) -> Moved:
        """While a row of a ticker waits, the ticker's watermark is that row's time."""
        clock = self.clocks.setdefault(batch.label, Clock())
        waiting = _firsts(rest, _time_column(batch.label))
        done = batch.tickers - waiting.keys()
        for ticker in done:
            if ticker in batch.watermarks:
                clock.watermarks[ticker] = batch.watermarks[ticker]
        clock.closed = (clock.closed - batch.tickers) | (batch.closed & done)
        # A ticker that first appears in these rows is waited for as well.
        unknown = waiting.keys() - clock.watermarks.keys()
        for ticker in (_firsts(part, SEQUENCE).keys() & waiting.keys()) | unknown:
            known = batch.watermarks.get(ticker, waiting[ticker])
            clock.watermarks[ticker] = min(known, waiting[ticker])
        return Moved.of(part, set(done), clock)

    # ---- state
    def save(self) -> dict[str, bytes]:
        told = {
            "cost_ns": self.cost_ns,
            "turn_ns": self.turn_ns,
            "most": self.most,
            "first": self.first,
            "taken": self.taken,
            "clocks": {label: [own.watermarks, sorted(own.closed)] for label, own in self.clocks.items()},
        }
        found = {_PARTS: squeezed(json.dumps(told).encode())}
        for number, batch in enumerate(self._batches, self.first):
            if number not in self._packed:
                self._packed[number] = batch.packed()
            found[f"{_PARTS}-{number}"] = self._packed[number]
        return found

    @classmethod
    def load(cls, parts: Mapping[str, bytes]) -> "Backlog | None":
        """Restore from the parts that `save` made; None if there are none. Raises ValueError for invalid bytes."""
        if _PARTS not in parts:
            return None
        told: dict[str, Any] = json.loads(unsqueezed(parts[_PARTS]))
        clocks = {int(label): Clock(known, set(closed)) for label, (known, closed) in told["clocks"].items()}
        # States of older versions have neither.
        turn_ns, most = told.get("turn_ns", told["cost_ns"]), told.get("most", 1)
        found = cls(
            cost_ns=told["cost_ns"],
            turn_ns=turn_ns,
            clocks=clocks,
            most=most,
            first=told["first"],
            taken=told["taken"],
        )
        count = sum(name.startswith(f"{_PARTS}-") for name in parts)
        for number in range(found.first, found.first + count):
            written = parts[f"{_PARTS}-{number}"]
            found._batches.append(_Batch.unpacked(written))
            found._packed[number] = written
        found.rows = sum(batch.rows.num_rows for batch in found._batches) - found.taken
        return found


def _time_column(label: int) -> str:
    return "open_time" if label else "ts_ns"


def _time(batch: _Batch, row: int) -> int:
    return int(batch.rows.column(_time_column(batch.label)).slice(row, 1).cast(pa.int64())[0].as_py())


def _firsts(rows: pa.Table, column: str) -> dict[str, int]:
    """For each ticker, the value of `column` in its first row."""
    if not rows.num_rows:
        return {}
    encoded = rows.column("ticker").combine_chunks().dictionary_encode()
    _, places = np.unique(encoded.indices.to_numpy(zero_copy_only=False), return_index=True)
    values = rows.column(column).cast(pa.int64()).take(pa.array(places)).to_pylist()
    return dict(zip(encoded.dictionary.to_pylist(), values, strict=True))


def _ages_of(known: Mapping[int, int]) -> Ages | None:
    if not known:
        return None
    return lambda rows: np.array([known.get(number, 0) for number in rows[SEQUENCE].to_pylist()], np.int64)
