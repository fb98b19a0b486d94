"""What the live query does with the records of one bus partition: no Spark, no bus, no clock.

Trades of a ticker always lie in one partition, so that bars, repeats and gaps of a ticker are decided here alone.
"""

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from bars import Bars, exact, saved
from bars.maker import BarMaker, MadeBars, Trades
from bars.seen import SeenIds
from core.errors import BadFrame
from protobuf import records_pb2 as records
from protobuf import tick_columns
from protobuf.tick_columns import TickColumns
from venues.grid import SECOND

__all__ = ["PERIODS", "LiveOutput", "LivePartition"]

#: Made for every ticker, so that whoever asks for one of them later gets a right first bar; shorter ones on demand.
PERIODS = (60, 180, 300, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 28_800, 43_200, 86_400, 604_800)
#: Published for every ticker, whether somebody asked or not.
ALWAYS = 60
#: Ids that are no numbers are remembered one by one.
_TEXT_IDS = 20_000


@dataclass(slots=True)
class LiveOutput:
    """`bars`: what to publish and store; `ticks`: new trades to store; `gaps`: as they came."""

    bars: list[tuple[list[str], MadeBars]] = field(default_factory=list)
    ticks: list[TickColumns] = field(default_factory=list)
    gaps: list[records.TickMark] = field(default_factory=list)
    bad_records: int = 0


@dataclass(slots=True)
class _Wishes:
    ticks: bool = False
    periods: frozenset[int] = frozenset()


