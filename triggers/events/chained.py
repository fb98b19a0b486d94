"""Events of triggers as an input of other triggers: which events a text sees, and in which order.

Events arrive as they are published, mostly in the order of their event times. A trigger takes events that arrive
together by their times, and an event that is older than those already taken as if it had happened just after them. So
no event is lost, and earlier decisions stand. While no event arrives, event time advances with the wall clock; in a
join, it follows the trades and bars.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from candlewright_cep import Clock, StreamInput
from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression, conjuncts
from candlewright_cep.planning.plans import Filter, Plan, Renamed, Scan
from candlewright_cep.streaming.rows.release import SEQUENCE, TAKEN_AT
from triggers.events.event_rows import event_rows

__all__ = [
    "CHAINED",
    "EVENTS",
    "EVENTS_LABEL",
    "TRIGGER_EVENTS",
    "EventIntake",
    "EventOrder",
    "EventsBeside",
    "named_triggers",
    "seen",
]

TRIGGER_EVENTS = "trigger_events"
#: Columns of the table of the same name, except `context`, which expressions cannot use.
EVENTS = StreamInput(
    pa.schema(
        [
            ("trigger_id", pa.string()),
            ("event_id", pa.string()),
            ("fired_at", pa.timestamp("ns", "UTC")),
            ("ticker", pa.string()),
            ("columns", pa.string()),
        ]
    ),
    ("fired_at",),
    is_in_order=False,
)
#: The label of this input, where trades have 0 and bars their period.
EVENTS_LABEL = -1
#: The context entry of an event that was caused by events.
CHAINED = "chained"
_IS_CHAINED = "_chained"
#: How long events may be in transit before time advances without them.
_SLACK_NS = 5 * SECOND
#: How far an event may be ahead of the wall clock and of all trades and bars.
_MAX_AHEAD_NS = 3_600 * SECOND
_LATEST_NS = 2**63 - 1
_TRIGGER_ID = EVENTS.schema.get_field_index("trigger_id")


def named_triggers(nodes: Sequence[Plan]) -> tuple[str, ...]:
    """The triggers to whose events a chain of operators restricts its input; empty if it does not name any."""
    found: set[str] | None = None
    for node in nodes:
        if isinstance(node, Filter):
            for part in conjuncts(node.condition):
                names = _names(part)
                if names is not None:
                    found = names if found is None else found & names
        elif not isinstance(node, Scan | Renamed):
            break
    return tuple(sorted(found or ()))


def _names(part: Expression) -> set[str] | None:
    """The values of the column to which the condition restricts it."""
    if not isinstance(part, Apply):
        return None
    if part.function == "OR":
        names = [_names(each) for each in part.arguments]
        return None if None in names else {name for each in names if each is not None for name in each}
    if part.function not in ("=", "IN"):
        return None
    columns = [each.index for each in part.arguments if isinstance(each, Column)]
    values = [each.value for each in part.arguments if isinstance(each, Constant)]
    is_test = columns == [_TRIGGER_ID] and len(values) == len(part.arguments) - 1
    if not is_test or (part.function == "IN" and not isinstance(part.arguments[0], Column)):
        return None
    return {value for value in values if isinstance(value, str)}


@dataclass(slots=True)
class EventIntake:
    """Reads events. `next_row`: the number of the next event."""

    next_row: int = 0

    def rows(self, values: Sequence[bytes], now_ns: int, refuse: Callable[[bytes, str], object]) -> pa.Table:
        """Events in the order of the bus, which is also how they are numbered. `now_ns`: the newest known time, 0 if
        unknown. `refuse`: called with a value that cannot be read, and the reason.
        """
        latest = now_ns + _MAX_AHEAD_NS if now_ns else _LATEST_NS
        rows = event_rows(values, EVENTS.schema)
        if rows.num_rows < len(values) or (
            rows.num_rows and pc.max(rows["fired_at"].cast(pa.int64())).as_py() > latest
        ):
            values = [value for value in values if not _is_refused(value, latest, refuse)]
            rows = event_rows(values, EVENTS.schema)
        chained = [CHAINED in CEPTriggerEvent.FromString(value).context for value in values]
        numbers = np.arange(self.next_row, self.next_row + rows.num_rows)
        self.next_row += rows.num_rows
        rows = rows.append_column(SEQUENCE, pa.array(numbers, pa.int64()))
        return rows.append_column(_IS_CHAINED, pa.array(chained, pa.bool_()))


def _is_refused(value: bytes, latest_ns: int, refuse: Callable[[bytes, str], object]) -> bool:
    row = event_rows([value], EVENTS.schema)
    if not row.num_rows:
        refuse(value, "not a CEPTriggerEvent whose values can be read")
        return True
    if row["fired_at"].cast(pa.int64())[0].as_py() > latest_ns:
        refuse(value, "an event from more than an hour ahead, after which all others would be late")
        return True
    return False


def seen(rows: pa.Table, own: str, *, named: Collection[str], tickers: Collection[str] | None) -> pa.Table:
    """The rows that the trigger `own` sees. `named`: the triggers that it names; without names, it sees only events of
    triggers that read no events, so that no cycle is possible. `tickers`: its own (None: all).
    """
    wanted = pc.not_equal(rows["trigger_id"], own)
    if named:
        wanted = pc.and_(wanted, pc.is_in(rows["trigger_id"], value_set=pa.array(sorted(named))))
    else:
        wanted = pc.and_(wanted, pc.invert(rows[_IS_CHAINED]))
    if tickers is not None:
        wanted = pc.and_(wanted, pc.is_in(rows["ticker"], value_set=pa.array(sorted(tickers), pa.string())))
    return rows.filter(wanted).drop_columns([_IS_CHAINED])


def _at_times(rows: pa.Table, times: NDArray[np.int64]) -> pa.Table:
    """With these times (ns) as event times."""
    place = rows.schema.get_field_index("fired_at")
    return rows.set_column(place, rows.schema.field(place), pa.array(times).cast(rows.schema.field(place).type))


@dataclass(slots=True)
class _Reached:
    """`floor_ns`: the earliest time that the next event is given. `time_ns` and `at_ns`: event time and arrival (wall
    clock) of the last event.
    """

    floor_ns: int
    time_ns: int
    at_ns: int


@dataclass(slots=True)
class EventOrder:
    """The order of one trigger's events. `is_merged`: the events of all tickers are taken in one order. `is_free`: each
    event decides alone, so their order does not matter.
    """

    is_merged: bool
    is_free: bool = False
    _reached: dict[str, _Reached] = field(default_factory=dict)
    _tickers: set[str] = field(default_factory=set)

    def take(self, rows: pa.Table, now_ns: int) -> tuple[pa.Table, Clock] | None:
        """`rows` (see `seen`) in its order, with their clock; None if nothing is new."""
        if self.is_free:
            return (rows, Clock()) if rows.num_rows else None
        before = {key: reached.floor_ns for key, reached in self._reached.items()}
        rows = self._ordered(rows, now_ns)
        for reached in self._reached.values():
            passed = now_ns - reached.at_ns - _SLACK_NS
            if now_ns and reached.at_ns and passed > 0:
                reached.floor_ns = max(reached.floor_ns, reached.time_ns + passed)
        floors = {key: reached.floor_ns for key, reached in self._reached.items()}
        if not rows.num_rows and floors == before:
            return None
        watermarks = dict.fromkeys(self._tickers, floors[""]) if self.is_merged else floors
        return rows, Clock(watermarks)

    def _ordered(self, rows: pa.Table, now_ns: int) -> pa.Table:
        if not rows.num_rows:
            return rows
        rows = rows.sort_by([("ticker", "ascending"), ("fired_at", "ascending"), (SEQUENCE, "ascending")])
        names = rows["ticker"].to_pylist()
        times = rows["fired_at"].cast(pa.int64()).to_numpy().copy()
        self._tickers.update(names)
        keys = np.array([""] * len(names) if self.is_merged else names, object)
        for key in dict.fromkeys(keys.tolist()):
            mine = keys == key
            reached = self._reached.get(key)
            if reached is not None:
                times[mine] = np.maximum(times[mine], reached.floor_ns)
            last = int(times[mine].max())
            # Just after it, so that nothing waits for another event of the same time.
            self._reached[key] = _Reached(last + 1, last, now_ns)
        return _at_times(rows, times)

    def save(self) -> dict[str, Any]:
        reached = {key: [one.floor_ns, one.time_ns, one.at_ns] for key, one in self._reached.items()}
        return {"reached": reached, "tickers": sorted(self._tickers)}

    @classmethod
    def load(cls, saved: Mapping[str, Any], *, is_merged: bool, is_free: bool) -> "EventOrder":
        reached = {key: _Reached(*one) for key, one in saved["reached"].items()}
        return cls(is_merged, is_free, reached, set(saved["tickers"]))


@dataclass(slots=True)
class EventsBeside:
    """The events that one trigger joins with trades and bars. They arrive after the rows that caused them, so their
    watermark is where trades and bars were `_SLACK_NS` ago, by the wall clock. An older event is late: it is taken at
    the watermark (`TAKEN_AT`), and counted by ticker in `late_rows` (of the last `take`).

    `is_merged`: the events of all tickers share a watermark.
    """

    is_merged: bool
    late_rows: dict[str, int] = field(default_factory=dict)
    _clock: Clock = field(default_factory=Clock)
    _floors: dict[str, int] = field(default_factory=dict)
    # Past clocks of trades and bars with their wall clock, oldest first, at least a second apart.
    _notes: list[tuple[int, Clock]] = field(default_factory=list)

    def take(self, rows: pa.Table, now_ns: int, known: Callable[[], Clock]) -> tuple[pa.Table, Clock] | None:
        """`rows` (see `seen`) at their times, with their clock; None if nothing is new. `known`: gives the clock of
        trades and bars.
        """
        self.late_rows = {}
        rows = self._in_time(rows)
        is_new = rows.num_rows > 0
        last_ns, last = self._notes[-1] if self._notes else (-SECOND, self._clock)
        if now_ns and now_ns - last_ns >= SECOND and (found := known()) != last:
            self._notes.append((now_ns, found))
            is_new = True
        passed = [clock for at_ns, clock in self._notes if now_ns - at_ns >= _SLACK_NS]
        if passed:
            self._notes = self._notes[len(passed) :]
            self._go_on(passed[-1])
            is_new = True
        return (rows, self._clock.of_tickers(None)) if is_new else None

    def _in_time(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows
        tickers = rows["ticker"].to_pylist()
        floors = np.array([self._floors.get("" if self.is_merged else ticker, 0) for ticker in tickers], np.int64)
        times = rows["fired_at"].cast(pa.int64()).to_numpy()
        for place in np.flatnonzero(times < floors).tolist():
            self.late_rows[tickers[place]] = self.late_rows.get(tickers[place], 0) + 1
        if not self.late_rows:
            return rows
        return rows.append_column(TAKEN_AT, pa.array(np.maximum(times, floors)))

    def _go_on(self, clock: Clock) -> None:
        self._clock = clock
        own = clock.watermarks
        live = [reached for ticker, reached in own.items() if ticker not in clock.closed]
        reached = {"": min(live) if live else max(own.values(), default=0)} if self.is_merged else own
        for key, floor in reached.items():
            self._floors[key] = max(floor, self._floors.get(key, 0))

    def save(self) -> dict[str, Any]:
        notes = [[at_ns, *_saved(clock)] for at_ns, clock in self._notes]
        return {"clock": _saved(self._clock), "floors": self._floors, "notes": notes}

    @classmethod
    def load(cls, saved: Mapping[str, Any], *, is_merged: bool) -> "EventsBeside":
        notes = [(at_ns, Clock(dict(own), set(closed))) for at_ns, own, closed in saved["notes"]]
        own, closed = saved["clock"]
        return cls(is_merged, {}, Clock(dict(own), set(closed)), dict(saved["floors"]), notes)


def _saved(clock: Clock) -> list[Any]:
    return [clock.watermarks, sorted(clock.closed)]
