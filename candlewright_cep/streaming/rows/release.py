"""Puts rows from the order of their arrival into event order."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from candlewright_cep.functions.aggregates.kernels import accumulate
from candlewright_cep.planning.relation import Relation, concatenated, from_table
from candlewright_cep.types import NULL
from candlewright_cep.vector import Bools, Index, constant, distinct, from_column, is_ascending, is_every

FOREVER = 2**63 - 1
#: An optional column of released rows: the event time at which a late row is taken.
TAKEN_AT = "candlewright_taken_at"
_NOTHING = (-(2**63), -1)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in event order, with the attributes that a stream needs for each: event time (ns), arrival sequence,
    ticker.
    """

    relation: Relation
    time: Index
    sequence: Index
    ticker: pa.Array

    @property
    def length(self) -> int:
        return self.relation.length

    def take(self, rows: Index) -> "Rows":
        if len(rows) > 0:
            first = int(rows[0])
            if first >= 0 and int(rows[-1]) - first == len(rows) - 1 and is_every(rows - first, len(rows)):
                return self.part(first, len(rows))
        return Rows(
            self.relation.take(rows), self.time[rows], self.sequence[rows], self.ticker.take(pa.array(rows, pa.int64()))
        )

    def slice(self, start: int, length: int) -> "Rows":
        end = start + length
        return Rows(
            self.relation.slice(start, length), self.time[start:end], self.sequence[start:end],
            self.ticker.slice(start, length),
        )  # fmt: skip

    def part(self, start: int, length: int) -> "Rows":
        """`slice` with a copy of the tickers, so that their bytes do not depend on the table they came from."""
        if length == self.length:
            return self
        found = self.slice(start, length)
        return Rows(found.relation, found.time, found.sequence, pa.concat_arrays([found.ticker]))

    def replaced(self, relation: Relation) -> "Rows":
        return Rows(relation, self.time, self.sequence, self.ticker)


@dataclass(slots=True)
class Clock:
    """The watermark of each ticker: no row with an earlier time will follow. `closed` tickers have ended."""

    watermarks: dict[str, int] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)

    def of(self, ticker: str) -> int | None:
        return FOREVER if ticker in self.closed else self.watermarks.get(ticker)

    def of_tickers(self, tickers: Collection[str] | None) -> "Clock":
        """A copy for these tickers only; for all if None."""
        if tickers is None:
            return Clock(dict(self.watermarks), set(self.closed))
        known = {ticker: self.watermarks[ticker] for ticker in tickers if ticker in self.watermarks}
        return Clock(known, {ticker for ticker in tickers if ticker in self.closed})

    @property
    def least(self) -> int | None:
        """The watermark of all tickers together."""
        found = [self.of(ticker) for ticker in {*self.watermarks, *self.closed}]
        known = [value for value in found if value is not None]
        return min(known) if known else None


@dataclass(frozen=True, slots=True)
class Released:
    """`rows`: the released rows, ordered by (ticker, time, sequence). Of the pushed rows, `late` arrived after their
    watermark and `fresh` did not.
    """

    rows: pa.Table
    late: pa.Table
    fresh: pa.Table


SEQUENCE = "_sequence"
#: The number that orders rows of equal time, if rows have one; negative for rows that are ordered by arrival.
NUMBER = "_number"


