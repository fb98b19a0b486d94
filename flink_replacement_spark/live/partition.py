"""Turns the records of one bus partition into bars, for the live query. Uses no Spark, bus or clock.

All trades of a ticker are in one partition, so its bars, duplicates and gaps are decided only here.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from bars import Bars, exact, saved
from bars.aggregate import NO_QUOTE_VOLUME, NO_TRADE_COUNT
from bars.maker import NEVER, BarMaker, MadeBars, Trades
from bars.seen import SeenIds
from candlewright.wire import tick_columns
from candlewright.wire.errors import BadFrame
from candlewright.wire.grid import SECOND
from candlewright.wire.tick_columns import TickColumns
from flink_replacement_spark.live.marks import WaitingMarks
from flink_replacement_spark.live.text_ids import TextIds
from protobuf import records_pb2 as records
from venues import sound

__all__ = ["PERIODS", "LiveOutput", "LivePartition"]

#: Periods made for every ticker, so that a later request gets a correct first bar; shorter ones are made on demand.
PERIODS = (60, 180, 300, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 28_800, 43_200, 86_400, 604_800)
#: The base periods of the makers of minute and of second bars.
_MADE: tuple[tuple[int, ...], ...] = (PERIODS, (1,))
#: Published for every ticker, requested or not.
ALWAYS = 60
#: Ids above this count as non-numeric, which leaves numbers for the order of non-numeric ids.
_MAX_ID = str(1 << 62).encode()
_MAX_ID_DIGITS = len(_MAX_ID)
#: The maximum number of open gaps per ticker; their trades may still arrive.
_OPEN_GAPS = 1_000
ANOTHER_VERSION = (
    "start the version that wrote it, or stop the platform and put an empty file `forget` into the folder `live` of "
    "its checkpoints, and live bars start afresh from the trades that the bus still has (docs/operations.md)"
)


@dataclass(slots=True)
class LiveOutput:
    """What a partition produces. `bars`: to be published and stored; `ticks`: new trades to be stored; `gaps`: as
    received; `refused`: records that are invalid or contain invalid trades, each with the reason.
    """

    bars: list[tuple[list[str], MadeBars]] = field(default_factory=list)
    ticks: list[TickColumns] = field(default_factory=list)
    gaps: list[records.TickMark] = field(default_factory=list)
    bad_records: int = 0
    refused: list[tuple[bytes, str]] = field(default_factory=list)

    def refuse(self, value: bytes, reason: str, trades: int = 1) -> None:
        self.bad_records += trades
        self.refused.append((value, reason))


@dataclass(slots=True)
class _Demand:
    """The combined needs of all requests for a ticker."""

    ticks: bool = False
    periods: frozenset[int] = frozenset()


_NOTHING = _Demand()
#: A ticker is forgotten after this long without trades, plus the time of revisions: all its bars have then ended.
_IDLE_NS = PERIODS[-1] * SECOND


class LivePartition:
    """The live bars of one bus partition.

    For each micro-batch, call `process`, or call `add` with parts of its records and then `finish`. `save` returns the
    state after a micro-batch, and `load` restores it before the next one.
    """

    def __init__(self, lateness_ns: int, horizon_ns: int) -> None:
        self.makers = [BarMaker(periods=periods, lateness_ns=lateness_ns, horizon_ns=horizon_ns) for periods in _MADE]
        self._demands: dict[str, _Demand] = {}
        self._sequence: dict[str, int] = {}
        self._marks = WaitingMarks()
        self._gaps: dict[str, list[tuple[int, int, int, int]]] = {}
        self._clocks: dict[str, int] = {}
        self._texts: dict[str, TextIds] = {}
        self._stored: dict[str, SeenIds] = {}
        self._touched: dict[str, int] = {}
        self._output = LiveOutput()
        self._heard_of: set[str] = set()

    @property
    def duplicates(self) -> int:
        return self.makers[0].duplicates

    @property
    def too_late(self) -> int:
        return self.makers[0].too_late

    def process(self, batches: Sequence[bytes], marks: Sequence[bytes], now_ns: int = 0) -> LiveOutput:
        """Process a micro-batch. `batches`: serialised TickBatch or Tick; `marks`: serialised TickMark; both in the
        order of the bus. `now_ns`: the bus's clock when the newest record arrived; with 0, no ticker is forgotten.

        A mark applies between the trades published before and after it, even if it is read before them.
        """
        self.add(batches, marks)
        return self.finish(now_ns)

    def add(self, batches: Iterable[bytes], marks: Iterable[bytes] = ()) -> None:
        """Add the next records of a micro-batch. Only `finish` returns bars, so splitting a micro-batch causes no
        additional revisions.
        """
        output = self._output
        for mark in _decode_marks(marks, output):
            self._heard_of.add(mark.ticker)
            self._marks.add(mark)
        pending: dict[str, deque[TickColumns]] = {}
        for batch in _decode_ticks(batches, output):
            pending.setdefault(batch.ticker, deque()).append(batch)
        self._heard_of |= pending.keys()
        while True:
            self._apply_due(pending, output)
            if not pending:
                break
            self._add({ticker: self._before_next_mark(ticker, queue) for ticker, queue in pending.items()}, output)
            pending = {ticker: queue for ticker, queue in pending.items() if queue}

    def take_refused(self) -> list[tuple[bytes, str]]:
        """Return the values passed to `add` since the last call that are wholly or partly invalid."""
        refused, self._output.refused = self._output.refused, []
        return refused

    def finish(self, now_ns: int = 0) -> LiveOutput:
        """Return the output for the records added since the last call. `now_ns`: see `process`."""
        output, self._output = self._output, LiveOutput()
        touched, self._heard_of = self._heard_of, set()
        idle = self._idle(touched, now_ns) if now_ns else []
        for maker in self.makers:
            maker.retire(idle)
        self._take(output)
        self._forget(idle)
        return output

    # ---- idle tickers
    def _idle(self, touched: Iterable[str], now_ns: int) -> list[str]:
        self._touched |= dict.fromkeys(touched, now_ns)
        for ticker in self.makers[0].tickers:
            self._touched.setdefault(ticker, now_ns)
        since = now_ns - _IDLE_NS - self.makers[0].horizon_ns
        return [ticker for ticker, at in self._touched.items() if at <= since]

    def _forget(self, tickers: Iterable[str]) -> None:
        """Forget these tickers, but keep the few numbers that tell old trades from new ones."""
        for maker in self.makers:
            maker.forget(list(tickers))
        for ticker in tickers:
            del self._touched[ticker]
            self._gaps.pop(ticker, None)
            if self._demands.get(ticker, _NOTHING) == _NOTHING:
                self._demands.pop(ticker, None)
            if ticker in self._texts:
                self._texts[ticker].forget()
            stored = self._stored.get(ticker)
            if stored is not None and len(stored.last):
                self._stored[ticker] = SeenIds(stored.limit, int(stored.last[-1]))

    def _take(self, output: LiveOutput) -> None:
        due, self._clocks = self._clocks, {}
        for number, maker in enumerate(self.makers):
            maker.advance(due)
            for made in maker.take():
                if (chosen := self._chosen(maker, made, is_on_demand=number == 1)) is not None:
                    output.bars.append((maker.tickers, chosen))

    # ---- marks
    def _apply_due(self, pending: Mapping[str, Sequence[TickColumns]], output: LiveOutput) -> None:
        counted = {ticker: self._sequence.get(ticker, 0) for ticker in self._marks.tickers()}
        for ticker in pending.keys() & counted.keys():
            # Trades arrive in the order of their numbers, so those missing before the next one are lost.
            counted[ticker] = max(counted[ticker], pending[ticker][0].first_sequence - 1)
        while counted:
            starting = []
            for ticker, number in counted.items():
                while (mark := self._marks.pop_due(ticker, number)) is not None:
                    if mark.WhichOneof("body") == "covered":
                        starting.append(mark)
                        break
                    self._apply(mark, output)
            if any(self.makers[0].clock(mark.ticker) != NEVER for mark in starting):
                # Whether bars finished by an earlier run are complete depends on that run's coverage.
                self._take(output)
            for mark in starting:
                self._apply(mark, output)
            counted = {mark.ticker: counted[mark.ticker] for mark in starting}

    def _before_next_mark(self, ticker: str, queue: deque[TickColumns]) -> list[TickColumns]:
        """Remove and return the trades at the front of `queue`, up to the one after which the next mark is due."""
        until = self._marks.next_number(ticker)
        if until is None:
            taken = list(queue)
            queue.clear()
            return taken
        taken = []
        while queue and queue[0].first_sequence <= until:
            batch = queue.popleft()
            inside = until + 1 - batch.first_sequence
            if batch.first_sequence and len(batch) > inside:
                queue.appendleft(_run(batch, inside, len(batch)))
                batch = _run(batch, 0, inside)
            taken.append(batch)
        return taken

    def _apply(self, mark: records.TickMark, output: LiveOutput) -> None:
        match mark.WhichOneof("body"):
            case "wanted":
                if self._demands.get(mark.ticker, _NOTHING).periods - set(mark.wanted.period_seconds):
                    # Bars that were already final are still wanted.
                    self._take(output)
                self.want(mark.ticker, mark.wanted)
            case "covered":
                for maker in self.makers:
                    maker.start(mark.ticker, mark.covered.from_time)
            case "gap":
                output.gaps.append(mark)
                self._apply_gap(mark.ticker, mark.gap)
            case "seed" if mark.seed.period_seconds:
                for maker in self.makers:
                    maker.seed(mark.ticker, _seed_bars(mark.seed))
            case "seed":
                aggregates = _aggregates(mark.ticker, mark.seed)
                for maker in self._makers_of(mark.ticker):
                    maker.add([aggregates])
                self._close_gaps(mark.ticker)
            case "clock":
                self._clocks[mark.ticker] = mark.clock.exchange_time

    def _apply_gap(self, ticker: str, gap: records.Gap) -> None:
        """Apply a gap. If every id in it was counted, even within an aggregate, the bars are complete and only ticks
        are missing.
        """
        if gap.is_repaired:
            for maker in self.makers:
                maker.clear_gap(ticker, *_gap_range(gap))
            return
        for maker in self.makers:
            maker.mark_gap(ticker, *_gap_range(gap))
        if _is_number(gap.from_trade_id) and _is_number(gap.to_trade_id):
            gaps = self._gaps.setdefault(ticker, [])
            gaps.append((int(gap.from_trade_id), int(gap.to_trade_id), *_gap_range(gap)))
            del gaps[:-_OPEN_GAPS]
            self._close_gaps(ticker)

    def _close_gaps(self, ticker: str) -> None:
        open_gaps = self._gaps.get(ticker)
        if not open_gaps or ticker not in self.makers[0].tickers:
            return
        seen = self.makers[0].states[self.makers[0].tickers.index(ticker)].seen
        for gap in [gap for gap in open_gaps if _has_all(seen, *gap[:2])]:
            open_gaps.remove(gap)
            for maker in self.makers:
                maker.clear_gap(ticker, *gap[2:])
        if not open_gaps:
            del self._gaps[ticker]

    def closes_none(self, ticker: str, oldest: int, newest: int) -> bool:
        """As of `BarMaker.closes_none`, for bars of all periods."""
        return all(maker.closes_none(ticker, oldest, newest) for maker in self._makers_of(ticker))

    def want(self, ticker: str, wanted: records.Wanted) -> None:
        """Set what is requested of `ticker`, for trades counted from now on."""
        had_seconds = self._wants_seconds(ticker)
        self._demands[ticker] = _Demand(wanted.ticks, frozenset(wanted.period_seconds))
        minutes = self.makers[0]
        if self._wants_seconds(ticker) and not had_seconds and ticker in minutes.tickers:
            # This maker has not received the earlier trades.
            covered_from = minutes.states[minutes.tickers.index(ticker)].covered_from
            self.makers[1].start(ticker, max(minutes.clock(ticker) + 1, covered_from))
        self._want_periods(ticker)

    def _want_periods(self, ticker: str) -> None:
        periods = self._demands.get(ticker, _NOTHING).periods
        self.makers[0].want(ticker, [period for period in periods if period % 60 == 0])
        self.makers[1].want(ticker, [period for period in periods if period % 60])

    # ---- trades
    def _add(self, by_ticker: Mapping[str, Sequence[TickColumns]], output: LiveOutput) -> None:
        batches = []
        for ticker, own in by_ticker.items():
            for numbered in own:
                if numbered.first_sequence:
                    # This decreases if the bus has lost its newest trades.
                    self._sequence[ticker] = numbered.first_sequence + len(numbered) - 1
            batch = own[0] if len(own) == 1 else _joined(own)
            if len(batch):
                batches.append(batch)
        trades = []
        for batch, order in zip(batches, _orders(batches), strict=True):
            ticker, texts = batch.ticker, self._texts.get(batch.ticker)
            if order is None or (texts is not None and texts.is_begun):
                batch, order = self._by_text(batch)
            trades.append(Trades(ticker, batch.timestamp, order, batch.price, batch.size))
            if self._demands.get(ticker, _NOTHING).ticks:
                is_new, _ = self._stored.setdefault(ticker, SeenIds()).add(order)
                output.ticks.append(batch if is_new.all() else _take(batch, np.flatnonzero(is_new)))
        self.makers[0].add(trades)
        self.makers[1].add([own for own in trades if self._wants_seconds(own.ticker)])
        for ticker in by_ticker.keys() & self._gaps.keys():
            self._close_gaps(ticker)

    def _by_text(self, batch: TickColumns) -> tuple[TickColumns, NDArray[np.int64]]:
        """The new trades of `batch` and their order, once a ticker has had a non-numeric id: that of arrival, after all
        earlier numeric ids.
        """
        seen = self._seen(batch.ticker)
        texts = self._texts.setdefault(batch.ticker, TextIds())
        if not texts.is_begun:
            texts.begin(int(seen.last[-1]) if seen is not None and len(seen.last) else 0)
        ids, times = batch.trade_id.tolist(), batch.timestamp.tolist()
        new: dict[bytes, int] = {}
        for place, (trade_id, time) in enumerate(zip(ids, times, strict=True)):
            is_number = len(trade_id) <= _MAX_ID_DIGITS and trade_id.isdigit() and int(trade_id) <= texts.since
            was_number = is_number and seen is not None and seen.has_any(int(trade_id), int(trade_id))
            if was_number or trade_id in texts.known or trade_id in new:
                self.makers[0].duplicates += 1
            elif time <= texts.floor:
                self.makers[0].too_late += 1
            else:
                new[trade_id] = place
        first = texts.next_order
        kept = list(new.values())
        texts.add(list(new), [times[place] for place in kept])
        return _take(batch, np.array(kept, np.intp)), np.arange(first, first + len(kept))

    def _seen(self, ticker: str) -> SeenIds | None:
        minutes = self.makers[0]
        return minutes.states[minutes.tickers.index(ticker)].seen if ticker in minutes.tickers else None

    def _makers_of(self, ticker: str) -> list[BarMaker]:
        return self.makers if self._wants_seconds(ticker) else self.makers[:1]

    def _wants_seconds(self, ticker: str) -> bool:
        demand = self._demands.get(ticker)
        return demand is not None and any(period % 60 for period in demand.periods)

    def _chosen(self, maker: BarMaker, made: MadeBars, *, is_on_demand: bool) -> MadeBars | None:
        period = made.bars.period_seconds
        if period == ALWAYS and not is_on_demand:
            return made
        wanted = np.array([period in self._demands.get(ticker, _Demand()).periods for ticker in maker.tickers])
        mask = wanted[made.bars.group]
        if not mask.any():
            return None
        return MadeBars(made.bars.take(mask), made.revision[mask], made.complete[mask])

    # ---- state
    def save(self) -> bytes:
        meta = {
            # The key of earlier states.
            "wishes": {t: [w.ticks, sorted(w.periods)] for t, w in self._demands.items()},
            "sequence": self._sequence,
            "marks": self._marks.save(),
            "stored": {t: [s.limit, s.floor, s.first.tolist(), s.last.tolist()] for t, s in self._stored.items()},
            "texts": {
                t: [
                    [[text.decode("latin-1"), time] for text, time in own.known.items()],
                    own.floor,
                    own.since,
                    own.next_order,
                    own.is_begun,
                ]
                for t, own in self._texts.items()
            },
            "gaps": self._gaps,
            "touched": self._touched,
        }
        makers = {f"maker{number}": np.frombuffer(saved.save(own), np.uint8) for number, own in enumerate(self.makers)}
        return saved.pack(meta, makers)

    @classmethod
    def load(cls, data: bytes) -> "LivePartition":
        """Restore the partition that `save` wrote.

        Raises OtherVersion, whose text names the remedy. Bytes that are not a saved state may raise any exception.
        """
        try:
            meta, arrays = saved.unpack(data)
        except saved.OtherVersion as error:
            raise saved.OtherVersion(f"{error}; {ANOTHER_VERSION}") from error
        makers = [saved.load(arrays[f"maker{number}"].tobytes()) for number in range(2)]
        partition = cls(makers[0].lateness_ns, makers[0].horizon_ns)
        partition.makers = makers
        partition._demands = {t: _Demand(ticks, frozenset(periods)) for t, (ticks, periods) in meta["wishes"].items()}
        partition._sequence = meta["sequence"]
        partition._marks = WaitingMarks.load(meta["marks"])
        partition._stored = {
            t: SeenIds(limit, floor, np.array(first, np.int64), np.array(last, np.int64))
            for t, (limit, floor, first, last) in meta["stored"].items()
        }
        partition._texts = {
            t: TextIds({text.encode("latin-1"): time for text, time in known}, *rest)
            for t, (known, *rest) in meta["texts"].items()
        }
        partition._touched = meta["touched"]
        partition._gaps = {t: [(a, b, c, d) for a, b, c, d in gaps] for t, gaps in meta["gaps"].items()}
        for number, maker in enumerate(makers):
            if maker.periods != sorted(_MADE[number]):
                wanted = {
                    t: [p for p in w.periods if bool(p % 60) == bool(number)] for t, w in partition._demands.items()
                }
                maker.keep_only(_MADE[number], wanted)
        return partition


def _decode_ticks(values: Iterable[bytes], output: LiveOutput) -> Iterator[TickColumns]:
    found = _decode_records(values, output)
    if _are_all_sound([columns for _, columns in found]):
        yield from (columns for _, columns in found)
        return
    for value, columns in found:
        is_sound = tick_columns.are_sound(
            time=columns.timestamp, price=columns.price, size=columns.size, ids=columns.trade_id
        )
        if is_sound.all():
            yield columns
        else:
            bad = int((~is_sound).sum())
            output.refuse(value, tick_columns.reason_against(bad, len(columns)), bad)
            yield from _sound_runs(columns, is_sound)


def _are_all_sound(found: Sequence[TickColumns]) -> bool:
    """Checks the trades of many records at once, which takes a tenth of the time of a check of each."""
    if not found:
        return True
    time, price, size = (
        np.concatenate([getattr(columns, name) for columns in found]) for name in ("timestamp", "price", "size")
    )
    ids = max((columns.trade_id for columns in found), key=lambda own: own.dtype.itemsize)
    if ids.dtype.itemsize > tick_columns.MAX_ID_BYTES:
        return False
    return bool(tick_columns.are_sound(time=time, price=price, size=size, ids=ids).all())


def _decode_records(values: Iterable[bytes], output: LiveOutput) -> list[tuple[bytes, TickColumns]]:
    found = []
    given = list(values)
    for value, columns in zip(given, tick_columns.decode_all(given), strict=True):
        if isinstance(columns, BadFrame):
            output.refuse(value, columns.text)
        elif problem := sound.problem_with_ticker(columns.ticker) or ("" if len(columns) else "a batch without trades"):
            output.refuse(value, problem)
        else:
            found.append((value, columns))
    return found


def _sound_runs(columns: TickColumns, sound: NDArray[np.bool_]) -> Iterator[TickColumns]:
    """The runs of valid trades, each with its numbers; an empty run carries the number of an invalid last trade."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], sound, [False]))))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield _run(columns, start, end)
    if not sound[-1]:
        yield _run(columns, len(columns), len(columns))


