"""Records of the bus as rows for triggers: decoded, without repetitions, numbered in the order of the bus."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from candlewright.wire import tick_columns
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BadFrame
from candlewright.wire.grid import LATEST_NS
from candlewright.wire.tick_columns import TickColumns
from candlewright_cep.streaming.rows.release import NUMBER, SEQUENCE
from candlewright_cep.vector import distinct
from triggers.records.asked_for import AskedFor
from triggers.records.counted import CountedTrades
from triggers.texts.check import INPUTS
from venues import sound

__all__ = ["BarIntake", "PeriodBars", "Refused", "TickIntake", "newest", "ticker_of", "whole_trades"]

_TICKS = INPUTS["ticks"].schema.append(pa.field(SEQUENCE, pa.int64()))
_RECEIVED = _TICKS.field("received_at").type
_NO_TICKS = _TICKS.empty_table()
_COLUMNS = tuple((part.name, part.type) for part in _TICKS)
_PLACES = {name: place for place, (name, _) in enumerate(_COLUMNS)}
_TIME = _TICKS.field("ts").type
_BARS = INPUTS["ohlc"].schema.append(pa.field(SEQUENCE, pa.int64()))
_SIDE_NAMES = ["unknown", "buy", "sell"]
_SIDES = pa.array(_SIDE_NAMES)
_LAST_NS = 2**63 - 1
#: Numbers of so many digits have 64 bits.
_MOST_DIGITS = 18
_INT64, _DOUBLE = pa.int64(), pa.float64()
_ALWAYS = frozenset({"ticker", "ts_ns", NUMBER, SEQUENCE})
#: No clock is ahead of another by more than this.
_MAX_AHEAD_NS = 2**60
#: Of so few rows, Python reads the ids in less time than numpy; and their NULLs, tickers and sides are kept.
_FEW = 16


def ticker_of(value: bytes) -> str | None:
    """The ticker at the beginning of a serialised TickBatch or Tick; None if it does not begin with one."""
    if len(value) < 3 or value[0] != 0x0A or value[1] > 0x7F:
        return None
    return value[2 : 2 + value[1]].decode(errors="replace")


@dataclass(slots=True)
class Refused:
    """Records that cannot be read, wholly or in part, with the reason. `count`: rows since the state began."""

    count: int = 0
    records: list[tuple[bytes, str]] = field(default_factory=list)

    def add(self, value: bytes, reason: str, rows: int = 1) -> None:
        self.count += rows
        self.records.append((value, reason))

    def take(self) -> list[tuple[bytes, str]]:
        """The records since the last call."""
        taken, self.records = self.records, []
        return taken


@dataclass(kw_only=True, slots=True)
class TickIntake:
    """Reads trades. `next_row`: the number of the partition's next new trade; `asked_for`: which of them were fetched
    over REST.
    """

    next_row: int = 0
    counted: CountedTrades = field(default_factory=CountedTrades)
    duplicates: int = 0
    refused: Refused = field(default_factory=Refused)
    asked_for: AskedFor = field(default_factory=AskedFor)

    def rows(self, values: Iterable[bytes], columns: frozenset[str] | None = None) -> pa.Table:
        """Trades that are not repetitions, by ticker, then in the order of the bus, in which they are numbered.

        `columns`: the columns to read besides ticker and time, completed by `whole_trades`; None for all.
        """
        arrived = list(self._decoded(values))
        if not arrived:
            return _NO_TICKS
        arrivals = sorted(range(len(arrived)), key=lambda place: arrived[place][1].ticker)
        batches = [arrived[place][1] for place in arrivals]
        ids = _joined([batch.trade_id for batch in batches])
        new, numbers = self._new(batches, ids)
        picked = self._sound(batches, new, ids)
        if len(picked) < len(new) and np.count_nonzero(new) > len(picked):
            self._refuse_unsound(arrived)
        of_row = np.arange(len(batches)).repeat([len(batch) for batch in batches])
        found = self._table(batches, arrivals, of_row, ids, numbers, picked, columns)
        if any(batch.clock_ahead is not None for batch in batches):
            self._note(batches, of_row[picked], found[SEQUENCE].to_numpy())
        return found

    def pass_over(self, values: Iterable[bytes]) -> dict[str, int]:
        """Remember these trades as duplicates without making rows of them; returns the newest event time (ns) per
        ticker.
        """
        batches = [batch for _, batch in self._decoded(values)]
        if batches:
            self._new(batches, _joined([batch.trade_id for batch in batches]))
            self._note(batches)
        reached: dict[str, int] = {}
        for batch in batches:
            newest = int(batch.timestamp.max())
            if newest >= LATEST_NS:
                newest = int(batch.timestamp.max(initial=0, where=batch.timestamp < LATEST_NS))
            reached[batch.ticker] = max(reached.get(batch.ticker, 0), newest)
        return reached

    def _note(
        self,
        batches: Sequence[TickColumns],
        of_row: NDArray[np.int64] | None = None,
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        """Note the batches that an ingestor fetched over REST. `of_row`, `numbers`: of the rows that were made, if
        any.
        """
        for place, batch in enumerate(batches):
            ahead = batch.clock_ahead
            if ahead is None or abs(ahead) > _MAX_AHEAD_NS:
                continue
            own = [] if numbers is None else numbers[of_row == place].tolist()
            first, end = (own[0], own[-1] + 1) if own else (0, 0)
            until_ns = min(int(batch.received_at.max()), LATEST_NS) + ahead
            newest_ns = int(batch.timestamp.max())
            self.asked_for.note(batch.ticker, ahead, newest_ns, until_ns=until_ns, first_row=first, end=end)

    def _new(
        self, batches: Sequence[TickColumns], ids: NDArray[np.bytes_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which trades are not repetitions, and the number that each id is, or -1."""
        kept = np.ones(len(ids), np.bool_)
        places = [0, *accumulate(len(batch) for batch in batches)]
        runs, numbers = _id_runs(ids, places)
        for batch, (start, end), run in zip(batches, pairwise(places), runs, strict=True):
            self.counted.read(batch.ticker, batch.first_sequence + end - start - 1)
            if run is None:
                kept[start:end] = self.counted.add_texts(batch.ticker, batch.trade_id)
            elif not self.counted.extend(batch.ticker, *run.ends):
                kept[start:end] = self.counted.add(batch.ticker, run.numbers)
        self.duplicates += len(kept) - int(np.count_nonzero(kept))
        return kept, numbers

    def _decoded(self, values: Iterable[bytes]) -> Iterator[tuple[bytes, TickColumns]]:
        given = list(values)
        for value, columns in zip(given, tick_columns.decode_all(given), strict=True):
            if isinstance(columns, BadFrame):
                self.refused.add(value, columns.text)
            elif problem := sound.problem_with_ticker(columns.ticker):
                self.refused.add(value, problem)
            elif len(columns):
                yield value, columns

    def _sound(
        self, batches: Sequence[TickColumns], new: NDArray[np.bool_], ids: NDArray[np.bytes_]
    ) -> NDArray[np.int64]:
        """The indexes of the new trades whose values are valid."""
        price = _joined([batch.price for batch in batches])
        size = _joined([batch.size for batch in batches])
        time = _joined([batch.timestamp for batch in batches])
        found: NDArray[np.int64] = (new & tick_columns.are_sound(time=time, price=price, size=size, ids=ids)).nonzero()[
            0
        ]
        return found

    def _refuse_unsound(self, arrived: Iterable[tuple[bytes, TickColumns]]) -> None:
        for value, batch in arrived:
            is_sound = tick_columns.are_sound(
                time=batch.timestamp, price=batch.price, size=batch.size, ids=batch.trade_id
            )
            if bad := len(batch) - int(np.count_nonzero(is_sound)):
                self.refused.add(value, tick_columns.reason_against(bad, len(batch)), bad)

    def _table(
        self,
        batches: Sequence[TickColumns],
        arrivals: Sequence[int],
        of_row: NDArray[np.int64],
        ids: NDArray[np.bytes_],
        numbers: NDArray[np.int64],
        picked: NDArray[np.int64],
        columns: frozenset[str] | None,
    ) -> pa.Table:
        """`arrivals`: the position in which each batch arrived; `of_row`: the batch of each trade."""
        is_all = len(picked) == len(of_row)
        own = of_row if is_all else of_row[picked]

        def of(name: str) -> Any:
            found = _joined([getattr(batch, name) for batch in batches])
            return found if is_all else found[picked]

        makers: dict[str, Callable[[], pa.Array]] = {
            "ticker": lambda: _tickers(batches, own),
            "trade_id": lambda: _texts(ids if is_all else ids[picked]),
            "ts_ns": lambda: _array(of("timestamp"), _INT64),
            "price": lambda: _array(of("price"), _DOUBLE),
            "size": lambda: _array(of("size"), _DOUBLE),
            "side": lambda: _sides(of("side")),
            "received_at": lambda: _received(of("received_at")),
            NUMBER: lambda: _array(numbers if is_all else numbers[picked], _INT64),
            SEQUENCE: lambda: _array(self._numbers(arrivals, own), _INT64),
        }
        wanted = makers.keys() if columns is None else columns | _ALWAYS
        found = pa.table({name: make() for name, make in makers.items() if name in wanted})
        return whole_trades(found).append_column(NUMBER, found[NUMBER]) if columns is None else found

    def _numbers(self, arrivals: Sequence[int], of_row: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of each trade, in the order of arrival."""
        if len(arrivals) == 1:
            self.next_row += len(of_row)
            return np.arange(self.next_row - len(of_row), self.next_row)
        counts = np.bincount(of_row, minlength=len(arrivals))
        in_order = np.empty_like(counts)
        in_order[arrivals] = counts
        before = (np.cumsum(in_order) - in_order)[np.array(arrivals)]
        within = np.arange(len(of_row)) - (np.cumsum(counts) - counts)[of_row]
        found: NDArray[np.int64] = self.next_row + before[of_row] + within
        self.next_row += len(of_row)
        return found

    def save(self) -> dict[str, Any]:
        """The state, without `counted`."""
        return {
            "next_row": self.next_row,
            "counts": [self.duplicates, self.refused.count],
            "asked_for": self.asked_for.save(),
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "TickIntake":
        duplicates, refused = state["counts"]
        intake = cls(next_row=state["next_row"], duplicates=duplicates, refused=Refused(refused))
        intake.counted.restore_old(state)
        # Missing in states of older versions.
        intake.asked_for = AskedFor.load(state.get("asked_for", {}))
        return intake


def whole_trades(rows: pa.Table) -> pa.Table:
    """The trades with all columns of the input; columns that were not read are NULL."""
    if not rows.num_rows:
        return _NO_TICKS
    found = list(_few_nulls(rows.num_rows) if rows.num_rows <= _FEW else _nulls(rows.num_rows))
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        place = _PLACES.get(name)
        if place is not None:
            kind = _COLUMNS[place][1]
            found[place] = column if column.type == kind else column.cast(kind)
        if name == "ts_ns":
            # On a few rows, a cast takes many times as long.
            found[_PLACES["ts"]] = pa.chunked_array([chunk.view(_TIME) for chunk in column.chunks], _TIME)
    return pa.Table.from_arrays(found, schema=_TICKS)


def _nulls(count: int) -> list[pa.Array]:
    """All columns without values. They share a buffer, whose memory is taken only where it is read."""
    zeros = pa.py_buffer(np.zeros(count + 1, np.int64))
    buffers = {kind: [zeros] * (3 if pa.types.is_string(kind) else 2) for _, kind in _COLUMNS}
    return [pa.Array.from_buffers(kind, count, buffers[kind], null_count=count) for _, kind in _COLUMNS]


_few_nulls = lru_cache(maxsize=_FEW)(_nulls)


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _array(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """`pa.array` of contiguous values, which takes twice as long because it first looks for pandas."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _tickers(batches: Sequence[TickColumns], of_row: NDArray[np.int64]) -> pa.Array:
    """The ticker of each row. `of_row`: the batch of each."""
    if len(batches) == 1 and len(of_row) <= _FEW:
        return _repeated(batches[0].ticker, len(of_row))
    names = sorted({batch.ticker for batch in batches})
    codes = {name: code for code, name in enumerate(names)}
    of_batch = np.array([codes[batch.ticker] for batch in batches], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(of_batch[of_row]), pa.array(names, pa.string()))


@lru_cache(maxsize=1_024)
def _repeated(text: str, count: int) -> pa.Array:
    return pa.array([text] * count, pa.string())


def _texts(ids: NDArray[np.bytes_]) -> pa.Array:
    if len(ids) <= _FEW:
        return pa.array([text.decode() for text in ids.tolist()], pa.string())
    return pa.array(ids.tolist(), pa.binary()).cast(pa.string())


def _sides(codes: NDArray[np.uint8]) -> pa.Array:
    return _repeated(_SIDE_NAMES[codes[0]], 1) if len(codes) == 1 else _SIDES.take(pa.array(codes))


def _received(times: NDArray[np.int64]) -> pa.Array:
    is_unknown = times <= 0
    known = pa.array(times, _INT64, mask=is_unknown) if is_unknown.any() else _array(times, _INT64)
    return known.view(_RECEIVED)


@dataclass(frozen=True, slots=True)
class _IdRun:
    """The ids of one record as numbers. `ends`: the first and the last if they are dense and ascending, otherwise a
    value that `SeenIds.extend` refuses.
    """

    numbers: NDArray[np.int64]
    ends: tuple[int, int]


def _id_runs(ids: NDArray[np.bytes_], places: Sequence[int]) -> tuple[list[_IdRun | None], NDArray[np.int64]]:
    """For each record its ids as numbers, or None if one of them is not a number of at most 18 digits. And for each id
    its number, or -1. `places`: where each record begins and the last one ends.
    """
    if len(ids) <= _FEW:
        return _few_id_runs(ids, places)
    starts = places[:-1]
    width = ids.dtype.itemsize
    text = np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), width)
    numbers = np.zeros(len(ids), np.int64)
    sound = (text[:, 0] > 0) & (text[:, _MOST_DIGITS:] == 0).all(axis=1)
    is_padded = False
    columns = np.ascontiguousarray(text[:, :_MOST_DIGITS].T)
    for place, column in enumerate(columns):
        digit = column - np.uint8(48)
        is_digit = digit < 10
        if not is_padded and is_digit.all():
            numbers *= 10
            numbers += digit
            continue
        # Shorter ids are padded with zero bytes.
        is_filler = column == 0
        sound &= is_digit | is_filler
        if is_padded:
            sound &= is_filler | (columns[place - 1] > 0)
        is_padded = is_padded or bool(is_filler.any())
        numbers = np.where(is_digit, numbers * 10 + digit, numbers)
    steps = np.ones(len(ids), np.bool_)
    steps[1:] = numbers[1:] == numbers[:-1] + 1
    steps[starts] = True
    all_sound = np.logical_and.reduceat(sound, starts).tolist()
    dense = np.logical_and.reduceat(steps, starts).tolist()
    found: list[_IdRun | None] = []
    for record, (start, end) in enumerate(pairwise(places)):
        if not all_sound[record]:
            found.append(None)
            continue
        own = numbers[start:end]
        found.append(_IdRun(own, (int(own[0]), int(own[-1])) if dense[record] else (0, -1)))
    return found, np.where(sound, numbers, -1)


