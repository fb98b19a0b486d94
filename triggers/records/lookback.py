"""The past of a trigger that looks back: stored rows and rows of the bus from before its registration, each once.

All of them are taken in the micro-batch that registers the trigger, which sends no events for them. So this batch may
be repeated over tables that have changed in between: no event that was sent can depend on what the first run had read.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from candlewright.wire.grid import SECOND
from candlewright_cep import Clock, Events
from candlewright_cep.streaming.rows.release import SEQUENCE
from candlewright_cep.table_bytes import bytes_of, table_of
from triggers.texts.check import INPUTS

__all__ = ["Lookback", "LookbackRequest", "past_bars", "past_ticks"]

_UNKNOWN = -(2**63)
#: Past rows are numbered below these: stored ones, and then rows that arrived later but were fetched over REST.
_STORED, _ASKED_FOR = -(2**61), -(2**60)
_TICKS, _BARS = INPUTS["ticks"].schema, INPUTS["ohlc"].schema


@dataclass(frozen=True, slots=True)
class LookbackRequest:
    """`period_seconds`: of the bars; 0 = every period, unused for trades. `since_ns`: event time."""

    trigger_id: str
    is_on_bars: bool
    period_seconds: int
    tickers: tuple[str, ...]
    since_ns: int


def past_ticks(stored: pa.Table, recent: pa.Table, later: pa.Table, *, since_ns: int) -> pa.Table:
    """Trades before the first live one, in event order.

    `stored`: rows of the table, which must be read before the others; `recent`, `later`: rows of the bus from before
    and after the boundary. Each has at least the columns of the input.
    """
    rows = pa.concat_tables([part.select(_TICKS.names).cast(_TICKS) for part in (stored, recent)])
    rows = rows.filter(pc.greater_equal(rows["ts_ns"], since_ns))
    rows = _once(rows, later, "ticker", "trade_id")
    rows = rows.append_column("width", pc.binary_length(rows["trade_id"]))
    keys = [(name, "ascending") for name in ("ts_ns", "ticker", "width", "trade_id")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys)).select(_TICKS.names)


def past_bars(stored: pa.Table, recent: pa.Table, later: pa.Table, *, since_ns: int, now_ns: int) -> pa.Table:
    """Bars before the first live one, in event order; see `past_ticks`. `recent`: the last record of each bar counts.

    `now_ns`: stored bars that have not ended by then are in progress, unless the bus has a final one.
    """
    stored = stored.select(_BARS.names).cast(_BARS)
    ends = _integers(stored, "open_time") + _integers(stored, "period_seconds") * SECOND
    stored = stored.filter(pa.array(ends <= now_ns))
    newest_first = recent.select(_BARS.names).cast(_BARS).take(pa.array(np.arange(recent.num_rows)[::-1]))
    rows = pa.concat_tables([stored, newest_first])
    rows = rows.filter(pa.array(_integers(rows, "open_time") >= since_ns))
    rows = _once(rows, later, "ticker", "period_seconds", "open_time")
    keys = [(name, "ascending") for name in ("open_time", "ticker", "period_seconds")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


def _once(rows: pa.Table, later: pa.Table, *names: str) -> pa.Table:
    """The first row of each key that does not occur in `later`."""
    own = _keys(rows, names)
    if later.num_rows:
        wanted = pc.invert(pc.is_in(own, value_set=_keys(later, names)))
        rows, own = rows.filter(wanted), own.filter(wanted)
    _, first = np.unique(own.dictionary_encode().indices.to_numpy(zero_copy_only=False), return_index=True)
    return rows.take(pa.array(np.sort(first)))


def _keys(rows: pa.Table, names: Collection[str]) -> pa.Array:
    columns = [
        rows[name] if pa.types.is_string(rows[name].type) else rows[name].cast(pa.int64()).cast(pa.string())
        for name in names
    ]
    found = pc.binary_join_element_wise(*columns, "\0")
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


@dataclass(slots=True)
class Lookback:
    """What remains of the look-back of one running trigger. Past rows have negative numbers.

    `starts_at`: the number of its first live row. `newest`, `floors`: for each input and ticker the event time (ns) of
    the newest past row, and the time before which live rows are no longer taken. `pending`: past trades at or after the
    watermark of their ticker, which wait for live trades that sort before or among them. `is_fed`: they were fed
    already, and are kept only to recognise repetitions.
    """

    starts_at: int
    newest: dict[int, dict[str, int]] = field(default_factory=dict)
    floors: dict[int, dict[str, int]] = field(default_factory=dict)
    pending: pa.Table | None = None
    is_fed: bool = False

    def begin(self, rows: pa.Table, time_column: str, clock: Clock, *, delay_ns: int) -> dict[int, pa.Table]:
        """Take past rows in event order. Returns for each input the rows that may be fed immediately, by ticker, then
        in event order.
        """
        numbers = np.arange(_STORED - rows.num_rows, _STORED, dtype=np.int64)
        rows = rows.append_column(SEQUENCE, pa.array(numbers))
        if time_column == "open_time":
            periods = _integers(rows, "period_seconds")
            return {int(p): self._begin_bars(int(p), rows.filter(pa.array(periods == p))) for p in np.unique(periods)}
        times = _integers(rows, time_column)
        newest = self.newest[0] = _newest(rows, times)
        self.floors[0] = {
            ticker: time + 1 if ticker in clock.closed else max(time - delay_ns, clock.watermarks.get(ticker, _UNKNOWN))
            for ticker, time in newest.items()
        }
        self.is_fed = not delay_ns
        due = self._release(rows, self.floors[0])
        return {0: _in_order(rows, "ts_ns") if self.is_fed else due}

    def _begin_bars(self, period: int, rows: pa.Table) -> pa.Table:
        newest = self.newest[period] = _newest(rows, _integers(rows, "open_time"))
        self.floors[period] = {ticker: time + period * SECOND for ticker, time in newest.items()}
        return _in_order(rows, "open_time")

    def _release(self, rows: pa.Table, watermarks: Mapping[str, int]) -> pa.Table:
        """The rows whose turn has come; the others become pending."""
        due = _integers(rows, "ts_ns") < _of_tickers(rows, watermarks)
        left = rows.filter(pa.array(~due))
        self.pending = left if left.num_rows else None
        return _in_order(rows.filter(pa.array(due)), "ts_ns")

    def clock(self, label: int, clock: Clock, tickers: Collection[str]) -> Clock:
        """The clock of the trigger's own tickers, which is never earlier than what the past rows imply."""
        floors = self.floors.get(label, {})
        asked = [ticker for ticker in tickers if ticker in clock.watermarks or ticker in floors]
        known = {t: max(clock.watermarks.get(t, _UNKNOWN), floors.get(t, _UNKNOWN)) for t in asked}
        return Clock(known, clock.closed & set(tickers))

    def live(self, label: int, rows: pa.Table, clock: Clock, *, takes_revisions: bool) -> pa.Table:
        """The live rows that were not among the past ones; for trades, also the pending rows whose turn has come."""
        numbers = rows[SEQUENCE].to_numpy()
        wanted = (numbers >= self.starts_at) | (numbers < 0)
        floors = self.floors.get(label, {})
        if floors and not takes_revisions:
            time_column = "open_time" if label else "ts_ns"
            wanted &= _integers(rows, time_column) >= _of_tickers(rows, floors)
        if self.pending is not None and not label and rows.num_rows:
            names = ("ticker", "trade_id")
            wanted &= ~pc.is_in(_keys(rows, names), value_set=_keys(self.pending, names)).to_numpy(zero_copy_only=False)
        rows = rows if wanted.all() else rows.filter(pa.array(wanted))
        if self.pending is None or label:
            return rows
        forever = dict.fromkeys(clock.closed, 2**63 - 1)
        due = self._release(self.pending, clock.watermarks | forever)
        if self.is_fed or not due.num_rows:
            return rows
        return _in_order(pa.concat_tables([due, rows.cast(due.schema)]), "ts_ns")

    def older(self, label: int, rows: pa.Table, ages: NDArray[np.int64], *, most_ns: int) -> pa.Table:
        """Live rows, with those from before the registration (`ages` above 0) turned into past rows, or left out if
        they are older than `most_ns`.
        """
        numbers = rows[SEQUENCE].to_numpy()
        is_past = (ages > 0) & (numbers >= self.starts_at)
        place = rows.schema.get_field_index(SEQUENCE)
        rows = rows.set_column(place, SEQUENCE, pa.array(np.where(is_past, numbers + _ASKED_FOR, numbers)))
        times = _integers(rows, "open_time" if label else "ts_ns")
        newest = self.newest.setdefault(label, {})
        kept = is_past & (ages <= most_ns)
        if kept.any():
            for ticker, time in _newest(rows.filter(pa.array(kept)), times[kept]).items():
                newest[ticker] = max(time, newest.get(ticker, _UNKNOWN))
        return rows.filter(pa.array(ages <= most_ns))

    def sent(self, label: int, events: Events, *, is_joined: bool) -> Events:
        """Leave out events whose last row is a past one, unless a deadline decided the event.

        `is_joined`: rows of joins have no numbers; they are past if every ticker has past rows at least as new.
        """
        if not len(events.ticker):
            return events
        context = events.context
        if is_joined:
            last = events.time if context is None else context.last_time
            is_past = last <= min(self.newest.get(label, {}).values(), default=_UNKNOWN)
        else:
            is_past = (events.sequence if context is None else context.last_sequence) < 0
        if context is not None:
            is_past = is_past & (context.timed_out == 0)
        if not is_past.any():
            return events
        return events.take(np.flatnonzero(~is_past))

    # ---- state
    def save(self) -> dict[str, Any]:
        """The state without `pending`, which `packed` returns."""
        return {
            "starts_at": self.starts_at,
            "newest": {str(label): own for label, own in self.newest.items()},
            "floors": {str(label): own for label, own in self.floors.items()},
            "is_fed": self.is_fed,
        }

    def packed(self) -> bytes:
        """The pending rows; b"" if there are none."""
        return b"" if self.pending is None else bytes_of(self.pending)

    @classmethod
    def load(cls, state: Mapping[str, Any], packed: bytes) -> "Lookback":
        newest, floors = (
            {int(label): dict(own) for label, own in state[name].items()} for name in ("newest", "floors")
        )
        pending = table_of(packed) if packed else None
        # Missing in states of older versions, whose pending rows wait.
        return cls(state["starts_at"], newest, floors, pending, state.get("is_fed", False))


def _integers(rows: pa.Table, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = rows[name].cast(pa.int64()).to_numpy()
    return found


def _codes(rows: pa.Table) -> tuple[list[str], NDArray[np.int64]]:
    encoded = rows["ticker"].combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)


def _of_tickers(rows: pa.Table, values: Mapping[str, int]) -> NDArray[np.int64]:
    """For each row, the value of its ticker."""
    names, codes = _codes(rows)
    return np.array([values.get(name, _UNKNOWN) for name in names], np.int64)[codes]


def _newest(rows: pa.Table, times: NDArray[np.int64]) -> dict[str, int]:
    names, codes = _codes(rows)
    found = np.full(len(names), _UNKNOWN, np.int64)
    np.maximum.at(found, codes, times)
    return dict(zip(names, found.tolist(), strict=True))


def _in_order(rows: pa.Table, time_column: str) -> pa.Table:
    keys = [("ticker", "ascending"), (time_column, "ascending"), (SEQUENCE, "ascending")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))