def _decode_marks(values: Iterable[bytes], output: LiveOutput) -> Iterator[records.TickMark]:
    for value in values:
        try:
            mark = records.TickMark.FromString(value)
        except DecodeError:
            output.refuse(value, "not a TickMark")
            continue
        if problem := sound.problem_with_mark(mark):
            output.refuse(value, problem)
        else:
            yield mark


def _take(columns: TickColumns, index: NDArray[np.intp]) -> TickColumns:
    return replace(
        columns,
        timestamp=columns.timestamp[index],
        price=columns.price[index],
        size=columns.size[index],
        side=columns.side[index],
        trade_id=columns.trade_id[index],
        received_at=columns.received_at[index],
    )


def _run(columns: TickColumns, start: int, end: int) -> TickColumns:
    taken = _take(columns, np.arange(start, end))
    return replace(taken, first_sequence=columns.first_sequence + start if columns.first_sequence else 0)


def _joined(batches: Sequence[TickColumns]) -> TickColumns:
    names = ("timestamp", "price", "size", "side", "trade_id", "received_at")
    columns: dict[str, Any] = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in names}
    return replace(batches[0], **columns)


def _orders(batches: Sequence[TickColumns]) -> Sequence[NDArray[np.int64] | None]:
    """The ids of each batch as integers; None if one of its ids is not a number."""
    if not batches:
        return []
    together = _numbers(np.concatenate([batch.trade_id for batch in batches]))
    if together is None:
        return [_numbers(batch.trade_id) for batch in batches]
    return np.split(together, np.cumsum([len(batch) for batch in batches[:-1]]))