def _few_id_runs(ids: NDArray[np.bytes_], places: Sequence[int]) -> tuple[list[_IdRun | None], NDArray[np.int64]]:
    known = [int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else -1 for text in ids.tolist()]
    numbers = np.array(known, np.int64)
    found: list[_IdRun | None] = []
    for start, end in pairwise(places):
        own = known[start:end]
        is_dense = own == list(range(own[0], own[0] + len(own)))
        run = _IdRun(numbers[start:end], (own[0], own[-1]) if is_dense else (0, -1))
        found.append(None if -1 in own else run)
    return found, numbers


def newest(rows: pa.Table, time_column: str) -> list[tuple[str, int, int]]:
    """(ticker, number of its last row, its latest event time in ns) for each ticker of the rows."""
    times = rows.column(time_column)
    if times.type != _INT64:
        times = pa.chunked_array([chunk.view(_INT64) for chunk in times.chunks], _INT64)
    if rows.num_rows == 1:
        columns = (rows.column("ticker"), rows.column(SEQUENCE), times)
        return list(zip(*[column.to_pylist() for column in columns], strict=True))
    names, codes = distinct(rows.column("ticker"))
    last, latest = np.full(len(names), -1, np.int64), np.full(len(names), -(2**63), np.int64)
    np.maximum.at(latest, codes, times.to_numpy())
    last[codes] = np.arange(rows.num_rows)
    numbers = rows.column(SEQUENCE).to_numpy()[last]
    return list(zip(names, numbers.tolist(), latest.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class PeriodBars:
    """Bars of one period. `first`: the first revisions in time order; `every`: all revisions in the order of the
    bus; `returns`: marks those that are not newer than all earlier ones of their ticker.
    """

    first: pa.Table
    every: pa.Table
    returns: NDArray[np.bool_]

    def runs(self, *, is_joint: bool) -> Iterator[pa.Table]:
        """All revisions, cut before each that returns to an earlier time, so that what is evaluated together does not
        depend on how the records are cut into micro-batches. `is_joint`: in one order for all tickers, otherwise one
        per ticker.
        """
        if not self.every.num_rows:
            return
        if is_joint:
            numbers = np.cumsum(self.returns)
        else:
            codes = self.every.column("ticker").combine_chunks().dictionary_encode().indices.to_numpy()
            order = np.argsort(codes, kind="stable")
            counts = np.cumsum(self.returns[order])
            is_first = np.ones(len(order), np.bool_)
            is_first[1:] = codes[order][1:] != codes[order][:-1]
            before: NDArray[np.int64] = (counts - self.returns[order])[is_first]
            numbers = np.empty_like(counts)
            numbers[order] = counts - before[np.cumsum(is_first) - 1]
        places = np.argsort(numbers, kind="stable")
        for part in np.split(places, np.flatnonzero(np.diff(numbers[places])) + 1):
            yield self.every.take(pa.array(part))


@dataclass(slots=True)
class BarIntake:
    """Reads bars. `reached`: per period and ticker the open time (ns) of its newest bar; `next_row` numbers every
    revision.
    """

    next_row: int = 0
    reached: dict[int, dict[str, int]] = field(default_factory=dict)
    late: int = 0
    refused: Refused = field(default_factory=Refused)

    def rows(self, values: Sequence[bytes]) -> dict[int, PeriodBars]:
        every: dict[int, list[dict[str, Any]]] = {}
        returns: dict[int, list[bool]] = {}
        firsts: dict[int, list[bool]] = {}
        for bar in self._decoded(values):
            period = bar.period_seconds
            row = self._row(bar)
            times = self.reached.setdefault(period, {})
            is_newer = bar.open_time > times.get(bar.ticker, 0)
            if is_newer:
                times[bar.ticker] = bar.open_time
            if not (is_newer or bar.revision):
                self.late += 1
            every.setdefault(period, []).append(row)
            returns.setdefault(period, []).append(not is_newer)
            firsts.setdefault(period, []).append(is_newer and not bar.revision)
        found = {}
        for period, rows in every.items():
            bars, own = _bars(rows), firsts[period]
            first = bars if all(own) else bars.filter(pa.array(own))
            found[period] = PeriodBars(first, bars, np.array(returns[period], np.bool_))
        return found

    def _decoded(self, values: Sequence[bytes]) -> Iterator[OHLCV]:
        for value in values:
            try:
                bar = OHLCV.FromString(value)
            except DecodeError:
                self.refused.add(value, "not an OHLCV")
                continue
            if problem := sound.problem_with_bar(bar):
                self.refused.add(value, problem)
            else:
                yield bar

    def _row(self, bar: OHLCV) -> dict[str, Any]:
        self.next_row += 1
        return {
            "ticker": bar.ticker,
            "period_seconds": bar.period_seconds,
            "open_time": bar.open_time,
            "open": bar.open,
            "high": bar.high,
            "low": bar.low,
            "close": bar.close,
            "volume": bar.volume,
            "quote_volume": bar.quote_volume if bar.HasField("quote_volume") else None,
            "trade_count": min(bar.trade_count, _LAST_NS) if bar.HasField("trade_count") else None,
            "source": bar.source,
            "complete": bar.complete,
            "updated_at": None,
            SEQUENCE: self.next_row - 1,
        }

    def save(self) -> dict[str, Any]:
        reached = {str(period): times for period, times in self.reached.items()}
        return {"next_row": self.next_row, "reached": reached, "counts": [self.late, self.refused.count]}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "BarIntake":
        reached = {int(period): dict(times) for period, times in state["reached"].items()}
        late, refused = state["counts"]
        return cls(state["next_row"], reached, late, Refused(refused))


def _bars(rows: list[dict[str, Any]]) -> pa.Table:
    columns = [pa.array([row[part.name] for row in rows], part.type) for part in _BARS]
    return pa.Table.from_arrays(columns, schema=_BARS)