class LivePartition:
    """Call `process` with each micro-batch's records; `save` after it and `LivePartition.load` before its next."""

    def __init__(self, lateness_ns: int, horizon_ns: int) -> None:
        self.makers = [BarMaker(PERIODS, lateness_ns, horizon_ns), BarMaker([1], lateness_ns, horizon_ns)]
        self._wishes: dict[str, _Wishes] = {}
        self._sequence: dict[str, int] = {}
        self._clocks: dict[str, tuple[int, int]] = {}
        self._text_ids: dict[str, dict[bytes, None]] = {}
        self._stored: dict[str, SeenIds] = {}

    @property
    def duplicates(self) -> int:
        return self.makers[0].duplicates

    @property
    def too_late(self) -> int:
        return self.makers[0].too_late

    def process(self, batches: Sequence[bytes], marks: Sequence[bytes]) -> LiveOutput:
        """`batches`: serialised TickBatch or Tick; `marks`: serialised TickMark; both in the order of the bus."""
        output = LiveOutput()
        decoded_marks = list(_decode_marks(marks, output))
        for mark in decoded_marks:
            self._before_trades(mark, output)
        columns = list(_decode_ticks(batches, output))
        if columns:
            self._add(columns, output)
        for mark in decoded_marks:
            self._after_trades(mark)
        self._advance()
        for number, maker in enumerate(self.makers):
            for made in maker.take():
                if (chosen := self._chosen(maker, made, number == 1)) is not None:
                    output.bars.append((maker.tickers, chosen))
        return output

    # ---- marks
    def _before_trades(self, mark: records.TickMark, output: LiveOutput) -> None:
        match mark.WhichOneof("body"):
            case "wanted":
                self._want(mark.ticker, mark.wanted)
            case "covered":
                for maker in self.makers:
                    maker.start(mark.ticker, mark.covered.from_time)
            case "gap":
                output.gaps.append(mark)
                if not mark.gap.is_repaired:
                    for maker in self.makers:
                        maker.mark_gap(mark.ticker, *_gap_range(mark.gap))

    def _after_trades(self, mark: records.TickMark) -> None:
        """What counts trades that did not come as ticks goes after the ticks, which win where both are there."""
        match mark.WhichOneof("body"):
            case "seed" if mark.seed.period_seconds:
                for maker in self.makers:
                    maker.seed(mark.ticker, _seed_bars(mark.seed))
            case "seed":
                aggregates = _aggregates(mark.ticker, mark.seed)
                for maker in self._makers_of(mark.ticker):
                    maker.add([aggregates])
            case "gap" if mark.gap.is_repaired:
                for maker in self.makers:
                    maker.clear_gap(mark.ticker, *_gap_range(mark.gap))
            case "clock":
                self._clocks[mark.ticker] = (mark.clock.exchange_time, mark.clock.sequence)

    def _want(self, ticker: str, wanted: records.Wanted) -> None:
        had_seconds = self._wants_seconds(ticker)
        self._wishes[ticker] = _Wishes(wanted.ticks, frozenset(wanted.period_seconds))
        if self._wants_seconds(ticker) and not had_seconds:
            # Earlier trades were not given to this maker.
            self.makers[1].start(ticker, self.makers[0].clock(ticker) + 1)
        for period in wanted.period_seconds:
            self.makers[0 if period % 60 == 0 else 1].add_period(period)

    def _advance(self) -> None:
        """A clock is true once the trades that its ingestor had published before it were counted."""
        due = {t: time for t, (time, sequence) in self._clocks.items() if self._sequence.get(t, 0) >= sequence}
        for ticker in due:
            del self._clocks[ticker]
        for maker in self.makers:
            maker.advance(due)

    # ---- trades
    def _add(self, columns: Sequence[TickColumns], output: LiveOutput) -> None:
        by_ticker: dict[str, list[TickColumns]] = {}
        for batch in columns:
            by_ticker.setdefault(batch.ticker, []).append(batch)
        trades = []
        for ticker, own in by_ticker.items():
            batch = own[0] if len(own) == 1 else _joined(own)
            last = own[-1]
            self._sequence[ticker] = max(self._sequence.get(ticker, 0), last.first_sequence + len(last) - 1)
            order = _numbers(batch.trade_id)
            if order is None:
                batch, order = self._by_text(batch)
            trades.append(Trades(ticker, batch.timestamp, order, batch.price, batch.size))
            if self._wishes.get(ticker, _Wishes()).ticks:
                is_new, _ = self._stored.setdefault(ticker, SeenIds()).add(order)
                output.ticks.append(batch if is_new.all() else _take(batch, np.flatnonzero(is_new)))
        self.makers[0].add(trades)
        self.makers[1].add([own for own in trades if self._wants_seconds(own.ticker)])

    def _by_text(self, batch: TickColumns) -> tuple[TickColumns, NDArray[np.int64]]:
        """Ids that are no numbers: known ones are left out here, and the order is that of arrival."""
        known = self._text_ids.setdefault(batch.ticker, {})
        kept = []
        for place, trade_id in enumerate(batch.trade_id.tolist()):
            if trade_id not in known:
                known[trade_id] = None
                kept.append(place)
        for trade_id in list(known)[: max(0, len(known) - _TEXT_IDS)]:
            del known[trade_id]
        self.makers[0].duplicates += len(batch) - len(kept)
        index = np.array(kept, np.intp)
        end = self._sequence[batch.ticker]
        return _take(batch, index), end - len(batch) + 1 + index.astype(np.int64)

    def _makers_of(self, ticker: str) -> list[BarMaker]:
        return self.makers if self._wants_seconds(ticker) else self.makers[:1]

    def _wants_seconds(self, ticker: str) -> bool:
        wishes = self._wishes.get(ticker)
        return wishes is not None and any(period % 60 for period in wishes.periods)

    def _chosen(self, maker: BarMaker, made: MadeBars, is_on_demand: bool) -> MadeBars | None:
        period = made.bars.period_seconds
        if period == ALWAYS and not is_on_demand:
            return made
        wanted = np.array([period in self._wishes.get(ticker, _Wishes()).periods for ticker in maker.tickers])
        mask = wanted[made.bars.group]
        if not mask.any():
            return None
        return MadeBars(made.bars.take(mask), made.revision[mask], made.complete[mask])

    # ---- state
    def save(self) -> bytes:
        meta = {
            "wishes": {t: [w.ticks, sorted(w.periods)] for t, w in self._wishes.items()},
            "sequence": self._sequence,
            "clocks": self._clocks,
            "stored": {t: [s.limit, s.floor, s.first.tolist(), s.last.tolist()] for t, s in self._stored.items()},
            "text_ids": {t: [text.decode("latin-1") for text in ids] for t, ids in self._text_ids.items()},
        }
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("meta", json.dumps(meta))
            for number, maker in enumerate(self.makers):
                archive.writestr(f"maker{number}", saved.save(maker))
        return out.getvalue()

    @classmethod
    def load(cls, data: bytes) -> "LivePartition":
        """Raises ValueError for the bytes of another version."""
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            meta = json.loads(archive.read("meta"))
            makers = [saved.load(archive.read(f"maker{number}")) for number in range(2)]
        partition = cls(makers[0].lateness_ns, makers[0].horizon_ns)
        partition.makers = makers
        partition._wishes = {t: _Wishes(ticks, frozenset(periods)) for t, (ticks, periods) in meta["wishes"].items()}
        partition._sequence = meta["sequence"]
        partition._clocks = {t: (time, sequence) for t, (time, sequence) in meta["clocks"].items()}
        partition._stored = {
            t: SeenIds(limit, floor, np.array(first, np.int64), np.array(last, np.int64))
            for t, (limit, floor, first, last) in meta["stored"].items()
        }
        partition._text_ids = {
            t: dict.fromkeys(text.encode("latin-1") for text in ids) for t, ids in meta["text_ids"].items()
        }
        return partition