def _numbers(ids: NDArray[np.bytes_]) -> NDArray[np.int64] | None:
    """The ids as integers; None unless every id is a decimal number up to `_MAX_ID`."""
    width = ids.dtype.itemsize
    texts = np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), width)
    is_given = texts != 0
    digits = texts - np.uint8(ord("0"))
    if width > _MAX_ID_DIGITS or np.any(is_given & (digits > 9)) or not np.all(is_given[:, 0]):
        return None
    if width == _MAX_ID_DIGITS and np.any(ids[is_given[:, -1]] > _MAX_ID):
        return None
    values = np.zeros(len(ids), np.int64)
    for place in range(width):
        # Shorter ids are padded with zero bytes, which are not digits.
        values = np.where(is_given[:, place], values * 10 + digits[:, place], values)
    return values


def _is_number(trade_id: str) -> bool:
    return trade_id.isdecimal() and len(trade_id) <= _MAX_ID_DIGITS and int(trade_id) <= 1 << 62


def _has_all(seen: SeenIds, first: int, last: int) -> bool:
    at = int(np.searchsorted(seen.first, first, side="right")) - 1
    return at >= 0 and int(seen.last[at]) >= last


def _gap_range(gap: records.Gap) -> tuple[int, int]:
    return gap.from_time, max(gap.to_time, gap.from_time) + 1


