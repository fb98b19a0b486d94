"""Trades to bars, exact to the trade. The bar of each trade is decided point by point, by the time of its group; open,
close and sums are computed by the platform's own bar arithmetic.
"""

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bars.aggregate import Bars, from_trades, interleave, merge
from bars.exact import to_doubles
from bars.level import Level
from bars.maker import BarMaker, TickerState
from bars.saved import load, save
from candlewright.wire.grid import SECOND, open_containing
from gateways.kapacitor.function import Batch, Options, OptionsRefused, field_of, header_of, number_of
from protobuf.udf_superset_pb2 import Point, Response

__all__ = ["Ohlc", "make"]

#: Before the time of any point.
_NEVER = -(1 << 70)
_MAX_PERIOD_SECONDS = 366 * 86_400
#: A bar that contains an earlier time might open before all representable times.
_EARLIEST = -(1 << 63) + _MAX_PERIOD_SECONDS * SECOND
#: The most trades of a group that are kept individually before they are folded into partial bars.
_FOLDED = 4_096
_LENGTH = struct.Struct("<I")


def make(options: Options, *, is_batch: bool) -> "Ohlc":
    """Raises OptionsRefused for a period that bars cannot have."""
    period, lateness = options.number("period"), options.number("lateness")
    if period <= 0 or period % SECOND or period > _MAX_PERIOD_SECONDS * SECOND:
        raise OptionsRefused("the option period is needed: whole seconds, such as .period(1m)")
    flush = options.number("flush") if "flush" in options.calls else None
    window = options.number("window") if "window" in options.calls else None
    if lateness < 0 or (flush is not None and flush < lateness):
        raise OptionsRefused("the option lateness is negative, or flush is shorter")
    if window is not None and window <= 0:
        raise OptionsRefused("the option window is the length of a batch, such as .window(10m)")
    price, volume = options.text("price", "price"), options.text("volume", "volume")
    if not price or not volume:
        raise OptionsRefused("the options price and volume are names of fields")
    return Ohlc(
        period_seconds=period // SECOND,
        price=price,
        volume=volume,
        needs_volume="volume" in options.calls,
        lateness_ns=lateness,
        name=options.text("as"),
        flush_ns=flush,
        window_ns=window,
    )


@dataclass(slots=True)
class _Forming:
    """A bar that has not been emitted: the tags that all its trades share."""

    tags: dict[str, str]
    is_partial: bool


@dataclass(kw_only=True, slots=True)
class _Group:
    """`closed`: bars that open before it have been emitted; `newest`: the open time of the last trade's bar.
    `hole_end`: bars that open up to this time lack the trades between a snapshot and its restore; None until the
    first trade after the restore.
    """

    header: Point
    watermark: int = _NEVER
    closed: int = _NEVER
    count: int = 0
    hole_end: int | None = _NEVER
    newest: int = _NEVER
    forming: dict[int, _Forming] = field(default_factory=dict)
    bars: Bars | None = None
    times: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    prices: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)

    def add(self, time_ns: int, price: float, size: float) -> None:
        self.times.append(time_ns)
        self.orders.append(self.count)
        self.prices.append(price)
        self.sizes.append(size)
        self.count += 1

    def fold(self, period_seconds: int) -> None:
        """Fold the individually kept trades into the partial bars."""
        if not self.times:
            return
        made = from_trades(
            np.zeros(len(self.times), np.int64),
            np.array(self.times, np.int64),
            np.array(self.orders, np.int64),
            price=np.array(self.prices),
            size=np.array(self.sizes),
            period_seconds=period_seconds,
        )
        self.bars = made if self.bars is None or len(self.bars) == 0 else merge([self.bars, made])
        self.times, self.orders, self.prices, self.sizes = [], [], [], []