class ReleaseBuffer:
    """Puts rows in order. Held rows are given the columns of later rows.

    The watermark of a ticker is its latest event time less `delay_ns`, or set by `advance`. A row that is older is
    late. Without a delay every other row is released on arrival, and a tie is late if its number (column `_number`) is
    below that of a released row. With a delay, rows at the watermark itself are held, so that all ties are released
    together and none is late. Lateness is decided row by row, however rows are cut into pushes.

    The buffer numbers rows in order of arrival (column `_sequence`) unless they already have that column.
    """

    def __init__(self, time_column: str, ticker_column: str, delay_ns: int = 0) -> None:
        self.time_column = time_column
        self.ticker_column = ticker_column
        self.delay_ns = delay_ns
        self.clock = Clock()
        self.late_rows = 0
        self._held: pa.Table | None = None
        self._keys: _Keys | None = None
        self._next_sequence = 0
        # For numbered rows, per ticker the time and number of the last row that was released without delay.
        self._reached: dict[str, tuple[int, int]] = {}

    @property
    def first_held(self) -> int | None:
        """The lowest arrival number of the held rows; None if there are none."""
        held = self._held
        return None if held is None or not held.num_rows else int(held.column(SEQUENCE).to_numpy().min())

    def push(self, table: pa.Table) -> Released:
        """Take rows in order of arrival; returns the rows that they release."""
        if not _has(table, SEQUENCE):
            numbers = np.arange(self._next_sequence, self._next_sequence + table.num_rows, dtype=np.int64)
            table = table.append_column(SEQUENCE, pa.array(numbers))
            self._next_sequence += table.num_rows
        keys = _Keys.of(table, self.time_column, self.ticker_column)
        if self._passes_on(table, keys):
            return Released(table, table.slice(0, 0), table)
        late = self._late(keys)
        fresh, behind = table, table.slice(0, 0)
        if late.any():
            self.late_rows += int(late.sum())
            fresh, behind = table.filter(pa.array(~late)), table.filter(pa.array(late))
            keys = keys.where(~late)
        self._observe(keys)
        self._reach(keys)
        held = fresh
        if self._held is not None and self._held.num_rows:
            held = pa.concat_tables([_fitted(self._held, fresh.schema), fresh])
            keys = self._keys_of_held().joined(keys)
        return Released(self._release(held, keys), behind, fresh)

    def advance(self, watermarks: Mapping[str, int]) -> pa.Table:
        """Set watermarks from another source (a clock, the venue); returns the rows that they release."""
        for ticker, value in watermarks.items():
            self.clock.watermarks[ticker] = max(value, self.clock.watermarks.get(ticker, value))
        return self._release_held()

    def close(self, tickers: set[str]) -> pa.Table:
        """End these tickers; returns all their held rows."""
        self.clock.closed |= tickers
        return self._release_held()

    def _passes_on(self, table: pa.Table, keys: "_Keys") -> bool:
        """Whether rows are released just as they came, which is usual for few rows: they are of one ticker, in order,
        and none is held. They are then recorded.
        """
        name, times, numbers = keys.names[0] if keys.names else "", keys.times, keys.numbers
        has_held = self._held is not None and self._held.num_rows > 0
        if self.delay_ns or has_held or len(keys.names) != 1 or not len(times):
            return False
        first, last = int(times[0]), int(times[-1])
        if first < self.clock.watermarks.get(name, first) or not is_ascending(times):
            return False
        if len(times) > 1 and not is_ascending(table.column(SEQUENCE).to_numpy()):
            return False
        if numbers is not None:
            if (first, int(numbers[0])) < self._reached.get(name, _NOTHING) or int(numbers.min()) < 0:
                return False
            if len(times) > 1 and not ((times[1:] > times[:-1]) | (numbers[1:] >= numbers[:-1])).all():
                return False
            self._reached[name] = last, int(numbers[-1])
        self.clock.watermarks[name] = last
        self.clock.closed.discard(name)
        return True

    def _keys_of_held(self) -> "_Keys":
        assert self._held is not None
        if self._keys is None:
            self._keys = _Keys.of(self._held, self.time_column, self.ticker_column)
        return self._keys

    def _release_held(self) -> pa.Table:
        return pa.table({}) if self._held is None else self._release(self._held, self._keys_of_held())

    def _known(self, names: list[str]) -> Index:
        """The watermarks of tickers; a closed ticker that sends rows again continues where it was."""
        unknown = int(np.iinfo(np.int64).min)
        return np.array([self.clock.watermarks.get(name, unknown) for name in names], dtype=np.int64)

    def _late(self, keys: "_Keys") -> Bools:
        """Whether each row was late, given what was known when it arrived."""
        late = self._older(keys)
        return late if self.delay_ns or keys.numbers is None else self._before_ties(keys, keys.numbers, late)

    def _before_ties(self, keys: "_Keys", numbers: Index, late: Bools) -> Bools:
        """`late`, plus the ties that sort before a released row."""
        places = np.flatnonzero(~late)
        if not len(places):
            return late
        order = _in_groups(keys.codes[places])
        places = places if order is None else places[order]
        codes, times, own = keys.codes[places], keys.times[places], numbers[places]
        goes_back = (codes[1:] == codes[:-1]) & (times[1:] == times[:-1]) & (own[1:] < own[:-1])
        reached = [self._reached.get(name, _NOTHING) for name in keys.names]
        firsts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(codes[1:] != codes[:-1]) + 1])
        begins = zip(codes[firsts].tolist(), times[firsts].tolist(), own[firsts].tolist(), strict=True)
        if not goes_back.any() and all((time, number) >= reached[code] for code, time, number in begins):
            return late
        rows = zip(places.tolist(), codes.tolist(), times.tolist(), own.tolist(), strict=True)
        for place, code, time, number in rows:
            if (time, number) >= reached[code]:
                reached[code] = time, number
            elif number >= 0:
                late[place] = True
        return late

    def _reach(self, keys: "_Keys") -> None:
        """Note the last row of each ticker, among those that are not late."""
        if self.delay_ns or keys.numbers is None:
            return
        latest = self._known(keys.names)
        newest = np.full(len(keys.names), -1, np.int64)
        is_last = keys.times == latest.take(keys.codes)
        np.maximum.at(newest, keys.codes[is_last], keys.numbers[is_last])
        for name, time, number in zip(keys.names, latest.tolist(), newest.tolist(), strict=True):
            known = self._reached.get(name, _NOTHING)
            self._reached[name] = max((time, number), known)

    def _older(self, keys: "_Keys") -> Bools:
        """Rows older than the watermark was when they arrived."""
        times = keys.times
        late = np.zeros(len(times), dtype=np.bool_)
        if not len(times):
            return late
        known = self._known(keys.names)
        if is_ascending(times) and bool((times >= known.take(keys.codes)).all()):
            return late
        order = _in_groups(keys.codes)
        ranked, ordered = (keys.codes, times) if order is None else (keys.codes[order], times[order])
        firsts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(ranked[1:] != ranked[:-1]) + 1])
        goes_back = ordered[1:] < ordered[:-1]
        goes_back[firsts[1:] - 1] = False
        if not goes_back.any() and bool((ordered[firsts] >= known[ranked[firsts]]).all()):
            return late
        reached = np.maximum(accumulate(np.maximum, ordered, firsts) - self.delay_ns, known[ranked])
        before = np.empty_like(reached)
        before[1:] = reached[:-1]
        before[firsts] = known[ranked[firsts]]
        late[slice(None) if order is None else order] = ordered < before
        return late

    def _observe(self, keys: "_Keys") -> None:
        latest = self._known(keys.names)
        np.maximum.at(latest, keys.codes, keys.times - self.delay_ns)
        self.clock.watermarks.update(zip(keys.names, latest.tolist(), strict=True))
        self.clock.closed.difference_update(keys.names)

    def _release(self, held: pa.Table, keys: "_Keys") -> pa.Table:
        self._held, self._keys = held, keys
        if held.num_rows == 0:
            return held
        limits = np.array([-(2**63) if (w := self.clock.of(name)) is None else w for name in keys.names], np.int64)
        if not self.delay_ns or (limits == FOREVER).all():
            due = np.ones(held.num_rows, np.bool_)
        else:
            due = (keys.times < limits.take(keys.codes)) | (limits == FOREVER).take(keys.codes)
        picked = np.flatnonzero(due)
        if not len(picked):
            return held.slice(0, 0)
        if any(column.num_chunks > 1 for column in held.columns):
            # One copy of the columns, because taking rows from several chunks is slow.
            held = held.combine_chunks()
        is_all = len(picked) == held.num_rows
        left = held.slice(0, 0) if is_all else held.take(pa.array(np.flatnonzero(~due)))
        self._held, self._keys = left, keys.where(~due)
        keys = keys.where(due)
        if not self.delay_ns:
            # Rows of equal time arrived in order, or are ordered by arrival.
            keys = replace(keys, numbers=None)
        order = _grouped_order(keys, held.column(SEQUENCE).to_numpy()[picked])
        return held if is_all and is_every(order, len(order)) else held.take(pa.array(picked[order]))

    # -- state ----------------------------------------------------------------------------------------------------

    @property
    def held(self) -> pa.Table | None:
        return self._held

    def snapshot(self) -> tuple[dict[str, object], pa.Table | None]:
        return (
            {
                "watermarks": dict(self.clock.watermarks),
                "closed": sorted(self.clock.closed),
                "late_rows": self.late_rows,
                "next_sequence": self._next_sequence,
                "reached": self._reached,
            },
            self._held,
        )

    def restore(self, state: Mapping[str, object], held: pa.Table | None) -> None:
        watermarks, closed = state["watermarks"], state["closed"]
        assert isinstance(watermarks, dict)
        assert isinstance(closed, list)
        self.clock = Clock({str(key): int(value) for key, value in watermarks.items()}, set(closed))
        self.late_rows = int(str(state["late_rows"]))
        self._next_sequence = int(str(state["next_sequence"]))
        # Missing in states of older versions.
        reached = state.get("reached", {})
        assert isinstance(reached, dict)
        self._reached = {str(ticker): (int(time), int(number)) for ticker, (time, number) in reached.items()}
        self._held, self._keys = held, None


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys by which rows are ordered: the ticker of each, as an index into `names`; its event time; and its number
    among rows of that time, if rows have numbers.
    """

    names: list[str]
    codes: Index
    times: Index
    numbers: Index | None = None

    @staticmethod
    def of(table: pa.Table, time_column: str, ticker_column: str) -> "_Keys":
        names, codes = distinct(table.column(ticker_column))
        # Sorting 16-bit integers takes linear time.
        small = np.uint16 if len(names) < 65_536 else np.int64
        numbers = table.column(NUMBER).to_numpy() if _has(table, NUMBER) else None
        return _Keys(names, codes.astype(small), from_column(table.column(time_column)).values, numbers)

    def where(self, rows: Bools) -> "_Keys":
        numbers = None if self.numbers is None else self.numbers[rows]
        return _Keys(self.names, self.codes[rows], self.times[rows], numbers)

    def joined(self, other: "_Keys") -> "_Keys":
        """These rows, followed by the other ones."""
        places = {name: place for place, name in enumerate(dict.fromkeys([*other.names, *self.names]))}
        small = np.uint16 if len(places) < 65_536 else np.int64
        own = np.array([places[name] for name in self.names], small).take(self.codes)
        numbers = None
        if other.numbers is not None:
            # Rows held by an older version have no numbers.
            known = np.full(len(own), -1, np.int64) if self.numbers is None else self.numbers
            numbers = np.concatenate([known, other.numbers])
        return _Keys(
            list(places),
            np.concatenate([own, other.codes.astype(small, copy=False)]),
            np.concatenate([self.times, other.times]),
            numbers,
        )


def _has(table: pa.Table, name: str) -> bool:
    return bool(table.schema.get_field_index(name) >= 0)


def _fitted(held: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of `schema`; missing columns become NULL."""
    if held.schema == schema:
        return held
    columns = []
    for part in schema:
        if part.name not in held.column_names:
            columns.append(pa.nulls(held.num_rows, part.type))
            continue
        column = held.column(part.name)
        if pa.types.is_dictionary(part.type):
            column = column.dictionary_encode()
        columns.append(column if column.type == part.type else column.cast(part.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _in_groups(codes: Index) -> Index | None:
    """The order that puts equal codes together; None if they already are."""
    return None if is_ascending(codes) else np.argsort(codes, kind="stable").astype(np.int64)


def _grouped_order(keys: _Keys, arrivals: Index) -> Index:
    """Row numbers by (ticker, time, number, sequence); the rows of a ticker are usually in that order already."""
    ranks = np.empty(len(keys.names), keys.codes.dtype)
    ranks[sorted(range(len(ranks)), key=keys.names.__getitem__)] = np.arange(len(ranks))
    groups = ranks.take(keys.codes)
    order = np.argsort(groups, kind="stable").astype(np.int64, copy=False)
    tied = () if keys.numbers is None else (keys.numbers,)
    for values in (arrivals, *tied, keys.times):
        if is_ascending(values):
            continue
        ordered, own = groups[order], values[order]
        same = ordered[1:] == ordered[:-1]
        if bool((same & (own[1:] < own[:-1])).any()):
            return np.lexsort((arrivals, *tied, keys.times, groups)).astype(np.int64, copy=False)
    return order


def rows_of(table: pa.Table, columns: int, time_column: str, *, ticker_column: str) -> Rows:
    """A released table as rows; the trigger sees only its first `columns` columns."""
    ticker = table.column(ticker_column).combine_chunks()
    if not pa.types.is_string(ticker.type):
        ticker = ticker.cast(pa.string())
    place = table.schema.get_field_index(ticker_column)
    # Use the same array as the ticker column, so that operators ordered by it need not encode it twice.
    relation = from_table(table.select(range(columns)), {place: ticker})
    return Rows(
        relation, from_column(table.column(time_column)).values, from_column(table.column(SEQUENCE)).values, ticker
    )


def joined(parts: list[Rows]) -> Rows:
    """The rows of all parts, one part after another."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        concatenated([part.relation for part in parts]),
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.sequence for part in parts]),
        pa.concat_arrays([part.ticker for part in parts]),
    )


def compact(rows: Rows, wanted: Collection[int] | None = None) -> Rows:
    """A copy without references to the larger arrays that the rows came from. Columns that are not `wanted` are
    dropped.
    """
    unread = constant(NULL, None, rows.length)
    columns = [
        rows.relation.column(index).copy() if wanted is None or index in wanted else unread
        for index in range(rows.relation.width)
    ]
    return rows.replaced(Relation(columns, rows.length))