def _seed_bars(seed: records.Seed) -> Bars:
    opens = np.array(seed.open_time, np.int64)
    unknown = (0 if seed.quote_volume else NO_QUOTE_VOLUME) | (0 if seed.trade_count else NO_TRADE_COUNT)
    count = np.array(seed.trade_count or [0] * len(opens), np.int64)
    zeros = np.zeros(len(opens), np.int64)
    quote = np.array(seed.quote_volume or [0.0] * len(opens), np.float64)
    return Bars(
        period_seconds=seed.period_seconds,
        group=zeros,
        open_time=opens,
        first_time=opens,
        first_id=zeros - 1,
        last_time=opens + seed.period_seconds * SECOND - 1,
        last_id=zeros - 1,
        open=np.array(seed.open, np.float64),
        high=np.array(seed.high, np.float64),
        low=np.array(seed.low, np.float64),
        close=np.array(seed.close, np.float64),
        volume=exact.from_doubles(np.array(seed.volume, np.float64)),
        quote_volume=exact.from_doubles(quote),
        trade_count=count,
        is_derived=np.zeros(len(opens), np.bool_),
        unknown=np.full(len(opens), unknown, np.uint8),
    )


def _aggregates(ticker: str, seed: records.Seed) -> Trades:
    return Trades(
        ticker,
        np.array(seed.open_time, np.int64),
        np.array(seed.first_trade_id, np.int64),
        np.array(seed.open, np.float64),
        np.array(seed.volume, np.float64),
        np.array(seed.last_trade_id, np.int64),
    )