@dataclass(kw_only=True, slots=True)
class Ohlc:
    """The bars of one task. Points without a usable price (or without the volume that the task named) are counted in
    `skipped`, points for a bar that was already emitted in `late`.

    `flush_ns`: a bar is emitted this long after its end by the wall clock, None = never by the wall clock. `window_ns`:
    the length of each batch, None = unknown.
    """

    period_seconds: int
    price: str = "price"
    volume: str = "volume"
    needs_volume: bool = False
    lateness_ns: int = 0
    name: str = ""
    flush_ns: int | None = None
    window_ns: int | None = None
    groups: dict[str, _Group] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"points": 0, "bars": 0, "late": 0, "skipped": 0})
    _has_hole: bool = False

    def take(self, points: Sequence[Point]) -> list[Response]:
        made: list[Response] = []
        for point in points:
            self._take(point, made)
        return made

    def _take(self, point: Point, made: list[Response]) -> None:
        self.counts["points"] += 1
        trade = self._trade(point)
        if trade is None:
            return
        group = self.groups.get(point.group)
        if group is None:
            group = self.groups[point.group] = _Group(header=header_of(point, self.name))
            group.hole_end = None if self._has_hole else _NEVER
        time_ns, period_ns = point.time, self.period_seconds * SECOND
        open_time = group.newest
        if not 0 <= time_ns - open_time < period_ns:
            open_time = group.newest = open_containing(time_ns, self.period_seconds)
        if open_time < group.closed:
            self.counts["late"] += 1
            return
        if group.hole_end is None:
            group.hole_end = open_time
        bar, tags = group.forming.get(open_time), dict(point.tags)
        if bar is None:
            group.forming[open_time] = _Forming(tags, open_time <= group.hole_end)
        elif tags != bar.tags:
            bar.tags = dict(tags.items() & bar.tags.items())
        group.add(time_ns, *trade)
        if len(group.times) >= _FOLDED:
            group.fold(self.period_seconds)
        if time_ns > group.watermark:
            group.watermark = time_ns
            if time_ns - self.lateness_ns >= group.closed + period_ns:
                group.closed = open_containing(time_ns - self.lateness_ns, self.period_seconds)
                made += self._close(group, group.closed)

    def take_batch(self, batch: Batch) -> list[Response]:
        """The bars of one batch, outside which nothing is known; bars that its start or its end cuts are partial. A
        batch does not say where it starts: without the length of its window, that may be any time before its first
        trade.
        """
        group = _Group(header=Point())
        end = batch.end.tmax
        start = (
            min((point.time for point in batch.points), default=end) if self.window_ns is None else end - self.window_ns
        )
        for point in batch.points:
            self.counts["points"] += 1
            trade = self._trade(point)
            if trade is None:
                continue
            open_time = open_containing(point.time, self.period_seconds)
            bar = group.forming.setdefault(open_time, _Forming(dict(point.tags), False))
            bar.tags = dict(point.tags.items() & bar.tags.items())
            bar.is_partial = open_time < start or open_time + self.period_seconds * SECOND > end
            group.add(point.time, *trade)
        points = [response.point for response in self._close(group, None)]
        for point in points:
            point.group = batch.end.group
        return batch_of(batch, points, self.name)

    def pass_time(self, now_ns: int) -> list[Response]:
        """Bars that have ended by the wall clock, for a task on live data whose next trades may be far off."""
        made: list[Response] = []
        if self.flush_ns is not None:
            closed = open_containing(now_ns - self.flush_ns, self.period_seconds)
            for group in self.groups.values():
                if bars := self._close(group, closed):
                    # Not up to now: trades for a time without a bar may still arrive.
                    group.closed = max(group.closed, bars[-1].point.time + self.period_seconds * SECOND)
                    made += bars
        return made

    def finish(self) -> list[Response]:
        """Bars in progress are emitted as they are, marked as partial, because the time of their end was not
        reached.
        """
        made: list[Response] = []
        for group in self.groups.values():
            for bar in group.forming.values():
                bar.is_partial = True
            made += self._close(group, None)
        return made

    def _trade(self, point: Point) -> tuple[float, float] | None:
        volume = field_of(point, self.volume)
        price, size = number_of(field_of(point, self.price)), number_of(volume)
        if volume is None and not self.needs_volume:
            size = 0.0
        if (
            price is None or size is None or not math.isfinite(price) or not 0 <= size < math.inf
            or point.time < _EARLIEST
        ):  # fmt: skip
            self.counts["skipped"] += 1
            return None
        return price, size

    def _close(self, group: _Group, before: int | None) -> list[Response]:
        """The bars that open before a time, None = all, in order; they are removed."""
        opens = sorted(group.forming) if before is None else sorted(time for time in group.forming if time < before)
        if not opens:
            return []
        group.fold(self.period_seconds)
        assert group.bars is not None
        is_due = group.bars.open_time <= opens[-1]
        due, group.bars = group.bars.take(is_due), group.bars.take(~is_due)
        self.counts["bars"] += len(due)
        volumes, quote_volumes = to_doubles(due.volume).tolist(), to_doubles(due.quote_volume).tolist()
        made = []
        for row, open_time in enumerate(due.open_time.tolist()):
            bar = group.forming.pop(open_time)
            response = Response()
            point = response.point
            point.CopyFrom(group.header)
            point.time = open_time
            point.tags.update(bar.tags)
            point.fieldsDouble.update(
                open=float(due.open[row]), high=float(due.high[row]), low=float(due.low[row]),
                close=float(due.close[row]), volume=volumes[row], quote_volume=quote_volumes[row],
            )  # fmt: skip
            point.fieldsInt.update(trade_count=int(due.trade_count[row]), partial=int(bar.is_partial))
            made.append(response)
        return made

    def close(self) -> None:
        """Nothing to close: it holds only memory."""

    # -- state

    def _fingerprint(self) -> list[Any]:
        return [self.period_seconds, self.price, self.volume, self.needs_volume]

    def snapshot(self) -> bytes:
        parts: list[Bars] = []
        groups = []
        for number, (name, group) in enumerate(self.groups.items()):
            group.fold(self.period_seconds)
            if group.bars is not None and len(group.bars):
                parts.append(replace(group.bars, group=np.full(len(group.bars), number)))
            forming = {open_time: [bar.tags, bar.is_partial] for open_time, bar in group.forming.items()}
            header = group.header.SerializeToString().hex()
            groups.append(
                [name, header, group.watermark, group.closed, group.count, group.hole_end, forming]
            )  # fmt: skip
        if not groups:
            return b""
        meta = json.dumps([self._fingerprint(), groups]).encode()
        if not parts:
            return _LENGTH.pack(len(meta)) + meta
        bars, _ = interleave(parts)
        none = np.zeros(len(bars), np.int64)
        level = Level(period_seconds=self.period_seconds, bars=bars, revision=none, is_changed=none.astype(np.bool_))
        states = [TickerState() for _ in groups]
        maker = BarMaker(
            periods=[self.period_seconds],
            lateness_ns=0,
            horizon_ns=0,
            tickers=list(self.groups),
            states=states,
            levels={self.period_seconds: level},
        )
        return _LENGTH.pack(len(meta)) + meta + save(maker)

    def restore(self, state: bytes | None) -> None:
        self.groups = {}
        self._has_hole = True
        if state is None:
            return
        (length,) = _LENGTH.unpack_from(state)
        fingerprint, saved = json.loads(state[_LENGTH.size : _LENGTH.size + length])
        if fingerprint != self._fingerprint():
            raise ValueError("it was made with other options")
        rest = state[_LENGTH.size + length :]
        bars = load(rest).levels[self.period_seconds].bars if rest else None
        groups = {}
        for number, (name, header, watermark, closed, count, _, forming) in enumerate(saved):
            group = _Group(
                header=Point.FromString(bytes.fromhex(header)),
                watermark=watermark,
                closed=closed,
                count=count,
                hole_end=None,
            )
            group.forming = {int(time): _Forming(tags, True) for time, (tags, _) in forming.items()}
            if bars is not None and (is_own := bars.group == number).any():
                own = bars.take(is_own)
                group.bars = replace(own, group=np.zeros(len(own), np.int64))
            groups[name] = group
        self.groups = groups


def batch_of(batch: Batch, points: Sequence[Point], name: str = "") -> list[Response]:
    """`points` as one batch in the group of `batch`; empty if there are none."""
    if not points:
        return []
    begin, end = Response(), Response()
    begin.begin.CopyFrom(batch.begin)
    begin.begin.size = len(points)
    end.end.CopyFrom(batch.end)
    begin.begin.byName = batch.end.byName
    if name:
        begin.begin.name = end.end.name = name
    return [begin, *(Response(point=point) for point in points), end]