def _decode_ticks(values: Iterable[bytes], output: LiveOutput) -> Iterator[TickColumns]:
    for value in values:
        try:
            columns = tick_columns.decode(value)
        except BadFrame:
            output.bad_records += 1
            continue
        sound = np.isfinite(columns.price) & np.isfinite(columns.size) & (columns.size >= 0) & (columns.timestamp > 0)
        if not columns.ticker or not sound.all():
            output.bad_records += int((~sound).sum()) or 1
            columns = _take(columns, np.flatnonzero(sound)) if columns.ticker else _take(columns, np.empty(0, np.intp))
        if len(columns):
            yield columns


def _decode_marks(values: Iterable[bytes], output: LiveOutput) -> Iterator[records.TickMark]:
    for value in values:
        try:
            mark = records.TickMark.FromString(value)
        except DecodeError:
            output.bad_records += 1
            continue
        if mark.WhichOneof("body") is None:
            output.bad_records += 1
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


def _joined(batches: Sequence[TickColumns]) -> TickColumns:
    names = ("timestamp", "price", "size", "side", "trade_id", "received_at")
    columns: dict[str, Any] = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in names}
    return replace(batches[0], **columns)


def _numbers(ids: NDArray[np.bytes_]) -> NDArray[np.int64] | None:
    """The ids as integers, or None unless all are decimal numbers of at most 18 digits."""
    width = ids.dtype.itemsize
    texts = np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), width)
    is_given = texts != 0
    digits = texts - np.uint8(ord("0"))
    if width > 18 or np.any(is_given & (digits > 9)) or not np.all(is_given[:, 0]):
        return None
    values = np.zeros(len(ids), np.int64)
    for place in range(width):
        # Shorter ids end in zero bytes, which add no digit.
        values = np.where(is_given[:, place], values * 10 + digits[:, place], values)
    return values


def _gap_range(gap: records.Gap) -> tuple[int, int]:
    return gap.from_time, max(gap.to_time, gap.from_time) + 1


def _seed_bars(seed: records.Seed) -> Bars:
    opens = np.array(seed.open_time, np.int64)
    count = np.array(seed.trade_count or [0] * len(opens), np.int64)
    zeros = np.zeros(len(opens), np.int64)
    quote = np.array(seed.quote_volume or [0.0] * len(opens), np.float64)
    return Bars(
        seed.period_seconds,
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
