"""Records of the bus as rows for triggers: decoded, without repetitions, numbered in the order of the bus."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from bars.seen import SeenIds
from cep.release import SEQUENCE
from core.errors import BadFrame
from protobuf import tick_columns
from protobuf.candlewright_pb2 import OHLCV
from protobuf.tick_columns import TickColumns
from triggers.check import INPUTS
from venues.grid import SECOND

__all__ = ["BarIntake", "PeriodBars", "TickIntake"]

_TICKS = INPUTS["ticks"].schema.append(pa.field(SEQUENCE, pa.int64()))
_BARS = INPUTS["ohlc"].schema.append(pa.field(SEQUENCE, pa.int64()))
_SIDES = pa.array(["unknown", "buy", "sell"])
_LAST_NS = 2**63 - 1
#: Ids that are no numbers are remembered one by one, a ticker.
_TEXT_IDS = 20_000


@dataclass(slots=True)
class TickIntake:
    """`counted`: per ticker the largest number of its topic that was read; `next_row`: the number of the next new
    trade of the partition."""

    next_row: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    bad_records: int = 0
    _seen: dict[str, SeenIds] = field(default_factory=dict)
    _text_ids: dict[str, dict[str, None]] = field(default_factory=dict)

    def rows(self, values: Iterable[bytes]) -> pa.Table:
        """Trades that were not there before, in the order of the bus."""
        parts: list[pa.Table] = []
        for columns in self._decoded(values):
            ids = pa.array(columns.trade_id.tolist(), pa.binary()).cast(pa.string())
            new = self._new(columns.ticker, ids)
            last = columns.first_sequence + len(columns) - 1
            self.counted[columns.ticker] = max(self.counted.get(columns.ticker, 0), last)
            self.duplicates += len(columns) - len(new)
            if len(new):
                parts.append(self._table(columns, ids, new))
        return pa.concat_tables(parts) if parts else _TICKS.empty_table()

    def _decoded(self, values: Iterable[bytes]) -> Iterator[TickColumns]:
        for value in values:
            try:
                columns = tick_columns.decode(value)
            except BadFrame:
                self.bad_records += 1
                continue
            if not columns.ticker:
                self.bad_records += 1
            elif len(columns):
                yield columns

    def _new(self, ticker: str, ids: pa.Array) -> NDArray[np.intp]:
        """Places of the trades whose id is new."""
        numeric = pc.all(pc.and_(pc.match_substring_regex(ids, "^[0-9]{1,18}$"), pc.is_valid(ids))).as_py()
        if numeric:
            numbers = ids.cast(pa.int64()).to_numpy(zero_copy_only=False)
            is_new, _ = self._seen.setdefault(ticker, SeenIds()).add(numbers)
            return np.flatnonzero(is_new)
        known = self._text_ids.setdefault(ticker, {})
        kept = []
        for place, text in enumerate(ids.to_pylist()):
            if text not in known:
                known[text] = None
                kept.append(place)
        for text in list(known)[: max(0, len(known) - _TEXT_IDS)]:
            del known[text]
        return np.array(kept, np.intp)

    def _table(self, columns: TickColumns, ids: pa.Array, new: NDArray[np.intp]) -> pa.Table:
        sound = np.isfinite(columns.price) & np.isfinite(columns.size) & (columns.size >= 0) & (columns.timestamp > 0)
        picked = new[sound[new]]
        self.bad_records += len(new) - len(picked)
        time = columns.timestamp[picked]
        received = columns.received_at[picked]
        numbers = np.arange(self.next_row, self.next_row + len(picked), dtype=np.int64)
        self.next_row += len(picked)
        arrays = [
            pa.repeat(pa.scalar(columns.ticker, pa.string()), len(picked)),
            ids.take(pa.array(picked)),
            pa.array(time).cast(_TICKS.field("ts").type),
            pa.array(time),
            pa.array(columns.price[picked]),
            pa.array(columns.size[picked]),
            _SIDES.take(pa.array(columns.side[picked])),
            pa.array(received, mask=received <= 0).cast(_TICKS.field("received_at").type),
            pa.array(numbers),
        ]
        return pa.Table.from_arrays(arrays, schema=_TICKS)

    def save(self) -> dict[str, Any]:
        return {
            "next_row": self.next_row,
            "counted": self.counted,
            "counts": [self.duplicates, self.bad_records],
            "seen": {t: [s.limit, s.floor, s.first.tolist(), s.last.tolist()] for t, s in self._seen.items()},
            "text_ids": {t: list(ids) for t, ids in self._text_ids.items()},
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "TickIntake":
        intake = cls(state["next_row"], dict(state["counted"]), *state["counts"])
        intake._seen = {
            t: SeenIds(limit, floor, np.array(first, np.int64), np.array(last, np.int64))
            for t, (limit, floor, first, last) in state["seen"].items()
        }
        intake._text_ids = {t: dict.fromkeys(ids) for t, ids in state["text_ids"].items()}
        return intake


@dataclass(frozen=True, slots=True)
class PeriodBars:
    """Bars of one period. `first`: the first revisions in order of time; `runs`: all revisions in the order of the bus,
    cut wherever time goes back.
    """

    first: pa.Table
    runs: list[pa.Table]


@dataclass(slots=True)
class BarIntake:
    """`reached`: per period and ticker the open time (ns) of its newest bar; `next_row` numbers every revision."""

    next_row: int = 0
    reached: dict[int, dict[str, int]] = field(default_factory=dict)
    late: int = 0
    bad_records: int = 0

    def rows(self, values: Sequence[bytes]) -> dict[int, PeriodBars]:
        firsts: dict[int, list[dict[str, Any]]] = {}
        runs: dict[int, list[list[dict[str, Any]]]] = {}
        before: dict[tuple[int, str], int] = {}
        for bar in self._decoded(values):
            period = bar.period_seconds
            row = self._row(bar)
            key = (period, bar.ticker)
            own = runs.setdefault(period, [[]])
            if bar.open_time < before.get(key, 0):
                own.append([])
                before = {other: time for other, time in before.items() if other[0] != period}
            before[key] = bar.open_time
            own[-1].append(row)
            times = self.reached.setdefault(period, {})
            if bar.open_time > times.get(bar.ticker, 0):
                times[bar.ticker] = bar.open_time
                if not bar.revision:
                    firsts.setdefault(period, []).append(row)
            elif not bar.revision:
                self.late += 1
        return {
            period: PeriodBars(_bars(firsts.get(period, [])), [_bars(run) for run in own if run])
            for period, own in runs.items()
        }

    def _decoded(self, values: Sequence[bytes]) -> Iterator[OHLCV]:
        for value in values:
            try:
                bar = OHLCV.FromString(value)
            except DecodeError:
                self.bad_records += 1
                continue
            end = bar.open_time + bar.period_seconds * SECOND
            if bar.ticker and bar.period_seconds and bar.open_time > 0 and end < _LAST_NS:
                yield bar
            else:
                self.bad_records += 1

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
        return {"next_row": self.next_row, "reached": reached, "counts": [self.late, self.bad_records]}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "BarIntake":
        reached = {int(period): dict(times) for period, times in state["reached"].items()}
        return cls(state["next_row"], reached, *state["counts"])


def _bars(rows: list[dict[str, Any]]) -> pa.Table:
    columns = [pa.array([row[part.name] for row in rows], part.type) for part in _BARS]
    return pa.Table.from_arrays(columns, schema=_BARS)
