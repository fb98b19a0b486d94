"""Events of triggers as an input of other triggers: which ones a text sees, and the order in which it takes them.

Events come as they are published, and most of them in the order of their event times. A trigger takes them in that
order: the events that come together by their times, and one that is older than what was taken at the time of that. So
none is lost, and what was decided stays. While no event comes, their time continues with the wall clock.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from candlewright_cep import Clock, StreamInput
from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression, conjuncts
from candlewright_cep.planning.plans import Filter, Plan, Renamed, Scan
from candlewright_cep.streaming.release import SEQUENCE
from triggers.event_rows import event_rows

__all__ = ["CHAINED", "EVENTS", "EVENTS_LABEL", "TRIGGER_EVENTS", "EventIntake", "EventOrder", "named_triggers"]

TRIGGER_EVENTS = "trigger_events"
#: Columns of the table of the same name; `context` cannot be computed with.
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
)
#: Where trades have 0 and bars their period.
EVENTS_LABEL = -1
#: The entry in the context of an event that events brought about.
CHAINED = "chained"
_IS_CHAINED = "_chained"
#: How long events may be on their way before time continues without them.
_SLACK_NS = 5 * SECOND
#: How far an event may be ahead of the wall clock and of all trades and bars.
_MAX_AHEAD_NS = 3_600 * SECOND
_LATEST_NS = 2**63 - 1
_TRIGGER_ID = EVENTS.schema.get_field_index("trigger_id")


def named_triggers(nodes: Sequence[Plan]) -> tuple[str, ...]:
    """The triggers whose events alone a chain of operators over the input lets through; none where it names none."""
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
    """Of a condition that is true for these values of the column alone."""
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
    """`next_row`: the number of the next event that is read."""

    next_row: int = 0

    def rows(self, values: Sequence[bytes], now_ns: int, refuse: Callable[[bytes, str], object]) -> pa.Table:
        """Events in the order of the bus, by which they are numbered. `now_ns`: how far time is known to have come, 0 =
        not at all. `refuse`: what cannot be taken, and why."""
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


@dataclass(slots=True)
class _Reached:
    """`floor_ns`: where the next event is taken at the earliest. Of the last one, `time_ns` is the event time and
    `at_ns` the wall clock when it came."""

    floor_ns: int
    time_ns: int
    at_ns: int


@dataclass(slots=True)
class EventOrder:
    """Of one trigger. `is_merged`: the events of all tickers are taken in one order. `is_free`: each event decides
    alone, so that their order does not matter."""

    is_merged: bool
    is_free: bool = False
    _reached: dict[str, _Reached] = field(default_factory=dict)
    _tickers: set[str] = field(default_factory=set)

    def take(
        self, rows: pa.Table, now_ns: int, own: str, *, named: Collection[str], tickers: Collection[str] | None
    ) -> tuple[pa.Table, Clock] | None:
        """What the trigger `own` sees of `rows`, in its order, and how far time has come; None where nothing is new.
        `named`: the triggers that it names, `tickers`: its own (None: all)."""
        rows = self._seen(rows, own, named, tickers)
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

    @staticmethod
    def _seen(rows: pa.Table, own: str, named: Collection[str], tickers: Collection[str] | None) -> pa.Table:
        """Without names those of triggers that read no events; so nothing goes round in circles."""
        wanted = pc.not_equal(rows["trigger_id"], own)
        if named:
            wanted = pc.and_(wanted, pc.is_in(rows["trigger_id"], value_set=pa.array(sorted(named))))
        else:
            wanted = pc.and_(wanted, pc.invert(rows[_IS_CHAINED]))
        if tickers is not None:
            wanted = pc.and_(wanted, pc.is_in(rows["ticker"], value_set=pa.array(sorted(tickers), pa.string())))
        return rows.filter(wanted).drop_columns([_IS_CHAINED])

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
            # Just past it, so that nothing waits for an event of the same time.
            self._reached[key] = _Reached(last + 1, last, now_ns)
        place = rows.schema.get_field_index("fired_at")
        return rows.set_column(place, rows.schema.field(place), pa.array(times).cast(rows.schema.field(place).type))

    def save(self) -> dict[str, Any]:
        reached = {key: [one.floor_ns, one.time_ns, one.at_ns] for key, one in self._reached.items()}
        return {"reached": reached, "tickers": sorted(self._tickers)}

    @classmethod
    def load(cls, saved: Mapping[str, Any], *, is_merged: bool, is_free: bool) -> "EventOrder":
        reached = {key: _Reached(*one) for key, one in saved["reached"].items()}
        return cls(is_merged, is_free, reached, set(saved["tickers"]))
