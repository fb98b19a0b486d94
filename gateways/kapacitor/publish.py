"""Publishes points to the bus, each once: trades, bars, or records of a topic of the task's own.

The daemon repeats points when a recording is replayed, and loses those in transit when it ends. So each point has a
key, and the bus accepts each key only once.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import tenacity

from bus import topics
from bus.api import Bus, Record
from candlewright.wire.candlewright_pb2 import OHLCV, Side, Tick
from candlewright.wire.errors import BusFull, CandlewrightError, InvalidRequest
from gateways.kapacitor.function import Batch, Options, OptionsRefused, field_of, number_of
from gateways.kapacitor.ohlc import batch_of
from gateways.records import MAX_AHEAD_NS, is_visible, record_of
from gateways.tick_storage import TickStorage
from protobuf.udf_superset_pb2 import Point, Response

__all__ = ["MAX_AHEAD_NS", "Publisher", "make"]

_REGISTRY = "kapacitor"
_KEEP_SECONDS = 7 * 86_400.0
_SECOND = 1_000_000_000
#: The most records in one call to the bus.
_AT_ONCE_RECORDS = 1_000
_AT_ONCE_BYTES = 4 << 20
#: How long to wait while the bus is full.
_PATIENCE_SECONDS = 300.0
_REFUSED = ("trigger_events", "notifications")
_NO, _YES = ("", "0", "0.0", "f", "false", "n", "no"), ("1", "1.0", "t", "true", "y", "yes")
_SIDES = {"buy": Side.BUY, "sell": Side.SELL, "b": Side.BUY, "s": Side.SELL}


def make(
    open_bus: Callable[[], Bus], options: Options, *, is_batch: bool, max_ahead_ns: int = MAX_AHEAD_NS
) -> "Publisher":
    """`open_bus` raises CandlewrightError if there is no bus. Raises OptionsRefused."""
    shape = _Shape.of(options)
    try:
        return Publisher(open_bus(), shape, max_ahead_ns)
    except CandlewrightError as error:
        raise OptionsRefused(f"the bus cannot be reached: {error}") from error


@dataclass(kw_only=True, frozen=True, slots=True)
class _Shape:
    """The names of the fields or tags from which a record is read."""

    topic: str
    ticker: str
    price: str
    size: str
    side: str
    trade_id: str
    period_seconds: int
    key: tuple[str, ...]

    @classmethod
    def of(cls, options: Options) -> "_Shape":
        topic = options.text("topic", "ticks")
        if not is_visible(topic) or topic in _REFUSED:
            raise OptionsRefused(f"there is no topic {topic!r} that a task may publish to")
        period = options.number("period")
        if topic == "ohlc" and (period <= 0 or period % _SECOND):
            raise OptionsRefused("for bars the option period is needed: whole seconds, such as .period(1m)")
        return cls(
            topic=topic,
            ticker=options.text("ticker", "ticker"),
            price=options.text("price", "price"),
            size=options.text("volume", "volume"),
            side=options.text("side", "side"),
            trade_id=options.text("id", "trade_id"),
            period_seconds=period // _SECOND,
            key=tuple(str(name) for (name,) in options.every("key")),
        )


#: A point with all of its tags, its name and its group, some of which come from its batch.
_Placed = tuple[Point, dict[str, str], str, str]


@dataclass(slots=True)
class Publisher:
    """Passes points on unchanged once they are on the bus. `refused`: points that cannot be such a record; `partial`:
    bars that may lack trades, which are passed on but not published, because their key would keep the complete bar
    out; `repeated`: points whose key was already on the bus. If the bus cannot be reached the task ends, so that
    nothing is lost silently.
    """

    bus: Bus
    shape: _Shape
    max_ahead_ns: int = MAX_AHEAD_NS
    pause: Callable[[float], None] = time.sleep
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("points", "published", "repeated", "refused", "partial", "waits"), 0)
    )
    _storage: TickStorage = field(init=False)

    def __post_init__(self) -> None:
        self._storage = TickStorage(self.bus)

    def take(self, points: Sequence[Point]) -> list[Response]:
        self._publish((point, dict(point.tags), point.name, point.group) for point in points)
        return [Response(point=point) for point in points]

    def take_batch(self, batch: Batch) -> list[Response]:
        tags, name, group = dict(batch.end.tags), batch.end.name, batch.end.group
        self._publish((point, tags | dict(point.tags), name, group) for point in batch.points)
        return batch_of(batch, batch.points)

    def pass_time(self, now_ns: int) -> list[Response]:
        return []

    def finish(self) -> list[Response]:
        return []

    def close(self) -> None:
        self.bus.close()

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes | None) -> None:
        """There is no state: the bus knows what was published."""

    def _publish(self, points: Iterable[_Placed]) -> None:
        """Publish before returning: nothing is kept for a later call, so that points passed on afterwards, and a
        snapshot, are correct. Points that arrived together share a call.
        """
        names: list[str] = []
        records: list[Record] = []
        size = 0
        for point, tags, name, group in points:
            self.counts["points"] += 1
            try:
                if self.shape.topic == topics.OHLC and _is_partial(point, tags):
                    self.counts["partial"] += 1
                    continue
                record = self._record(point, tags, name, group)
                key = self._key(point, tags, name)
            except (InvalidRequest, ValueError):
                self.counts["refused"] += 1
                continue
            if len(records) >= _AT_ONCE_RECORDS or size + len(record.value) > _AT_ONCE_BYTES:
                self._append(records, names)
                names, records, size = [], [], 0
            names.append(key)
            records.append(record)
            size += len(record.value)
        if records:
            self._append(records, names)

    def _append(self, records: Sequence[Record], names: Sequence[str]) -> None:
        """Waits while the bus has no room; meanwhile nothing more is read from the daemon."""
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(BusFull),
            stop=tenacity.stop_after_delay(_PATIENCE_SECONDS),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=5.0),
            before_sleep=self._count_wait,
            sleep=self.pause,
            reraise=True,
        ):
            with attempt:
                self._storage.expect(self.shape.topic, records)
                written = self.bus.publish_new(
                    self.shape.topic, records, registry=_REGISTRY, names=names, keep_seconds=_KEEP_SECONDS
                )
        self.counts["published"] += sum(written)
        self.counts["repeated"] += len(written) - sum(written)

    def _count_wait(self, _: tenacity.RetryCallState) -> None:
        self.counts["waits"] += 1

    def _record(self, point: Point, tags: dict[str, str], name: str, group: str) -> Record:
        shape = self.shape
        if shape.topic == "ticks":
            tick = self._tick(point, tags, name).SerializeToString()
            return record_of("ticks", tick, max_ahead_ns=self.max_ahead_ns)
        if shape.topic == "ohlc":
            return record_of("ohlc", self._bar(point, tags).SerializeToString(), max_ahead_ns=self.max_ahead_ns)
        value = {"time": point.time, "name": name, "tags": tags, "fields": _fields(point)}
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return record_of(shape.topic, text.encode(), key=group.encode())

    def _tick(self, point: Point, tags: dict[str, str], name: str) -> Tick:
        shape = self.shape
        trade_id = _text(point, tags, shape.trade_id)
        return Tick(
            ticker=_text(point, tags, shape.ticker) or "",
            # A trade without an id is named after its content.
            trade_id=trade_id or f"k{_digest(point, tags, name)[:24]}",
            timestamp=point.time,
            price=_number(point, shape.price),
            size=_number(point, shape.size),
            side=_SIDES.get((_text(point, tags, shape.side) or "").lower(), Side.UNKNOWN),
        )

    def _bar(self, point: Point, tags: dict[str, str]) -> OHLCV:
        trades = field_of(point, "trade_count")
        bar = OHLCV(
            open_time=point.time,
            ticker=_text(point, tags, self.shape.ticker) or "",
            period_seconds=self.shape.period_seconds,
            complete=True,
            source="ticks",
            open=_number(point, "open"),
            high=_number(point, "high"),
            low=_number(point, "low"),
            close=_number(point, "close"),
            volume=_number(point, "volume"),
        )
        if isinstance(trades, int) and trades >= 0:
            bar.trade_count = trades
        if field_of(point, "quote_volume") is not None:
            bar.quote_volume = _number(point, "quote_volume")
        return bar

    def _key(self, point: Point, tags: dict[str, str], name: str) -> str:
        """What makes two points the same: the values that the task names; otherwise those of the trade, the bar, or the
        whole point.
        """
        shape = self.shape
        if shape.key:
            parts = [str(point.time) if part == "time" else _text(point, tags, part) for part in shape.key]
        elif shape.topic == "ohlc":
            parts = [_text(point, tags, shape.ticker), str(shape.period_seconds), str(point.time)]
        elif shape.topic == "ticks" and (trade_id := _text(point, tags, shape.trade_id)):
            parts = [_text(point, tags, shape.ticker), trade_id]
        else:
            parts = [_digest(point, tags, name)]
        return json.dumps([shape.topic, *parts], ensure_ascii=False)


def _fields(point: Point) -> dict[str, object]:
    fields: dict[str, object] = {}
    for values in (point.fieldsString, point.fieldsInt, point.fieldsDouble, point.fieldsBool):
        fields |= dict(values)
    return {name: value for name, value in fields.items() if not isinstance(value, float) or math.isfinite(value)}


def _text(point: Point, tags: dict[str, str], name: str) -> str | None:
    value = field_of(point, name)
    return tags.get(name) if value is None else str(value)


def _is_partial(point: Point, tags: dict[str, str]) -> bool:
    """A number, a boolean, or either as text, from the field or the tag. Raises InvalidRequest for any other text."""
    value = field_of(point, "partial")
    if value is None:
        value = tags.get("partial", "")
    if not isinstance(value, str):
        return bool(value)
    text = value.strip().lower()
    if text in _NO:
        return False
    if text in _YES:
        return True
    raise InvalidRequest(f"partial is {value!r}, neither true nor false")


def _number(point: Point, name: str) -> float:
    value = number_of(field_of(point, name))
    if value is None:
        raise InvalidRequest(f"the point has no number {name}")
    return value


def _digest(point: Point, tags: dict[str, str], name: str) -> str:
    content = json.dumps([name, point.time, tags, _fields(point)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
